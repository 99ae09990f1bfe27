"""The job queue, and the worker that every process runs for it."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from harness.engines import both_engines
from licserver.database.repositories.queue import JobState
from licserver.errors import BuryJobError, ContinueJobError, RetryJobError, StoreUnavailableError
from licserver.jobs.process import create_job_worker
from licserver.jobs.worker import JobWorker
from licserver.services.queues import QUEUES

LEASE = timedelta(minutes=1)


@pytest.fixture
def queue(world):
    """The queue of a world's database."""
    return world.repositories.queue


def add(world, number=1, queue="mail"):
    """Add jobs that are due."""
    for index in range(number):
        assert world.repositories.queue.add(queue, f"job-{index}", {"n": index}, world.clock())


@both_engines
def test_a_key_is_added_once_and_only_with_its_transaction(world, queue):
    """Asking again adds nothing, also after the job is done; a transaction that fails leaves no job."""
    add(world)
    assert not queue.add("mail", "job-0", {}, world.clock())
    (job,) = queue.claim("mail", world.clock(), LEASE, 10)
    assert queue.finish(job, world.clock())
    assert not queue.add("mail", "job-0", {}, world.clock())
    with pytest.raises(TypeError), world.repositories.transaction() as tx:
        assert tx.queue.add("mail", "other", {}, world.clock()) + None
    assert [job.key for job in queue.list_page("mail")] == ["job-0"]
    assert queue.sweep(world.clock() + LEASE) == 1
    assert queue.list_page("mail") == []


def test_each_queue_is_measured(make_world):
    """A queue that nothing measures would fill without a metric, an alert or a line of `licserver check`."""
    world = make_world(mail_host="mail.example", mail_sender="a@vendor.example")
    worked = create_job_worker(world.services, world.clock).queues
    assert worked == {queue for queues in QUEUES.values() for queue in queues}


@both_engines
def test_two_claimers_never_get_one_job(world, queue):
    """Four threads that claim at the same moment share the jobs among them."""
    add(world, 60)
    start = threading.Barrier(4)

    def claim(_):
        start.wait()
        got = []
        while claimed := queue.claim("mail", world.clock(), LEASE, 3):
            got += [job.payload["n"] for job in claimed]
        return got

    with ThreadPoolExecutor(4) as threads:
        got = [number for numbers in threads.map(claim, range(4)) for number in numbers]
    assert sorted(got) == list(range(60))


@both_engines
def test_a_lost_lease_is_claimed_again_and_its_first_owner_changes_nothing(world, queue):
    """Until the lease ends nobody else gets the job; afterwards the first owner's report is ignored."""
    add(world)
    (first,) = queue.claim("mail", world.clock(), LEASE, 10)
    assert queue.find_due({"mail", "other"}, world.clock()) == set()
    assert queue.claim("mail", world.clock(), LEASE, 10) == []
    world.clock.forward(minutes=1)
    assert queue.find_due({"mail", "other"}, world.clock()) == {"mail"}
    (second,) = queue.claim("mail", world.clock(), LEASE, 10)
    assert (first.attempts, second.attempts) == (1, 2)
    assert not queue.finish(first, world.clock())
    assert not queue.bury(first, world.clock(), "late")
    assert queue.retry(second, world.clock() + LEASE, "busy")
    assert queue.find("mail", second.id).last_error == "busy"


@both_engines
def test_a_dead_job_waits_to_be_revived(world, queue):
    """It is counted and listed as dead, claimed by nobody, and begins anew when it is revived."""
    add(world, 2)
    dead, _ = queue.claim("mail", world.clock(), LEASE, 10)
    queue.bury(dead, world.clock(), "no such mailbox")
    assert {job.state for job in queue.list_page("mail")} == {JobState.DEAD, JobState.WAITING}
    assert [job.last_error for job in queue.list_page("mail", JobState.DEAD)] == ["no such mailbox"]
    world.clock.forward(days=1)
    assert queue.revive("mail", [dead.id], world.clock()) == 1
    assert queue.revive("other", [dead.id], world.clock()) == 0
    assert [job.attempts for job in queue.claim("mail", world.clock(), LEASE, 10)] == [1, 2]
    assert queue.list_page("mail", before=dead.id) == []


@asynccontextmanager
async def running(worker):
    """Run a worker as an application does."""
    async for _ in worker.running(None):
        yield


