"""How long a license is valid: the console and the customers' page write the same."""

from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from licserver.domain.decisions import TERM_SENTENCES, Term, find_term
from licserver.domain.records import IssuedLicense
from licserver.web.account.pages import load_texts
from licserver.web.console.formatting import day, describe

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
MIDNIGHT = datetime(2027, 1, 28, tzinfo=UTC)
DAYS = (None, date(2026, 1, 31), date(2026, 6, 15), date(2027, 1, 31))
INSTANTS = (None, NOON - timedelta(days=9), NOON, NOON + timedelta(hours=3), MIDNIGHT)


def license_with(**terms: Any) -> IssuedLicense:
    """Return a license with these terms."""
    return IssuedLicense(
        id=bytes(16),
        encrypted_key=b"",
        product_id=1,
        product_slug="app",
        product_name="App",
        issued_at=NOON,
        **{"slots": 1, **terms},
    )


CASES = list(product((False, True), DAYS, INSTANTS, (None, "sub_1"), (None, NOON)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_console_and_customers_page_write_the_same(case) -> None:
    """Customers ask support about the sentence that they read."""
    names = ("lifetime", "expires_on", "subscription_ended_at", "subscription_id", "revoked_at")
    license_ = license_with(**dict(zip(names, case, strict=True)))
    term, end = find_term(license_, NOON)
    english = load_texts("en")(term, date=day(end))
    assert english.startswith(TERM_SENTENCES[term].format(date=day(end)))
    shown = describe(license_, NOON)
    beginning = english.split(", ")[0].removesuffix(".") if term is not Term.REVOKED else "The license was"
    assert shown.sentence.startswith(beginning)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({"subscription_id": "s", "subscription_ended_at": MIDNIGHT}, (Term.UNTIL, date(2027, 1, 27))),
        ({"subscription_id": "s"}, (Term.SUBSCRIPTION, None)),
        ({}, (Term.NO_END, None)),
        (
            {"subscription_id": "s", "subscription_ended_at": MIDNIGHT, "expires_on": date(2026, 12, 1)},
            (Term.UNTIL, date(2026, 12, 1)),
        ),
    ],
)
def test_a_subscription_that_is_cancelled_has_a_last_day(terms, expected) -> None:
    """It was "active, without an expiry date" in the console, and "through 27 Jan" on the page."""
    license_ = license_with(**terms)
    assert find_term(license_, NOON) == expected
    if expected[1]:
        assert f"through {day(expected[1])}" in describe(license_, NOON).sentence


def test_a_license_is_judged_by_all_its_terms() -> None:
    """None that ends it is lost between what is stored and what a verdict takes."""
    terms: dict[str, Any] = {
        "expires_on": DAYS[1],
        "lifetime": True,
        "revoked_at": NOON,
        "subscription_ended_at": MIDNIGHT,
        "support_until": DAYS[3],
        "trial": True,
    }
    snapshot = license_with(**terms).snapshot()
    assert (snapshot.id, snapshot.product_id, snapshot.product_name) == (bytes(16), 1, "App")
    assert {name: getattr(snapshot, name) for name in terms} == terms
