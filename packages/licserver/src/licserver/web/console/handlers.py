"""What every address of the console does: who comes, what was sent, and how an answer or a failure leaves."""

import asyncio
import functools
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, unquote, urlencode

from aiohttp import hdrs, web

from licserver.clock import Clock
from licserver.domain.environments import is_printable
from licserver.domain.records import Actor, ActorKind
from licserver.errors import LicserverError, StoreUnavailable
from licserver.security.redaction import holds_key
from licserver.services import Vendor
from licserver.services.licenses import has_id_shape
from licserver.services.users import Needs, SignedIn
from licserver.web.app_state import REQUEST_IDS, Drain, Handler
from licserver.web.console import headers, messages, sessions
from licserver.web.console.exports import send_csv
from licserver.web.console.forms import MAX_FORM, FormError, parse_form
from licserver.web.console.idempotency import draw_id
from licserver.web.console.page_context import Csv, Page, PageContext, Redirect, Reply
from licserver.web.console.routes import Show
from licserver.web.console.templating import Templates
from licserver.web.errors import NO_ENCODING, send_continue
from licserver.web.rate_limits import Limits
from licserver.web.worker_threads import WorkerThreads

_log = logging.getLogger("licserver.console")

SIGN_IN: Final = f"{sessions.HOME}/sign-in"