async def until(condition):
    """Wait until something is true, at most twenty seconds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the queue is in the database
            await asyncio.sleep(0.01)


@both_engines
async def test_two_workers_share_jobs_of_functions_and_coroutines(world, queue):
    """Each job runs once, of the coroutines at most four in a process at a time, and is done."""
    done, at_once, most = [], set(), [0]

    def on_thread(job):
        assert threading.current_thread() is not threading.main_thread()
        done.append(job.key)

    async def in_loop(job):
        at_once.add(job.key)
        most[0] = max(most[0], len(at_once))
        await asyncio.sleep(0.01)
        at_once.remove(job.key)
        done.append(job.key)

    add(world, 12)
    add(world, 12, "webhooks")
    workers = [JobWorker(world.repositories, world.clock) for _ in range(2)]
    for worker in workers:
        worker.register("mail", on_thread)
        worker.register("webhooks", in_loop, at_once=4)
    async with running(workers[0]), running(workers[1]):
        await until(lambda: len(queue.list_page("webhooks", JobState.DONE)) == 12)
        await until(lambda: len(queue.list_page("mail", JobState.DONE)) == 12)
    assert len(done) == len(set(done)) * 2 == 24
    assert 1 < most[0] <= 8


async def test_what_a_handler_raises_decides_what_follows(world, queue, caplog):
    """A time of its own, the schedule, or no more; a stranger's message is neither stored nor kept back."""
    errors = [
        RetryJobError("busy", world.clock() + timedelta(hours=3)),
        RetryJobError("busy"),
        BuryJobError("refused"),
        KeyError("surprise"),
    ]

    def fail(job):
        raise errors[job.payload["n"]]

    add(world, 4)
    worker = JobWorker(world.repositories, world.clock)
    worker.register("mail", fail)
    async with running(worker):
        await until(lambda: all(job.last_error for job in queue.list_page("mail")))
    found = [(job.state, job.due_at and job.due_at - world.clock()) for job in queue.list_page("mail")][::-1]
    waiting, pause = JobState.WAITING, timedelta(seconds=5)
    assert found == [(waiting, timedelta(hours=3)), (waiting, pause), (JobState.DEAD, None), (waiting, pause)]
    assert "surprise" not in queue.list_page("mail")[0].last_error
    assert "job 4 of mail failed unexpectedly" in caplog.text


async def test_a_job_that_goes_on_later_lets_others_have_their_turn(world, queue):
    """It is no further attempt, however often: nothing has failed."""
    order = []

    def in_parts(job):
        order.append(job.payload["n"])
        if job.payload["n"] == 0 and len(order) < 12:
            raise ContinueJobError("a part is done", world.clock())

    add(world, 2)
    worker = JobWorker(world.repositories, world.clock)
    worker.register("mail", in_parts, at_once=1, schedule=())
    async with running(worker):
        await until(lambda: len(queue.list_page("mail", JobState.DONE)) == 2)
    assert order[0] == 0
    assert len(order) == 13
    assert {job.attempts for job in queue.list_page("mail")} == {1}


async def test_the_last_failure_of_the_schedule_is_the_end(world, queue):
    """A job whose attempts are used up is dead."""

    def fail(_):
        raise RetryJobError("busy")

    add(world)
    worker = JobWorker(world.repositories, world.clock)
    worker.register("mail", fail, schedule=())
    async with running(worker):
        await until(lambda: [job.state for job in queue.list_page("mail")] == [JobState.DEAD])


async def test_a_worker_outlives_an_outage_and_a_job_that_hangs(world, queue, monkeypatch, caplog):
    """While the database is away one line is logged; a coroutine that never ends is cancelled."""
    failing = [StoreUnavailableError("away")] * 2
    claim = JobWorker._claim

    def fail_first(self, room, running):
        if failing:
            raise failing.pop()
        return claim(self, room, running)

    async def hang(_):
        await asyncio.Event().wait()

    monkeypatch.setattr(JobWorker, "_claim", fail_first)
    monkeypatch.setattr("licserver.jobs.worker.POLL_SECONDS", 0.01)
    add(world)
    worker = JobWorker(world.repositories, world.clock)
    worker.register("mail", hang, lease=timedelta(seconds=0.02))
    async with running(worker):
        await until(lambda: queue.find("mail", 1).last_error == "took too long")
    assert caplog.text.count("wait for the database") == 1


async def test_a_loop_that_is_woken_and_cancelled_at_once_ends(world):
    """A job that is finished as the process shuts down does not keep it from ending."""
    worker = JobWorker(world.repositories, world.clock)
    worker.register("mail", lambda _job: None)
    life = worker.running(None)
    await anext(life)
    await asyncio.sleep(0.2)  # until the loop waits
    worker.wake()
    async with asyncio.timeout(20):
        assert await anext(life, None) is None
