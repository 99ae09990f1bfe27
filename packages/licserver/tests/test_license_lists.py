"""Lists of licenses: every way of asking finds what it should, once, page by page."""

from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest

from harness import engines
from licserver.database.repositories import license_search
from licserver.database.repositories.audit import AuditFilter
from licserver.database.repositories.statistics import Seen, note_seen
from licserver.domain.decisions import generate_license_key, is_support_over, license_state, mask_key
from licserver.domain.records import Environment, LicenseState, LicenseTerms
from licserver.errors import InvalidInputError, NotFoundError
from licserver.protocol.license_files import LicenseRow
from licserver.services.license_search import LicenseFilter

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps

YESTERDAY, TODAY, LATER = date(2026, 6, 14), date(2026, 6, 15), date(2026, 7, 1)


@pytest.fixture
def shop(world, activate):
    """Licenses of every kind, by a name; what is activated is seen as well."""
    world.product("pro")
    keys = {}

    def sell(name: str, slug: str = "app", **terms: Any):
        keys[name] = world.key(slug, **terms)
        world.clock.forward(seconds=1)

    sell("bob", customer_email="Bob.Smith@Shop.example", note="Invoice 2026-17, paid")
    sell("ann", "pro", customer_email="ann@shop.example", expires_on=LATER)
    sell("old", expires_on=YESTERDAY, note="bobsleigh club")
    sell("today", expires_on=TODAY)
    sell("forever", lifetime=True)
    sell("ended", subscription_id="s-1")
    sell("ended too", subscription_id="s-1", expires_on=YESTERDAY)
    sell("running", subscription_id="s-2", expires_on=LATER)
    sell("refunded", expires_on=YESTERDAY)
    world.services.subscriptions.end("s-1", world.clock())
    world.services.licenses.revoke(keys["refunded"], "refund")
    activations = [("forever", "www.bobs.example"), ("today", "bobs.example"), ("today", "www.bobs.example")]
    for name, domain in [*activations, ("bob", "bob.example")]:
        world.services.licenses.change(keys[name], slots=None)
        activate(keys[name], domain, "192.0.2.1")
        activate(keys[name], domain, "192.0.2.2")
        batch = [
            Seen(
                world.services.vault.license_id(keys[name]),
                Environment(domain, f"192.0.2.{n}"),
                world.clock(),
            )
            for n in (1, 2)
        ]
        note_seen(world.services.database, batch)
    return world, keys


def walk(read, limit):
    """All items of a list, and how many pages they came on."""
    items, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = read(cursor, limit)
        assert len(page.items) == limit or page.cursor is None
        items += page.items
        cursor, pages = page.cursor, pages + 1
    return items, pages


ALL = ["refunded", "running", "ended too", "ended", "forever", "today", "old", "ann", "bob"]
FOUND = [
    (LicenseFilter(), ALL),
    (LicenseFilter(product="pro"), ["ann"]),
    (LicenseFilter(product="app", state=LicenseState.ACTIVE), ["running", "forever", "today", "bob"]),
    (LicenseFilter(state=LicenseState.REVOKED), ["refunded"]),
    (LicenseFilter(state=LicenseState.EXPIRED), {"ended too", "old", "ended"}),
    (LicenseFilter(state=LicenseState.EXPIRED, subscription="s-1"), ["ended too", "ended"]),
    (LicenseFilter(subscription="s-2"), ["running"]),
    (LicenseFilter(subscription="s-3"), []),
    (LicenseFilter(expires_from=TODAY, expires_until=LATER), {"today", "ann", "running"}),
    (LicenseFilter(expires_until=TODAY, state=LicenseState.ACTIVE), ["today"]),
    (LicenseFilter(expires_from=LATER, product="pro"), ["ann"]),
    (LicenseFilter(query="bob"), {"bob", "old", "today", "forever"}),
    (LicenseFilter(query="BOB.SMITH@shop"), ["bob"]),
    (LicenseFilter(query="smith"), ["bob"]),
    (LicenseFilter(query="shop.exa"), {"bob", "ann"}),
    (LicenseFilter(query="2026-17 inv"), ["bob"]),
    (LicenseFilter(query="shop invoice missing"), []),
    (LicenseFilter(query="bobs"), {"old", "today", "forever"}),
    (LicenseFilter(query="https://bobs.example/shop"), {"today", "forever"}),
    (LicenseFilter(query="bob", state=LicenseState.EXPIRED), ["old"]),
    (LicenseFilter(query="bob", expires_from=TODAY), ["today"]),
    (LicenseFilter(query="bo", product="app", state=LicenseState.ACTIVE), {"forever", "today", "bob"}),
    (LicenseFilter(query="refun"), ["refunded"]),
    (LicenseFilter(query="s-"), {"ended", "ended too", "running"}),
    (LicenseFilter(query="192.0.2.1"), {"bob", "today", "forever"}),
    (LicenseFilter(query="b", subscription="s-1"), []),
    (LicenseFilter(query="CP-AAAAAA-AAAAAA-AAAAAA-AAAAAA-AAAAAA"), []),
]


