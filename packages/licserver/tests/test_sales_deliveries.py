"""Deliveries that a person sees: dead ones, replays, what is ignored and swept; and what a vendor types."""

from datetime import timedelta

import pytest

from harness import shops
from harness.engines import both_engines
from harness.sales import BOUGHT, add, licenses, process, receive, states, work
from licserver.errors import InvalidInputError, NotFoundError
from licserver.services.sources import BadSignatureError, MissingSecretError
from licserver.shops import ShopKind

pytestmark = pytest.mark.usefixtures("shop_secrets")


@both_engines
def test_a_product_that_is_not_mapped_waits_for_a_person(world):
    """The delivery fails and names the product; once it is mapped, a replay issues the license, once."""
    add(world, "woocommerce", mapped=False)
    process(world, "woocommerce", BOUGHT["woocommerce"])
    (event,) = world.services.sources.list_events("woocommerce", "dead").items
    assert "APP or 93" in event.reason
    assert licenses(world) == []
    world.services.sources.map("woocommerce", "93", "app", lifetime=True)
    for _ in range(2):
        world.services.sources.replay(event.id)
        work(world)
    assert [license_.lifetime for license_ in licenses(world)] == [True]
    assert states(world, "woocommerce") == ["done"]


def test_a_replay_works_after_its_job_was_swept(world):
    """A delivery that failed long ago can still be repeated."""
    add(world, "standard", mapped=False)
    process(world, "standard", BOUGHT["standard"])
    world.repositories.queue.sweep(world.clock() + timedelta(days=1))
    world.services.sources.map("standard", "app", "app")
    world.services.sources.replay(world.services.sources.list_events("standard").items[0].id)
    work(world)
    assert len(licenses(world)) == 1


@pytest.mark.parametrize("is_test", [True, False])
def test_test_and_live_are_separate(world, is_test):
    """A test event on a live source, and a live one on a test source, are ignored and issue nothing."""
    add(world, "stripe", is_test=is_test)
    body = shops.stripe("checkout.session.completed", shops.stripe_session(), live=is_test)
    receipt = receive(world, "stripe", body)
    assert receipt.status == "ignored"
    assert ("without it" if is_test else "for the test mode") in receipt.reason
    work(world)
    assert (licenses(world), states(world, "stripe")) == ([], ["ignored"])
    (event,) = world.services.sources.list_events("stripe").items
    with pytest.raises(InvalidInputError, match="cannot be repeated"):
        world.services.sources.replay(event.id)
    assert receive(world, "stripe", body).status == "ignored"  # read anew: the shop is asked to send it again
    assert states(world, "stripe") == ["ignored"]


def test_an_unreadable_delivery_is_shown(world):
    """It is stored without its content, so that a person sees it, and is accepted once it can be read."""
    add(world, "standard")
    assert receive(world, "standard", b'{"type": "purchase.completed"}').status == "unreadable"
    (event,) = world.services.sources.list_events("standard", "dead").items
    assert (event.content, "timestamp" in event.reason) == (None, True)
    assert receive(world, "standard", b'{"type": "purchase.completed"}').status == "unreadable"
    body = shops.standard("purchase.completed", order_id="a\nb", external_id="app")
    assert receive(world, "standard", body, "msg_9").status == "unreadable"


SOLD = {"id": "cs_1", "mode": "payment", "payment_status": "paid"}
LINES = {"data": [{"price": {"id": "p"}, "quantity": 600}] * 2}
ADJUSTED = {"action": "refund", "status": "approved", "transaction_id": "t"}
SUBSCRIBED = {"order_id": "1", "external_id": "app", "subscription_id": "s"}