class PageHandlers:
    """Between HTTP and the pages.

    Args:
        vendor: The opened data folder.
        clock: Every decision's `now`.
        limits: Turns away who floods.
        drain: While it is active each answer is its connection's last.
        off_loop: Makes the pages.
        frame: Writes them.
    """

    def __init__(
        self,
        vendor: Vendor,
        clock: Clock,
        limits: Limits,
        drain: Drain,
        off_loop: WorkerThreads,
        frame: Templates,
    ) -> None:
        self.settings = vendor.settings
        self.off_loop = off_loop
        self.frame = frame
        self._vendor, self._clock, self._drain, self._limits = vendor, clock, drain, limits

    def guarded(self, handler: Handler) -> Handler:
        """Answer whatever a handler raises, and keep the request's text out of the log."""

        async def guarded_handler(request: web.Request) -> web.StreamResponse:
            try:
                if delay := self._limits.flood_delay(request):
                    response = await self.problem(request, 429, "Too many requests from this address.")
                    response.headers[hdrs.RETRY_AFTER] = str(delay)
                    return response
                if hdrs.CONTENT_ENCODING in request.headers:
                    refusal = await self.problem(request, 415, "The browser must send forms uncompressed.")
                    refusal.headers.update(NO_ENCODING)
                    return refusal
                response = await handler(request)
            except Exception as problem:  # noqa: BLE001 - the last resort; logged with its traceback
                response = await self._answer_problem(request, problem)
            if self._drain.active:
                response.force_close()
            return response

        return guarded_handler

    def visit(self, request: web.Request, who: SignedIn) -> PageContext:
        """Make what a page is told, on behalf of who is signed in.

        Raises:
            web.HTTPNotFound: when the path has an id that is none, or a control character.
            web.HTTPUnprocessableEntity: for a license key in the address, which proxies log (D-94).
        """
        parts, query = request.match_info, request.query
        if any(map(holds_key, (*parts.values(), *query.values()))):
            raise web.HTTPUnprocessableEntity(reason="A license key is no part of an address: search for it")
        is_id = "id" not in parts or has_id_shape(parts["id"])
        if not (is_id and all(map(is_printable, parts.values()))):
            raise web.HTTPNotFound(reason="There is no page at this address")
        vendor = self._vendor.acting_as(Actor(ActorKind.USER, who.name))
        return PageContext(vendor, who, self._clock(), dict(parts), dict(query))

    async def form(self, request: web.Request) -> dict[str, str]:
        """Read a small form; the settings bound its time (D-72).

        Raises:
            web.HTTPForbidden: before anything is read, for a form that another site has sent (D-154).
        """
        if not sessions.is_from_here(request.headers, request.host):
            raise web.HTTPForbidden(reason="This form came from another site, and nothing was done")
        # The application's own bound is that of a verify call, and a note in Japanese is longer.
        larger = request.clone(client_max_size=MAX_FORM)
        await send_continue(request)
        try:
            async with asyncio.timeout(self.settings.body_timeout):
                return parse_form(await larger.read())
        except TimeoutError:
            raise web.HTTPRequestTimeout from None

    def token(self, request: web.Request) -> str | None:
        """Find the session's token, by the cookie."""
        is_https = sessions.is_https_url(self.settings.base_url)
        return sessions.read_token(request.cookies, is_https=is_https)

    async def who(self, request: web.Request) -> SignedIn | None:
        """Find who is signed in, by the cookie; not a session that still needs something (D-167)."""
        who = await self.session(request)
        return who if who is not None and who.needs is Needs.NOTHING else None

    async def session(self, request: web.Request) -> SignedIn | None:
        """Find whose session it is, by the cookie, also if it still needs something."""
        token = self.token(request)
        return None if token is None else await self.off_loop.run(self._vendor.signed_in, token)

    async def run(self, page: Show, visit: PageContext) -> bytes | Redirect | Csv:
        """Ask the vendor and write the page, both on a thread."""
        return await self.off_loop.run(self._make, page, visit)

    async def run_with_file(self, page: Show, visit: PageContext) -> bytes | Redirect | Csv:
        """Do as `run` where the vendor copies an uploaded file."""
        return await self.off_loop.run_with_file(self._make, page, visit)

    def _make(self, page: Show, visit: PageContext) -> bytes | Redirect | Csv:
        reply: Reply = page(visit)
        return self._write(reply, visit) if isinstance(reply, Page) else reply

    def _write(self, page: Page, visit: PageContext) -> bytes:
        done = messages.DONE.get(visit.query.get("done", "")) if visit.problem is None else None
        return self.frame.write(
            page.template,
            who=visit.who,
            csrf=sessions.csrf_token(visit.who.token),
            once=visit.once or draw_id(),
            visit=visit,
            now=visit.now,
            done=done,
            problem=visit.problem,
            **page.context,
        )

    async def reply(
        self, request: web.Request, visit: PageContext, made: bytes | Redirect | Csv, status: int = 422
    ) -> web.StreamResponse:
        """Answer with what a page came to; with `status` when there was a problem."""
        match made:
            case Csv():
                return await send_csv(request, made, self.off_loop, functools.partial(_note_csv, visit, made))
            case Redirect():
                return go(request, made.to + ("?" + urlencode({"done": made.done}) if made.done else ""))
            case _:
                return web.Response(
                    status=200 if visit.problem is None else status, body=made, headers=headers.PAGE
                )

    async def forged(self, request: web.Request, who: SignedIn | None) -> web.StreamResponse:
        """Refuse a form of another session or of another site."""
        problem = "This form is not of your session. Load the page again, and send it from there."
        return await self.problem(request, 403, problem, who)

    async def hold(self, request: web.Request, form: Mapping[str, str]) -> web.StreamResponse:
        """Ask who it is, and hand back what was typed: the session has ended since the form was opened."""
        content = await self.off_loop.run(
            self.frame.write,
            "held.html",
            who=None,
            done=None,
            problem="You are signed out, and nothing was done. What you typed is not lost.",
            action=request.path,
            fields=form,
        )
        return web.Response(status=401, body=content, headers=headers.PAGE)

    async def hold_upload(self, request: web.Request) -> web.StreamResponse:
        """Ask for a sign-in, unread; a page with JavaScript keeps the form as it is filled in (D-154)."""
        problem = "You are signed out, and nothing was done. Sign in in another window, then publish again."
        refusal = await self.problem(request, 401, problem)
        if "HX-Request" in request.headers:
            refusal.headers.update(headers.INTO_UPLOAD_FORM)
        return refusal

    async def _answer_problem(self, request: web.Request, problem: Exception) -> web.StreamResponse:
        """Put a problem into a page, and into the log where the operator can do something about it."""
        match problem:
            case FormError():
                return await self.problem(request, 400, sentence(problem))
            case web.HTTPException():
                return await self.problem(request, problem.status, f"{problem.reason}.")
            case web.RequestPayloadError():
                return await self.problem(request, 400, "The request cannot be read.")
            case ConnectionError():
                raise problem
            case StoreUnavailable():
                status, told = 503, "The database cannot be reached; try again."
            case LicserverError():
                status, told = 503, sentence(problem)
            case OSError():
                status, told = 500, f"The disk failed: {problem.strerror or 'see the log'}."
            case _:
                told = "The console failed; the operator finds why in the log."
                page = await self.problem(request, 500, told)
                return request.app[REQUEST_IDS].note(_log, request, page, " failed", exc_info=problem)
        page = await self.problem(request, status, told)
        return request.app[REQUEST_IDS].note(_log, request, page, ": %s", problem)

    async def problem(
        self,
        _request: web.Request,
        status: int,
        problem: str,
        who: SignedIn | None = None,
    ) -> web.StreamResponse:
        """Answer with a page that says what went wrong."""
        # On a thread: the first page of a process loads the templates, for half a second on a busy machine.
        content = await self.off_loop.run(
            self.frame.write,
            "problem.html",
            who=who,
            csrf="" if who is None else sessions.csrf_token(who.token),
            title=HTTPStatus(status).phrase,
            problem=sentence(problem),
            done=None,
        )
        return web.Response(status=status, body=content, headers=headers.PAGE)


