"""Why there is no answer, by what a person can do about it; and which response an error is about."""

import datetime as dt
import pickle
import socket
from itertools import combinations

import pytest
import trustme
from stage.flavours import both
from stage.tls import secured

from licclient import LicclientError, LicenseState, Outage, Trust, explain
from licclient._core.texts import LANGUAGES
from licclient.errors import (
    InvalidRequestError,
    LicenseRefusedError,
    ServiceUnavailableError,
    UntrustedResponseError,
)

PAGE = b"\xef\xbb\xbf\n<!DOCTYPE html><title>Welcome to our hotel</title>"

FOREIGN = {
    (200, PAGE): Outage.LOGIN_PAGE,
    (302, b""): Outage.LOGIN_PAGE,
    (307, b""): Outage.LOGIN_PAGE,
    (511, PAGE): Outage.LOGIN_PAGE,
    (407, PAGE): Outage.PROXY,
    (200, b"{}"): Outage.UNUSABLE,
    (200, b""): Outage.UNUSABLE,
    (403, PAGE): Outage.UNUSABLE,
    (429, b""): Outage.UNUSABLE,
    (500, PAGE): Outage.UNUSABLE,
    (503, b"{}"): Outage.UNUSABLE,
}


@pytest.mark.parametrize(("status", "body"), FOREIGN)
async def test_a_foreign_answer_says_what_is_in_the_way(client, service, clock, key, status, body):
    """In the error, in the status after it, and again in a call within the minute."""
    outage = FOREIGN[status, body]
    service.grants()
    await client.activate(key)
    clock.move(days=5)
    service.responds(status, body, Location="https://hotel.example/login", X_Request_Id="r-1")
    with pytest.raises(ServiceUnavailableError) as caught:
        await client.verify()
    assert (caught.value.outage, caught.value.http_status) == (outage, status)
    assert caught.value.request_id == "r-1"
    known = await client.status()
    assert (known.state, known.outage) == (LicenseState.UNCONFIRMED, outage)
    assert explain(known, "de") == explain(ServiceUnavailableError(outage=outage), "de")


