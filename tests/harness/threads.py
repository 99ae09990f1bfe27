"""Calls that are made in the same moment."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

T = TypeVar("T")


def call_at_once(calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Make all calls at once, each on a thread of its own; return their results or errors, in order."""
    start = Barrier(len(calls))

    def run(call: Callable[[], T]) -> T | Exception:
        start.wait(30)
        try:
            return call()
        except Exception as problem:  # noqa: BLE001 - the caller expects some
            return problem

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
