"""A client of thirty lines, from the specification alone, against a server that uses everything else."""

# ruff: noqa: S310 - the addresses are those of the test's own server

import json
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from harness.shop import NAME, SLUG
from harness.world import Server, World
from licserver.domain.offers import bucket

OFFERED = "1.1.0"
VERIFY_FIELDS = {"valid", "product", "expiry", "lifetime"}
OFFER_FIELDS = {"name", "slug", "version", "download_url", "sections", "last_updated", "requires", "tested"}


class PlainClient:
    """What the specification asks of a client, and nothing else."""

    def __init__(self, url: str, key: str, domain: str = "desk.example") -> None:
        self._url, self._key, self._domain = url, key, domain

    def verify(self) -> dict[str, Any]:
        """Return the body of a verify."""
        sent = {"license_key": self._key, "domain": self._domain, "ip": "192.0.2.7"}
        headers = {"Content-Type": "application/json"}
        request = Request(f"{self._url}/api/v1/licenses/verify", json.dumps(sent).encode(), headers)
        return self._read(request)

    def check(self, version: str) -> dict[str, Any]:
        """Return the body of an update check."""
        query = {"license_key": self._key, "slug": SLUG, "current_version": version, "domain": self._domain}
        return self._read(Request(f"{self._url}/api/v1/update-check?{urlencode(query)}"))

    def download(self, offer: dict[str, Any]) -> bytes:
        """Return the file of an offer."""
        with urlopen(offer["download_url"]) as response:
            return bytes(response.read())

    def _read(self, request: Request) -> dict[str, Any]:
        try:
            with urlopen(request) as response:
                return dict(json.load(response))
        except HTTPError as refusal:
            return dict(json.load(refusal))


def test_a_client_of_the_specification_alone(shop: World, server: Server) -> None:
    """It verifies a license with plan and seats, and downloads the stable version beside a beta."""
    shop.services.plans.add(SLUG, "pro", {"export": True, "exports": {"limit": 100, "per": "month"}})
    shop.publish(SLUG, "2.0.0", "2026-11-06T08:30:00Z", channel="beta")
    client = PlainClient(server.url, shop.new_key(SLUG, plan="pro", floating_seats=5))
    answer = client.verify()
    assert (answer["valid"], answer["product"], answer["lifetime"]) == (True, NAME, False)
    offer = client.check("1.0.0")
    assert offer["version"] == OFFERED
    assert client.download(offer) == shop.files[OFFERED]


def test_a_version_that_is_rolled_out_reaches_it_in_its_turn(shop: World, server: Server) -> None:
    """Beside a limit of support and an important version, it gets the specified fields and the file."""
    shop.services.products.change(SLUG, minimum_version="1.0.5")
    shop.publish(SLUG, "1.2.0", "2026-11-06T08:30:00Z", rollout="10%", critical_below="0.9")
    homes = sorted(map("{}.example".format, range(99)), key=lambda home: bucket(SLUG, "1.2.0", home))
    first, last = (PlainClient(server.url, shop.new_key(SLUG), homes[at]) for at in (0, -1))
    for client, installed, version in (
        (first, "1.0.0", "1.2.0"),
        (last, "1.0.0", OFFERED),
        (last, "0.8.0", "1.2.0"),
    ):
        offer = client.check(installed)
        assert offer["version"] == version
        assert set(offer) >= OFFER_FIELDS
        assert client.download(offer) == shop.files[version]


def test_a_trial_is_a_key_like_any_other(shop: World, server: Server) -> None:
    """A client that knows nothing of trials uses it, and is refused after its end."""
    key = shop.new_key(SLUG, trial=True, expires_on="2026-11-20")
    client = PlainClient(server.url, key)
    assert client.verify()["valid"] is True
    shop.clock.forward(days=1)
    assert client.verify() == {"valid": False, "reason": "License expired."}
    assert client.check("1.0.0")["error"] == "license_expired"


def test_what_nobody_uses_is_not_sent(shop: World, server: Server) -> None:
    """A license without extensions gets the specified fields, and no others."""
    client = PlainClient(server.url, shop.new_key(SLUG))
    assert set(client.verify()) == VERIFY_FIELDS
    assert set(client.check("1.0.0")) == OFFER_FIELDS
