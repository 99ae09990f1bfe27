"""From what should exist to what exists: in short transactions, once, never over what a person has set."""

import asyncio
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from itertools import count
from typing import Any

import pytest
from aiohttp import web

from harness import shops
from harness.engines import both_engines
from harness.sales import add, licenses, process, receive, states, work
from licserver.database.engine import Database
from licserver.database.repositories.audit import AuditFilter
from licserver.domain.records import Actor, ActorKind
from licserver.errors import BuryJobError, InvalidInputError, RetryJobError
from licserver.jobs.process import create_job_worker
from licserver.services.sales import reconciler as module
from licserver.services.sales.reconciler import SaleReconciler

pytestmark = pytest.mark.usefixtures("shop_secrets")
MAIL = {"mail_host": "mail.example", "mail_sender": "shop@example.com"}
ANN = {"external_id": "app", "customer_email": "ann@example.com"}


def bought(**fields: Any) -> bytes:
    """A purchase of a shop of one's own."""
    return shops.standard("purchase.completed", **{"order_id": "1", **ANN, **fields})


def person(world):
    """The services, for a user of the vendor."""
    return world.services.acting_as(Actor(ActorKind.CLI, "ann"))


class KilledError(Exception):
    """The process dies before it commits."""


@both_engines
@pytest.mark.parametrize("quantity", [1, 250, pytest.param(1_000, marks=pytest.mark.slow)])
def test_an_order_of_many_keys_is_issued_in_pieces_and_mailed_once(make_world, monkeypatch, quantity):
    """None of the transactions is long, and the customer gets one mail with all keys."""
    world = make_world(**MAIL)
    add(world, "standard")
    pieces = []
    issue = SaleReconciler._issue
    monkeypatch.setattr(
        SaleReconciler,
        "_issue",
        lambda worker, missing, contract, **more: (
            pieces.append(len(missing)) or issue(worker, missing, contract, **more)
        ),
    )
    process(world, "standard", bought(quantity=quantity))
    assert sum(pieces) == quantity == len(list(world.services.licenses.list_all()))
    assert max(pieces) <= module.ISSUE_BATCH
    (event,) = world.services.sources.list_events("standard").items
    assert event.reason == f"issued {quantity} license{'s' if quantity > 1 else ''} of app"
    (mail,) = world.services.mail.list_jobs().items
    assert len(mail.payload.get("license_ids", [1])) == quantity


@both_engines
def test_a_kill_amid_an_order_loses_no_key_and_repeats_none(make_world, monkeypatch):
    """Before and after each of its transactions; the mail is sent once, with all keys."""
    monkeypatch.setattr(module, "ISSUE_BATCH", 3)
    world = make_world(**MAIL)
    add(world, "standard")
    receive(world, "standard", bought(quantity=10))
    (event,) = world.services.sources.list_events("standard").items
    reconcile = SaleReconciler.reconcile
    for kill in range(12):
        calls = count()

        def dying(worker, objects, plan=None, calls=calls, kill=kill):
            is_done = reconcile(worker, objects, plan)
            if next(calls) == kill % 3:
                raise KilledError
            return is_done

        with monkeypatch.context() as patched, suppress(KilledError):
            patched.setattr(SaleReconciler, "reconcile", dying)
            world.services.sales.process(event.id)
    world.services.sales.process(event.id)
    assert len(licenses(world)) == 10
    (mail,) = world.services.mail.list_jobs().items
    assert len({*mail.payload["license_ids"]}) == 10
    assert states(world, "standard") == ["done"]


@both_engines
@pytest.mark.parametrize("problem", ["a question", "a refusal"])
def test_a_delivery_that_is_solved_at_once_does_not_stay_dead(world, problem, monkeypatch):
    """Its job was given up after the next delivery had let it go on: it waited, with a job that was dead."""
    add(world, "standard", mapped=False)
    receive(world, "standard", bought(), "first")
    receive(world, "standard", bought(order_id="1", customer_language="de"), "second")
    queue = world.repositories.queue
    first, second = queue.claim("sale", world.clock(), timedelta(minutes=1), 2)
    sales, failure = world.services.sales, None
    with monkeypatch.context() as patched:
        if problem == "a refusal":
            patched.setattr(SaleReconciler, "store", refuse)
        try:
            is_finished = sales.process(first.payload["event"], (), first)
        except BuryJobError as error:
            is_finished, failure = False, error
    assert states(world, "standard") == ["dead", "waiting"]
    world.services.sources.map("standard", "app", "app")
    if problem == "a refusal":
        sources = world.services.sources
        sources.replay(first.payload["event"])
    assert sales.process(second.payload["event"], (), second)
    if not is_finished:  # as the worker does then
        queue.bury(first, world.clock(), str(failure))
    work(world)
    assert states(world, "standard") == ["done", "done"]
    assert queue.measure({"sale"}, world.clock())["sale"].dead == 0