@pytest.fixture
def silent_url():
    """The address of a service that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@both
@pytest.mark.filterwarnings("ignore:base_url is http")
@pytest.mark.parametrize(
    ("where", "outage", "words"),
    [
        ("dead", Outage.CONNECTION_REFUSED, "does not accept connections at the moment"),
        ("silent", Outage.TIMED_OUT, "did not answer in time"),
        ("nameless", Outage.NAME_NOT_FOUND, "could not be found in the network. Please go online"),
    ],
)
async def test_nothing_answers(make_client, dead_url, silent_url, key, where, outage, words):
    """A person does something else about a service that is down, one that hangs, and a computer offline."""
    url = {"dead": dead_url, "silent": silent_url, "nameless": "http://store.invalid"}[where]
    with pytest.raises(ServiceUnavailableError) as caught:
        await make_client(url, timeout=0.5 if where == "silent" else 5).verify(key)
    error = caught.value
    assert (error.outage, error.http_status, error.request_id) == (outage, None, None)
    assert error.outage.is_offline
    assert words in explain(error, "en")


@both
@pytest.mark.filterwarnings("ignore:base_url is http")
@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "nonsense://x", "http://h:port", "socks4://h"])
@pytest.mark.parametrize("server", ["http://store.invalid", "https://store.invalid"])
async def test_a_proxy_that_cannot_be_used_is_named(make_client, monkeypatch, key, proxy, server):
    """Also one that does not listen: to go online would not help."""
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, proxy)
    with pytest.raises(ServiceUnavailableError) as caught:
        await make_client(server, timeout=3).verify(key)
    assert caught.value.outage is Outage.PROXY


def _day(distance):
    return dt.datetime.now(dt.UTC) + dt.timedelta(days=distance)


CERTIFICATES = {
    "of a network that listens in": (lambda _: trustme.CA().issue_cert("127.0.0.1"), Outage.CERTIFICATE),
    "of a login page": (lambda ca: ca.issue_cert("hotel.example"), Outage.CERTIFICATE),
    "that has ended": (lambda ca: ca.issue_cert("127.0.0.1", not_after=_day(-1)), Outage.CERTIFICATE),
    "of the future": (
        lambda ca: ca.issue_cert("127.0.0.1", not_before=_day(1), not_after=_day(2)),
        Outage.CLOCK,
    ),
}


@pytest.mark.sampled(4, "make")
@pytest.mark.usefixtures("verdicts")
@both
@pytest.mark.parametrize(("make", "outage"), CERTIFICATES.values(), ids=CERTIFICATES)
async def test_a_certificate_tells_of_the_clock_or_the_network(
    make_client, tls, authority, key, make, outage
):
    """One that begins in the future is a clock that stands in the past."""
    tls.context = secured(make(authority))
    with pytest.raises(ServiceUnavailableError) as caught:
        await make_client(f"https://127.0.0.1:{tls.port}").verify(key)
    assert caught.value.outage is outage


async def test_a_clock_that_was_set_back_is_named(client, service, clock, key):
    """Offline, in the error and in the status: support cannot set it."""
    service.grants()
    await client.activate(key)
    clock.move(hours=-2)
    service.goes_down()
    with pytest.raises(ServiceUnavailableError) as caught:
        await client.verify()
    assert caught.value.outage is Outage.CLOCK
    assert "clock" in explain(caught.value, "en")
    assert "clock" in explain(await client.status(), "en")


@pytest.mark.parametrize("hours", [-30, 30])
async def test_a_wrong_clock_is_not_sent_to_support(make_client, license_service, key, hours):
    """The signature is good, and only the time does not fit."""
    client = license_service.client(product="Notes", trust=Trust(public_keys=()))
    license_service.issue("Notes", key=key)
    client.activate(key)
    wrong = license_service.client(
        product="Notes",
        trust=Trust(public_keys=()),
        clock=lambda: license_service.clock() + dt.timedelta(hours=hours),
    )
    with pytest.raises(UntrustedResponseError) as caught:
        wrong.verify(force=True)
    assert caught.value.is_clock_wrong
    for what in (caught.value, pickle.loads(pickle.dumps(caught.value)), wrong.status()):  # noqa: S301 - ours
        if getattr(what, "state", None) is not LicenseState.VALID:
            assert explain(what, "en").startswith("The clock of this computer is wrong.")


# --- which response it was ------------------------------------------------------------------------

ANSWERS = [
    (403, {"valid": False, "reason": "License expired."}, LicenseRefusedError),
    (404, {"valid": False, "reason": "License not found."}, LicenseRefusedError),
    (422, {"message": "No.", "errors": {"ip": ["No."]}}, InvalidRequestError),
    (500, b"", ServiceUnavailableError),
]


@both
@pytest.mark.parametrize(("status", "body", "kind"), ANSWERS)
async def test_support_finds_the_request_in_the_servers_log(client, service, key, status, body, kind):
    """Each error about a response has its status and the id that the server gave it, pickled as well."""
    service.responds(status, body, X_Request_Id="f00-1")
    with pytest.raises(kind) as caught:
        await client.verify(key)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):  # noqa: S301 - ours
        assert (error.http_status, error.request_id) == (status, "f00-1")


ENDPOINTS = {
    "update check": lambda client, key: client.check_for_update(key),
    "deactivate": lambda client, key: client.deactivate(key),
    "trial": lambda client, _: client.start_trial(),
    "consume": lambda client, _: client.uses.consume("exports"),
    "seat": lambda client, key: client.client.seats.take(key),
}


@pytest.mark.parametrize("name", ENDPOINTS)
async def test_at_each_endpoint(client, service, clock, key, name):
    """Not for verify alone."""
    service.responds(
        200,
        {
            "valid": True,
            "product": "N",
            "expiry": None,
            "lifetime": True,
            "entitlements": {"exports": {"limit": 9, "per": "day"}},
        },
    )
    await client.activate(key)
    service.responds(503, b"", X_Request_Id="f00-2")
    error = None
    try:
        found = ENDPOINTS[name](client, key)
        found = await found if hasattr(found, "__await__") else found
        error = found.error
    except LicclientError as problem:
        error = problem
    assert (error.http_status, error.request_id) == (503, "f00-2")


@pytest.mark.parametrize("sent", ["", "two words", "x" * 65, "CP-ABC123-DEF456-GHI789", "a\x7fb"])
async def test_no_other_text_is_taken_for_a_request_id(client, service, key, sent):
    """It goes into logs, and a server may repeat a key in it."""
    service.responds(500, b"", X_Request_Id=sent)
    with pytest.raises(ServiceUnavailableError) as caught:
        await client.verify(key)
    assert caught.value.request_id is None


async def test_a_key_that_was_sold_elsewhere_is_no_request_id_either(client, service):
    """It looks like one."""
    foreign = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
    service.responds(500, b"", X_Request_Id=foreign)
    with pytest.raises(ServiceUnavailableError) as caught:
        await client.verify(foreign)
    assert caught.value.request_id is None


# --- what people read -----------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_outage_has_a_sentence_of_its_own(language):
    """A login page, a proxy, a clock and a locked keyring need different things of a person."""
    sentences = {outage: explain(ServiceUnavailableError(outage=outage), language) for outage in Outage}
    for first, other in combinations(sentences.values(), 2):
        assert first != other
