"""Trials: one for each machine and product, bounded by address and by day, converted when they are bought."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from itertools import pairwise

import pytest

from harness.engines import both_engines, sqlite_only
from licserver.database.repositories.statistics import note_refusals
from licserver.database.repositories.trials import TrialClient
from licserver.database.repositories.webhooks import EVENTS
from licserver.domain.trials import TrialRefusal
from licserver.errors import ConflictError, NotFoundError
from licserver.protocol.trials import TRIAL_PATH
from licserver.protocol.webhooks import EventType
from licserver.services.license_search import LicenseFilter

LAST_DAY = date(2026, 6, 29)  # 14 days after the world's day


def machine(name: object = "one") -> str:
    """Return what a client sends for a machine."""
    return sha256(str(name).encode()).hexdigest()


@pytest.fixture
def shop(world):
    """A product with trials of 14 days."""
    world.services.products.change("app", trial_days=14)
    return world.services


async def ask(site, slug="app", name: object = "one", source="127.0.0.1", domain=None, **headers: str):
    """Ask for a trial."""
    sent = {"slug": slug, "machine": machine(name)}
    body = json.dumps(sent if domain is None else {**sent, "domain": domain}).encode()
    status, _, answer = await site.call("POST", TRIAL_PATH, source, data=body, headers=headers)
    return status, answer


async def ask_until_served(site, *, name: object = "one", source="127.0.0.1"):
    """Ask for a trial, again while the other racers have the database: on a busy machine for seconds."""
    while True:
        answered = await ask(site, name=name, source=source)
        if answered[0] != 503:
            return answered


async def test_a_trial_works_until_its_last_day(site, shop, world):
    """It is verified as every license is, marked as a trial, and for one machine."""
    status, trial = await ask(site)
    assert (status, trial) == (
        200,
        {
            "license_key": trial["license_key"],
            "product": "App",
            "expiry": "2026-06-29",
            "lifetime": False,
            "trial": True,
        },
    )
    key = trial["license_key"]
    valid = {"valid": True, "product": "App", "expiry": "2026-06-29", "lifetime": False, "trial": True}
    assert await site.verify(key) == (200, valid)
    assert (await site.verify(key, "b.example", "127.0.0.2"))[0] == 403
    world.clock.now = datetime(2026, 6, 29, 23, 59, tzinfo=UTC)
    assert await ask(site) == (200, trial)
    world.clock.forward(minutes=1)
    assert await site.verify(key) == (403, {"valid": False, "reason": "License expired."})
    status, refusal = await ask(site)
    assert (status, refusal["error"]) == (403, "trial_ended")


@both_engines
async def test_an_app_that_was_installed_again_goes_on_with_its_trial(site, shop, world):
    """It takes the slot of the machine's earlier installation, as often as a customer may free one."""
    homes = [f"{name}.example" for name in "abcde"]
    trials = [(await ask(site, domain=homes[0]))[1]]
    key = trials[0]["license_key"]
    for before, home in pairwise(homes[:4]):
        assert (await site.verify(key, before))[0] == 200
        assert (await site.verify(key, home))[0] == 403
        trials += [(await ask(site, domain=home))[1], (await ask(site, domain=f"https://{home.upper()}/"))[1]]
    assert (await site.verify(key, homes[3]))[0] == 200
    trials += [(await ask(site, **more))[1] for more in ({}, {"domain": 7}, {"domain": homes[4]})]
    assert trials == trials[:1] * 10
    assert [activation[0] for activation in world.held(key)] == [homes[3]], "three times in 30 days"
    moved = [entry for entry in shop.audit.list_page().items if entry.action == "license.move"]
    assert [entry.details["freed"] for entry in moved] == [1, 1, 1]


