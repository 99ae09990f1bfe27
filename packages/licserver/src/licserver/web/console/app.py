"""The console's addresses: who may see them, on which thread they are made, and how what fails is shown."""

import asyncio
import functools
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlencode

from aiohttp import web

from licserver.clock import Clock
from licserver.errors import ArtifactsError, LicserverError, StoreUnavailable, WrongUse
from licserver.model import Actor, ActorKind
from licserver.vendor import Vendor
from licserver.vendor.users import SESSION_TIME, SignedIn
from licserver.web.callers import Callers
from licserver.web.console import headers, sessions, words
from licserver.web.console.assets import PREFIX, load_assets
from licserver.web.console.door import Door, TooManyTriesError
from licserver.web.console.exports import send_csv
from licserver.web.console.forms import MAX_FORM, FormError, parse_form
from licserver.web.console.frame import Frame
from licserver.web.console.routes import ROUTES, UPLOAD_FIELDS, UPLOADS, Show, Take
from licserver.web.console.visit import Csv, Moved, Page, Reply, Visit
from licserver.web.limits import Limits
from licserver.web.offloop import OffLoop
from licserver.web.state import Drain, Handler
from licserver.web.uploads import Upload, received

_log = logging.getLogger("licserver.console")

_SIGN_IN: Final = f"{sessions.HOME}/sign-in"
_SIGN_OUT: Final = f"{sessions.HOME}/sign-out"
_PASSWORD: Final = f"{sessions.HOME}/account"


def mount(
    app: web.Application, vendor: Vendor, clock: Clock, limits: Limits, drain: Drain, off_loop: OffLoop
) -> None:
    """Let an application answer at ``/console``.

    Args:
        app: Not started yet; what takes every address must be added after this.
        vendor: The opened data folder.
        clock: Every decision's `now`.
        limits: Turns away who floods.
        drain: While it is active each answer is its connection's last.
        off_loop: Makes the pages.
    """
    console = Console(vendor, clock, limits, drain, off_loop)
    console.add_to(app)
    app.on_cleanup.append(console.close)


