"""The order in which a call is refused (D-01, D-20, D-31), shown as whole truth tables."""

from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from licserver.domain.decisions import (
    DownloadRefusal,
    Offer,
    UpdateRefusal,
    Valid,
    VerifyRefusal,
    add_year,
    evaluate_download,
    evaluate_update,
    evaluate_verify,
    generate_license_key,
    is_imported_key,
    is_support_over,
    license_state,
)
from licserver.domain.records import (
    Artifact,
    Environment,
    EnvironmentMatch,
    LicenseSnapshot,
    LicenseState,
    Product,
    Release,
    Role,
)

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
KEY = "CP-AAAAAA-BBBBBB-CCCCCC-DDDDDD-000001"
HERE = Environment("a.example", "192.0.2.1")
RELEASE = Release(5, 1, "1.0", "", NOW, Artifact("app.zip", 3, b"d" * 32))


def a_license(**terms: Any):
    """A license of product 1 in good order."""
    return LicenseSnapshot(id=b"i" * 16, product_id=1, product_name="App", **terms)


BOTH = [False, True]


@pytest.mark.parametrize(
    ("bad_shape", "missing", "revoked", "expired", "full", "known"), list(product(BOTH, repeat=6))
)
def test_verify_names_the_first_refusal(bad_shape, missing, revoked, expired, full, known):
    """Of all that is wrong with a key the first in the order of D-01 is the verdict."""
    license_ = a_license(
        revoked_at=NOW if revoked else None,
        expires_on=date(2026, 6, 14) if expired else None,
        slots=1 if full else 2,
        slots_used=1,
        activated=EnvironmentMatch(domain=known, ip=known),
    )
    key = KEY.lower() if bad_shape else KEY
    verdict = evaluate_verify(key, None if missing else license_, HERE, NOW)
    order = [
        (bad_shape, VerifyRefusal.FORMAT),
        (missing, VerifyRefusal.NOT_FOUND),
        (revoked, VerifyRefusal.REVOKED),
        (expired, VerifyRefusal.EXPIRED),
        (full and not known, VerifyRefusal.ENVIRONMENT),
        (True, Valid(license_, takes_slot=not known)),
    ]
    assert verdict == next(answer for applies, answer in order if applies)


SLOTS = {
    "none at all": (0, 0, None),
    "one free": (1, 0, True),
    "last one free": (5, 4, True),
    "full": (5, 5, None),
    "over-full, because the vendor lowered it": (5, 9, None),
    "unlimited": (None, 10**6, True),
}


@pytest.mark.parametrize(("slots", "used", "takes"), SLOTS.values(), ids=SLOTS.keys())
def test_a_new_environment_takes_a_slot_if_there_is_one(slots, used, takes):
    """Zero slots admit nobody, unlimited ones everybody, and N exactly N (D-07)."""
    verdict = evaluate_verify(KEY, a_license(slots=slots, slots_used=used), HERE, NOW)
    assert (verdict.takes_slot if isinstance(verdict, Valid) else None) is takes


def test_a_known_environment_is_welcome_with_no_slots_left():
    """An owner's entry lets an environment in though the key has no slots at all (D-04)."""
    license_ = a_license(slots=0, allowed=("a.example", "192.0.2.0/24"))
    assert evaluate_verify(KEY, license_, HERE, NOW) == Valid(license_, takes_slot=False)


@pytest.mark.parametrize(
    ("missing", "revoked", "expired", "no_product", "other_product", "no_release", "support_over"),
    list(product(BOTH, repeat=7)),
)
def test_update_check_names_the_first_refusal(
    missing, revoked, expired, no_product, other_product, no_release, support_over
):
    """The key's faults come before the product's (D-20); the end of support only takes the link (D-25)."""
    license_ = a_license(
        revoked_at=NOW if revoked else None,
        subscription_ended_at=NOW if expired else None,
        support_until=date(2026, 6, 14) if support_over else date(2026, 6, 15),
        slots=0,  # D-22: no matter
    )
    wanted = Product(
        2 if other_product else 1,
        "app",
        "App",
        has_support_policy=True,
        candidates=() if no_release else (RELEASE,),
    )
    verdict = evaluate_update(None if missing else license_, None if no_product else wanted, NOW)
    order = [
        (missing, UpdateRefusal.INVALID_LICENSE),
        (revoked, UpdateRefusal.INVALID_LICENSE),
        (expired, UpdateRefusal.LICENSE_EXPIRED),
        (no_product, UpdateRefusal.PRODUCT_NOT_FOUND),
        (other_product, UpdateRefusal.PRODUCT_MISMATCH),
        (no_release, UpdateRefusal.NO_VERSIONS),
        (True, Offer(wanted, RELEASE, license_, downloadable=not support_over)),
    ]
    assert verdict == next(answer for applies, answer in order if applies)