def refuse(*_arguments: Any) -> None:
    """Fail as a value does that cannot be stored."""
    raise InvalidInputError("a value cannot be stored")


@both_engines
@pytest.mark.parametrize("by", ["erasure", "revocation"])
def test_a_renewal_of_what_nobody_has_says_so(world, by):
    """The customer was erased, and the shop still charges for the subscription."""
    add(world, "standard")
    process(world, "standard", bought(subscription_id="s", paid_through="2026-07-15"))
    (license_,) = licenses(world)
    if by == "erasure":
        world.services.personal_data.erase("ann@example.com")
    else:
        person(world).licenses.revoke(license_.id.hex(), "fraud")
    renewed = {"subscription_id": "s", "order_id": "2", "paid_through": "2026-08-15"}
    process(world, "standard", shops.standard("subscription.renewed", "2026-07-15T12:00:00Z", **renewed))
    (event, *_) = world.services.sources.list_events("standard").items
    assert event.reason == (
        "the subscription ends 2026-08-23 00:00 UTC if not renewed; nobody has a license of it: all were "
        "revoked by hand, or their customer was erased"
    )
    person(world).licenses.reinstate(license_.id.hex())
    renewed = {"subscription_id": "s", "order_id": "3", "paid_through": "2026-09-15"}
    process(world, "standard", shops.standard("subscription.renewed", "2026-08-15T12:00:00Z", **renewed))
    (event, *_) = world.services.sources.list_events("standard").items
    assert "nobody" not in event.reason


def test_a_sale_that_is_refunded_or_paid_again_has_nobody_revoked_by_hand(world):
    """What the source has revoked it reinstates, and says that alone."""
    add(world, "standard")
    process(world, "standard", bought(), shops.standard("purchase.disputed", order_id="1"))
    process(world, "standard", shops.standard("purchase.dispute_won", "2026-06-15T12:00:01Z", order_id="1"))
    reasons = [event.reason for event in world.services.sources.list_events("standard").items]
    assert reasons[:2] == ["reinstated 1 license", "revoked 1 license: the payment was disputed"]


@both_engines
def test_a_large_contract_is_loaded_outside_of_transactions(world, monkeypatch):
    """Issued, then refunded: no transaction loads more licenses than a few, and none of them all again."""
    for name in ("ISSUE_BATCH", "CHANGE_BATCH", "MOST_LOCKED"):
        monkeypatch.setattr(module, name, 3)
    add(world, "standard")
    depth, within, beside = [0], [], []
    writing, load = Database.writing, module.load_contract

    @contextmanager
    def counted(database):
        depth[0] += 1
        try:
            with writing(database) as connection:
                yield connection
        finally:
            depth[0] -= 1

    def watched(repositories, source, objects, known, most):
        contract = load(repositories, source, objects, known, most)
        (within if depth[0] else beside).append(len(contract.sold))
        return contract

    monkeypatch.setattr(Database, "writing", counted)
    monkeypatch.setattr(module, "load_contract", watched)
    process(world, "standard", bought(quantity=10))
    process(world, "standard", shops.standard("purchase.refunded", order_id="1"))
    assert [license_.revoked_at is not None for license_ in licenses(world)] == [True] * 10
    assert max(within) <= module.MOST_LOCKED
    assert len(beside) <= 3  # and not one for each part