async def test_a_request_that_is_wrong_starts_nothing(site, shop, world):
    """An unknown product, one without trials, and bodies that are malformed."""
    world.product("free")
    assert [(await ask(site, slug))[1]["error"] for slug in ("none", "A b", "free")] == [
        "product_not_found",
        "product_not_found",
        "trials_not_offered",
    ]
    status, _, answer = await site.call("POST", TRIAL_PATH, data=b'{"slug": "app", "machine": ' + b"[" * 9000)
    assert (status, [*answer["errors"]]) == (422, ["slug", "machine"])
    assert (await site.call("GET", TRIAL_PATH))[0] == 405
    assert not [*shop.licenses.list_all()]


@both_engines
async def test_an_address_starts_as_many_trials_as_it_may(site, shop, world):
    """Other machine ids do not help, what runs already is not counted, and the next day there are more."""
    answers = [(await ask(site, name=number))[1] for number in range(8)]
    assert ["license_key" in answer for answer in answers] == [True] * 5 + [False] * 3
    assert {answer["error"] for answer in answers[5:]} == {"too_many_trials"}
    assert await ask(site, name=0) == (200, answers[0])
    assert (await ask(site, name="other", source="127.0.0.2"))[0] == 200
    world.clock.forward(days=1)
    assert (await ask(site, name="later"))[0] == 200


async def test_neighbours_in_a_network_of_ipv6_are_one_address(make_world, open_site):
    """Whoever has a /64 has all its addresses; the next /64 is someone else."""
    world = make_world(trusted_proxies=["127.0.0.0/8"])
    world.services.products.change("app", trial_days=14)
    site = await open_site(world)
    sources = [f"2001:db8:0:1:{number:x}::7" for number in range(7)] + ["2001:db8:0:2::7"]
    statuses = [(await ask(site, name=source, **{"X-Forwarded-For": source}))[0] for source in sources]
    assert statuses == [200] * 5 + [403] * 2 + [200]


@both_engines
@pytest.mark.parametrize("network", ["2001:db8:7:{:x}::", "192.0.2.{}"])
def test_no_network_uses_up_the_trials_of_a_product(make_world, network):
    """Its owner has many addresses: all of a /48, or an IPv4 /24, count together as well."""
    world = make_world(trial_limit=20, trial_network_limit=10)
    world.services.products.change("app", trial_days=14)
    start = world.services.trials.start
    found = [start("app", f"{number:064x}", network.format(number)) for number in range(30)]
    assert found.count(TrialRefusal.TOO_MANY) == 20
    assert start("app", "f" * 64, "198.51.100.7") is not TrialRefusal.TOO_MANY


@pytest.mark.slow
@both_engines
async def test_a_product_starts_as_many_trials_in_a_day_as_the_vendor_allows(make_world, open_site):
    """Sixty-four new machines that race from as many addresses get no more, and all others a refusal."""
    world = make_world(trial_limit=9)
    world.services.products.change("app", trial_days=14)
    site = await open_site(world)
    racers = (ask_until_served(site, name=number, source=f"127.0.0.{number + 1}") for number in range(64))
    statuses = [status for status, _ in await asyncio.gather(*racers)]
    assert (statuses.count(200), statuses.count(403)) == (9, 55)
    assert len([*world.services.licenses.list_all()]) == 9


@pytest.mark.slow
@both_engines
async def test_racers_of_one_machine_share_a_trial(site, shop):
    """Sixty-four requests of a machine, and one that is repeated, get the same key."""
    answers = await asyncio.gather(*(ask_until_served(site) for _ in range(64)))
    assert {status for status, _ in answers} == {200}
    assert len({answer["license_key"] for _, answer in answers}) == len([*shop.licenses.list_all()]) == 1


async def test_too_many_requests_are_answered_with_a_time_to_wait(make_world, open_site):
    """Refusals by the limit are misses, so that a flood of invented machines costs no look-ups for long."""
    world = make_world(miss_limit=6)
    world.services.products.change("app", trial_days=14)
    site = await open_site(world)
    statuses = [(await ask(site, name=number))[0] for number in range(20)]
    assert statuses[:5] == [200] * 5
    assert statuses[5:].count(429) > 10
    assert set(statuses[5:]) == {403, 429}


