"""Full licenses whose product gives away the slots of idle computers (D-334); licenses that are shared."""

import asyncio
import json
from datetime import timedelta

import pytest

from harness.engines import both_engines
from licserver.domain.records import Environment
from licserver.errors import InvalidInputError
from licserver.services.license_search import LicenseFilter
from licserver.services.self_check import check_installation

ADDRESS = "127.0.0.1"
REFUSED = {"valid": False, "reason": "Max activations exceeded or unrecognized environment."}


@pytest.fixture
async def shop(world, site):
    """A product whose computers are idle after 30 days; three moves in 30 days. Sweeps have begun."""
    world.services.products.change("app", policy="domain", idle_days=30)
    world.services.retention.sweep_daily()
    return world, site


def days(world, number):
    """Let so many days pass, of a clock that is right: the server's background reads it as well."""
    world.clock.forward(days=number)
    with world.services.context.transaction() as tx:
        tx.repositories.clock.accept(world.clock())


def see(world, key, domain):
    """Store a computer as seen now, as the server does every day."""
    license_id = world.services.vault.license_id(key)
    world.repositories.licenses.remove_activation(license_id, Environment(domain, ADDRESS))
    world.repositories.licenses.add_activation(
        license_id, Environment(domain, ADDRESS), world.clock(), (domain.title(), None)
    )


async def test_a_new_computer_gets_the_slot_of_the_one_seen_longest_ago(shop):
    """Once that is idle for the days of the product; it learns where its slot went, and it was a move."""
    world, site = shop
    key = world.key(slots=2)
    see(world, key, "older")
    days(world, 5)
    see(world, key, "newer")
    days(world, 24)
    assert await site.verify(key, "third") == (403, REFUSED)
    days(world, 1)
    status, answer = await site.verify(key, "third")
    assert (status, answer["valid"]) == (200, True)
    assert world.held(key) == [("newer", ADDRESS), ("third", ADDRESS)]
    assert await site.verify(key, "fourth") == (403, REFUSED)
    assert await site.verify(key, "older") == (403, REFUSED)
    body = {"license_key": key, "domain": "older"}
    _, _, listed = await site.call("POST", "/api/v1/licenses/computers", json=body)
    # To take it back is free.
    assert (listed["moves_left"], listed["moved_to"]["masked"]) == (3, "t…")
    actions = [entry.action for entry in world.services.audit.list_page().items]
    assert actions.count("license.move") == 1


async def test_a_product_that_chooses_nothing_refuses(shop):
    """However long its computers were not seen."""
    world, site = shop
    world.services.products.change("app", idle_days=0)
    key = world.key(slots=1)
    see(world, key, "older")
    days(world, 300)
    assert await site.verify(key, "newer") == (403, REFUSED)


async def test_a_computer_with_a_license_file_keeps_its_slot(shop):
    """It sends no request until the file ends; the next oldest computer gives its slot instead."""
    world, site = shop
    key = world.key(slots=2)
    see(world, key, "offline")
    days(world, 1)
    see(world, key, "online")
    until = world.clock() + timedelta(days=365)
    world.repositories.licenses.hold_offline(world.services.vault.license_id(key), "offline", until)
    days(world, 40)
    assert (await site.verify(key, "third"))[0] == 200
    assert world.held(key) == [("offline", ADDRESS), ("third", ADDRESS)]
    days(world, 40)
    world.repositories.licenses.hold_offline(world.services.vault.license_id(key), "third", until)
    assert await site.verify(key, "fourth") == (403, REFUSED)
    days(world, 366 - 81 + 29)
    assert await site.verify(key, "fourth") == (403, REFUSED)  # the file ended 29 days ago
    days(world, 1)
    assert (await site.verify(key, "fourth"))[0] == 200


async def test_idle_slots_are_within_the_moves_of_the_product(shop):
    """Five idle computers, three moves: the fourth new computer is refused for 30 days."""
    world, site = shop
    key = world.key(slots=5)
    for number in range(5):
        see(world, key, f"old-{number}")
    days(world, 31)
    statuses = [(await site.verify(key, f"new-{number}"))[0] for number in range(4)]
    assert statuses == [200, 200, 200, 403]
    days(world, 30)
    assert (await site.verify(key, "new-3"))[0] == 200


