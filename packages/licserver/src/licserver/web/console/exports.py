"""Lists as files: rows are asked for as the browser takes them."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aiohttp import web

from licserver.errors import LicserverError
from licserver.protocol.csv_cells import to_line
from licserver.web.console import headers
from licserver.web.console.page_context import Csv
from licserver.web.worker_threads import WorkerThreads

_log = logging.getLogger("licserver.console")


async def send_csv(
    request: web.Request, csv: Csv, off_loop: WorkerThreads, note: Callable[[], None]
) -> web.StreamResponse:
    """Send a list as CSV, some rows at a time.

    The first rows are there before the answer begins, so that a failure can still be told as one.

    Args:
        request: Who wants it.
        csv: What is in it.
        off_loop: Makes the rows.
        note: Called before any row goes out; when it fails none does.
    """
    pages = iter(csv.pages)
    content = await off_loop.run(_next, pages)
    if request.method != "HEAD":
        await off_loop.run(note)
    response = web.StreamResponse(
        headers={
            **headers.SECURITY,
            "Content-Type": "text/csv; charset=utf-8",
            "Content-Disposition": f'attachment; filename="{csv.name}.csv"',
            "Cache-Control": "no-store",
        }
    )
    await response.prepare(request)
    if request.method == "HEAD":
        return response  # not all of a long list for who wants to know its name
    try:
        # By the mark at its beginning, spreadsheets know that it is UTF-8.
        await response.write(b"\xef\xbb\xbf" + to_line(csv.columns).encode())
        while content is not None:
            await response.write(content)
            content = await off_loop.run(_next, pages)
        await response.write_eof()
    except Exception as problem:  # noqa: BLE001 - the answer has begun: no other can follow, whatever it was
        _log.error("%s broke off: %s", request.rel_url.raw_path, problem, exc_info=_is_ours(problem))
        if request.transport is not None:
            request.transport.abort()  # so that the browser knows that its file is not whole
    return response


def _is_ours(problem: Exception) -> bool:
    return not isinstance(problem, (LicserverError, OSError))


def _next(pages: Iterator[Sequence[Sequence[Any]]]) -> bytes | None:
    """Make the next rows; None after the last ones."""
    rows = next(pages, None)
    return None if rows is None else "".join(map(to_line, rows)).encode()
