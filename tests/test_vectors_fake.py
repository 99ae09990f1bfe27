"""The contract once more: the fake that apps test against (`licclient.testing`) answers as vectors say."""

import json
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from harness.vectors import LINK, Case, instant, load, parameters
from licclient._computers.fake import FakeComputers, name_computer
from licclient._seats.fake import FakeSeats
from licclient.testing import LicenseClock, LicenseService

# What the fake has no words for: a vendor's side that apps need not play.
BEYOND = {"subscription_ended_at", "subscription_id", "allowed", "withdrawn", "tested"}
PLAYED = {
    *("verify", "update-check", "imported-keys", "platforms", "labels", "entitlements", "trials"),
    *("seats", "channels", "covered", "computers", "kinds"),
}
BEYOND_CASES = {
    "update-name-is-current",
    "update-mismatch-before-no-versions",
    "trial-product-not-found",
    "computers-several-environments",
}


def _can_be_played(case: Case) -> bool:
    """Return whether a client sends such a request, and the fake knows all that the case is about."""
    given = json.dumps(case.raw["given"])
    return (
        case.file in PLAYED
        and case.client is not None
        and case.client["sends"]
        and not any(f'"{name}"' in given for name in BEYOND)
        # A product that was renamed, one that nobody has ever sold or published; a setting that is always on.
        and case.id not in BEYOND_CASES
        and not case.id.endswith("not-accepted")
    )


CASES = [
    case.naming_computers(lambda _, domain: name_computer(domain)) for case in load() if _can_be_played(case)
]


def _stocked(case: Case) -> LicenseService:
    clock = LicenseClock(case.now)
    service = LicenseService(clock)
    products = {product["slug"]: product for product in case.given["products"]}
    for slug, product in products.items():
        for release in product["releases"]:
            clock.now = instant(release["published_at"])
            names = ("changelog", "platform", "kind", "channel")
            details = {name: release[name] for name in names if name in release}
            notice = {"security": True, **release["security"]} if "security" in release else {}
            service.publish(release["version"], slug=slug, **details, **notice)
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
            moves=product.get("customer_moves", 3),
            **_end_of_updates(product, license_),
            entitlements=_entitlements(product, license_),
            seats=license_.get("floating_seats"),
            channels=license_.get("channels", ()),
        )
        service._endpoints.licenses[license_["key"]].is_trial = license_.get("trial", False)
        if license_.get("revoked"):
            service.revoke(license_["key"])
        _hold_seats(service, case, license_)
        for domain, _ in license_.get("activations") or ():
            service._endpoints.licenses[license_["key"]].domains.add(domain)
        _note_computers(service._endpoints.licenses[license_["key"]].computers, license_)
    for slug, product in products.items():
        if "minimum_version" in product:
            service.support_from(product["minimum_version"], slug=slug)
        if product.get("trial_days"):
            service.offer_trials(product["name"], slug=slug, days=product["trial_days"])
    for trial in case.given.get("trials", ()):
        service._endpoints.trials.start(trial["slug"], trial["machine"], trial["license"])
    return service


def _end_of_updates(product: dict[str, Any], license_: dict[str, Any]) -> dict[str, Any]:
    if not product["support_policy"]:
        return {}
    name = "updates_until" if product.get("after_support") == "covered" else "support_until"
    return {name: _day(license_.get("support_until"))}


def _hold_seats(service: LicenseService, case: Case, license_: dict[str, Any]) -> None:
    for seat in license_.get("seats") or ():
        seats, end = service._endpoints.licenses[license_["key"]].parts["seat"], seat["seconds_left"]
        assert isinstance(seats, FakeSeats)
        seats.held[seat["seat"]] = case.now + timedelta(seconds=end)
        if seat.get("ended"):
            service.take_back_seats(license_["key"])


def _note_computers(computers: FakeComputers, license_: dict[str, Any]) -> None:
    for move in license_.get("moves") or ():
        computers.note_move(move["from"], move["to"], instant(move["at"]))
    for domain, facts in (license_.get("computers") or {}).items():
        computers.note(domain, facts.get("label"), instant(facts["seen"]))
        if "file_until" in facts:
            computers.files[domain] = instant(facts["file_until"])


def _entitlements(product: dict[str, Any], license_: dict[str, Any]) -> dict[str, Any] | None:
    plan, overrides = product.get("plans", {}).get(license_.get("plan")), license_.get("overrides")
    if plan is None and overrides is None:
        return None
    return {name: value for name, value in {**(plan or {}), **(overrides or {})}.items() if value is not None}


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
    document = answer.json()
    if "download_url" in document:
        document["download_url"] = LINK
    assert (answer.status_code, document) == (case.answer["status"], case.answer["json"])
