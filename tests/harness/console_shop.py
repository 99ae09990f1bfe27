"""A shop with a history, for the console to show."""

import json
import random
from datetime import date, timedelta
from typing import Any
from urllib.parse import quote

from harness.console import NAME, PASSWORD
from harness.world import World
from licserver.database.repositories.statistics import CountKey, Seen, add_counts, note_refusals, note_seen
from licserver.domain.records import Actor, ActorKind, Environment, LicenseTerms, Machine
from licserver.domain.seats import Seat
from licserver.shops import ShopKind
from licserver.shops.contract import ProblemKind

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}'

_CHANGELOG = """<h4>1.4.0</h4><ul><li>Reads the raw files of 40 more cameras</li>
<li>Exports twice as fast</li><li>No longer forgets the window's place</li></ul>
<p><a href="https://example.com/photo-lab">All of it</a></p>"""

_CHANGELOG_NEXT = """<ul><li>Does not lose a raw file any more when the disk is full</li>
<li>Opens folders with 10,000 pictures at once</li></ul>"""


def stock_shop(world: World) -> dict[str, str]:
    """Fill a world with a small shop; returns what its pages are called.

    Returns:
        Addresses of pages, by what is special about them.
    """
    _stock_products(world)
    sell = _Till(world)
    studio = [["studio.example", "192.0.2.7"], ["jo.example", "192.0.2.9"], ["old.example", "192.0.2.5"]]
    full = sell(
        "photo-lab",
        activations=studio,
        slots=3,
        expires_on=date(2027, 11, 30),
        customer_email="jo@studio.example",
        note="Order 4711; two studios",
        plan="pro",
    )
    world.clock.forward(days=8)
    soon, past = date(2026, 11, 27), date(2026, 10, 31)
    home = [["mia.example", "192.0.2.4"]]
    sell("photo-lab", activations=home, slots=3, expires_on=soon, customer_email="mia@example.org")
    campus = [[f"pc-{at}.university.example", f"192.0.2.{at + 20}"] for at in range(14)]
    university = {"customer_email": "it@university.example", "note": "Campus license", "floating_seats": 5}
    shared = sell("photo-lab", activations=campus, slots=None, lifetime=True, **university)
    laptop = {
        (world.services.vault.license_id(full), Environment("laptop.example", "192.0.2.66"), "slots full"): 3
    }
    note_refusals(world.services.database, laptop, world.clock())
    revoked = sell("sound-lab", customer_email="sam@example.net")
    support = world.services.acting_as(Actor(ActorKind.USER, NAME))
    support.licenses.revoke(revoked, "Refund, order 4712")
    support.licenses.change(full, slots=2)
    support.licenses.free_slot(full, Environment("old.example", "192.0.2.5"))
    sell("sound-lab", slots=5, expires_on=past, customer_email="kim@band.example", subscription_id="sub_17")
    _report_sales(world)
    world.clock.forward(days=3)
    _roll_out(world, full)
    _use(world, full, shared)
    _count(world)
    license_id = world.services.vault.license_id(full).hex()
    return {
        "overview": "/console",
        "overview of a product": "/console?product=photo-lab",
        "licenses": "/console/licenses",
        "issue": "/console/licenses/issue",
        "license": f"/console/licenses/{license_id}",
        "seats": f"/console/licenses/{world.services.vault.license_id(shared).hex()}",
        "customer": "/console/customers?email=jo@studio.example",
        "revoked": f"/console/licenses/{world.services.vault.license_id(revoked).hex()}",
        "products": "/console/products",
        "product": "/console/products/photo-lab",
        "release": "/console/products/photo-lab/releases/1.4.0",
        "rollout": "/console/products/photo-lab/releases/1.4.1",
        "beta": "/console/products/photo-lab/releases/2.0b1",
        "withdrawn": "/console/products/photo-lab/releases/1.3.9",
        "audit": "/console/audit",
        "sales": "/console/sources",
        "sales that need someone": "/console/sales",
        "source": "/console/sources/web-shop",
        "deliveries": "/console/sources/web-shop/events",
        "account": "/console/account",
        "imports": "/console/imports",
        "backups": "/console/backups",
        "users": "/console/users",
        "tokens": "/console/tokens",
        "health": "/console/health",
        "api": "/console/api",
        "nothing": "/console/nothing",
    }


