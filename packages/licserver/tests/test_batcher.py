"""asyncio in front of the store: who waits together is served together."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from harness.standstill import Standstill
from licserver.database.hot_path.batcher import MAX_BATCH, Batcher, PublicQueries
from licserver.database.hot_path.driver import run_blocking
from licserver.errors import StoreUnavailableError


class Counter:
    """Serves batches, notes them, and can be held up; doubles what it is asked."""

    def __init__(self) -> None:
        self.batches = []
        self.entered, self.go = threading.Event(), threading.Event()
        self.go.set()

    def __call__(self, items: list[str]) -> list[str | Exception]:
        """Serve a batch."""
        self.batches.append(list(items))
        self.entered.set()
        assert self.go.wait(10)
        if "break" in items:
            raise LookupError("all of you")
        return [ValueError("you alone") if item == "bad" else item * 2 for item in items]


@pytest.fixture
def counter():
    """What serves."""
    return Counter()


@pytest.fixture
async def queue(counter):
    """A queue before it; it serves on a thread."""
    with ThreadPoolExecutor(1) as thread:
        queue = Batcher(partial(asyncio.get_running_loop().run_in_executor, thread, counter))
        yield queue
        counter.go.set()
        await queue.finish()


async def busy(queue, counter):
    """Let the queue begin with one ask, and hold it up there."""
    counter.go.clear()
    first = queue.submit("first")
    await asyncio.to_thread(counter.entered.wait)
    return first


async def submit_all(queue, *items: str):
    """Ask all of these now; they wait."""
    tasks = [queue.submit(item) for item in items]
    await asyncio.sleep(0)
    return tasks


async def test_somebody_alone_is_served_at_once(queue, counter):
    """There is no timer that waits for company."""
    assert await queue.submit("a") == "aa"
    assert counter.batches == [["a"]]


async def test_who_asks_in_the_same_moment_is_one_call(queue, counter):
    """A hundred asks of one turn of the loop are one statement, and each gets its own reply."""
    replies = await asyncio.gather(*(queue.submit(str(n)) for n in range(100)))
    assert replies == [str(n) * 2 for n in range(100)]
    assert len(counter.batches) == 1


async def test_while_each_turn_brings_more_they_come_first(queue, counter):
    """Who asks a turn of the loop after others is in their call, as long as every turn brings somebody."""
    tasks = [queue.submit("a"), queue.submit("b")]
    for late in ("c", "d"):
        await asyncio.sleep(0)
        tasks.append(queue.submit(late))
    await asyncio.gather(*tasks)
    assert counter.batches == [list("abcd")]
    alone = queue.submit("e")
    await asyncio.sleep(0)  # nobody came with it: it is being served
    later = queue.submit("f")
    assert [await alone, await later] == ["ee", "ff"]
    assert counter.batches == [list("abcd"), ["e"], ["f"]]


async def test_quiet_turns_are_counted_for_the_whole_batch(counter):
    """A batch lets two turns without a further request pass, and includes the requests of those turns."""
    queue = Batcher(counter, quiet_turns=2)
    tasks = []
    for name, turns in ("a", 1), ("b", 2), ("c", 2), ("d", 0):
        tasks.append(queue.submit(name))
        for _ in range(turns):
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert counter.batches == [list("abc"), ["d"]]


async def test_who_waits_while_it_is_busy_is_the_next_call(queue, counter):
    """Whatever gathers behind a running call is served by one more."""
    first = await busy(queue, counter)
    tasks = await submit_all(queue, *"abcdef")
    counter.go.set()
    assert await asyncio.gather(first, *tasks) == ["firstfirst", "aa", "bb", "cc", "dd", "ee", "ff"]
    assert counter.batches == [["first"], list("abcdef")]


async def test_a_batch_has_an_end(queue, counter):
    """More than a statement can carry is served in several, in order, and nobody is forgotten."""
    replies = await asyncio.gather(*(queue.submit(str(n)) for n in range(2 * MAX_BATCH + 1)))
    assert replies == [str(n) * 2 for n in range(2 * MAX_BATCH + 1)]
    assert [len(batch) for batch in counter.batches] == [MAX_BATCH, MAX_BATCH, 1]


async def test_an_exception_reaches_its_asker_alone(queue):
    """The neighbours of an ask that fails get their replies."""
    replies = await asyncio.gather(*map(queue.submit, ["a", "bad", "b"]), return_exceptions=True)
    assert [replies[0], repr(replies[1]), replies[2]] == ["aa", "ValueError('you alone')", "bb"]


async def test_a_call_that_fails_fails_all_of_its_batch_and_no_other(queue):
    """An outage of the database is raised to all who wait, and the next ones are served again."""
    replies = await asyncio.gather(*map(queue.submit, ["a", "break"]), return_exceptions=True)
    assert [type(reply) for reply in replies] == [LookupError, LookupError]
    assert await queue.submit("a") == "aa"


async def test_who_has_gone_is_not_served(queue, counter):
    """A caller that hung up while waiting takes no slot; the others of its batch are served."""
    first = await busy(queue, counter)
    gone, stays, also_gone = await submit_all(queue, "gone", "stays", "also gone")
    gone.cancel()
    also_gone.cancel()
    counter.go.set()
    assert await first == "firstfirst"
    assert await stays == "staysstays"
    assert counter.batches == [["first"], ["stays"]]
    assert (await asyncio.gather(gone, also_gone, return_exceptions=True)).count("") == 0
    assert gone.cancelled()


async def test_when_all_who_wait_have_gone_nothing_is_asked(queue, counter):
    """A batch of nobody is no call."""
    first = await busy(queue, counter)
    (gone,) = await submit_all(queue, "gone")
    gone.cancel()
    counter.go.set()
    await first
    assert await queue.submit("next") == "nextnext"
    assert counter.batches == [["first"], ["next"]]


async def test_who_goes_while_being_served_disturbs_nobody(queue, counter):
    """A reply that nobody waits for any more is dropped."""
    first = await busy(queue, counter)
    first.cancel()
    (other,) = await submit_all(queue, "other")
    counter.go.set()
    assert await other == "otherother"


async def test_finishing_waits_for_what_is_being_served(queue, counter):
    """Who asks a service on its way out to finish gets it back when nobody is being served."""
    first = await busy(queue, counter)
    finishing = asyncio.create_task(queue.finish())
    await asyncio.sleep(0.01)
    assert not finishing.done()
    counter.go.set()
    await finishing
    assert first.done()


async def test_a_service_that_has_ended_leaves_nobody_waiting(counter):
    """A late ask fails."""
    thread = ThreadPoolExecutor(1)
    queue = Batcher(partial(asyncio.get_running_loop().run_in_executor, thread, counter))
    assert await queue.submit("a") == "aa"
    thread.shutdown()
    with pytest.raises(RuntimeError):
        await queue.submit("late")


@pytest.mark.parametrize("waits", [True, False])
async def test_a_reply_too_few_leaves_nobody_waiting(waits):
    """Should a call break its promise and return too little, all of the batch learn of it."""

    async def late(items):
        return list(items)[:-1]

    queue = Batcher(late if waits else lambda items: list(items)[:-1])
    replies = await asyncio.wait_for(
        asyncio.gather(*map(queue.submit, "abc"), return_exceptions=True), timeout=5
    )
    assert all(isinstance(reply, Exception) for reply in replies)


async def test_a_call_that_is_cancelled_leaves_nobody_waiting():
    """When the loop ends in the midst of a call, its askers learn of it."""
    queue = Batcher(lambda _asks: asyncio.get_running_loop().create_future())
    waiting = queue.submit("a")
    await asyncio.sleep(0)
    queue._serving.cancel()
    with pytest.raises(RuntimeError):
        await waiting


async def test_what_never_waits_is_served_in_the_loop(counter):
    """What replies at once is called at the next turn of the loop, on the loop's own thread."""
    served_on = []

    def serve(items):
        served_on.append(threading.current_thread())
        return counter(items)

    queue = Batcher(serve)
    replies = await asyncio.gather(*map(queue.submit, ["a", "bad", "b"]), return_exceptions=True)
    assert [replies[0], repr(replies[1]), replies[2]] == ["aa", "ValueError('you alone')", "bb"]
    replies = await asyncio.gather(*map(queue.submit, ["a", "break"]), return_exceptions=True)
    assert [type(reply) for reply in replies] == [LookupError, LookupError]
    assert await queue.submit("a") == "aa"
    assert counter.batches == [["a", "bad", "b"], ["a", "break"], ["a"]]
    assert set(served_on) == {threading.current_thread()}


class SlowStore:
    """Each of its transactions takes nearly as long as it may, as with a standby that is slow to confirm."""

    is_remote = False
    find_licenses = find_updates = None

    def activate(self, requests: list[str]) -> list[str]:
        """Grant all."""
        run_blocking(lambda: time.sleep(1.4))
        return requests

    def close(self) -> None:
        """Close nothing."""


@pytest.mark.slow
async def test_an_activation_behind_a_slow_one_fails_in_time():
    """It would be part of the second transaction, and have its response after 2.8 s."""
    queries = PublicQueries(SlowStore())
    first = asyncio.ensure_future(queries.activate("first"))
    await asyncio.sleep(0.05)
    began = time.monotonic()
    with Standstill() as machine:
        with pytest.raises(StoreUnavailableError, match="no activation in time"):
            await queries.activate("second")
        ended = time.monotonic()
    assert 1.8 < ended - began < 2 + machine.within(began, ended)
    assert await first == "first"
    with pytest.raises(StoreUnavailableError):
        await queries.activate("third", began)  # its lookup has taken all of the time
    await queries.close()