@both_engines
def test_two_deliveries_of_one_large_order_do_not_undo_each_other(world, monkeypatch):
    """A shop reports that it was created and that it was paid; the one goes on after the other."""
    monkeypatch.setattr(module, "ISSUE_BATCH", 3)
    add(world, "standard")
    for delivery in ("created", "paid"):
        receive(world, "standard", bought(quantity=20), delivery)
    first, second = (
        world.services.sales.start(event.id) for event in world.services.sources.list_events("standard").items
    )
    assert not first.go_on()
    assert not first.go_on()
    assert not second.go_on()
    with pytest.raises(RetryJobError, match="goes on after it"):
        first.go_on()
    while not second.go_on():
        pass
    for event in world.services.sources.list_events("standard").items:
        world.services.sales.process(event.id)
    assert len(licenses(world)) == 20
    assert states(world, "standard") == ["done", "done"]


@both_engines
def test_a_fact_that_arrives_amid_an_order_counts_at_once(world, monkeypatch):
    """It is refunded while its keys are issued: no further one is."""
    monkeypatch.setattr(module, "ISSUE_BATCH", 3)
    add(world, "standard")
    receive(world, "standard", bought(quantity=20))
    order = world.services.sales.start(world.services.sources.list_events("standard").items[0].id)
    assert not order.go_on()
    assert not order.go_on()
    issued = len(licenses(world))
    refund = shops.standard("purchase.refunded", order_id="1")
    receive(world, "standard", refund, "refund")
    world.services.sales.process(world.services.sources.list_events("standard").items[0].id)
    while not order.go_on():
        pass
    assert len(licenses(world)) == issued < 20
    assert all(license_.revoked_at for license_ in licenses(world))


@pytest.mark.slow
async def test_an_ordinary_sale_is_done_amid_large_orders(world, monkeypatch):
    """Eight of them, as many as a process takes at once: it waits for none of them to end."""
    monkeypatch.setattr(module, "ISSUE_BATCH", 2)
    monkeypatch.setattr("licserver.jobs.shops.SLICE_SECONDS", 0.05)
    add(world, "standard")
    large = [f"large {number}" for number in range(8)]
    for name in large:
        receive(world, "standard", bought(order_id=name, quantity=400), name)
    receive(world, "standard", bought(order_id="ordinary"), "ordinary")
    worker = create_job_worker(world.services, world.clock)
    running = worker.running(web.Application())
    await anext(running)
    found = {"ordinary": "waiting"}
    for _ in range(1_000):
        await asyncio.sleep(0.02)
        world.clock.forward(seconds=0.02)
        events = world.services.sources.list_events("standard").items
        if (found := {event.delivery: event.state for event in events})["ordinary"] == "done":
            break
    with suppress(StopAsyncIteration):
        await anext(running)
    assert found["ordinary"] == "done"
    assert {found[name] for name in large} == {"waiting"}


@pytest.mark.slow
@both_engines
def test_a_refund_of_many_keys_is_done_in_pieces(world, monkeypatch):
    """As issuing is: others can write in between."""
    monkeypatch.setattr(module, "CHANGE_BATCH", 2)
    add(world, "standard")
    process(world, "standard", bought(quantity=7))
    pieces = []
    revoke = module.revoke_licenses
    monkeypatch.setattr(
        module,
        "revoke_licenses",
        lambda tx, found, reason: (pieces.append(len(found)), revoke(tx, found, reason)),
    )
    process(world, "standard", shops.standard("purchase.refunded", order_id="1"))
    assert all(license_.revoked_at for license_ in licenses(world))
    assert pieces == [2, 2, 2, 1]
    lines = world.services.audit.list_page(AuditFilter(kind=ActorKind.SYSTEM), limit=50).items
    revoked = {entry.object_id for entry in lines if entry.action == "license.revoke"}
    assert revoked == {license_.id.hex() for license_ in licenses(world)}  # each has its line


def test_the_database_itself_refuses_a_second_license_for_one_thing(world):
    """Whatever the program believes."""
    add(world, "standard")
    process(world, "standard", bought())
    sales = world.repositories.sales
    (sold,) = sales.list_sold("standard", ["order:1"], [])
    row = {name: getattr(sold, name) for name in ("thing", "place", "object", "license_id")}
    with pytest.raises(Exception, match=r"(?i)unique"):
        sales.add_sold("standard", [{**row, "order_id": "2", "item": "x", "number": 1, "mail_due": False}])


