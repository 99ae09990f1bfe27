"""`licensed` on async generators: the license is asked for on a thread, and nothing else changes."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from stage.flavours import both

from harness.standstill import Standstill
from licclient import License, LicenseClient
from licclient.errors import NotActivatedError, ServiceUnavailableError


def _lines(log):
    async def lines(count):
        try:
            for number in range(count):
                try:
                    log.append((yield number))
                except KeyError as problem:
                    log.append(problem)
        finally:
            log.append("closed")

    return lines


@both
async def test_a_generator_is_passed_on_whole(make_client, service, key):
    """What is sent or thrown into it, its end, and its closing reach the generator within."""
    service.grants()
    client, log = make_client(), []
    await client.activate(key)
    lines = client.client.licensed(_lines(log))
    assert [line async for line in lines(3)] == [0, 1, 2]
    assert log == [None, None, None, "closed"]
    log.clear()
    items, problem = lines(9), KeyError()
    assert await anext(items) == 0
    assert await items.asend("sent") == 1
    assert await items.athrow(problem) == 2
    await items.aclose()
    assert log == ["sent", problem, "closed"]
    async with aclosing(lines(9)) as items:
        await anext(items)
        with pytest.raises(ValueError, match="mine"):
            await items.athrow(ValueError("mine"))
    assert log[-1] == "closed"


@both
async def test_without_a_license_it_yields_nothing(make_client, service, key):
    """It raises, or ends without items after `otherwise`; a license from that lets it run."""
    service.grants()
    client, log, problems = make_client(), [], []
    with pytest.raises(NotActivatedError):
        await anext(client.client.licensed(_lines(log))(3))
    shown = client.client.licensed(otherwise=problems.append)(_lines(log))
    assert [line async for line in shown(3)] == []
    assert [type(problem) for problem in problems] == [NotActivatedError]
    assert log == []
    license_ = await client.activate(key)
    await client.forget_key()
    assert isinstance(license_, License)
    given = client.client.licensed(otherwise=lambda _: license_)(_lines(log))
    assert [line async for line in given(2)] == [0, 1]


async def _items():
    yield "exported"


class _Export:
    async def __call__(self) -> str:
        return "exported"


class _Items:
    async def __call__(self) -> AsyncIterator[str]:
        yield "exported"


@pytest.mark.parametrize("make", [lambda: _items, _Items, _Export])
async def test_the_loop_goes_on_while_the_license_is_asked_for(service, key, tmp_path, clock, make):
    """With the synchronous client, too: also for an object whose call is asynchronous."""
    service.grants()
    opened, script = threading.Event(), service.script
    with LicenseClient(service.url, storage=tmp_path, clock=clock) as client:
        client.activate(key)
        clock.move(days=9)
        service.script = lambda request: opened.wait(20) and script(request)
        gated = client.licensed(make())()
        with Standstill() as standstill:
            task = asyncio.ensure_future(anext(gated) if hasattr(gated, "asend") else gated)
            began = time.monotonic()
            await asyncio.sleep(0.05)
            ended = time.monotonic()
        assert ended - began - standstill.within(began, ended) < 5
        assert not task.done()
        opened.set()
        assert await task == "exported"
        service.script = lambda _: b""
        clock.move(days=9)
        gated = client.licensed(make())()
        with pytest.raises(ServiceUnavailableError):
            await (anext(gated) if hasattr(gated, "asend") else gated)
