"""An admission in steps: begun and committed where waiting does no harm, judged in between (D-08)."""

import asyncio
from collections.abc import Callable

import pytest

from harness.engines import sqlite_only
from licserver.desk import Desk
from licserver.errors import StoreUnavailable
from licserver.model import Environment
from licserver.rules import Valid, VerifyRefusal, judge_verify
from licserver.store import BatchStore, Claim, Sighting

pytestmark = sqlite_only


@pytest.fixture
def store(world):
    """The batch side of the default world's database."""
    store = BatchStore(world.vendor.database)
    yield store
    store.close()


@pytest.fixture
def claim(world) -> Callable[[str, int], Claim]:
    """Claim a slot of a key for the numbered environment."""

    def make(key, number):
        environment = Environment(f"{number}.example", "192.0.2.1")
        return Claim(
            Sighting(world.vendor.vault.license_id(key), environment),
            lambda license_: judge_verify(key, license_, environment, world.clock()),
            world.clock(),
        )

    return make


def test_in_three_steps_exactly_the_slots_are_given(world, store, claim):
    """Judged between begin and commit, ten claims on three slots admit three, and three are noted."""
    key = world.key(slots=3)
    admission = store.admission()
    admission.begin()
    verdicts = admission.judge([claim(key, number) for number in range(10)])
    admission.commit()
    assert [isinstance(verdict, Valid) for verdict in verdicts] == [True] * 3 + [False] * 7
    assert verdicts[-1] is VerifyRefusal.ENVIRONMENT
    assert len(world.held(key)) == 3


def test_what_is_abandoned_leaves_no_trace_and_nothing_locked(world, store, claim):
    """An admission given up after judging has taken no slot, and the next one goes ahead."""
    key = world.key(slots=1)
    admission = store.admission()
    admission.begin()
    admission.judge([claim(key, 1)])
    admission.abandon()
    admission.abandon()  # as may happen on the way out
    assert world.held(key) == []
    assert isinstance(store.admit([claim(key, 2)])[0], Valid)


def test_who_cannot_begin_holds_nothing(world, store, claim):
    """Somebody else writes for too long: the admission fails, and the next one goes ahead."""
    key = world.key(slots=1)
    store.admit([claim(world.key(), 1)])
    driver = store._claim_lane._connection.connection.driver_connection
    driver.execute("PRAGMA busy_timeout = 10")
    with world.vendor.database.writing() as connection:
        connection.exec_driver_sql("SELECT 1")
        admission = store.admission()
        with pytest.raises(StoreUnavailable, match="locked"):
            admission.begin()
        admission.abandon()
    assert isinstance(store.admit([claim(key, 1)])[0], Valid)


@pytest.mark.parametrize("step", ["begin", "judge", "commit"])
async def test_a_step_that_fails_grants_nobody_anything(world, claim, step):
    """Whichever step fails, all who wait learn of it, nothing is noted, and the next batch is served."""
    key = world.key(slots=5)
    desk = Desk(BatchStore(world.vendor.database))

    def fail(*_: object):
        raise StoreUnavailable("no disk")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"licserver.store.batch.Admission.{step}", fail)
        replies = await asyncio.gather(
            *(desk.admit(claim(key, number)) for number in range(3)), return_exceptions=True
        )
    assert [type(reply) for reply in replies] == [StoreUnavailable] * 3
    assert world.held(key) == []
    assert isinstance(await desk.admit(claim(key, 1)), Valid)
    await desk.close()


async def test_closing_lets_an_admission_come_to_its_end(world, claim):
    """A desk that closes while a slot is being taken has taken it when it is closed."""
    key = world.key(slots=5)
    desk = Desk(BatchStore(world.vendor.database))
    asked = desk.admit(claim(key, 1))
    await asyncio.sleep(0)
    await desk.close()
    assert isinstance(await asked, Valid)
    assert len(world.held(key)) == 1