@pytest.mark.sampled(7, "kind", "status")
@both_engines
@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        (
            "stripe",
            shops.stripe("checkout.session.completed", {**SOLD, "metadata": {"\0\n": 1}}),
            "dead",
        ),
        (
            "stripe",
            shops.stripe("checkout.session.completed", {**SOLD, "metadata": {"x" * 99_999: 1}}),
            "dead",
        ),
        ("stripe", shops.stripe("checkout.session.completed", {**SOLD, "line_items": LINES}), "dead"),
        ("paddle", shops.paddle("adjustment.updated", {**ADJUSTED, "action": "\0"}), "ignored"),
        ("paddle", shops.paddle("adjustment.updated", {**ADJUSTED, "items": [{"type": []}]}), "accepted"),
        (
            "paddle",
            shops.paddle("transaction.completed", shops.paddle_transaction(items=[{"price": {"id": ""}}])),
            "unreadable",
        ),
        ("woocommerce", shops.woo(line_items=[{"product_id": "", "quantity": 1}]), "unreadable"),
        ("woocommerce", shops.woo(refunds=[{"total": "9e999999"}] * 2), "unreadable"),
        ("woocommerce", shops.woo("x" * 100 + "\0"), "accepted"),
        (
            "standard",
            shops.standard("purchase.refunded", "9999-12-31T23:59:59-12:00", order_id=1),
            "unreadable",
        ),
        (
            "standard",
            shops.standard("purchase.refunded", "0001-01-01T00:00:00+14:00", order_id=1),
            "unreadable",
        ),
        (
            "standard",
            shops.standard("purchase.completed", **SUBSCRIBED, paid_through="9999-12-31T00:00:00Z"),
            "unreadable",
        ),
        (
            "standard",
            shops.standard("purchase.completed", **SUBSCRIBED, paid_through="9999-12-31"),
            "unreadable",
        ),
        (
            "standard",
            shops.standard("purchase.completed", **SUBSCRIBED, paid_through="9990-12-31"),
            "accepted",
        ),
    ],
)
def test_a_hostile_delivery_is_a_line_for_a_person(world, kind, body, status):
    """A shop may send anything: what makes no sense is stored with a reason, and never fails.

    What is `dead` could be read, and is for a person: it is not mapped.
    """
    add(world, kind)
    receipt = receive(world, kind, body)
    assert receipt.status == ("accepted" if status == "dead" else status)
    assert receipt.reason.isprintable()
    assert len(receipt.reason) <= 500
    work(world)
    assert states(world, kind) == [{"unreadable": "dead", "accepted": "done"}.get(status, status)]


@both_engines
def test_what_fails_for_good_is_rolled_back_and_shown(world, monkeypatch):
    """Half an order is never issued; the reason is stored."""
    add(world, "standard", mapped=False)
    world.services.sources.map("standard", "app", "app", slots=1)
    fail = InvalidInputError("the terms are wrong")
    monkeypatch.setattr(
        "licserver.services.sales.reconciler.SaleReconciler._end_subscriptions",
        lambda *_: (_ for _ in ()).throw(fail),
    )
    bought = {"order_id": "1", "external_id": "app", "subscription_id": "s1", "paid_through": "2026-07-15"}
    receive(world, "standard", shops.standard("purchase.completed", **bought))
    work(world)
    (event,) = world.services.sources.list_events("standard").items
    assert (event.state, event.reason, licenses(world)) == ("dead", "the terms are wrong", [])


def test_a_job_that_has_failed_too_often_is_a_dead_delivery(world):
    """What the queue gave up is shown with the queue's reason."""
    add(world, "standard")
    receive(world, "standard", BOUGHT["standard"])
    (job,) = world.repositories.queue.claim("sale", world.clock(), timedelta(minutes=1), 1)
    world.repositories.queue.bury(job, world.clock(), "failed unexpectedly")
    (event,) = world.services.sources.list_events("standard", "dead").items
    assert (event.state, event.reason) == ("dead", "failed unexpectedly")
    world.services.sources.replay(event.id)
    work(world)
    assert len(licenses(world)) == 1


@both_engines
def test_what_is_done_is_swept(world):
    """After thirty days only what can be replayed is left; nothing personal stays."""
    add(world, "standard", mapped=False)
    receive(world, "standard", BOUGHT["standard"])
    receive(world, "standard", shops.standard("other"), "msg_2")
    assert receive(world, "standard", shops.standard("purchase.completed"), "msg_3").status == "unreadable"
    work(world)
    assert states(world, "standard") == ["dead", "ignored", "dead"]
    world.clock.forward(days=31)
    assert world.services.retention.sweep().deliveries == 2
    assert states(world, "standard") == ["dead"]