def test_what_is_stored_of_a_machine_cannot_be_reversed(world, shop):
    """The database has neither what was sent nor the address, and forgets the hash of the address."""
    shop.trials.start("app", machine(), "192.0.2.1")
    stored = (world.settings.data_dir / "licserver.sqlite3").read_bytes()
    for value in (machine(), bytes.fromhex(machine()), sha256(machine().encode()).digest()[:16], "192.0.2.1"):
        assert (value if isinstance(value, bytes) else value.encode()) not in stored
    world.clock.forward(days=2)
    shop.retention.sweep()
    product, pseudonym = shop.products.get("app"), world.services.vault.pseudonym
    client = TrialClient(pseudonym("trial address", "192.0.2.1"), pseudonym("trial network", "192.0.2.0/24"))
    assert shop.repositories.trials.count(product.id, client, datetime(2026, 1, 1, tzinfo=UTC)) == (1, 0, 0)


def test_products_have_trials_of_their_own(world, shop):
    """The same machine may try another product."""
    world.product("other", trial_days=3)
    keys = {shop.trials.start(slug, machine(), "192.0.2.1")[1] for slug in ("app", "other", "app")}
    assert len(keys) == 2


def test_a_trial_becomes_a_purchased_license_with_the_same_key(shop, activate):
    """Its activation stays, its end goes, its machine gets the key no more; and that happens once."""
    license_, key = shop.trials.start("app", machine(), "192.0.2.1")
    activate(key, "a.example", "192.0.2.1")
    bought = shop.trials.convert(key, slots=3, customer_email="jo@example.com")
    assert (bought.id, bought.trial, bought.expires_on) == (license_.id, False, None)
    assert (bought.slots, bought.slots_used, bought.customer_email) == (3, 1, "jo@example.com")
    assert shop.trials.start("app", machine(), "192.0.2.1") is TrialRefusal.ENDED
    changed = shop.audit.list_page().items[0]
    assert (changed.action, changed.details["trial"]) == ("license.change", [True, False])
    with pytest.raises(ConflictError, match="not a trial"):
        shop.trials.convert(key)


def test_a_plan_called_trial_says_what_a_trial_grants(shop):
    """It is the plan of the trial alone: what is bought has the plan that it is converted to."""
    shop.plans.add("app", "trial", {"projects": 3})
    shop.plans.add("app", "pro", {"projects": 50})
    license_, key = shop.trials.start("app", machine(), "192.0.2.1")
    assert shop.plans.resolve(license_) == {"projects": 3}
    assert shop.plans.resolve(shop.trials.convert(key, plan="pro")) == {"projects": 50}


def test_a_revoked_trial_is_over(shop):
    """Its machine gets no other one."""
    _, key = shop.trials.start("app", machine(), "192.0.2.1")
    shop.licenses.revoke(key)
    assert shop.trials.start("app", machine(), "192.0.2.1") is TrialRefusal.ENDED


@both_engines
def test_ended_trials_are_swept_and_their_machines_stay_known(world, shop, activate):
    """After 90 days; neither what was converted nor what an app still asks for."""
    keys = [shop.trials.start("app", machine(name), "192.0.2.1")[1] for name in ("ended", "bought", "asked")]
    activate(keys[0], "a.example", "192.0.2.1")
    shop.licenses.change(keys[0], note="a word")
    shop.trials.convert(keys[1], expires_on=LAST_DAY)
    world.clock.forward(days=14 + 90)
    assert shop.retention.sweep().trials == 0
    world.clock.forward(days=1)
    refuse(world, keys[2])
    assert shop.retention.sweep().trials == 1
    with pytest.raises(NotFoundError):
        shop.licenses.get(keys[0])
    assert [shop.licenses.get(key).trial for key in keys[1:]] == [False, True]
    assert shop.trials.start("app", machine("ended"), "192.0.2.1") is TrialRefusal.ENDED