@both_engines
def test_what_a_person_has_changed_stays_and_the_page_says_so(world):
    """Revoked by hand, and reinstated by hand, whatever the shop reports."""
    add(world, "standard")
    process(world, "standard", bought(quantity=2))
    first, second = (license_.id.hex() for license_ in licenses(world))
    person(world).licenses.revoke(first, "fraud")
    process(world, "standard", shops.standard("purchase.refunded", order_id="1"))
    assert world.services.licenses.get(first).revoked_reason == "fraud"
    assert world.services.licenses.get(second).revoked_reason == "the order was refunded"
    person(world).licenses.reinstate(second)
    process(world, "standard", shops.standard("purchase.refunded", order_id="1", partial=False, test=None))
    process(world, "standard", bought(quantity=2, customer_language="de"))
    assert world.services.licenses.get(second).revoked_at is None
    (kept,) = world.services.manual_changes.list_changes(world.services.licenses.get(second))
    assert (kept.text, kept.by.actor.name) == ("revoked: the order was refunded", "ann")
    assert world.services.manual_changes.list_changes(world.services.licenses.get(first)) == []


@pytest.mark.slow
@both_engines
@pytest.mark.parametrize("days", [-20, 20])
def test_the_end_of_a_subscription_that_a_person_has_moved_stays(world, days):
    """One that was put off is moved on by a payment beyond it; one that was brought forward stays."""
    add(world, "standard", grace_days=0)
    subscription = {"subscription_id": "s1"}
    process(world, "standard", bought(**subscription, paid_through="2026-07-15T12:00:00Z"))
    end = licenses(world)[0].subscription_ended_at
    chosen = end + timedelta(days=days)
    person(world).subscriptions.end("s1", chosen)
    renewed = shops.standard(
        "subscription.renewed", "2026-07-15T12:00:00Z", **subscription, paid_through="2026-08-01T12:00:00Z"
    )
    process(world, "standard", renewed)
    assert licenses(world)[0].subscription_ended_at == chosen
    (kept,) = world.services.manual_changes.list_changes(licenses(world)[0])
    assert (kept.text, kept.by.actor.name) == ("end of the subscription: 2026-08-01 12:00 UTC", "ann")
    again = shops.standard(
        "subscription.renewed", "2026-08-01T12:00:00Z", **subscription, paid_through="2026-09-15T12:00:00Z"
    )
    process(world, "standard", again)
    moved = end + timedelta(days=62)
    assert licenses(world)[0].subscription_ended_at == (moved if days > 0 else chosen)


def test_a_subscription_of_a_shop_is_resumed_to_what_the_shop_reported(world):
    """Without that end nothing that the shop reports later would end its licenses again."""
    add(world, "standard", grace_days=0)
    subscription = {"subscription_id": "s1"}
    process(world, "standard", bought(**subscription, paid_through="2026-07-15T12:00:00Z"))
    reported = licenses(world)[0].subscription_ended_at
    person(world).subscriptions.end("s1", world.clock())
    assert person(world).subscriptions.resume("s1") == 1
    assert licenses(world)[0].subscription_ended_at == reported
    process(world, "standard", shops.standard("subscription.ended", "2026-06-15T12:00:01Z", **subscription))
    assert licenses(world)[0].subscription_ended_at < reported


def test_a_changed_mapping_applies_to_later_purchases(world):
    """Licenses that were sold keep the terms with which they were sold."""
    add(world, "standard")
    process(world, "standard", bought())
    world.services.sources.map("standard", "app", "app", slots=9, expires_in="1y")
    process(world, "standard", bought(customer_language="de"), bought(order_id="2"))
    assert sorted((license_.slots, license_.expires_on) for license_ in licenses(world)) == [
        (3, None),
        (9, date(2027, 6, 15)),
    ]


@both_engines
def test_addresses_go_after_thirty_days(world):
    """From facts as from deliveries; what was sold stays known."""
    add(world, "standard")
    process(world, "standard", bought())
    world.clock.forward(days=31)
    world.services.retention.sweep()
    rows, _ = world.repositories.sales.load_contract("standard", ["order:1"])
    assert rows
    assert all("ann@example.com" not in str(row) for row in rows)
    process(world, "standard", bought(customer_language="de"))
    assert len(licenses(world)) == 1


def test_what_waits_for_a_person_keeps_its_address(world):
    """Otherwise the key would reach nobody."""
    add(world, "standard", mapped=False)
    process(world, "standard", bought())
    world.clock.forward(days=31)
    world.services.retention.sweep()
    (problem,) = world.services.sale_problems.list_open().items
    world.services.sources.map_and_go_on(problem.id, "app", "app")
    work(world)
    assert [license_.customer_email for license_ in licenses(world)] == ["ann@example.com"]


