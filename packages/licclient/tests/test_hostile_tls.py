"""TLS that should not be trusted, on real sockets: no license, and the key never leaves the machine."""

import datetime as dt

import pytest
import trustme
from stage.answers import GOOD_RAW
from stage.flavours import both
from stage.meters import bounded
from stage.scripts import drip, silence
from stage.tls import secured

from licclient.errors import ServiceUnavailableError

TIMEOUT = 1.5


def _day(distance):
    return dt.datetime.now(dt.UTC) + dt.timedelta(days=distance)


CERTIFICATES = {
    "of an authority that nobody trusts": lambda _: trustme.CA().issue_cert("127.0.0.1"),
    "for another host": lambda ca: ca.issue_cert("store.example"),
    "for another address": lambda ca: ca.issue_cert("127.0.0.2"),
    "for a pattern that does not fit": lambda ca: ca.issue_cert("*.0.0.1"),
    "that has expired": lambda ca: ca.issue_cert("127.0.0.1", not_after=_day(-1)),
    "that is not good yet": lambda ca: ca.issue_cert("127.0.0.1", not_before=_day(1), not_after=_day(2)),
    "of an authority without the right": lambda ca: ca.create_child_ca().issue_cert("store.example"),
}


@pytest.mark.sampled(7, "make")
@pytest.mark.usefixtures("verdicts")
@both
@pytest.mark.parametrize("make", CERTIFICATES.values(), ids=CERTIFICATES.keys())
async def test_a_certificate_that_should_not_be_trusted(make_client, tls, authority, key, make, tmp_path):
    """No answer at all comes out of it, and the key is not sent (D-40)."""
    tls.context = secured(make(authority))
    client = make_client(f"https://127.0.0.1:{tls.port}", timeout=TIMEOUT)
    with bounded(TIMEOUT), pytest.raises(ServiceUnavailableError) as caught:
        await client.verify(key)
    assert tls.received == b""
    assert key not in str(caught.value)
    assert not list((tmp_path / "state").glob("license-*"))


@pytest.mark.usefixtures("verdicts")
@both
async def test_the_systems_trust_store_decides(make_client, tls, authority, key):
    """What the operating system trusts is trusted: the rows above fail for what is wrong with them."""
    tls.context = secured(authority.issue_cert("127.0.0.1"))
    client = make_client(f"https://127.0.0.1:{tls.port}")
    assert (await client.verify(key)).product == "Notes"
    assert key.encode() in tls.received


GREETINGS = {
    "plain HTTP": lambda: [GOOD_RAW],
    "another language": lambda: [b"220 mail.example.org ESMTP\r\n"],
    "an alert": lambda: [b"\x15\x03\x01\x00\x02\x02\x28"],
    "a record that never ends": lambda: [b"\x16\x03\x03\xff\xff" + b"\0" * 70_000],
    "a handshake that drips": lambda: drip(b"\x16\x03\x03\x40\x00\x02" + bytes(100)),
    "silence": silence,
    "nothing": lambda: [b""],
}


@both
@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=GREETINGS.keys())
async def test_a_handshake_that_goes_wrong_ends_in_time(make_client, tls, key, greeting):
    """Whatever is at the other end, it is an outage within the time limit."""
    tls.greeting = greeting()
    client = make_client(f"https://127.0.0.1:{tls.port}", timeout=0.5)
    with bounded(0.5), pytest.raises(ServiceUnavailableError):
        await client.verify(key)


async def test_an_answer_that_drips_through_tls_ends_in_time(make_client, tls, authority, key):
    """The deadline cuts an encrypted connection as well."""
    tls.context = secured(authority.issue_cert("127.0.0.1"))
    tls.wrapped_answer = drip(GOOD_RAW)
    client = make_client(f"https://127.0.0.1:{tls.port}", timeout=0.5)
    with bounded(0.5), pytest.raises(ServiceUnavailableError):
        await client.verify(key)