@both_engines
def test_a_source_that_is_added_again_issues_nothing_twice(world):
    """Orders stay known when their source is removed; mappings and deliveries do not."""
    add(world, "standard")
    process(world, "standard", BOUGHT["standard"])
    world.services.sources.remove("standard")
    assert world.services.sources.list_mappings() == []
    add(world, "standard")
    process(world, "standard", BOUGHT["standard"])
    assert len(licenses(world)) == 1


def test_what_a_vendor_types_is_checked(world):
    """What cannot be is refused; a secret that was typed by mistake is not shown."""
    sources = world.services.sources
    for wrong in ({"name": "A b"}, {"tolerance": 0}, {"grace_days": 400}, {"secret_env": "whsec_4f8a1c"}):
        values = {"name": "shop", "kind": ShopKind.STANDARD, "secret_env": "A_SECRET", **wrong}
        with pytest.raises(InvalidInputError) as problem:
            sources.add(**values)
        assert "whsec" not in str(problem.value)
    with pytest.raises(InvalidInputError, match="LICSERVER_"):
        sources.add("shop", ShopKind.STANDARD, "LICSERVER_SHOP")
    assert (
        sources.add("shop", ShopKind.STANDARD, "NEW_SECRET, OLD_SECRET").secret_env == "NEW_SECRET,OLD_SECRET"
    )
    with pytest.raises(InvalidInputError, match="already"):
        sources.add("shop", ShopKind.STANDARD, "A_SECRET")
    for wrong in ({}, {"tolerance": 0}, {"grace_days": 400}, {"secret_env": "whsec_4f8a1c"}):
        with pytest.raises(InvalidInputError):
            sources.change("shop", **wrong)
    with pytest.raises(MissingSecretError):
        sources.receive("shop", {}, b"{}")
    for wrong in (
        {"expires_in": "1w"},
        {"lifetime": True, "expires_in": "1y"},
        {"slots": -1},
        {"slug": "none"},
    ):
        with pytest.raises(InvalidInputError):
            sources.map("shop", "a", **{"slug": "app", **wrong})
    for missing in (
        lambda: sources.unmap("shop", "a"),
        lambda: sources.map("other", "a", "app"),
        lambda: sources.replay(99),
        lambda: sources.remove("other"),
    ):
        with pytest.raises(NotFoundError):
            missing()
    with pytest.raises(InvalidInputError, match="a state is one of"):
        sources.list_events("shop", "unknown")


def test_a_purchase_without_a_price_is_no_matter_of_mapping(world):
    """A Checkout Session whose metadata name nothing: mapping and replay would never help."""
    add(world, "stripe")
    session = shops.stripe_session(payment_link=None)
    process(world, "stripe", shops.stripe("checkout.session.completed", session))
    (event,) = world.services.sources.list_events("stripe", "dead").items
    assert "by hand" in event.reason
    assert "map" not in event.reason


@pytest.mark.parametrize(
    ("source", "shop", "secret", "seconds", "expected"),
    [
        ("stripe", "paddle", None, 0, "no header stripe-signature; is this a shop of another kind"),
        ("stripe", "stripe", None, 11, "signed 10 s ago or earlier"),
        ("stripe", "stripe", "whsec_of-another-webhook", 0, "copy the one that the shop shows for this"),
        ("stripe", "stripe", "sk_live_an-api-key", 0, "STRIPE_SECRET holds no signing secret of Stripe"),
        ("standard", "standard", "whsec_no-base64", 0, "STANDARD_SECRET holds no signing secret"),
        ("lemonsqueezy", "lemonsqueezy", "eyJ0" * 11, 0, "LEMONSQUEEZY_SECRET holds no signing secret"),
    ],
)
def test_why_a_delivery_is_refused(world, monkeypatch, source, shop, secret, seconds, expected):
    """Each mistake of somebody who sets a shop up has its own sentence for the log, with what to do."""
    add(world, source, tolerance=10)
    headers = {name.lower(): value for name, value in shops.sign(shop, b"{}", world.clock()).items()}
    if secret is not None:
        monkeypatch.setenv(f"{source.upper()}_SECRET", secret)
    world.clock.forward(seconds=seconds)
    with pytest.raises(BadSignatureError, match=expected) as refused:
        world.services.sources.receive(source, headers, b"{}")
    assert secret is None or secret not in str(refused.value)
    assert states(world, source) == []
