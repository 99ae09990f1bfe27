"""Look-ups of names on threads of their own.

A look-up cannot be cancelled, and takes half a minute when no name server answers. asyncio does look-ups on
the few threads that downloads, ``/readyz`` and new connections to PostgreSQL need as well, and waits for them
at its end.
"""

import asyncio
import functools
import socket
import threading
from contextlib import suppress
from typing import Any, Final

MOST: Final = 32
"""Look-ups at a time; more fail at once, like those of a name server that is busy."""


def install_threaded_resolver(loop: asyncio.AbstractEventLoop) -> None:
    """Let an event loop look names up on threads of their own, for all libraries that use it."""
    free = threading.Semaphore(MOST)

    async def getaddrinfo(host: Any, port: Any, **hints: int) -> Any:
        """Look a name up, as the loop's own method does."""
        future: asyncio.Future[Any] = loop.create_future()

        def look_up() -> None:
            try:
                settle = functools.partial(future.set_result, socket.getaddrinfo(host, port, **hints))
            except Exception as problem:  # noqa: BLE001 - raised where it is awaited
                settle = functools.partial(future.set_exception, problem)
            free.release()
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(lambda: None if future.done() else settle())

        if not free.acquire(blocking=False):
            raise socket.gaierror(socket.EAI_AGAIN, "too many names are being looked up")
        try:
            # A daemon: it keeps no process from ending.
            threading.Thread(target=look_up, name="name-lookup", daemon=True).start()
        except RuntimeError:  # no more threads
            free.release()
            raise socket.gaierror(socket.EAI_AGAIN, "no thread to look a name up") from None
        return await future

    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign] # the loop has no setting for it
