"""How the asynchronous client does what waits for the disk."""

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def in_thread(step: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
    """Do what waits for the disk on a thread, and see it through: a cancelled caller must not overtake it."""
    import asyncio  # noqa: PLC0415 - costs 40 ms, which the other flavour need not pay

    work = asyncio.ensure_future(asyncio.to_thread(step, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # taken note of: the task's own end is what counts
        raise
