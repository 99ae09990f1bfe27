"""Deliveries in any order, repeated, with crashes between: one license an order, one mail, the right end."""

from datetime import timedelta
from itertools import count
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import shops
from harness.engines import both_engines
from licserver.domain.decisions import license_state
from licserver.domain.records import LicenseState
from licserver.services import LicenseFilter
from licserver.services.sales import SaleWorker
from licserver.sources import SourceKind

LEASE: Final = timedelta(minutes=1)
numbers = count(1)


class CrashError(Exception):
    """The process dies before it commits."""


@pytest.fixture
def shop(make_world, monkeypatch):
    """A vendor with a shop of their own, who mails keys."""
    monkeypatch.setenv("SHOP_SECRET", shops.SECRETS["standard"])
    world = make_world(mail_host="mail.example", mail_sender="shop@example.com")
    world.services.sources.add("shop", SourceKind.STANDARD, "SHOP_SECRET")
    world.services.sources.map("shop", "app", "app")
    return world


def events(order: str) -> dict[str, bytes]:
    """What may happen to an order, each as it is delivered."""
    bought = {"order_id": order, "external_id": "app", "customer_email": "ann@example.com"}
    paid = {"subscription_id": f"sub-{order}", "paid_through": "2026-07-15"}
    return {
        "bought": shops.standard("purchase.completed", **bought, **paid),
        "renewed": shops.standard(
            "subscription.renewed", subscription_id=f"sub-{order}", paid_through="2026-08-15"
        ),
        "part": shops.standard("purchase.refunded", order_id=order, partial=True),
        "refunded": shops.standard("purchase.refunded", order_id=order),
    }


def deliver(world, body: bytes, delivery: str) -> None:
    """Deliver without a socket."""
    headers = shops.sign("standard", body, world.clock(), None, delivery)
    world.services.sources.receive("shop", {name.lower(): value for name, value in headers.items()}, body)


def work(world, crashes: list[bool]) -> None:
    """Do all jobs, as the background does; a crash leaves one to whoever comes after its lease."""
    queue = world.repositories.queue
    while jobs := queue.claim("sale", world.clock(), LEASE, 1):
        with pytest.MonkeyPatch.context() as patched:
            if crashes and crashes.pop():
                patched.setattr(SaleWorker, "summary", _crash)
                with pytest.raises(CrashError):
                    world.services.sales.process(jobs[0].payload["event"])
                world.clock.forward(seconds=LEASE.total_seconds())
                continue
            world.services.sales.process(jobs[0].payload["event"])
            queue.finish(jobs[0], world.clock())


def _crash(_worker) -> str:
    raise CrashError


@both_engines
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.sampled_from(["bought", "renewed", "part", "refunded"]), min_size=1, max_size=6),
    crashes=st.lists(st.booleans(), max_size=4),
    is_eager=st.booleans(),
)
def test_the_result_depends_on_what_happened_alone(shop, names, crashes, is_eager):
    """Whatever the order: a purchase is one license and one mail, and only a whole refund revokes it."""
    order = f"order-{next(numbers)}"
    bodies, crashes = events(order), [*crashes]
    for name in names:
        deliver(shop, bodies[name], f"{order}-{name}")
        if is_eager:
            work(shop, crashes)
    work(shop, crashes)
    found = shop.services.licenses.search(LicenseFilter(query=order)).items
    assert len(found) == ("bought" in names)
    for one in found:
        expected = LicenseState.REVOKED if "refunded" in names else LicenseState.ACTIVE
        assert license_state(one, shop.clock()) is expected
        last = 15 + 7 if "renewed" not in names else 15 + 31 + 7  # of July; with a week of grace
        assert one.subscription_ended_at is not None
        assert (one.subscription_ended_at.date() - one.issued_at.date().replace(month=7, day=1)).days == last
        mails = [job for job in shop.services.mail.list_jobs() if job.payload["license_id"] == one.id.hex()]
        assert len(mails) == 1