def stock_long_names(world: World) -> dict[str, str]:
    """Add what has the longest names that are taken; returns addresses of pages."""
    word, slug, version = (
        "Donaudampfschifffahrt" * 9,
        "a-slug-" * 8 + "long",
        "2027.1+" + ".".join(["local"] * 9),
    )
    world.services.products.add(slug, word, has_support_policy=True)
    world.publish(slug, version, "2026-11-01T09:00:00Z", f"<table><tr><td>{word}</td></tr></table>")
    world.publish(slug, version, "2026-11-01T09:00:00Z", platform="w" * 40)
    terms = LicenseTerms(
        slots=2**31 - 1,
        customer_email=f"{'name.' * 20}@{'sub.' * 20}example.org",
        note=word,
        subscription_id="s" * 255,
        allowed=(f"*.{'long-' * 10}.example.org", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
    )
    issued, _ = world.services.licenses.issue(slug, terms)
    world.activate(issued.id, Environment("0123456789abcdef" * 15, "2001:db8:ffff:ffff:ffff:ffff:ffff:1"))
    revoked, _ = world.services.licenses.issue(slug, LicenseTerms())
    world.services.licenses.revoke(revoked.id.hex(), word)
    busy = {CountKey("verify", "", "valid"): 123_456_789, CountKey("update", slug, version): 98_765_432}
    add_counts(world.services.database, world.clock().date(), busy)
    _ask(world, f"order:{'8' * 255}", ProblemKind.UNMAPPED, f"{word} is not mapped", word, slug)
    return {
        "overview": "/console",
        "sales that need someone": "/console/sales",
        "licenses": "/console/licenses",
        "license": f"/console/licenses/{issued.id.hex()}",
        "revoked": f"/console/licenses/{revoked.id.hex()}",
        "products": "/console/products",
        "product": f"/console/products/{slug}",
        "release": f"/console/products/{slug}/releases/{quote(version)}",
        "audit": "/console/audit",
    }


_MACHINES = {
    "studio.example": Machine("Jo's iMac, Berlin studio", "1.4.0"),
    "mia.example": Machine("W" * 80, "1.4.0"),  # the widest
}
"""What their apps tell, by domain; the others tell nothing."""


class _Till:
    """Sells through the vendor's own operations, so that it stands in the audit log."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._shop = world.services.acting_as(Actor(ActorKind.TOKEN, "shop"))

    def __call__(self, slug: str, *, activations: list[list[str]] = [], **terms: Any) -> str:  # noqa: B006 - not kept
        issued, key = self._shop.licenses.issue(slug, LicenseTerms(**terms))
        for domain, ip in activations:
            self._world.activate(issued.id, Environment(domain, ip))
        if activations:
            now = self._world.clock()
            seen = [
                Seen(issued.id, Environment(*activation), now, machine=_MACHINES.get(activation[0]))
                for activation in activations
            ]
            note_seen(self._world.services.database, seen)
        return key


def _roll_out(world: World, key: str) -> None:
    """Publish a version that two of five installations are offered, and one for those who test."""
    world.publish(
        *("photo-lab", "1.4.1", f"{world.clock() - timedelta(days=3):%Y-%m-%dT%H:%M:%SZ}", _CHANGELOG_NEXT),
        size=4_650_000,
        rollout="7d",
        critical_below="1.4",
    )
    world.publish("photo-lab", "2.0b1", "2026-11-02T09:00:00Z", "All new.", size=5_900_000, channel="beta")
    license_ = world.services.licenses.get(key)
    for domain in ("studio.example", "jo.example"):
        assert world.services.rollouts.count_rollback(license_, "photo-lab", "1.4.1", domain, "")


def _use(world: World, metered: str, shared: str) -> None:
    """Let a metered entitlement be used, and seats be held."""
    metered_id, shared_id = map(world.services.vault.license_id, (metered, shared))
    world.services.uses.consume(metered_id, "exports", {"limit": 100, "per": "month"}, 37, "any")
    now = world.clock()
    for number, label in enumerate(("Reading room, left", "Reading room, right", None)):
        taken_at = now - timedelta(minutes=95 - 40 * number)
        domain = f"pc-{number}.university.example"
        seat = Seat(bytes([number] * 16), domain, label, taken_at, now + timedelta(seconds=80 + number))
        world.repositories.seats.put(shared_id, seat)


def _report_sales(world: World) -> None:
    """Let a shop have delivered something of each kind."""
    sources, stored = world.services.sources, world.services.repositories.sales
    sources.add("web-shop", ShopKind.WOOCOMMERCE, "WEB_SHOP_SECRET")
    sources.map("web-shop", "93", "photo-lab", slots=3, expires_in="1y")
    sources.map("web-shop", "T-SHIRT", None)
    for number, (state, reason, content) in enumerate(
        (
            ("done", "issued 1 license of photo-lab", "[]"),
            ("ignored", "the order is pending", None),
            ("dead", "not mapped: 94; use `licserver source map`, then `licserver source replay`", "[]"),
        )
    ):
        values = {"type": "order.updated", "content": content, "state": state, "reason": reason}
        stored.add_event("web-shop", str(number), world.clock(), **values, finished_at=world.clock())
    _ask(
        world,
        "order:812",
        ProblemKind.UNMAPPED,
        "order 812: Photo Lab Pro is not mapped; map it",
        "94",
        "LAB-PRO",
    )
    _ask(world, "order:813", ProblemKind.UNMAPPED, "order 813: Sound Lab is not mapped; map it", "95")
    _ask(
        world,
        "subscription:77",
        ProblemKind.FEWER,
        "subscription 77 pays for 2 licenses of Photo Lab; 3 are in use",
    )


def _ask(world: World, sale: str, kind: ProblemKind, message: str, *ids: str) -> None:
    """Let a sale of the shop need a person."""
    answers = "leave" if ids else "follow leave"
    external_ids = json.dumps(ids) if ids else None
    values = {"kind": kind, "message": message, "answers": answers, "external_ids": external_ids}
    world.services.repositories.sales.put_problem("web-shop", sale, f"{kind}:{sale}", world.clock(), **values)


def _stock_products(world: World) -> None:
    releases: list[dict[str, Any]] = [
        {
            "version": "1.3.0",
            "published_at": "2026-08-03T09:00:00Z",
            "changelog": "Fixes.",
            "size": 4_300_000,
        },
        {"version": "1.3.9", "published_at": "2026-10-02T09:00:00Z", "size": 4_400_000, "withdrawn": True},
        {
            "version": "1.4.0",
            "published_at": "2026-10-12T09:00:00Z",
            "changelog": _CHANGELOG,
            "size": 4_600_000,
        },
    ]
    for slug, name, support, published in (
        ("photo-lab", "Photo Lab", True, releases),
        ("sound-lab", "Sound Lab", False, []),
    ):
        product = {"slug": slug, "name": name, "environment": "domain", "support_policy": support}
        world.stock({"products": [{**product, "releases": published}], "licenses": []})
    plans = world.services.plans
    plans.add("photo-lab", "pro", {"export": True, "exports": {"limit": 100, "per": "month"}, "projects": 50})
    plans.add("photo-lab", "trial", {"export": False, "projects": 3})


def _count(world: World) -> None:
    """Let two months have been counted."""
    draw = random.Random(7)
    for back in range(60):
        day = (world.clock() - timedelta(days=back)).date()
        busy = 0.55 if day.weekday() >= 5 else 1.0
        counts = {
            CountKey("verify", "photo-lab", "valid"): draw.randint(580, 700),
            CountKey("verify", "sound-lab", "valid"): draw.randint(200, 300),
            CountKey("verify", "photo-lab", "slots full"): draw.randint(20, 60),
            CountKey("verify", "sound-lab", "expired"): draw.randint(15, 45),
            CountKey("verify", "", "unknown"): draw.randint(5, 30),
            CountKey("verify", "sound-lab", "revoked"): draw.randint(1, 8),
            CountKey("activation", "photo-lab", ""): draw.randint(15, 45),
            CountKey("activation", "sound-lab", ""): draw.randint(5, 15),
            CountKey("update", "photo-lab", "1.4.0"): draw.randint(560, 640),
            CountKey("update", "photo-lab", "1.4.1"): max(0, 3 - back) * 90,
            CountKey("update", "photo-lab", "1.3.0"): draw.randint(190, 230),
            CountKey("update", "photo-lab", "other"): draw.randint(20, 40),
        }
        add_counts(world.services.database, day, {what: int(count * busy) for what, count in counts.items()})


def add_alice(world: World) -> tuple[str, str]:
    """Add the user alice; returns name and password."""
    world.services.users.add(NAME, PASSWORD)
    return NAME, PASSWORD