async def test_nothing_is_idle_before_computers_are_watched(world, site):
    """Such as after a restore: what was seen since the backup is not known."""
    world.services.products.change("app", policy="domain", idle_days=30)
    key = world.key(slots=1)
    see(world, key, "older")
    while world.repositories.moves.watched_since() is None:  # noqa: ASYNC110 - the server's own first sweep
        await asyncio.sleep(0.01)
    days(world, 60)
    with world.services.database.writing() as connection:  # as a restore does
        connection.exec_driver_sql("DELETE FROM facts WHERE name = 'activations_watched_since'")
    assert await site.verify(key, "newer") == (403, REFUSED)
    world.services.retention.sweep_daily()
    days(world, 29)
    assert await site.verify(key, "newer") == (403, REFUSED)
    days(world, 1)
    assert (await site.verify(key, "newer"))[0] == 200


async def test_a_license_that_is_over_gives_no_slot_away(shop):
    """Verify decides first, as ever."""
    world, site = shop
    key = world.key(slots=1)
    see(world, key, "older")
    days(world, 60)
    world.services.licenses.revoke(key)
    assert (await site.verify(key, "newer"))[1]["reason"] == "License has been revoked."
    assert world.held(key) == [("older", ADDRESS)]


async def test_a_slot_that_is_freed_in_between_is_taken_as_ever(shop, monkeypatch):
    """The refusal was decided without a lock: under it a slot is free, and no computer loses its own."""
    world, site = shop
    key = world.key(slots=1)
    license_id = world.services.vault.license_id(key)
    see(world, key, "older")
    days(world, 60)
    services = world.services
    find = type(services.repositories.licenses).find_snapshot

    def find_later(repository, license_id_, environment):
        monkeypatch.undo()
        repository.remove_activation(license_id, Environment("older", ADDRESS))
        return find(repository, license_id_, environment)

    monkeypatch.setattr(type(services.repositories.licenses), "find_snapshot", find_later)
    assert (await site.verify(key, "newer"))[0] == 200
    assert world.held(key) == [("newer", ADDRESS)]
    assert services.repositories.moves.list_records(license_id) == []


async def test_more_days_between_two_sights_make_a_computer_idle_later(make_world, open_site):
    """LICSERVER_LAST_SEEN_DAYS was raised after the rule was chosen; check and the start report it."""
    world = make_world(last_seen_days=7)
    site = await open_site(world)
    world.services.retention.sweep_daily()
    with world.services.database.writing() as connection:
        connection.exec_driver_sql("UPDATE products SET idle_days = 3, environment_policy = 'domain'")
    findings = check_installation(world.settings, world.clock(), reach=False)
    (message,) = [finding.message for finding in findings if finding.about == "products"]
    assert "after 9" in message
    key = world.key(slots=1)
    see(world, key, "older")
    days(world, 8)
    assert await site.verify(key, "newer") == (403, REFUSED)
    days(world, 1)
    assert (await site.verify(key, "newer"))[0] == 200


def test_a_rule_that_would_take_slots_in_use_is_refused(make_world):
    """Fewer days than last seen needs, more than ten years, or no moves; in either order."""
    products = make_world(last_seen_days=3).services.products
    assert products.change("app", idle_days=5).idle_days == 5
    for wrong in (4, 1, 3_651):
        with pytest.raises(InvalidInputError, match="5 to 3650 days"):
            products.change("app", idle_days=wrong)
    with pytest.raises(InvalidInputError, match="counts as a move"):
        products.change("app", customer_moves=0)
    assert products.change("app", idle_days=0, customer_moves=0).customer_moves == 0
    with pytest.raises(InvalidInputError, match="counts as a move"):
        products.change("app", idle_days=5)
    with pytest.raises(InvalidInputError, match="5 to 3650 days"):
        products.add("other", "Other", idle_days=4)


