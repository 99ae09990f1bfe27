"""Plans, from the vendor's hands to the answer: console, admin API, command line, import and shops."""

import io
import json

import pytest

from harness.engines import both_engines, sqlite_only
from harness.transfer import ASSUMED
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.protocol.license_files import read_rows
from licserver.services.license_imports import Existing
from licserver.services.sales.rows import dump_content
from licserver.shops import ShopKind
from licserver.shops.facts import Line, Lines, Order, OrderState

PRO = {"export": True, "projects": 50}


@pytest.fixture
def ask(site):
    """What a verify says about entitlements; None if it says nothing."""

    async def verify(key):
        status, body = await site.verify(key)
        assert status == 200
        return body.get("entitlements")

    return verify


@both_engines
async def test_a_change_reaches_all_licenses_with_the_next_answer(world, ask):
    """The plan is resolved at the time of the answer, and only for licenses that have one."""
    plans = world.services.plans
    plans.add("app", "pro", PRO)
    plain, key = world.key(), world.key(plan="pro", overrides={"projects": 80})
    assert (await ask(plain), await ask(key)) == (None, {"export": True, "projects": 80})
    plans.change("app", "pro", {"export": None, "sync": True})
    assert await ask(key) == {"projects": 80, "sync": True}
    world.services.licenses.change(key, plan=None, overrides=None)
    assert await ask(key) is None


@both_engines
def test_a_plan_in_use_stays(world):
    """A license has it, or a mapping of a shop gives it; then the message says how many."""
    services = world.services
    services.plans.add("app", "pro", {})
    key = world.key(plan="pro")
    with pytest.raises(ConflictError, match="by 1 license and 0 mappings"):
        services.plans.remove("app", "pro")
    services.licenses.change(key, plan="")
    services.sources.add("shop", ShopKind.STANDARD, "SHOP_SECRET")
    services.sources.map("shop", "price_1", "app", plan="pro")
    with pytest.raises(ConflictError, match="by 0 licenses and 1 mapping "):
        services.plans.remove("app", "pro")
    services.sources.unmap("shop", "price_1")
    services.plans.remove("app", "pro")
    assert services.plans.list_all("app") == []


def test_only_plans_of_the_product(world):
    """Of a license, a change, a mapping and a line of a file; nothing is written."""
    services = world.services
    world.product("other")
    services.plans.add("other", "pro", PRO)
    services.sources.add("shop", ShopKind.STANDARD, "SHOP_SECRET")
    key = world.key()
    for attempt in (
        lambda: world.key(plan="pro"),
        lambda: services.licenses.change(key, plan="pro"),
        lambda: services.sources.map("shop", "price_1", "app", plan="pro"),
        lambda: services.plans.get("app", "pro"),
    ):
        with pytest.raises(NotFoundError, match="there is no plan 'pro' of app"):
            attempt()
    rows = read_rows("jsonl", io.StringIO(json.dumps({"product": "app", "plan": "pro"})), ASSUMED)
    with services.transfer.start_import() as incoming:
        incoming.read(rows)
        assert [problem.message for problem in incoming.problems] == [
            "there is no plan 'pro' of app; see `licserver plan list app`"
        ]


def test_a_plan_that_goes_while_a_file_is_read(world):
    """The import is refused as a whole."""
    services = world.services
    services.plans.add("app", "pro", PRO)
    rows = read_rows("csv", io.StringIO("product,plan,overrides\napp,pro,projects=80\n"), ASSUMED)
    with services.transfer.start_import() as incoming:
        incoming.read(rows)
        assert incoming.problems == []
        services.plans.remove("app", "pro")
        with pytest.raises(NotFoundError, match="no plan 'pro'"):
            incoming.commit()
    assert list(services.licenses.list_all()) == []


def test_an_import_changes_plan_and_overrides(world):
    """Of a license that is in the database."""
    services = world.services
    services.plans.add("app", "pro", PRO)
    key = world.key()
    lines = f"license_key,product,plan,overrides\n{key},app,pro,export=none\n"
    with services.transfer.start_import() as incoming:
        incoming.read(read_rows("csv", io.StringIO(lines), ASSUMED), Existing.CHANGE)
        assert incoming.commit() == 0
    found = services.licenses.get(key)
    assert (found.plan, found.overrides, services.plans.resolve(found)) == (
        "pro",
        {"export": None},
        {"projects": 50},
    )


def test_names_and_values_are_checked(world):
    """Before anything is written; a key in a text is masked."""
    plans = world.services.plans
    for name, entitlements in (("Pro", {}), ("pro", {"A": True}), ("pro", {"a": None}), ("pro", {"a": 1.5})):
        with pytest.raises(InvalidInputError):
            plans.add("app", name, entitlements)
    plans.add("app", "pro", {"a": world.key()})
    with pytest.raises(ConflictError):
        plans.add("app", "pro", {})
    assert "…" in plans.get("app", "pro").entitlements["a"]


def test_the_history_says_which_entitlements_changed(world):
    """And not their values, which may be texts about a person; the plan by its name."""
    world.services.plans.add("app", "pro", PRO)
    key = world.key(overrides={"a": "x", "b": 1})
    world.services.licenses.change(key, plan="pro", overrides={"b": 1, "c": None})
    assert world.services.audit.list_page().items[0].details == {
        "plan": [None, "pro"],
        "overrides": ["a", "c"],
    }


