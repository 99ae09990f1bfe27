"""The contract once more: the fake that apps test against (`licclient.testing`) answers as vectors say."""

import json
from datetime import date
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from harness.vectors import LINK, Case, instant, load, parameters
from licclient.testing import LicenseClock, LicenseService

# What the fake has no words for: a vendor's side that apps need not play.
BEYOND = {"subscription_ended_at", "subscription_id", "allowed", "withdrawn"}


def _can_be_played(case: Case) -> bool:
    """Tell whether a client sends such a request, and the fake knows all that the case is about."""
    told = json.dumps(case.raw["given"])
    return (
        case.file in {"verify", "update-check", "imported-keys"}
        and case.client is not None
        and case.client["sends"]
        and not any(f'"{name}"' in told for name in BEYOND)
        # A product that was renamed, one that nobody has ever sold or published; a setting that is always on.
        and case.id not in {"update-name-is-current", "update-mismatch-before-no-versions"}
        and not case.id.endswith("not-accepted")
    )


CASES = [case for case in load() if _can_be_played(case)]


def _stocked(case: Case) -> LicenseService:
    clock = LicenseClock(case.now)
    service = LicenseService(clock)
    products = {product["slug"]: product for product in case.given["products"]}
    for slug, product in products.items():
        for release in product["releases"]:
            clock.now = instant(release["published_at"])
            service.publish(release["version"], slug=slug, changelog=release.get("changelog", ""))
    clock.now = case.now
    for license_ in case.given["licenses"]:
        product = products[license_["product"]]
        service.issue(
            license_.get("product_name", product["name"]),
            slug=license_["product"],
            key=license_["key"],
            expires=_day(license_.get("expires_on")),
            lifetime=license_.get("lifetime", False),
            slots=license_.get("slots", 1),
            support_until=_day(license_.get("support_until")) if product["support_policy"] else None,
        )
        if license_.get("revoked"):
            service.revoke(license_["key"])
        for domain, _ in license_.get("activations") or ():
            service._endpoints.licenses[license_["key"]].domains.add(domain)
    return service


def _day(text: str | None) -> date | None:
    return date.fromisoformat(text) if text else None


def test_most_of_the_contract_is_played() -> None:
    """The selection above leaves the greater part in."""
    assert len(CASES) > 30


@pytest.mark.parametrize("case", parameters(CASES))
def test_the_fake_answers_exactly_this(case: Case) -> None:
    """Records, clock and request of the case give its status and its body."""
    request: dict[str, Any] = case.request
    query = f"?{urlencode(request['query'])}" if "query" in request else ""
    url = f"https://licenses.example.com{request['path']}{query}"
    with httpx.Client(transport=_stocked(case).transport) as client:
        answer = client.request(request["method"], url, content=case.body() or b"")
    told = answer.json()
    if "download_url" in told:
        told["download_url"] = LINK
    assert (answer.status_code, told) == (case.answer["status"], case.answer["json"])