def test_the_command_line_has_the_rule(cli):
    """Ninety days if none are given; `refuse` is the default."""
    run = lambda *options: json.loads(cli("product", "change", "app", *options, "--json"))["idle_days"]  # noqa: E731
    assert cli("product", "add", "app", "--name", "App", "--when-full", "oldest") == "added app: App\n"
    assert json.loads(cli("product", "list", "--json"))[0]["idle_days"] == 90
    assert run("--idle", "30") == 30
    assert run("--when-full", "oldest") == 30
    assert run("--name", "App") == 30
    assert run("--when-full", "refuse") == 0
    assert run("--when-full", "oldest", "--idle", "10") == 10
    assert "--when-full oldest needs" in cli("product", "change", "app", "--idle", "0", expect=2)
    cli("product", "change", "app", "--when-full", "refuse")
    assert "--idle belongs" in cli("product", "change", "app", "--idle", "10", expect=2)


# --- licenses that go to and fro (D-335) ------------------------------------------------------


@pytest.fixture
def shared(world):
    """A function that moves a license to and fro so often."""
    world.services.products.change("app", policy="domain")

    def move(key, times):
        license_id = world.services.vault.license_id(key)
        if not world.held(key):
            see(world, key, "home")
        for _ in range(times):
            (source,) = [environment for environment, _ in world.held(key)]
            target = "office" if source == "home" else "home"
            ((id_, _),) = world.services.moves.list_computers(key, Environment(target, ADDRESS)).computers
            world.services.moves.move(key, Environment(target, ADDRESS), id_)
            world.clock.forward(hours=1)
        return license_id

    return move


@both_engines
def test_a_license_that_goes_to_and_fro_is_listed_and_announced_once(world, shared):
    """At the sixth move in 30 days, and never refused for it; again after 30 days."""
    world.services.webhooks.add("https://hook.example")
    key, other = world.key(), world.key()
    shared(other, 5)
    shared(key, 5)
    licenses = world.services.licenses
    assert list(licenses.list_shared()) == []
    shared(key, 20)
    assert [license_.masked_key for license_ in licenses.list_shared("app")] == [licenses.get(key).masked_key]
    assert licenses.is_shared(licenses.get(key))
    assert not licenses.is_shared(licenses.get(other))

    def count_events():
        queued = world.services.repositories.queue.list_page("webhook-events")
        return [job.payload["type"] for job in queued].count("license.probably_shared")

    assert count_events() == 1
    world.clock.forward(days=28)
    shared(key, 7)
    assert count_events() == 1
    world.clock.forward(days=3)
    shared(key, 1)
    assert count_events() == 2
    world.clock.forward(days=31)
    world.services.retention.sweep()
    assert list(licenses.list_shared()) == []


def test_probably_shared_is_a_filter_of_lists(world, shared):
    """Beside the others; also for those that are not."""
    world.product("other")
    key, *others = (world.key(slug) for slug in ("app", "app", "other"))
    shared(key, 6)
    search, get = world.services.licenses.search, world.services.licenses.get
    assert search(LicenseFilter(shared=True)).items == [get(key)]
    assert search(LicenseFilter(shared=True, product="other")).items == []
    assert search(LicenseFilter(shared=True, trial=True)).items == []
    not_shared = search(LicenseFilter(shared=False)).items
    assert {license_.id for license_ in not_shared} == {get(other).id for other in others}
    assert world.services.licenses.count(LicenseFilter(shared=True)) == (1, False)


async def test_the_console_lists_what_is_probably_shared(world, shared, alice):
    """By its filter, and on the page of the license; the product's form has the rule for idle computers."""
    key, other = world.key(), world.key()
    shared(key, 6)
    await alice.sign_in()  # the session of six hours ago is over
    ids = [world.services.licenses.get(key_).id.hex() for key_ in (key, other)]
    listed = await alice.get("/console/licenses?shared=yes")
    assert [id_ in listed for id_ in ids] == [True, False]
    listed = await alice.get("/console/licenses?shared=no")
    assert [id_ in listed for id_ in ids] == [False, True]
    pages = [await alice.get(f"/console/licenses/{id_}") for id_ in ids]
    assert ["Probably shared" in page for page in pages] == [True, False]
    await alice.get("/console/products/app")
    rules = {"policy": "domain", "moves": "3", "trial": "0"}
    await alice.post("/console/products/app/rules", **rules, idle="30")
    assert world.services.products.get("app").idle_days == 30
    assert "3 to 3650 days" in await alice.post("/console/products/app/rules", **rules, idle="2")
