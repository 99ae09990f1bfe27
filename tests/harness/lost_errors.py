"""Fail a test in which an exception was logged or printed, and went no further.

A pytest plugin. pytest itself does so for threads and for `__del__`, weak references and the like; this one
for callbacks, tasks and protocols of an event loop, requests of a server of aiohttp, callbacks of executors,
handlers of windows, and what logging itself cannot write. A test of such an exception takes `lost_errors`.
A test that puts another hook in the place of pytest's has to put that back.
"""

import logging
import sys
import threading
import traceback
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Final

import pytest

LOGGERS: Final = ("aiohttp.server", "asyncio", "concurrent.futures")
"""They log exceptions that nobody receives."""


class LostErrors(logging.Handler):
    """Keep the exceptions of the running test that nobody receives."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []
        self._hooks: tuple[object, ...] = ()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record of a library's logger."""
        found = record.exc_info and "".join(traceback.format_exception(record.exc_info[1]))
        self.found.append(f"{record.name}: {record.getMessage()}\n{found or ''}")

    def keep(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None = None
    ) -> None:
        """Keep an exception; in place of `sys.excepthook`, which Qt calls for its handlers.

        What ends the run itself is printed.
        """
        if not self._hooks:
            sys.__excepthook__(kind, error, trace)
        self.found.append("".join(traceback.format_exception(kind, error, trace)))

    def raise_found(self) -> None:
        """Fail with the exceptions, if there are any."""
        found, self.found[:] = "\n".join(self.found), []
        if found:
            pytest.fail(f"nobody received this:\n{found}", pytrace=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Note which hooks receive exceptions."""
        self._hooks = _hooks()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None]:
        """Fail the test; its own failure comes first."""
        yield
        self.raise_found()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        """As above, for what comes when fixtures end, and after a failure."""
        yield
        hooks, self._hooks = self._hooks, ()
        self.raise_found()
        if hooks != _hooks():
            pytest.fail(f"the test left other hooks: {_hooks()} in place of {hooks}", pytrace=False)


def _hooks() -> tuple[object, ...]:
    return sys.excepthook, sys.unraisablehook, threading.excepthook, logging.raiseExceptions


_LOST: Final = LostErrors()


def _keep_failed_record(_handler: logging.Handler, _record: logging.LogRecord) -> None:
    _LOST.found.append(f"logging: {traceback.format_exc()}")


@pytest.fixture
def lost_errors() -> Iterator[list[str]]:
    """The exceptions so far that nobody received, for a test that causes some; they do not fail it."""
    yield _LOST.found
    _LOST.found.clear()


def pytest_configure(config: pytest.Config) -> None:
    """Listen, in each process."""
    for name in LOGGERS:
        logging.getLogger(name).addHandler(_LOST)
    setattr(logging.Handler, "handleError", _keep_failed_record)  # noqa: B010 - which only prints
    sys.excepthook = _LOST.keep
    config.pluginmanager.register(_LOST, "lost-errors")
