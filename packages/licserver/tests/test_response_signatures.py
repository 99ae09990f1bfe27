"""Signed answers, as text: what is asked, whether it can be done, and what is then signed (RFC 9421)."""

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from hashlib import sha512
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness import oracle
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.protocol.response_signatures import (
    COMPONENTS,
    AcceptSignatureReader,
    SignatureRequest,
    SignedRequest,
    content_digest,
    matches_digest,
    normalise_base_url,
    parse_accept_signature,
    sign_response,
)

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
LISTED = " ".join(COMPONENTS)
GOOD = f'sig=({LISTED});nonce="n"'


def a_key(days: int = 0, retired_at: datetime | None = None) -> SigningKey:
    """A key, added some days after noon."""
    return SigningKey(PrivateKey.generate(), NOON + timedelta(days=days), retired_at)


OLD, NEW, GONE = a_key(0), a_key(1), a_key(2, NOON + timedelta(days=3))
KEYS = [OLD, NEW, GONE]


@pytest.mark.parametrize(
    ("field", "label", "key"),
    [
        (GOOD, "sig", NEW),
        (f'sig=({LISTED});nonce="n";keyid="{OLD.id}"', "sig", OLD),
        (f'a=({LISTED});nonce="n";keyid="{OLD.id}", b=({LISTED});nonce="n";keyid="{NEW.id}"', "b", NEW),
        (f'a=({LISTED});nonce="n";keyid="{GONE.id}",\t*b.1-c_=({LISTED});nonce="n"', "*b.1-c_", NEW),
        (f'sig=({LISTED});created;expires;nonce="n";alg="ed25519";tag="licensing-answer"', "sig", NEW),
        (f'sig=(  {"   ".join(reversed(COMPONENTS))} );  nonce="n"', "sig", NEW),
        (f"  {GOOD}  ", "sig", NEW),
        (f'other=("date");nonce="n", {GOOD}', "sig", NEW),
        (f'sig=({LISTED});nonce="{"n" * 128}"', "sig", NEW),
        (oracle.accept_signature("n"), "sig", NEW),
    ],
)
def test_what_can_be_done_is_done(field, label, key):
    """The newest live key among those asked for signs, under the label of the member that asks for it."""
    wanted = parse_accept_signature(field, KEYS)
    assert wanted is not None
    assert (wanted.label, wanted.key) == (label, key)
    assert wanted.nonce.strip('"n') == ""


@pytest.mark.parametrize(
    "field",
    [
        "",
        "sig",
        "sig=?1",
        f'SIG=({LISTED});nonce="n"',
        f'({LISTED});nonce="n"',
        f"{GOOD},",
        f"{GOOD}, !",
        f"{GOOD} {GOOD}",
        f'sig=({LISTED};nonce="n"',
        f'sig=({LISTED}"@status");nonce="n"',
        f"sig=({LISTED})",
        f"sig=({LISTED});nonce",
        f"sig=({LISTED});nonce=n",
        f"sig=({LISTED});nonce=7",
        f"sig=({LISTED});nonce=token",
        f"sig=({LISTED});nonce=:AAAA:",
        f'sig=({LISTED});nonce=""',
        f'sig=({LISTED});nonce="{"n" * 129}"',
        f'sig=({LISTED});nonce="n\nn"',
        f'sig=({LISTED});nonce="é"',
        f'sig=({LISTED});nonce="n";keyid="{GONE.id}"',
        f'sig=({LISTED});nonce="n";keyid="somebody-else"',
        f'sig=({LISTED});nonce="n";keyid={OLD.id}',
        f'sig=({LISTED});nonce="n";alg="rsa-pss-sha512"',
        f'sig=({LISTED});nonce="n";tag="another-application"',
        f'sig=({LISTED});nonce="n";created=1',
        f'sig=({LISTED});nonce="n";expires=9999999999',
        f'sig=({LISTED});nonce="n";context="unknown"',
        f'sig=({" ".join(COMPONENTS[1:])});nonce="n"',
        f'sig=({LISTED} "date");nonce="n"',
        f'sig=({LISTED} "@status");nonce="n"',
        f'sig=({LISTED.replace(";req", "")});nonce="n"',
        'sig=();nonce="n"',
    ],
)
def test_what_cannot_be_done_whole_is_not_done(field):
    """Malformed, other components, parameters that we would not sign, retired keys: no signature (D-61)."""
    assert parse_accept_signature(field, KEYS) is None