@both_engines
def test_licenses_that_are_not_paid_any_more_are_counted_as_such(world):
    """Three seats, then one, then two, with a question for each: the last one is to add, not to revoke."""
    add(world, "standard", changes="ask")
    ids = {"subscription_id": "s1"}
    process(world, "standard", bought(quantity=3, paid_through="2026-12-31", **ids))
    for second, seats, question in ((1, 1, "revoke what is not paid"), (2, 2, "issue more")):
        at = f"2026-06-15T12:00:0{second}Z"
        process(
            world,
            "standard",
            shops.standard("subscription.changed", at, external_id="app", quantity=seats, **ids),
        )
        (problem,) = world.services.sale_problems.list_open().items
        assert question in problem.message
        world.services.sources.answer(problem.id, "follow")
        work(world)
        assert sum(license_.revoked_at is None for license_ in licenses(world)) == seats
    assert len(licenses(world)) == 3


@both_engines
@pytest.mark.parametrize("first", [None, "s-2"])
def test_a_license_gets_the_subscription_that_its_order_names_now_and_its_end(world, first):
    """Also beside a license that has that end already, and if it had another subscription before."""
    add(world, "standard")
    of_one = {"subscription_id": "s-1", "paid_through": "2026-07-15T12:00:00Z"}
    before = {} if first is None else {"subscription_id": first, "paid_through": "2027-07-15T12:00:00Z"}
    process(
        world,
        "standard",
        bought(line_id="1", **of_one),
        bought(line_id="2", **before),
        bought(line_id="2", at="2026-06-15T12:00:01Z", **of_one),
    )
    second, first_sold = licenses(world)
    assert second.subscription_ended_at == first_sold.subscription_ended_at is not None
    assert {second.subscription_id, first_sold.subscription_id} == {"s-1"}
    ended = shops.standard("subscription.ended", "2026-06-16T12:00:00Z", subscription_id="s-1")
    process(world, "standard", ended)
    assert {license_.subscription_ended_at for license_ in licenses(world)} == {
        world.clock() + timedelta(days=1)
    }


def test_an_unknown_end_of_licenses_that_a_source_has_issued_is_asked_about(world):
    """Those that a person has issued without an end may be meant so."""
    add(world, "lemonsqueezy")
    order = shops.lemon("order_created", "5", shops.lemon_order())
    report = shops.lemon_subscription("active", renews_at=None, variant_id=11)
    process(world, "lemonsqueezy", order, shops.lemon("subscription_created", "77", report))
    (problem,) = world.services.sale_problems.list_open().items
    assert problem.message.startswith("subscription 77: until when it is paid is not known")


@both_engines
def test_an_order_has_so_many_refunds_and_no_more(world, monkeypatch):
    """More are not stored, so that no delivery of it takes long; a person is asked, and those known go on."""
    monkeypatch.setattr("licserver.services.sales.reconciler.MAX_REFUNDS", 3)
    monkeypatch.setattr("licserver.shops.desired.MAX_REFUNDS", 3)
    add(world, "standard")
    process(world, "standard", bought(total=90))
    for number in range(5):
        refund = {"order_id": "1", "refund_id": f"{number}", "amount": 1}
        process(world, "standard", shops.standard("purchase.refunded", "2026-06-15T12:00:01Z", **refund))
    facts, _ = world.repositories.sales.load_contract("standard", ["order:1"])
    assert sum(row.kind == "refund" for row in facts) == 3
    assert states(world, "standard") == ["done", "done", "done", "dead", "dead", "dead"]
    (problem,) = world.services.sale_problems.list_open().items
    assert problem.message == (
        "order 1 has 3 refunds and disputes, and no more are read; revoke its licenses by hand if they are "
        "not paid any more, or leave it"
    )
    known = {"order_id": "1", "refund_id": "0", "partial": False}
    process(world, "standard", shops.standard("purchase.refunded", "2026-06-15T12:00:02Z", **known))
    assert [license_.revoked_reason for license_ in licenses(world)] == ["the order was refunded"]
    process(world, "standard", bought(order_id="2"))
    assert states(world, "standard")[-1] == "done"
