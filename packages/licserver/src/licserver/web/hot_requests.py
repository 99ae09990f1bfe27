"""What goes around aiohttp's connection: requests of hot routes are handled without a task each.

aiohttp wakes a connection's task, creates one for the request, and wakes the first again: three turns of the
event loop more. Here the handler begins where the request was parsed, and goes on where its lookup ends.

Private names of aiohttp used here: `RequestHandler._close`, `_force_close`, `_keepalive_handle`,
`_keepalive_timeout`, `_logging_enabled`, `_loop`, `_messages`, `_next_keepalive_close_time`, `_parser`,
`_process_keepalive`, `_reading_paused`, `_request_factory`, `_task_handler` and `_waiter`.
"""

import asyncio
import types
from collections.abc import Coroutine, Generator, Mapping
from functools import partial
from typing import Any, cast

from aiohttp import hdrs, web
from aiohttp.http import RawRequestMessage, StreamWriter
from aiohttp.typedefs import Handler

HotRoutes = Mapping[tuple[str, str], Handler]  # handlers by method and path
Waiter = asyncio.Future[None]


class HotRequestHandler(web.RequestHandler):
    """A connection that handles a request of a hot route at once, if nothing else is to be done on it.

    All others are aiohttp's: the first request of a connection, one whose body has not arrived whole, the
    last one, and those that arrive together. A handler that needs a task awaits `enter_task`.
    """

    def __init__(self, server: web.Server, hot_routes: HotRoutes, **more: Any) -> None:
        super().__init__(server, **more)
        self._hot_routes = hot_routes
        self._hot_task: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        """Parse data, and handle a hot request that has arrived whole."""
        waiter = self._waiter
        self._waiter = None  # aiohttp's task is not to wake
        super().data_received(data)
        self._waiter = waiter
        if waiter is None or waiter.done() or not self._messages:
            return
        handler = self._hot_handler() if len(self._messages) == 1 else None
        if handler is None:
            waiter.set_result(None)
        else:
            self._step(self._respond(handler, waiter))

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resume what was paused; aiohttp calls this for each body, and would parse nothing again."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _hot_handler(self) -> Handler | None:
        message, body = self._messages[0]
        if type(message) is not RawRequestMessage or message.should_close or not body.is_eof():
            return None
        handler = self._hot_routes.get((message.method, message.url.raw_path))
        return None if handler is None or hdrs.EXPECT in message.headers else handler

    async def _respond(self, handler: Handler, waiter: Waiter) -> None:
        """Do what aiohttp's `start` does for one request; `handler` raises no `Exception`."""
        message, body = self._messages.popleft()
        parser: Any = self._parser
        parser.message_consumed()
        loop = self._loop
        self._waiter = None  # what arrives meanwhile must wait
        began = loop.time() if self._logging_enabled else None
        is_last = True
        try:
            create: Any = self._request_factory
            request = create(message, body, self, StreamWriter(self, loop), self._task_handler)
            response = await handler(request)
            self.add_headers(response)
            await response.prepare(request)
            is_last = not response.keep_alive
            self.log_access(request, response, began)
        except ConnectionError:  # the client has disconnected
            pass
        except Exception as error:  # noqa: BLE001 - as aiohttp does
            self.log_exception("a response failed", exc_info=error)
        finally:
            self._end(waiter, is_last=is_last)

    def add_headers(self, response: web.StreamResponse) -> None:
        """Add headers to each response."""

    def _end(self, waiter: Waiter, *, is_last: bool) -> None:
        """Let aiohttp wait for the next request, or close the connection."""
        self._waiter = waiter
        if is_last or self._close or self._force_close:
            self.force_close()
            return
        if self._messages and not waiter.done():
            waiter.set_result(None)
        close_time = self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(close_time, self._process_keepalive)

    def _step(self, coroutine: Coroutine[Any, None, None], _ended: object = None) -> None:
        """Run a coroutine until it waits for a future, and again when that has a result."""
        try:
            waits_for: asyncio.Future[Any] | None = coroutine.send(None)
        except StopIteration:
            return
        if waits_for is None:
            self._hot_task = self._loop.create_task(_rest(coroutine))
        else:
            waits_for.add_done_callback(partial(self._step, coroutine))


async def enter_task() -> None:
    """Go on in a task, if the caller runs in none: `asyncio.timeout` needs one."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)  # `_step` creates it


@types.coroutine
def _rest(coroutine: Coroutine[Any, None, None]) -> Generator[Any, None, None]:
    """Run the rest of a coroutine that has begun, which `await` refuses."""
    yield from cast("Generator[Any, None, None]", coroutine)