def refuse(world, key):
    """Note that a machine was refused."""
    refused = (world.services.vault.license_id(key), world.request_slot(key).lookup.environment, "expired")
    note_refusals(world.services.database, {refused: 1}, world.clock())


@both_engines
def test_trials_are_found(world, shop):
    """Alone or left out, with the filters that there are."""
    bought = world.key()
    trial = shop.trials.start("app", machine(), "192.0.2.1")[0]
    found = {
        which: [license_.id for license_ in shop.licenses.search(which).items]
        for product in (None, "app")
        for trial_only in (True, False, None)
        for which in [LicenseFilter(product=product, trial=trial_only)]
    }
    sold = world.services.vault.license_id(bought)
    assert [sorted(ids) for ids in found.values()] == [[trial.id], [sold], sorted([sold, trial.id])] * 2


def test_an_event_marks_a_trial(shop):
    """A vendor's system can tell it from a sale."""
    shop.webhooks.add("https://example.com/hook", [EventType.LICENSE_ISSUED])
    shop.trials.start("app", machine(), "192.0.2.1")
    (job,) = shop.repositories.queue.claim(EVENTS, shop.now(), timedelta(minutes=1), 9)
    shop.webhooks.fan_out(job)
    (delivery,) = shop.webhooks.list_deliveries().items
    assert json.loads(delivery.body)["data"]["trial"] is True


@sqlite_only
def test_the_command_line_has_trials(cli):
    """A product offers them, a license is one, is listed as one, and is converted."""
    cli("product", "add", "app", "--name", "App", "--trial-days", "14")
    assert json.loads(cli("product", "change", "app", "--trial-days", "7", "--json"))["trial_days"] == 7
    key = cli("license", "issue", "app", "--trial", "--expires", "2027-01-31").strip()
    other = cli("license", "issue", "app").strip()
    listed = cli("license", "list", "--trials")
    assert key[-4:] in listed
    assert other[-4:] not in listed
    cli("license", "convert", key, "--slots", "2", "--lifetime")
    shown = json.loads(cli("license", "show", key, "--json"))
    assert (shown["trial"], shown["lifetime"], shown["expires_on"], shown["slots"]) == (False, True, None, 2)


@pytest.mark.slow
async def test_the_console_converts_a_trial(shop, alice):
    """The list marks trials, the license's page has the button, and the product its days."""
    license_, _ = shop.trials.start("app", machine(), "192.0.2.1")
    assert "trial, active" in await alice.get("/console/licenses?trial=yes")
    assert "trial, active" not in await alice.get("/console/licenses?trial=no")
    page = f"/console/licenses/{license_.id.hex()}"
    assert "Convert to a purchased license" in await alice.get(page)
    await alice.post(f"{page}/convert", expires="2027-01-31")
    assert "Convert to a purchased license" not in await alice.get(page)
    assert shop.licenses.get(license_.id.hex()).expires_on == date(2027, 1, 31)
    assert 'name="trial" inputmode="numeric" size="4" value="14"' in await alice.get("/console/products/app")


@both_engines
def test_a_conversion_and_a_sweep_that_meet_lose_nothing(world, shop):
    """Whichever comes first, a converted license is never deleted."""
    keys = [shop.trials.start("app", machine(number), f"192.0.2.{number}")[1] for number in range(8)]
    world.clock.forward(days=14 + 91)
    with ThreadPoolExecutor(2) as threads:
        swept = threads.submit(shop.retention.sweep)
        converted = []
        for key in keys[::-1]:
            try:
                converted.append(shop.trials.convert(key).id)
            except NotFoundError:
                continue
        assert swept.result().trials == 8 - len(converted)
    assert {license_.id for license_ in shop.licenses.list_all()} == set(converted)
