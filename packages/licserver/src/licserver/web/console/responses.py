"""Responses of the console: headers of each, redirects, and lists as CSV files."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from aiohttp import hdrs, web

from licserver.errors import LicserverError
from licserver.protocol.license_files import to_line
from licserver.web.console.page_context import Csv
from licserver.web.worker_threads import WorkerThreads

_log = logging.getLogger("licserver.console")

_POLICY: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",  # Pico's check marks and arrows are data: addresses within its style sheet
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
)

SECURITY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Content-Security-Policy": "; ".join(_POLICY),
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        # not `no-referrer`, with which a form's `Origin` would be "null"
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
        "X-Robots-Tag": "noindex, nofollow",
    }
)

PAGE: Final[Mapping[str, str]] = MappingProxyType(
    {**SECURITY, "Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store"}
)

ASSET: Final[Mapping[str, str]] = MappingProxyType(
    {**SECURITY, "Cache-Control": "public, max-age=31536000, immutable"}
)
"""For files whose address names their digest."""

INTO_UPLOAD_FORM: Final[Mapping[str, str]] = MappingProxyType(
    {
        "HX-Retarget": "form[data-upload] .progress-text",
        "HX-Reselect": "[role=alert]",
        "HX-Reswap": "innerHTML",
    }
)
"""For htmx: show the message of an error page within the form, whose fields and file stay as they are."""


def redirect(request: web.Request, path: str, **headers: str) -> web.StreamResponse:
    """Redirect the browser to another page of the console."""
    if "HX-Request" in request.headers:  # htmx follows redirects by itself, and the address would stay
        return web.Response(status=204, headers={**PAGE, **headers, "HX-Redirect": path})
    return web.Response(status=303, headers={**PAGE, **headers, hdrs.LOCATION: path})


async def send_csv(
    request: web.Request, csv: Csv, threads: WorkerThreads, audit_export: Callable[[], None]
) -> web.StreamResponse:
    """Send a list as CSV, some rows at a time.

    The first rows are read before the response begins, so that a failure can still be an error page.
    `audit_export` is called before any row is sent; if it fails, none is.
    """
    pages = iter(csv.pages)
    content = await threads.run(_next, pages)
    if request.method != "HEAD":
        await threads.run(audit_export)
    response = web.StreamResponse(
        headers={
            **SECURITY,
            "Content-Type": "text/csv; charset=utf-8",
            "Content-Disposition": f'attachment; filename="{csv.name}.csv"',
            "Cache-Control": "no-store",
        }
    )
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        # By the mark at its beginning, spreadsheets know that it is UTF-8.
        await response.write(b"\xef\xbb\xbf" + to_line(csv.columns).encode())
        while content is not None:
            await response.write(content)
            content = await threads.run(_next, pages)
        await response.write_eof()
    except Exception as problem:  # noqa: BLE001 - the response has begun: no other can follow, whatever it was
        is_fault = not isinstance(problem, (LicserverError, OSError))
        _log.error("%s broke off: %s", request.rel_url.raw_path, problem, exc_info=is_fault)
        if request.transport is not None:
            request.transport.abort()  # so that the browser knows that its file is not whole
    return response


def _next(pages: Iterator[Sequence[Sequence[Any]]]) -> bytes | None:
    """Format the next rows; None after the last ones."""
    rows = next(pages, None)
    return None if rows is None else "".join(map(to_line, rows)).encode()
