"""Responses of the console: templates and assets, headers, redirects, lists as CSV files.

Templates escape everything and fail on a name that they do not know.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from aiohttp import hdrs, web

from licserver import __version__, libraries
from licserver.errors import InvalidInputError, LicserverError
from licserver.limits import MAX_CONSOLE_BODY_BYTES
from licserver.protocol.license_files import to_line
from licserver.runtime.worker_threads import WorkerThreads
from licserver.settings import Settings
from licserver.web.console import formatting, sessions, wording
from licserver.web.console.pages import Csv
from licserver.web.responses import ApiError, read_body, to_sentence

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
SECURITY: Final[Mapping[str, str]] = {
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
PAGE: Final[Mapping[str, str]] = {
    **SECURITY,
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
}
INTO_UPLOAD_FORM: Final[Mapping[str, str]] = {
    "HX-Retarget": "form[data-upload] .progress-text",
    "HX-Reselect": "[role=alert]",
    "HX-Reswap": "innerHTML",
}
"""For htmx: show the message of an error page within the form, and keep its fields and file."""

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml; charset=utf-8",
    "png": "image/png",
}
_ASSETS: Final = ("vendored/pico.min.css", "console.css", "vendored/htmx.min.js", "console.js", "icon.svg")


class Asset(NamedTuple):
    """A style sheet, script or image, under a path with its digest, so that browsers may cache it."""

    path: str
    content: bytes

    def respond(self) -> web.Response:
        """Make the response."""
        content_type = _TYPES[self.path.rpartition(".")[2]]
        cached = {"Content-Type": content_type, "Cache-Control": "public, max-age=31536000, immutable"}
        return web.Response(body=self.content, headers={**SECURITY, **cached})


def create_asset(root: str, name: str, content: bytes) -> Asset:
    """Create an asset below the address of a sub-application."""
    return Asset(f"{root}/assets/{hashlib.sha256(content).hexdigest()[:16]}/{name}", content)


@cache
def load_assets() -> Mapping[str, Asset]:
    """Read the styles and scripts, by name."""
    folder = files("licserver.web.console") / "assets"
    names = {path.rpartition("/")[2]: folder / path for path in _ASSETS}
    return {name: create_asset("/console", name, file.read_bytes()) for name, file in names.items()}


@cache  # for all applications of a process: compiling the templates of a page takes up to 50 ms
def load_templates() -> "libraries.jinja2.Environment":
    """Return the templates of the pages; several threads use them at once."""
    jinja2 = libraries.jinja2
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("licserver.web.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters.update(
        day=formatting.day,
        moment=lambda when: "–" if when is None else f"{when.day} {when:%b %Y, %H:%M} UTC",
        stamp=lambda when: when.isoformat(),
        number=formatting.number,
        bytes=formatting.file_size,
    )
    templates.globals.update(
        asset={name: asset.path for name, asset in load_assets().items()},
        version=__version__,
        formatting=formatting,
        wording=wording,
    )
    return templates


def render_page(template: str, **context: Any) -> bytes:
    """Render a page."""
    return load_templates().get_template(template).render(context).encode()


def cookie_header(request: web.Request) -> str:
    """Return all cookies of a request as they were sent; `request.cookies` parses each of them."""
    return ";".join(request.headers.getall(hdrs.COOKIE, ()))


async def read_form(
    request: web.Request, settings: Settings, limit: int = MAX_CONSOLE_BODY_BYTES
) -> dict[str, str]:
    """Read a small form; refuse a form of another site before reading it (D-154)."""
    if not sessions.is_same_origin(request.headers, request.host):
        raise ApiError(403, "This form came from another site, and nothing was done.")
    body = await read_body(request, limit, settings.body_timeout)
    try:
        return formatting.parse_form(body)
    except InvalidInputError as invalid:
        raise ApiError(400, to_sentence(invalid)) from None


def redirect(request: web.Request, path: str, **headers: str) -> web.StreamResponse:
    """Redirect the browser to another page of the console."""
    if "HX-Request" in request.headers:  # htmx follows redirects by itself, and the address would stay
        return web.Response(status=204, headers={**PAGE, **headers, "HX-Redirect": path})
    return web.Response(status=303, headers={**PAGE, **headers, hdrs.LOCATION: path})


def text_file_headers(name: str) -> Mapping[str, str]:
    """Return the headers of a text that the browser saves under a name."""
    disposition = f'attachment; filename="{name}"'
    return {**PAGE, hdrs.CONTENT_TYPE: "application/octet-stream", hdrs.CONTENT_DISPOSITION: disposition}


async def send_csv(
    request: web.Request, csv: Csv, threads: WorkerThreads, audit_export: Callable[[], None]
) -> web.StreamResponse:
    """Send a list as CSV, some rows at a time.

    The first rows are read before the response begins, so that a failure can still be an error page.
    `audit_export` is called before any row is sent; if it fails, none is.
    """
    pages = iter(csv.pages)
    content = await threads.run(_format_rows, pages)
    if request.method != "HEAD":
        await threads.run(audit_export)
    headers = {**text_file_headers(f"{csv.name}.csv"), hdrs.CONTENT_TYPE: "text/csv; charset=utf-8"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        # Spreadsheets recognise UTF-8 by the byte order mark.
        await response.write(b"\xef\xbb\xbf" + to_line(csv.columns).encode())
        while content is not None:
            await response.write(content)
            content = await threads.run(_format_rows, pages)
        await response.write_eof()
    except Exception as problem:  # noqa: BLE001 - the response has begun: no other can follow, for any exception
        is_fault = not isinstance(problem, (LicserverError, OSError))
        _log.error("%s broke off: %s", request.rel_url.raw_path, problem, exc_info=is_fault)
        if request.transport is not None:
            request.transport.abort()  # so that the browser reports a failed download
    return response


def _format_rows(pages: Iterator[Sequence[Sequence[Any]]]) -> bytes | None:
    """Format the next page of rows; None after the last page."""
    rows = next(pages, None)
    return None if rows is None else "".join(map(to_line, rows)).encode()