@pytest.mark.parametrize(
    ("no_license", "no_release", "revoked", "withdrawn", "expired"), list(product(BOTH, repeat=5))
)
def test_download_names_the_first_refusal(no_license, no_release, revoked, withdrawn, expired):
    """A revoked key and a withdrawn version stop a good link at once; an expiry after signing does not."""
    license_ = a_license(
        revoked_at=NOW if revoked else None, expires_on=date(2020, 1, 1) if expired else None
    )
    release = Release(
        5, 1, "1.0", "", NOW, RELEASE.artifact, withdrawn_at=NOW - timedelta(1) if withdrawn else None
    )
    verdict = evaluate_download(None if no_license else license_, None if no_release else release)
    order = [
        (no_license or no_release, DownloadRefusal.INVALID_LINK),
        (revoked, DownloadRefusal.LICENSE_REVOKED),
        (withdrawn, DownloadRefusal.RELEASE_WITHDRAWN),
        (True, release),
    ]
    assert verdict == next(answer for applies, answer in order if applies)


@pytest.mark.parametrize(("revoked", "expired", "support_over", "policy"), list(product(BOTH, repeat=4)))
def test_a_download_is_offered_while_license_and_support_last(revoked, expired, support_over, policy):
    """Revocation is named before expiry (D-01); only an active license gets a file."""
    license_ = a_license(
        revoked_at=NOW if revoked else None,
        expires_on=date(2026, 6, 14) if expired else None,
        support_until=date(2026, 6, 14) if support_over else None,
    )
    state = LicenseState.ACTIVE
    if expired:
        state = LicenseState.EXPIRED
    if revoked:
        state = LicenseState.REVOKED
    assert license_state(license_, NOW) is state
    wanted = Product(1, "app", "App", has_support_policy=policy, candidates=(RELEASE,))
    assert is_support_over(wanted, license_, NOW) is (support_over and policy)


def test_a_key_is_drawn_from_fair_bytes_only(monkeypatch):
    """Each letter is as likely as another: bytes beyond a multiple of 36 are dropped, and more are drawn."""
    drawn = [bytes([252, 255] * 5) + bytes(range(20)), bytes(range(20, 30))]
    sizes = []

    def token_bytes(size):
        sizes.append(size)
        return drawn.pop(0)

    monkeypatch.setattr("licserver.domain.decisions.secrets.token_bytes", token_bytes)
    assert generate_license_key() == "CP-ABCDEF-GHIJKL-MNOPQR-STUVWX-YZ0123"
    assert sizes == [40, 40]


# --- keys that were sold elsewhere (D-185) ----------------------------------------------------

ELSEWHERE = "5f4dcc3b-5aa7-65d6"


@pytest.mark.parametrize(
    ("key", "is_one"),
    [
        (ELSEWHERE, True),
        ("12345678", True),
        ("!" * 1024, True),
        ("1234567", False),
        ("!" * 1025, False),
        ("two words", False),
        ("Schlüssel-0001", False),
        (KEY, False),
        ("CP-1234-5678", False),
        ("cp_1234-5678", False),
        ("my CP~12345678".replace(" ", "/"), False),
        ("XCP-12345678", True),
        ("CP" + "a1" * 15, False),
        ("CP" + "a1" * 14, True),
        ("CP" + "a1" * 16, True),
    ],
    ids=range(15),
)
def test_what_can_be_a_key_of_another_system(key, is_one):
    """Anything visible of a bounded length, unless a client would correct it to a key of ours."""
    assert is_imported_key(key) is is_one


@pytest.mark.parametrize(("missing", "accepted", "revoked"), list(product(BOTH, repeat=3)))
def test_an_imported_key_is_one_where_the_product_accepts_it(missing, accepted, revoked):
    """Else it has the wrong format for verify, and is invalid for update checks."""
    license_ = a_license(accepts_imported_keys=accepted, revoked_at=NOW if revoked else None, slots=1)
    found = None if missing else license_
    verify = evaluate_verify(ELSEWHERE, found, HERE, NOW)
    update = evaluate_update(found, None, NOW, imported=True)
    if missing or not accepted:
        assert (verify, update) == (VerifyRefusal.FORMAT, UpdateRefusal.INVALID_LICENSE)
    elif revoked:
        assert (verify, update) == (VerifyRefusal.REVOKED, UpdateRefusal.INVALID_LICENSE)
    else:
        assert isinstance(verify, Valid)
        assert update is not UpdateRefusal.INVALID_LICENSE


@pytest.mark.parametrize(
    ("day", "today", "later"),
    [
        (date(2027, 1, 31), date(2026, 11, 23), date(2028, 1, 31)),
        (date(2020, 1, 1), date(2026, 11, 23), date(2027, 11, 23)),
        (date(2028, 2, 29), date(2026, 11, 23), date(2029, 2, 28)),
        (date.max, date(2026, 11, 23), date(9999, 12, 28)),
    ],
)
def test_a_year_more(day, today, later):
    """From the last day on, or from today if that is past; a leap day has none a year later."""
    assert add_year(day, today) == later


def test_a_role_includes_those_after_it():
    """The owner may do what support may, and support what one may who only reads (D-196)."""
    roles = list(Role)
    assert [[role.includes(other) for other in roles] for role in roles] == [
        [True, True, True],
        [False, True, True],
        [False, False, True],
    ]
