"""No license key in anybody's log: while we make a call, the HTTP library's own loggers are silent."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_our_call: ContextVar[bool] = ContextVar("licclient_call", default=False)


class _DropOurCalls(logging.Filter):
    """httpx logs every address, httpcore every header: of our calls, nothing may get there."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 - the name is the base's
        return not _our_call.get()


_drop_our_calls: Final = _DropOurCalls()
# By name, one by one: a filter of a parent logger does not see what its children log.
for _name in ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))):
    logging.getLogger(_name).addFilter(_drop_our_calls)


@contextmanager
def unlogged() -> Generator[None]:
    """Keep the block's calls out of every log; other threads and tasks go on logging theirs."""
    token = _our_call.set(True)
    try:
        yield
    finally:
        _our_call.reset(token)