@pytest.mark.slow
@sqlite_only
def test_the_command_line(cli):
    """Plans, and licenses with them."""
    cli("product", "add", "app", "--name", "App")
    cli("plan", "add", "app", "pro", "--grant", "export", "--grant", "projects=50", "--grant", "n=9/day")
    assert cli("plan", "show", "app", "pro") == "export\nn=9/day\nprojects=50\n"
    cli("plan", "change", "app", "pro", "--grant", "n=none", "--grant", "projects=60")
    assert "pro" in cli("plan", "list", "app")
    assert json.loads(cli("plan", "list", "app", "--json"))[0]["entitlements"] == {
        "export": True,
        "projects": 60,
    }
    key = cli("license", "issue", "app", "--plan", "pro", "--grant", "export=none").strip()
    cli("license", "change", key, "--grant", "sync", "--inherit", "export")
    wrong = cli("license", "change", key, "--inherit", "snyc", expect=2)
    assert "'snyc' is not an override of this license; it has: sync" in wrong
    shown = json.loads(cli("license", "show", key, "--json"))
    assert (shown["plan"], shown["overrides"], shown["uses"]) == ("pro", {"sync": True}, [])
    assert shown["entitlements"] == {"export": True, "projects": 60, "sync": True}
    assert "sync" in cli("license", "show", key)
    cli("license", "change", key, "--grant", "calls=9/year")
    assert "calls 0 of 9, again from 2" in cli("license", "show", key)
    assert json.loads(cli("license", "show", key, "--json"))["uses"][0]["limit"] == 9
    assert "in use" in cli("plan", "remove", "app", "pro", expect=2)
    assert "nothing to change" in cli("plan", "change", "app", "pro", expect=2)
    cli("license", "change", key, "--plan", "")
    cli("plan", "remove", "app", "pro")


async def test_the_admin_api(api):
    """Plans are added, replaced and removed; a license shows what it grants."""
    assert (await api("POST", "/products/app/plans", {"name": "pro", "entitlements": PRO}))[0] == 201
    monthly = {"exports": {"limit": 9, "per": "month"}}
    status, plan = await api("PATCH", "/products/app/plans/pro", {"entitlements": monthly})
    assert (status, plan) == (200, {"name": "pro", "entitlements": monthly})
    assert (await api("GET", "/products/app/plans"))[1]["items"] == [plan]
    assert (await api("GET", "/products/app/plans/pro"))[1] == plan
    issued = (await api("POST", "/licenses", {"product": "app", "plan": "pro", "overrides": {"a": True}}))[1]
    assert issued["entitlements"] == {"a": True, **monthly}
    assert (await api("GET", "/licenses"))[1]["items"][0]["entitlements"] == issued["entitlements"]
    assert (await api("POST", "/products/app/plans/pro/remove"))[0] == 409
    await api("PATCH", f"/licenses/{issued['id']}", {"plan": None, "overrides": None})
    assert (await api("POST", "/products/app/plans/pro/remove"))[0] == 200
    for wrong in ({"a": 1.5}, {"a": -1}, {"a": {"limit": 1, "per": "week"}}, {"a": None}, {"A": True}):
        status, _ = await api("POST", "/products/app/plans", {"name": "x", "entitlements": wrong})
        assert status == 422


@pytest.mark.slow
async def test_the_console(world, alice):
    """A plan is added, edited and removed on the product's page; a license's page shows what it grants."""
    here = "/console/products/app"
    await alice.get(here)
    await alice.post(f"{here}/save-plan", plan="Pro", entitlements="exp", is_new="1")
    assert "not a valid plan name" in alice.alert
    await alice.post(f"{here}/save-plan", plan="pro", entitlements="export\nprojects=50", is_new="1")
    assert "projects=50" in alice.text
    await alice.post(f"{here}/save-plan", plan="pro", entitlements="projects=60")
    assert world.services.plans.get("app", "pro").entitlements == {"projects": 60}
    license_ = world.services.licenses.get(world.key(plan="pro", overrides={"sync": True}))
    assert "projects=60<br>sync" in await alice.get(f"/console/licenses/{license_.id.hex()}")
    world.services.licenses.change(license_.id.hex(), plan=None)
    await alice.post(f"{here}/remove-plan", plan="pro")
    assert world.services.plans.list_all("app") == []


async def test_a_sale_issues_with_the_plan_of_its_price(world):
    """The mapping names it."""
    services = world.services
    services.plans.add("app", "pro", PRO)
    services.sources.add("shop", ShopKind.STANDARD, "SHOP_SECRET")
    assert services.sources.map("shop", "price_1", "app", plan="pro").plan == "pro"
    paid = Order(id="1", reported_at=world.clock(), state=OrderState.PAID, paid_at=world.clock())
    line = Line("1", ("price_1",), "price_1", 1)
    lines = Lines(order_id="1", reported_at=world.clock(), lines=(line,))
    values = {"type": "a", "content": dump_content([paid, lines]), "state": "waiting"}
    services.sales.process(services.repositories.sales.add_event("shop", "1", world.clock(), **values))
    assert [license_.plan for license_ in services.licenses.list_all()] == ["pro"]
