"""Synchronous code whose waiting for the database is done by the event loop (D-150).

The code is one for both engines and knows nothing of asyncio. It runs in a greenlet, a stack of its own that
SQLAlchemy switches to and fro: where the driver would block, the loop goes on, and comes back when there is
an answer.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sqlalchemy.util.concurrency import await_, greenlet_spawn, in_greenlet

Result = TypeVar("Result")

IS_WATCHED = sys.platform != "win32"
"""Whether the event loop can watch sockets that others opened; that of Windows cannot."""


async def run(work: Callable[..., Result], *arguments: Any) -> Result:
    """Do a piece of work from within the event loop; what it waits for holds nobody up.

    Args:
        work: Synchronous. Whatever else the loop does may come in where it waits, so its connection and its
            locks must be nobody else's.
        arguments: Of `work`.
    """
    if not IS_WATCHED:
        return await asyncio.to_thread(work, *arguments)
    return await greenlet_spawn(work, *arguments)


def is_running() -> bool:
    """Whether who calls is a piece of work of `run`, and may use `wait_for`."""
    return IS_WATCHED and bool(in_greenlet())


def wait_for(something: Awaitable[Result]) -> Result:
    """Let the event loop go on until something has come."""
    return await_(something)


def beside(work: Callable[[], Result]) -> Result:
    """Do what blocks, whoever calls: from within the event loop, on a thread."""
    return wait_for(asyncio.to_thread(work)) if is_running() else work()
