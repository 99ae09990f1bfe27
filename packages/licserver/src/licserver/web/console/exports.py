"""Lists as files: rows are asked for as the browser takes them."""

from collections.abc import Iterator, Sequence
from typing import Any

from aiohttp import web

from licserver.csvcells import to_line
from licserver.web.console import headers
from licserver.web.console.visit import Csv
from licserver.web.offloop import OffLoop


async def send_csv(request: web.Request, csv: Csv, off_loop: OffLoop) -> web.StreamResponse:
    """Send a list as CSV, some rows at a time.

    The first rows are there before the answer begins, so that a failure can still be told as one.

    Args:
        request: Who wants it.
        csv: What is in it.
        off_loop: Makes the rows.
    """
    pages = iter(csv.pages)
    content = await off_loop.run(_next, pages)
    response = web.StreamResponse(
        headers={
            **headers.SECURITY,
            "Content-Type": "text/csv; charset=utf-8",
            "Content-Disposition": f'attachment; filename="{csv.name}.csv"',
            "Cache-Control": "no-store",
        }
    )
    await response.prepare(request)
    # By the mark at its beginning, spreadsheets know that it is UTF-8.
    await response.write(b"\xef\xbb\xbf" + to_line(csv.columns).encode())
    while content is not None:
        await response.write(content)
        content = await off_loop.run(_next, pages)
    await response.write_eof()
    return response


def _next(pages: Iterator[Sequence[Sequence[Any]]]) -> bytes | None:
    """Make the next rows; None after the last ones."""
    rows = next(pages, None)
    return None if rows is None else "".join(map(to_line, rows)).encode()