@pytest.mark.parametrize(
    "field",
    [
        GOOD,
        oracle.accept_signature("n", keyid=OLD.id),
        f'a=({LISTED});nonce="one";keyid="{OLD.id}", b=({LISTED});nonce="two";keyid="{NEW.id}"',
        f'a=({LISTED});nonce="two";keyid="{OLD.id}", b=({LISTED});nonce="one";keyid="{NEW.id}"',
        f'a=({LISTED});nonce="same";keyid="{OLD.id}", b=({LISTED});nonce="same";keyid="{NEW.id}"',
        f'a=({LISTED});nonce="one";keyid="{OLD.id}", b=({LISTED});nonce="!";keyid="{NEW.id}"',
        f'a=({LISTED});nonce="!";keyid="{NEW.id}", b=({LISTED});nonce="one";keyid="{OLD.id}"',
        f'a=({LISTED});alg="ed25519";nonce="ed25519"',
        f'a=({LISTED});nonce="{"n" * 129}"',
        f'a=({LISTED});nonce="1";nonce="2"',
        f'a=({LISTED});alg="none";nonce="one"',
        f'a=("a;nonce=");nonce="x", {GOOD}',
        "",
    ],
)
def test_the_quick_reader_says_the_same(field):
    """Whatever is remembered of other headers, each header is read as if it were the first."""
    quick = AcceptSignatureReader(KEYS)
    for other in (field, field.replace("n", "m"), field.replace("one", "uno"), field):
        quick(other)
        assert quick(other) == parse_accept_signature(other, KEYS)


def test_what_differs_in_its_nonce_only_is_read_once(monkeypatch):
    """An app's every call asks for the same thing with another nonce: that costs next to nothing."""
    read = []

    def counted(*args: Any):
        read.append(args)
        return parse_accept_signature(*args)

    monkeypatch.setattr("licserver.protocol.response_signatures.parse_accept_signature", counted)
    quick = AcceptSignatureReader(KEYS)
    for nonce in ("one", "two", "three"):
        assert quick(oracle.accept_signature(nonce)) == SignatureRequest("sig", f'"{nonce}"', NEW)
    assert len(read) == 1


@given(st.text(st.characters(codec="ascii")) | st.text(alphabet='sig=();"@,\\ \t?*:1nonce'))
@example('sig=("' + "\\\\" * 4000)
@example("a=(" * 3000)
@example('a=("b"' + ";c" * 3000)
@example(",".join(['a=("b")'] * 1000) + "!")
def test_whatever_a_caller_sends_is_read_in_a_moment(field):
    """No header makes the reading fail, or take long."""
    assert AcceptSignatureReader(KEYS)(field) == parse_accept_signature(field, KEYS)


@pytest.mark.parametrize(
    ("field", "fits"),
    [
        (content_digest(b"body"), True),
        (f"sha-512=:{b64encode(sha512(b'body').digest()).decode()}:", True),
        (f"md5=:AAAA:, {content_digest(b'body')}", True),
        (content_digest(b"other"), False),
        (f"{content_digest(b'body')}, sha-512=:AAAA:", False),
        (f"sha-512=:AAAA:, {content_digest(b'body')}", False),
        ("md5=:hBotaJrKa9FhFEdFPCLG/A==:", False),
        (content_digest(b"body")[:-1], False),
        (f"{content_digest(b'body')};", False),
        (f"X{content_digest(b'body')}", False),
        (f"{content_digest(b'body')}X", False),
        (f"\f{content_digest(b'body')}", False),
        (f" {content_digest(b'body')}\t", True),
        ("sha-256=::", False),
        ("sha-256", False),
        ("", False),
    ],
)
def test_a_digest_fits_its_content_or_not(field, fits):
    """At least one known digest, and all known ones right (RFC 9530)."""
    assert matches_digest(field, b"body") is fits


def test_the_oracle_agrees_with_the_signature():
    """What we sign others verify, with every parameter that the protocol names."""
    signed_request = oracle.HttpRequest(
        "GET", "https://x.example/a?b=%20", {"Content-Digest": content_digest(b"")}
    )
    signed = sign_response(
        SignatureRequest("l", '"n\\"n"', NEW),
        SignedRequest("GET", signed_request.url, content_digest(b"")),
        404,
        "application/json",
        b"{}",
        NOON + timedelta(microseconds=999_999),
    )
    assert sorted(signed) == ["Content-Digest", "Signature", "Signature-Input"]
    answered = oracle.HttpResponse(signed_request, 404, {"Content-Type": "application/json", **signed}, b"{}")
    result = oracle.verify(answered, {NEW.id: NEW.private.public.raw}, NOON)
    assert result.parameters == {
        "created": int(NOON.timestamp()),
        "expires": int(NOON.timestamp()) + 300,
        "keyid": NEW.id,
        "nonce": 'n"n',
        "alg": "ed25519",
        "tag": "licensing-answer",
    }
    assert result.label == "l"


@pytest.mark.parametrize(
    ("base_url", "normal"),
    [
        ("https://Licenses.Example.com", "https://licenses.example.com"),
        ("https://x.example:443/Store/", "https://x.example/Store"),
        ("https://x.example/X/", "https://x.example/X"),
        ("http://x.example:80", "http://x.example"),
        ("http://x.example:443", "http://x.example:443"),
        ("https://x.example:8443", "https://x.example:8443"),
        ("http://[2001:DB8::1]:8080", "http://[2001:db8::1]:8080"),
    ],
)
def test_one_address_has_one_spelling(base_url, normal):
    """The server signs the address as clients that normalise theirs have used it."""
    assert normalise_base_url(base_url) == normal