def _note_csv(visit: PageContext, csv: Csv) -> None:
    """Note who takes a list away; of the search only its fields, as what was typed may name a customer."""
    object_ = ("license", visit.parts["id"]) if "id" in visit.parts else ("list", csv.name)
    narrowed = sorted(name for name in visit.query if visit.asked(name))
    visit.vendor.note_alone("list.export", object_, list=csv.name, narrowed_by=narrowed or None)


def is_own(request: web.Request, who: SignedIn, form: Mapping[str, str]) -> bool:
    """Tell whether a form was sent by a page of this session."""
    return sessions.is_from_here(request.headers, request.host) and sessions.is_own_form(
        who.token, form.get(sessions.CSRF_FIELD, "")
    )


def is_of_ours(request: web.Request, form: Mapping[str, str]) -> bool:
    """Tell whether a form was sent by a page of ours, be it of a session that has ended."""
    return sessions.is_from_here(request.headers, request.host) and sessions.has_form_token(
        form.get(sessions.CSRF_FIELD, "")
    )


def is_browsed(request: web.Request) -> bool:
    """Tell whether a browser says that a page of ours sent a request; programs say nothing."""
    says_so = "Sec-Fetch-Site" in request.headers or "Origin" in request.headers
    return says_so and sessions.is_from_here(request.headers, request.host)


def go(request: web.Request, path: str, cookie: str | None = None) -> web.StreamResponse:
    """Send the browser to another page of ours."""
    more = {"Set-Cookie": cookie} if cookie else {}
    if "HX-Request" in request.headers:  # htmx follows redirects by itself, and the address would stay
        return web.Response(status=204, headers={**headers.PAGE, **more, "HX-Redirect": path})
    return web.Response(status=303, headers={**headers.PAGE, **more, "Location": path})


def to_sign_in(request: web.Request) -> web.StreamResponse:
    """Ask who it is, and come back afterwards; what was posted is not kept."""
    goal = request.rel_url.raw_path_qs if request.method in {"GET", "HEAD"} else ""
    if holds_key(unquote(goal)):  # in no further address, at least
        goal = ""
    known = sessions.own_path(goal)
    return go(request, SIGN_IN if known == sessions.HOME else f"{SIGN_IN}?next={quote(known, safe='')}")


def sentence(problem: Exception | str) -> str:
    """Write a complaint as a sentence."""
    text = str(problem).strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