class Console:
    """The edge of the console: requests become visits, replies become answers.

    Args:
        vendor: As for `mount`, and so are the others.
    """

    def __init__(self, vendor: Vendor, clock: Clock, limits: Limits, drain: Drain, off_loop: OffLoop) -> None:
        self._vendor, self._clock, self._drain, self._limits = vendor, clock, drain, limits
        self._settings = vendor.settings
        self._callers = Callers(vendor.settings)
        self._door = Door(vendor)
        assets = load_assets()
        self._assets = {asset.path: asset for asset in assets.values()}
        self._frame = Frame(assets)
        self._off_loop = off_loop

    # --- addresses ----------------------------------------------------------------------------

    def add_to(self, app: web.Application) -> None:
        """Name every address."""
        add = functools.partial(self._add, app)
        add("GET", PREFIX + "{digest}/{name}", self._asset)
        add("GET", _SIGN_IN, self._show_sign_in)
        add("POST", _SIGN_IN, self._sign_in)
        add("POST", _SIGN_OUT, self._sign_out)
        add("GET", sessions.HOME + "/", _to_home)
        for path, show in ROUTES.items():
            add("GET", path, functools.partial(self._answer_get, show.page))
            for name, act in show.posts.items():
                add("POST", f"{path}/{name}", functools.partial(self._answer_post, show, act))
        for path, (again, take) in UPLOADS.items():
            add("POST", path, functools.partial(self._answer_upload, again, take))
        add("POST", f"{_PASSWORD}/password", self._change_password)
        add("*", sessions.HOME + "/{anything:.*}", self._nothing_here)

    def _add(self, app: web.Application, method: str, path: str, handler: Handler) -> None:
        guarded = self._guarded(handler)
        for one in ("GET", "HEAD") if method == "GET" else (method,):
            app.router.add_route(one, path, guarded)

    async def close(self, _app: web.Application) -> None:
        """Let the door's thread end."""
        self._door.close()

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded_handler(request: web.Request) -> web.StreamResponse:
            try:
                if self._limits.is_flood(request):
                    return await self._problem(request, 429, "Too many requests from this address.")
                response = await handler(request)
            except Exception as problem:  # noqa: BLE001 - the last resort; logged with its traceback
                response = await self._answer_problem(request, problem)
            if self._drain.active:
                response.force_close()
            return response

        return guarded_handler

    # --- pages --------------------------------------------------------------------------------

    async def _answer_get(self, page: Show, request: web.Request) -> web.StreamResponse:
        who = await self._who(request)
        if who is None:
            return _to_sign_in(request)
        visit = self._visit(request, who)
        try:
            return await self._reply(request, visit, await self._off_loop.run(self._make, page, visit))
        except WrongUse as wrong:
            status = 404 if request.match_info else 422  # nothing by this name, or a search that cannot be
            return await self._problem(request, status, str(wrong), who)

    async def _answer_post(self, show: Any, act: Show, request: web.Request) -> web.StreamResponse:
        who = await self._who(request)
        if who is None:
            return _to_sign_in(request)
        form = await self._form(request)
        if not _is_own(request, who, form):
            return await self._forged(request, who)
        return await self._act(request, show.page, act, self._visit(request, who)._replace(form=form))

    async def _answer_upload(self, show: Show, take: Take, request: web.Request) -> web.StreamResponse:
        who = await self._who(request)
        if who is None:
            return _to_sign_in(request)
        typed: dict[str, str] = {}

        def admit(fields: Mapping[str, str]) -> None:
            typed.update(fields)
            if not _is_own(request, who, fields):
                raise web.HTTPForbidden

        visit = self._visit(request, who)
        try:
            async with received(request, self._settings, self._off_loop, UPLOAD_FIELDS, admit) as upload:
                act = functools.partial(_with_file, take, upload)
                return await self._act(request, show, act, visit._replace(form=upload.fields))
        except web.HTTPForbidden:
            return await self._forged(request, who)
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        except WrongUse as wrong:
            again = visit._replace(form=typed, problem=_sentence(wrong))
            return await self._reply(request, again, await self._off_loop.run(self._make, show, again))

    async def _act(self, request: web.Request, page: Show, act: Show, visit: Visit) -> web.StreamResponse:
        """Do something; when it cannot be done, show the page again and say why."""
        try:
            return await self._reply(request, visit, await self._off_loop.run(self._make, act, visit))
        except (WrongUse, ArtifactsError) as problem:
            again = visit._replace(problem=_sentence(problem))
        try:
            content = await self._off_loop.run(self._make, page, again)
        except WrongUse as gone:
            return await self._problem(request, 404, str(gone), visit.who)
        return await self._reply(request, again, content)

    def _make(self, page: Show, visit: Visit) -> bytes | Moved | Csv:
        """Ask the vendor and write the page; both on this thread."""
        reply: Reply = page(visit)
        return self._write(reply, visit) if isinstance(reply, Page) else reply

    def _write(self, page: Page, visit: Visit) -> bytes:
        done = words.DONE.get(visit.query.get("done", "")) if visit.problem is None else None
        return self._frame.write(
            page.template,
            who=visit.who,
            csrf=sessions.csrf_token(visit.who.token),
            visit=visit,
            now=visit.now,
            done=done,
            problem=visit.problem,
            **page.context,
        )

    async def _reply(
        self, request: web.Request, visit: Visit, made: bytes | Moved | Csv
    ) -> web.StreamResponse:
        match made:
            case Csv():
                return await send_csv(request, made, self._off_loop)
            case Moved():
                return _go(request, made.to + ("?" + urlencode({"done": made.done}) if made.done else ""))
            case _:
                return web.Response(
                    status=200 if visit.problem is None else 422, body=made, headers=headers.PAGE
                )

    def _visit(self, request: web.Request, who: SignedIn) -> Visit:
        vendor = self._vendor.acting_as(Actor(ActorKind.USER, who.name))
        return Visit(vendor, who, self._clock(), dict(request.match_info), dict(request.query))

    async def _form(self, request: web.Request) -> dict[str, str]:
        """Read a small form; the settings bound its time (D-72)."""
        # The application's own bound is that of a verify call, and a note in Japanese is longer.
        larger = request.clone(client_max_size=MAX_FORM)
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                return parse_form(await larger.read())
        except TimeoutError:
            raise web.HTTPRequestTimeout from None

    async def _who(self, request: web.Request) -> SignedIn | None:
        token = sessions.read_token(request.cookies)
        return None if token is None else await self._off_loop.run(self._vendor.signed_in, token)

    # --- signing in and out -------------------------------------------------------------------

    async def _show_sign_in(self, request: web.Request) -> web.StreamResponse:
        if await self._who(request) is not None:
            return _go(request, sessions.own_path(request.query.get("next", "")))
        return await self._sign_in_page(request, 200, request.query.get("next", ""))

    async def _sign_in(self, request: web.Request) -> web.StreamResponse:
        form = await self._form(request)
        goal, name = form.get("next", ""), form.get("name", "")
        if not sessions.is_from_here(request.headers, request.host):
            return await self._sign_in_page(request, 403, goal, "This form came from another site.")
        address = self._callers.find(request).counted
        try:
            who = await self._door.sign_in(address, name, form.get("password", ""))
        except TooManyTriesError:
            _log.warning("too many attempts to sign in, the last from %s", address)
            again = "Too many attempts. Wait a minute, and try again."
            return await self._sign_in_page(request, 429, goal, again, name)
        if who is None:
            _log.warning("a failed attempt to sign in from %s", address)
            return await self._sign_in_page(request, 401, goal, "This name and password do not match.", name)
        await self._end_session(request)  # whoever had signed in here before
        return _go(request, sessions.own_path(goal), self._cookie(request, who.token))

    async def _sign_in_page(
        self, request: web.Request, status: int, goal: str, problem: str | None = None, name: str = ""
    ) -> web.StreamResponse:
        has_users = bool(await self._off_loop.run(self._vendor.users))
        done = words.DONE.get(request.query.get("done", ""))
        content = self._frame.write(
            "sign_in.html", who=None, has_users=has_users, goal=goal, name=name, problem=problem, done=done
        )
        more = {"Retry-After": "61"} if status == HTTPStatus.TOO_MANY_REQUESTS else {}
        return web.Response(status=status, body=content, headers={**headers.PAGE, **more})

    async def _sign_out(self, request: web.Request) -> web.StreamResponse:
        who = await self._who(request)
        if who is None:
            return _to_sign_in(request)
        if not _is_own(request, who, await self._form(request)):
            return await self._forged(request, who)
        await self._end_session(request)
        return _go(request, f"{_SIGN_IN}?done=signed-out", self._cookie(request, ""))

    async def _change_password(self, request: web.Request) -> web.StreamResponse:
        who = await self._who(request)
        if who is None:
            return _to_sign_in(request)
        form = await self._form(request)
        if not _is_own(request, who, form):
            return await self._forged(request, who)
        problem = None
        try:
            if form.get("new", "") != form.get("again", ""):
                problem = "The new password was not typed the same twice."
            elif not await self._door.change_password(
                self._callers.find(request).counted, who, form.get("old", ""), form.get("new", "")
            ):
                problem = "This is not your password."
        except WrongUse as wrong:
            problem = _sentence(wrong)
        except TooManyTriesError:
            problem = "Too many attempts. Wait a minute, and try again."
        if problem is None:
            return _go(request, f"{_PASSWORD}?done=password")
        visit = self._visit(request, who)._replace(problem=problem)
        return await self._reply(
            request, visit, await self._off_loop.run(self._make, ROUTES[_PASSWORD].page, visit)
        )

    async def _end_session(self, request: web.Request) -> None:
        token = sessions.read_token(request.cookies)
        if token is not None:
            await self._off_loop.run(self._vendor.sign_out, token)

    def _cookie(self, request: web.Request, token: str) -> str:
        seconds = int(SESSION_TIME.total_seconds()) if token else 0
        return sessions.write_cookie(token, is_https=sessions.came_by_https(request.headers), seconds=seconds)

    # --- what is not a page -------------------------------------------------------------------

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        asset = self._assets.get(request.path)
        if asset is None:
            return await self._nothing_here(request)
        return web.Response(body=asset.content, headers={**headers.ASSET, "Content-Type": asset.content_type})

    async def _nothing_here(self, request: web.Request) -> web.StreamResponse:
        if request.method not in {"GET", "HEAD"}:
            return await self._problem(request, 405, "This address does not take this.")
        who = await self._who(request)
        return await self._problem(request, 404, "There is no page at this address.", who)

    async def _forged(self, request: web.Request, who: SignedIn) -> web.StreamResponse:
        problem = "This form is not of your session. Load the page again, and send it from there."
        return await self._problem(request, 403, problem, who)

    async def _answer_problem(self, request: web.Request, problem: Exception) -> web.StreamResponse:
        """Put a problem into a page, and into the log where the operator can do something about it."""
        where = f"{request.method} {request.rel_url.raw_path}"
        match problem:
            case FormError():
                return await self._problem(request, 400, _sentence(problem))
            case web.HTTPException():
                return await self._problem(request, problem.status, f"{problem.reason}.")
            case web.RequestPayloadError():
                return await self._problem(request, 400, "The request cannot be read.")
            case StoreUnavailable():
                _log.error("%s: %s", where, problem)
                return await self._problem(request, 503, "The database cannot be reached; try again.")
            case ConnectionError():
                raise problem
            case LicserverError():
                _log.error("%s: %s", where, problem)
                return await self._problem(request, 503, _sentence(problem))
            case OSError():
                _log.error("%s: %s", where, problem)
                return await self._problem(
                    request, 500, f"The disk failed: {problem.strerror or 'see the log'}."
                )
            case _:
                _log.error("%s failed", where, exc_info=problem)
                return await self._problem(
                    request, 500, "The console failed; the operator finds why in the log."
                )

    async def _problem(
        self, request: web.Request, status: int, problem: str, who: SignedIn | None = None
    ) -> web.StreamResponse:
        content = self._frame.write(
            "problem.html",
            who=who,
            csrf="" if who is None else sessions.csrf_token(who.token),
            title=HTTPStatus(status).phrase,
            problem=_sentence(problem),
            done=None,
        )
        response = web.Response(status=status, body=content, headers=headers.PAGE)
        if not request.content.at_eof():  # the rest of a body is not worth reading
            response.force_close()
        return response