@pytest.mark.slow
@pytest.mark.parametrize("collected", [1, license_search.MAX_COLLECTED])
def test_each_filter_finds_what_it_should_once(shop, monkeypatch, collected):
    """Whatever the size of the pages; in the order named, unless what was found orders them (then a set)."""
    monkeypatch.setattr(license_search, "MAX_COLLECTED", collected)
    world, keys = shop
    named = {world.services.licenses.get(key).id: name for name, key in keys.items()}
    for which, expected in FOUND:
        for limit in (1, 2, 50):
            items, _ = walk(lambda *place, which=which: world.services.licenses.search(which, *place), limit)
            found = [named[license_.id] for license_ in items]
            assert len(found) == len(set(found)), which
            assert (found if isinstance(expected, list) else set(found)) == expected, which


def test_a_key_and_an_id_find_their_license(shop):
    """Also when a key was typed in small letters."""
    world, keys = shop
    license_ = world.services.licenses.get(keys["ann"])
    key, masked = keys["ann"], mask_key(keys["ann"])
    for text in (
        masked,
        masked.lower().replace("…", "..."),
        f"({key[:12]})",
        f"{key[:5]}***",
        key[-13:],
        f"…{key[-4:]}",
    ):
        assert license_ in world.services.licenses.search(LicenseFilter(text)).items, text
    for query in (keys["ann"], f" {keys['ann'].lower()} ", license_.id.hex()):
        assert world.services.licenses.search(LicenseFilter(query)).items == [license_]


def test_the_masked_key_of_a_license_that_was_sold_elsewhere_finds_it(world):
    """Such a key may have small letters: it is looked for as it is shown, and as it is typed in capitals."""
    world.services.products.change("app", accepts_imported_keys=True)
    keys = ("38b1460a-5104-4067-a91d-77b872934d51", "PRO-5104-4067-QRST")
    with world.services.transfer.start_import() as incoming:
        incoming.read((n, LicenseRow(license_key=key, product="app")) for n, key in enumerate(keys, 1))
        incoming.commit()
    for key in keys:
        license_ = world.services.licenses.get(key)
        masked = mask_key(key)
        for text in (masked, f"{key[:9]}...{key[-6:]}", *([masked.lower()] if key.isupper() else [])):
            assert license_ in world.services.licenses.search(LicenseFilter(text)).items, text


def test_what_is_changed_or_freed_is_found_no_more(shop):
    """Words of an e-mail and a note, and domains, go with them."""
    world, keys = shop
    world.services.licenses.change(keys["bob"], customer_email="rob@elsewhere.example", note=None)
    world.services.licenses.deactivate(keys["bob"], "bob.example")
    find = world.services.licenses.search
    assert find(LicenseFilter("smith")).items == find(LicenseFilter("invoice")).items == []
    assert find(LicenseFilter("bob.example")).items == []
    assert [license_.customer_email for license_ in find(LicenseFilter("rob")).items] == [
        "rob@elsewhere.example"
    ]


def test_sql_and_the_decision_agree_on_every_license(world):
    """Every combination of dates is listed in the state that it has, and if it permits a download."""
    world.product("paid", has_support_policy=True)
    world.publish("1.0", slug="paid")
    now, day, moment = world.clock(), timedelta(days=1), timedelta(microseconds=1)
    days, instants = [TODAY - day, TODAY, TODAY + day, None], [now - moment, now, now + moment, None]
    fields = ("lifetime", "expires_on", "subscription_ended_at", "revoked_at", "support_until")
    paid = world.services.products.get("paid")
    sold = [
        replace(
            world.services.licenses.prepare(paid, LicenseTerms(), generate_license_key(), now),
            **dict(zip(fields, dates, strict=True)),
        )
        for dates in product((False, True), days, instants, (None, now), (*days[:2], None))
    ]
    world.services.repositories.licenses.add_all(sold)
    lists = world.services.licenses
    expected = {
        state: {license_.id for license_ in sold if license_state(license_, now) is state}
        for state in LicenseState
    }
    for state in LicenseState:
        found = walk(partial(lists.search, LicenseFilter(state=state)), 50)[0]
        assert sorted(license_.id for license_ in found) == sorted(expected[state])
    entitled = walk(partial(lists.list_entitled, "paid", "1.0"), 200)[0]
    active = [license_ for license_ in sold if license_state(license_, now) is LicenseState.ACTIVE]
    assert {license_.id for license_ in entitled} == {
        license_.id for license_ in active if not is_support_over(paid, license_, now)
    }


