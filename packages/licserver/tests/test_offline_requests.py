"""Requests of machines without a network, when a license file ends, and what is in it."""

import json
from base64 import b32encode, urlsafe_b64decode
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256

import pytest

from licserver.domain.decisions import Valid, VerifyRefusal
from licserver.domain.offline_files import NO_ADDRESS, evaluate_offline, file_end
from licserver.domain.records import (
    Environment,
    EnvironmentMatch,
    EnvironmentPolicy,
    IssuedLicense,
    LicenseSnapshot,
)
from licserver.errors import InvalidInputError
from licserver.protocol.ed25519_keys import PrivateKey, to_base64url
from licserver.protocol.offline_files import BEGIN, END, MachineRequest, parse_request, sign_file

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
ID = "00112233445566778899aabbccddeeff"
KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
HERE = Environment(ID, NO_ADDRESS)


def license_(**terms: object):
    """Return a license with a free slot, unless the terms differ."""
    return LicenseSnapshot(**{"id": b"", "product_id": 1, "product_name": "App", **terms})


def code(content):
    """Return the request with this content."""
    return "REQ-" + b32encode(content + sha256(content).digest()[:3]).decode().rstrip("=")


def request(domain=ID, slug="app", version="1.2"):
    """Return the request of a machine."""
    return code(b"\2" + domain.encode() + b"\0" + f"{slug}\0{version}".encode())


@pytest.mark.parametrize(
    "spell", [str, str.lower, lambda text: text.replace("-", " \n"), lambda text: text[4:]]
)
def test_a_request_may_be_typed(spell):
    """Case, spaces and hyphens do not count, nor does a prefix that is missing."""
    typed = code(b"\1" + bytes.fromhex(ID) + b"app\x001.2")
    assert parse_request(spell(typed)) == MachineRequest(ID, "app", "1.2")
    assert parse_request(spell(request("Büro.example", "", ""))) == MachineRequest("Büro.example", "", None)


def test_a_one_that_was_typed_is_an_i():
    """Nor is a zero in a request: people misread both."""
    typed = request("1.example", "app", "1.2")
    misread = typed.removeprefix("REQ-").replace("I", "1").replace("O", "0")
    assert "1" in misread
    assert parse_request(misread) == parse_request(typed)


@pytest.mark.parametrize(
    "text",
    [
        "", "REQ-", "REQ-ÄÖÜ", "é" * 9000, "A" * 9000, request()[:-1],
        request()[:-1] + "AB", code(b""), code(b"\1" + b"x" * 9), code(b"\2\xff\0\0"), code(b"\2a\0b\0c\0d"),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(text):
    """Mistyped, cut off or made by somebody else: an error for the vendor."""
    with pytest.raises(InvalidInputError, match=r"^this is not a request for a license file, or .* REQ-$"):
        parse_request(text)


LATE = NOON + timedelta(days=90)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({}, NOON + timedelta(days=60)),
        ({"lifetime": True, "subscription_ended_at": NOON}, NOON + timedelta(days=60)),
        ({"lifetime": True, "subscription_id": "s"}, NOON + timedelta(days=60)),
        ({"expires_on": date(2026, 6, 20)}, datetime(2026, 6, 21, tzinfo=UTC)),
        ({"expires_on": date(2026, 8, 14)}, NOON + timedelta(days=60)),
        ({"expires_on": date(2026, 8, 13)}, datetime(2026, 8, 14, tzinfo=UTC)),
        ({"expires_on": date.max}, NOON + timedelta(days=60)),
        ({"subscription_ended_at": NOON + timedelta(days=3)}, NOON + timedelta(days=3)),
        ({"subscription_id": "s", "subscription_ended_at": LATE}, NOON + timedelta(days=60)),
        ({"subscription_id": "s"}, NOON + timedelta(days=38)),
        ({"subscription_id": "s", "expires_on": date(2026, 7, 1)}, datetime(2026, 7, 2, tzinfo=UTC)),
    ],
)
def test_a_file_ends_with_its_license(terms, expected):
    """After its days, or with the license if that is earlier."""
    issued = {"id": b"", "encrypted_key": b"", "product_id": 1, "product_slug": "app", "product_name": "App"}
    assert file_end(IssuedLicense(**issued, issued_at=NOON, **terms), NOON, 60) == expected


@pytest.mark.parametrize(
    ("policy", "known", "is_known"),
    [
        (EnvironmentPolicy.EITHER, EnvironmentMatch(ip=True), False),
        (EnvironmentPolicy.EITHER, EnvironmentMatch(domain=True), True),
        (EnvironmentPolicy.DOMAIN, EnvironmentMatch(domain=True), True),
        (EnvironmentPolicy.STRICT, EnvironmentMatch(domain=True, ip=True), True),
    ],
)
def test_the_address_of_all_machines_without_a_network_makes_none_known(policy, known, is_known):
    """Decided as a verify is; a license without a free slot has a file for known machines only."""
    full = license_(policy=policy, activated=known, slots=1, slots_used=1)
    verdict = evaluate_offline(KEY, full, HERE, NOON)
    assert isinstance(verdict, Valid) if is_known else verdict is VerifyRefusal.ENVIRONMENT
    assert evaluate_offline(KEY, None, HERE, NOON) is VerifyRefusal.NOT_FOUND
    allowed = full._replace(policy=EnvironmentPolicy.DOMAIN, activated=EnvironmentMatch(), allowed=(ID,))
    assert evaluate_offline(KEY, allowed, HERE, NOON) == Valid(allowed, takes_slot=False)
    ended = full._replace(expires_on=date(2026, 6, 14))
    assert evaluate_offline(KEY, ended, HERE, NOON) is VerifyRefusal.EXPIRED


def test_a_file_says_for_whom_and_until_when():
    """In lines that mail leaves alone, with neither the key nor a digest of the key alone."""
    private = PrivateKey(b"\1" * 32)
    valid = Valid(license_(support_until=date(2026, 12, 31), overrides='{"export":true}'), takes_slot=True)
    text = sign_file(valid, "app", KEY, ID, NOON, NOON + timedelta(days=30), private)
    first, *lines, last, rest = text.split("\n")
    assert (first, last, rest, {len(line) for line in lines[:-1]}) == (BEGIN, END, "", {64})
    header, content, _ = (urlsafe_b64decode(part + "==") for part in "".join(lines).split("."))
    assert json.loads(header) == {"alg": "EdDSA", "kid": private.public.id, "typ": "license-file+json"}
    assert json.loads(content) == {
        "valid": True,
        "product": "App",
        "entitlements": {"export": True},
        "slug": "app",
        "license": "CP-AB…O345",
        "key_digest": to_base64url(sha256(f"license-file\0{ID}\0{KEY}".encode()).digest()),
        "domain": ID,
        "issued_at": "2026-06-15T12:00:00Z",
        "ends_at": "2026-07-15T12:00:00Z",
        "expiry": None,
        "lifetime": False,
        "support_until": "2026-12-31",
    }
    plain = sign_file(Valid(license_(), takes_slot=True), "app", KEY, ID, NOON, NOON, private)
    assert (
        json.loads(urlsafe_b64decode("".join(plain.split("\n")[1:-2]).split(".")[1] + "=="))["support_until"]
        is None
    )