def _with_file(take: Take, upload: Upload, visit: Visit) -> Reply:
    return take(visit, upload.path, upload.file_name)


def _is_own(request: web.Request, who: SignedIn, form: Mapping[str, str]) -> bool:
    return sessions.is_from_here(request.headers, request.host) and sessions.is_own_form(
        who.token, form.get(sessions.CSRF_FIELD, "")
    )


def _go(request: web.Request, path: str, cookie: str | None = None) -> web.StreamResponse:
    """Send the browser to another page of ours."""
    more = {"Set-Cookie": cookie} if cookie else {}
    if "HX-Request" in request.headers:  # htmx follows redirects by itself, and the address would stay
        return web.Response(status=204, headers={**headers.PAGE, **more, "HX-Redirect": path})
    return web.Response(status=303, headers={**headers.PAGE, **more, "Location": path})


def _to_sign_in(request: web.Request) -> web.StreamResponse:
    """Ask who it is, and come back afterwards; what was posted is not kept."""
    goal = request.rel_url.raw_path_qs if request.method in {"GET", "HEAD"} else ""
    known = sessions.own_path(goal)
    return _go(request, _SIGN_IN if known == sessions.HOME else f"{_SIGN_IN}?next={quote(known, safe='')}")


async def _to_home(request: web.Request) -> web.StreamResponse:
    return _go(request, sessions.HOME)


def _sentence(problem: Exception | str) -> str:
    """Write a complaint as a sentence."""
    text = str(problem).strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
