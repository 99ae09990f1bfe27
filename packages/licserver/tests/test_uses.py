"""Metered entitlements: counted exactly once each, and never above the limit."""

import threading
from datetime import UTC, datetime

import pytest

from harness.engines import both_engines
from licserver.errors import StoreUnavailableError
from licserver.services.uses import OtherUseError, QuotaExceededError

QUOTA = {"limit": 100, "per": "month"}


@pytest.fixture
def use(world):
    """Count a use of a license; returns what is used."""
    license_id = world.services.licenses.get(world.key()).id

    def count(use_id, amount=1, quota=QUOTA):
        return world.services.uses.consume(license_id, "exports", quota, amount, use_id)

    count.license_id = license_id
    return count


@both_engines
def test_each_id_counts_once_and_a_refusal_counts_nothing(use):
    """A repeated use is answered as if it had been counted now; an id that was refused may be used again."""
    assert use("id-1", 60).used == use("id-1", 60).used == 60
    with pytest.raises(QuotaExceededError) as caught:
        use("id-2", 41)
    assert caught.value.use.used == 60
    assert use("id-2", 40).used == 100
    with pytest.raises(QuotaExceededError):
        use("id-3")
    with pytest.raises(QuotaExceededError):
        use("id-4", 9, {"limit": 0, "per": "month"})


@both_engines
def test_an_id_is_bound_to_name_and_amount(world, use):
    """A replay for another use is a conflict, and no answer that says it was counted."""
    use("id-1", 60)
    consume = world.services.uses.consume
    for name, amount in (("exports", 59), ("scans", 60)):
        with pytest.raises(OtherUseError, match="draw a new id"):
            consume(use.license_id, name, QUOTA, amount, "id-1")
    assert use("id-1", 60).used == 60
    with world.services.database.writing() as connection:  # as an older program stored it
        connection.exec_driver_sql("UPDATE use_ids SET name = NULL, amount = NULL")
    assert use("id-1", 7).used == 60


def test_the_next_period_begins_anew(world, use):
    """In UTC; a lower limit of today counts at once."""
    use("id-1", 100)
    world.clock.now = datetime(2026, 7, 1, tzinfo=UTC)
    assert use("id-2").used == 1
    assert world.services.uses.list_current(use.license_id, {"a": True, "exports": QUOTA}) == [
        ("exports", 1, 100, datetime(2026, 8, 1, tzinfo=UTC))
    ]


@pytest.mark.slow
@both_engines
def test_racers_and_retries_never_exceed_the_limit(use):
    """16 threads send 40 uses each, every one of them twice: exactly 100 are counted."""
    counted, refused, start = list[str](), list[str](), threading.Barrier(16)

    def race(racer):
        start.wait()
        for number in range(40):
            use_id = f"use-{racer}-{number}"
            for _ in range(2):
                try:
                    assert use(use_id).used <= 100
                    counted.append(use_id)
                except QuotaExceededError:
                    refused.append(use_id)
                except StoreUnavailableError:  # the machine is busy; the app would send it again
                    pass

    threads = [threading.Thread(target=race, args=(racer,)) for racer in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(counted)) == 100
    assert not {*counted} & {*refused}
    with pytest.raises(QuotaExceededError):
        use("one-more")


@both_engines
def test_one_use_that_races_with_itself_counts_once(use):
    """All callers get the same answer."""
    answers, start = list[int](), threading.Barrier(8)

    def race():
        start.wait()
        answers.append(use("the-same", 7).used)

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [7] * 8


def test_warnings_are_sent_once(world, use):
    """At 80 %, and when all is used; from nothing to all at once there is one."""
    world.services.webhooks.add("https://example.com/hook")
    for number, amount in enumerate((79, 1, 10, 10)):
        use(f"id-{number}", amount)
    use("id-9", 100, {"limit": 100, "per": "day"})
    jobs = world.services.repositories.queue.list_page("webhook-events", limit=10)
    types = sorted(job.payload["type"] for job in jobs)
    assert types == ["entitlement.nearly_used", "entitlement.used_up", "entitlement.used_up"]


def test_a_sweep_forgets_what_is_long_over(world, use):
    """Ids 40 days after the period, sums later; what counts stays."""
    use("id-1", 100)
    world.clock.forward(days=60)
    use("id-2")
    world.services.retention.sweep()
    with world.services.database.reading() as connection:
        left = connection.exec_driver_sql("SELECT use_id FROM use_ids").scalars().all()
    assert left == ["id-2"]


async def test_the_page_of_a_license_shows_the_use(world, alice):
    """Of each metered entitlement, with the day on which it begins anew."""
    world.services.plans.add("app", "pro", {"exports": QUOTA})
    license_ = world.services.licenses.get(world.key(plan="pro"))
    world.services.uses.consume(license_.id, "exports", QUOTA, 7, "id-1")
    assert "7 of 100" in await alice.get(f"/console/licenses/{license_.id.hex()}")


@both_engines
async def test_the_admin_api_shows_the_use(world, api):
    """Of each license of a page its own, and of the present period."""
    world.services.plans.add(
        "app", "pro", {"export": True, "exports": QUOTA, "calls": {"limit": 9, "per": "day"}}
    )
    first, second, other = (
        world.services.licenses.get(world.key(plan=plan)) for plan in ("pro", "pro", None)
    )
    world.services.uses.consume(first.id, "exports", QUOTA, 7, "id-1")
    world.services.uses.consume(second.id, "calls", {"limit": 9, "per": "day"}, 2, "id-1")
    world.clock.forward(days=1)
    world.services.uses.consume(second.id, "exports", QUOTA, 3, "id-2")
    listed = {license_["id"]: license_["uses"] for license_ in (await api("GET", "/licenses"))[1]["items"]}
    exports = {"name": "exports", "limit": 100, "resets_at": "2026-07-01T00:00:00Z"}
    assert listed[first.id.hex()][0] == (await api("GET", f"/licenses/{first.id.hex()}"))[1]["uses"][0]
    assert {**exports, "used": 7} in listed[first.id.hex()]
    assert {**exports, "used": 3} in listed[second.id.hex()]
    assert {use_["used"] for use_ in listed[second.id.hex()]} == {0, 3}, "the day is over"
    assert listed[other.id.hex()] == []
