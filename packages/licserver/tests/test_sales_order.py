"""Deliveries in any order, repeated, to workers that die: one license an order, one mail, the right end."""

from contextlib import suppress
from datetime import datetime, timedelta
from itertools import count
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from harness import shops
from harness.engines import both_engines
from licserver.errors import BuryJobError
from licserver.services.license_search import LicenseFilter
from licserver.services.sales.reconciler import SaleReconciler
from licserver.shops import ShopKind

LEASE, GRACE = timedelta(minutes=1), timedelta(days=7)
BOUGHT, RENEWED = "2026-06-15T12:00:00Z", "2026-07-15T12:00:00Z"
ENDED, AGAIN = "2026-08-20T12:00:00Z", "2026-09-01T12:00:00Z"
PAID: Final = {
    "bought": "2026-07-15T12:00:00Z",
    "renewed": "2026-08-15T12:00:00Z",
    "again": "2026-10-01T12:00:00Z",
    "cancelled": "2026-07-15T12:00:00Z",
    "cancelled later": "2026-08-15T12:00:00Z",
}
"""Event → the instant to which it says that the subscription is paid."""
CHANGED: Final = {
    "cancelled": "2026-07-05T12:00:00Z",
    "resumed": "2026-07-06T12:00:00Z",
    "cancelled later": "2026-08-05T12:00:00Z",
}
"""Event → when the subscription was cancelled for the end of what is paid, or was not after all."""

numbers = count(1)
workers = st.sampled_from(["one", "other"])


class CrashError(Exception):
    """The process dies before it commits."""


def _crash(_worker) -> str:
    raise CrashError


def events(number: object) -> dict[str, bytes]:
    """What may happen to a subscription and its two orders, each as it is delivered."""
    subscription = {"subscription_id": f"sub-{number}"}
    item = {**subscription, "external_id": "app", "customer_email": "ann@example.com"}
    order = {"order_id": f"first-{number}"}
    purchase, refund = "purchase.completed", "purchase.refunded"
    cancelled = {
        name: shops.standard("subscription.cancelled", at, **subscription, paid_through=PAID[name])
        for name, at in CHANGED.items()
        if name in PAID
    }
    return {
        **cancelled,
        "resumed": shops.standard("subscription.resumed", CHANGED["resumed"], **subscription),
        "bought": shops.standard(purchase, BOUGHT, **order, **item, paid_through=PAID["bought"]),
        "renewed": shops.standard(
            "subscription.renewed", RENEWED, **subscription, paid_through=PAID["renewed"]
        ),
        "part": shops.standard(refund, **order, refund_id=f"part-{number}", partial=True),
        "refunded": shops.standard(refund, **order),
        "ended": shops.standard("subscription.ended", ENDED, **subscription),
        "again": shops.standard(
            purchase, AGAIN, order_id=f"second-{number}", **item, paid_through=PAID["again"]
        ),
    }


class Sales(RuleBasedStateMachine):
    """A shop delivers what it likes, as often as it likes; two workers take jobs, and may die at any time."""

    def __init__(self, world) -> None:
        super().__init__()
        self.world, self.number = world, next(numbers)
        self.bodies, self.happened, self.held = events(self.number), set(), {}
        self.source = "shop"

    @initialize(source=st.sampled_from(["shop", "strict"]))
    def choose(self, source) -> None:
        """Choose the shop, or the one whose partial refunds revoke as well."""
        self.source = source

    @rule(name=st.sampled_from([*events(0)]), sent=st.sampled_from(["once", "anew"]))
    def deliver(self, name, sent) -> None:
        """Deliver an event, perhaps once more, with its id or with another one."""
        headers = shops.sign(
            "standard", self.bodies[name], self.world.clock(), None, f"{self.number}-{name}-{sent}"
        )
        lower = {name_.lower(): value for name_, value in headers.items()}
        self.world.services.sources.receive(self.source, lower, self.bodies[name])
        self.happened.add(name)

    @rule(worker=workers)
    def claim(self, worker) -> None:
        """A worker that has no job takes the next."""
        if worker not in self.held:
            jobs = self.world.repositories.queue.claim("sale", self.world.clock(), LEASE, 1)
            if jobs:
                self.held[worker] = jobs[0]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), end=st.sampled_from(["done", "dies before its commit", "dies after its commit"]))
    def end(self, data, end) -> None:
        """A worker does its job, also one that another has done since the lease ended; or it dies."""
        job = self.held.pop(data.draw(st.sampled_from(sorted(self.held))))
        sales, event = self.world.services.sales, job.payload["event"]
        if end == "done":
            self._process(job)
        elif end == "dies after its commit":  # of the effect alone, as if the job were finished by another
            with suppress(BuryJobError):
                sales.process(event)
        else:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(SaleReconciler, "problem", _crash)
                with suppress(CrashError):
                    sales.process(event, (), job)

    def _process(self, job) -> None:
        """Do a job as the background does; a renewal whose purchase has not arrived waits."""
        try:
            self.world.services.sales.process(job.payload["event"], (), job)
        except BuryJobError as problem:
            self.world.repositories.queue.bury(job, self.world.clock(), str(problem))

    @rule()
    def wait(self) -> None:
        """Leases end."""
        self.world.clock.forward(seconds=LEASE.total_seconds())

    def teardown(self) -> None:
        """Do what is left, and compare: the result depends on what has happened alone."""
        self._do_all()
        canonical = f"{self.number}-in-order"
        for name, body in events(canonical).items():
            if name in self.happened:
                headers = shops.sign("standard", body, self.world.clock(), None, f"{canonical}-{name}")
                lower = {name_.lower(): value for name_, value in headers.items()}
                self.world.services.sources.receive(self.source, lower, body)
                self._do_all()
        found, expected = map(self._list_valid, (str(self.number), canonical))
        assert found == expected
        if not self.happened & {"refunded", "part"}:
            assert len(found) == len(self.happened & {"bought", "again"})

    def _do_all(self) -> None:
        self.wait()
        while jobs := self.world.repositories.queue.claim("sale", self.world.clock(), LEASE, 1):
            self._process(jobs[0])

    def _list_valid(self, number: str) -> list[tuple[str, datetime | None]]:
        """Return for each valid license of two orders its order and its end; each was mailed once."""
        services, valid = self.world.services, []
        # Keys that are issued together are in one mail.
        mails = [
            id_
            for job in services.mail.list_jobs(limit=200).items
            for id_ in job.payload.get("license_ids", [job.payload["license_id"]])
        ]
        for order in ("first", "second"):
            found = services.licenses.search(LicenseFilter(query=f"{order}-{number}")).items
            for license_ in found:
                if license_.note == f"Order {order}-{number} ({self.source})" and license_.revoked_at is None:
                    assert mails.count(license_.id.hex()) == 1
                    valid.append((order, license_.subscription_ended_at))
        return valid


@both_engines
@pytest.mark.parametrize("examples", [3, pytest.param(30, marks=pytest.mark.slow)], ids=["sample", "all"])
def test_the_result_depends_on_what_happened_alone(make_world, monkeypatch, examples):
    """Any order, any repetition, two workers, crashes before and after the commit, and leases that end."""
    monkeypatch.setenv("SHOP_SECRET", shops.SECRETS["standard"])
    world = make_world(mail_host="mail.example", mail_sender="shop@example.com")
    for name in ("shop", "strict"):
        is_strict = name == "strict"
        world.services.sources.add(name, ShopKind.STANDARD, "SHOP_SECRET", revokes_partial_refunds=is_strict)
        world.services.sources.map(name, "app", "app")
    run_state_machine_as_test(
        lambda: Sales(world),
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
