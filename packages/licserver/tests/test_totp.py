"""One-time codes: RFC 6238's own vectors, replay, and what people type."""

from base64 import b32encode
from datetime import UTC, datetime, timedelta

import pytest

from licserver.security.totp import (
    enrolment_uri,
    find_step,
    generate_recovery_code,
    generate_secret,
    normalize_recovery_code,
)

SECRET = b32encode(b"12345678901234567890").decode()  # RFC 6238, appendix B, SHA-1
VECTORS = {
    59: "94287082",
    1111111109: "07081804",
    1111111111: "14050471",
    1234567890: "89005924",
    2000000000: "69279037",
    20000000000: "65353130",
}


def at(seconds):
    """An instant by its Unix time."""
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(("seconds", "code"), VECTORS.items())
def test_the_vectors_of_rfc_6238(seconds, code):
    """The last six of the eight digits, at their step and one step beside it, and no further."""
    for offset, is_good in ((-60, False), (-30, True), (0, True), (30, True), (60, False)):
        if seconds + offset < 30:
            continue  # there is no step before the first
        found = find_step(SECRET, code[-6:], at(seconds + offset), 0)
        assert found == (seconds // 30 if is_good else None)


def test_a_code_is_good_once():
    """The same code is refused again, and so is an older one; the next is accepted."""
    now = at(1111111109)
    step = find_step(SECRET, "081804", now, 0)
    assert find_step(SECRET, "081804", now, step) is None
    assert find_step(SECRET, "081804", now, step + 1) is None
    assert find_step(SECRET, "050471", now + timedelta(seconds=2), step) == step + 1


@pytest.mark.parametrize("typed", ["", "08180", "0818041", "08180x", "٠٨١٨٠٤", "081804 081804", "\0"])
def test_what_is_no_code(typed):
    """Anything but six digits is refused; blanks among them are not."""
    assert find_step(SECRET, typed, at(1111111109), 0) is None
    assert find_step(SECRET, " 081 804 ", at(1111111109), 0) is not None


def test_secrets_and_recovery_codes():
    """160 and 120 bits, each of them another; the address for apps names user and issuer."""
    assert len({generate_secret() for _ in range(100)}) == 100
    assert len(generate_secret()) == 32
    code = generate_recovery_code()
    assert len(normalize_recovery_code(code)) == 24
    assert normalize_recovery_code(f" {code.upper().replace('-', ' ')}\n") == normalize_recovery_code(code)
    uri = enrolment_uri(SECRET, "ann@a.example", "l.example")
    assert uri == f"otpauth://totp/l.example:ann%40a.example?secret={SECRET}&issuer=l.example"