def test_who_may_download_a_release(world):
    """Valid keys of the product within their support; nobody when it is withdrawn."""
    world.product("paid", has_support_policy=True)
    world.publish("1.0", slug="paid")
    good = {
        world.key("paid"),
        world.key("paid", support_until=TODAY),
        world.key("paid", expires_on=TODAY, slots=0),
    }
    world.key("paid", support_until=YESTERDAY)
    world.key("paid", expires_on=YESTERDAY)
    world.services.licenses.revoke(world.key("paid"))
    world.key("app")
    items, _ = walk(lambda *place: world.services.licenses.list_entitled("paid", "1.0", *place), 2)
    assert {world.services.licenses.decrypt_key(license_) for license_ in items} == good
    world.services.releases.withdraw("paid", "1.0")
    assert world.services.licenses.list_entitled("paid", "1.0") == ([], None)
    with pytest.raises(NotFoundError):
        world.services.licenses.list_entitled("paid", "2.0")


def test_activations_come_page_by_page(world, activate):
    """By domain and address, with first and last seen; another license's are not among them."""
    key, other = world.key(slots=None), world.key()
    activate(other, "a.example", "192.0.2.9")
    for n in range(5):
        activate(key, f"{n}.example", "192.0.2.1")
    first = world.clock()
    world.clock.forward(days=1)
    seen = Seen(world.services.vault.license_id(key), Environment("3.example", "192.0.2.1"), world.clock())
    note_seen(world.services.database, [seen])
    items, pages = walk(lambda *place: world.services.licenses.list_activations(key, *place), 2)
    assert [activation.environment.domain for activation in items] == [f"{n}.example" for n in range(5)]
    assert [activation.last_seen_at for activation in items] == [first, first, first, world.clock(), first]
    assert pages == 3


def test_subscriptions_come_page_by_page(world):
    """Each with how many licenses hang on it, and when it ends; it can be resumed."""
    for subscription in ("a", "a", "b", "c"):
        world.key(subscription_id=subscription)
    end = world.clock() + timedelta(days=3)
    world.services.subscriptions.end("b", end)
    items, pages = walk(world.services.subscriptions.list_page, 2)
    assert items == [("a", 2, None), ("b", 1, end), ("c", 1, None)]
    assert pages == 2
    assert world.services.subscriptions.resume("b") == 1
    assert world.services.subscriptions.get("b") == ("b", 1, None)
    for act in (world.services.subscriptions.get, world.services.subscriptions.resume):
        with pytest.raises(NotFoundError):
            act("d")


CURSORS = [
    "x",
    "",
    "W10",
    "bnVsbA",
    "WzBd" * 1000,
    "WzksMV0",
    "WzAsIlx1ZDgwMCJd",
    "WzAsMSwyXQ",
    "\u00e9",
    "W3RydWVd",
]


def test_a_cursor_of_another_making_is_refused(world):
    """An invalid one gets a message to begin again, and nothing fails."""
    key, services = world.key(), world.services
    for cursor, (read, first) in product(
        CURSORS,
        (
            (services.licenses.search, LicenseFilter()),
            (services.licenses.search, LicenseFilter("a")),
            (services.licenses.list_activations, key),
            (services.audit.list_page, AuditFilter()),
        ),
    ):
        with pytest.raises(InvalidInputError, match="this cursor"):
            read(first, cursor)
    for cursor in CURSORS:
        with pytest.raises(InvalidInputError, match="this cursor"):
            services.subscriptions.list_page(cursor)


@pytest.mark.parametrize("limit", [0, -1, 201])
def test_a_page_has_its_limits(world, limit):
    """No list can be asked for a million at once."""
    with pytest.raises(InvalidInputError, match="between 1 and 200"):
        world.services.licenses.search(limit=limit)


@pytest.mark.parametrize(
    ("query", "message"),
    [("x" * 201, "200"), ("a\x00", "one line"), ("\udcff", "one line"), ("...", "beginning")],
)
def test_what_cannot_be_searched_for_is_rejected(world, query, message):
    """NUL, half characters and dots alone never reach the database."""
    with pytest.raises(InvalidInputError, match=message):
        world.services.licenses.search(LicenseFilter(query))
