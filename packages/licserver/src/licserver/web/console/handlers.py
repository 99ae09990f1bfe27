"""Handlers of the console: sessions, forms and uploads around plain page functions (`pages/`)."""

import functools
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

from aiohttp import web

from licserver.clock import Clock
from licserver.domain.environments import is_printable
from licserver.domain.records import Actor, ActorKind
from licserver.errors import ArtifactsError, InvalidInputError
from licserver.security.redaction import contains_key
from licserver.services import Services
from licserver.services.accounts import Needs, SignedIn
from licserver.services.license_terms import has_id_shape
from licserver.web.app_state import Handler
from licserver.web.console import messages, sessions
from licserver.web.console.forms import MAX_FORM, FormError, parse_form
from licserver.web.console.idempotency import draw_id, read_id
from licserver.web.console.page_context import Csv, File, Page, PageContext, Redirect, Reply
from licserver.web.console.responses import INTO_UPLOAD_FORM, PAGE, redirect, send_csv
from licserver.web.console.templating import Templates
from licserver.web.responses import ApiError, read_body, to_sentence
from licserver.web.uploads import received
from licserver.web.worker_threads import WorkerThreads

Show = Callable[[PageContext], Reply]
Take = Callable[[PageContext, File], Reply]
WithSession = Callable[[web.Request, SignedIn], Awaitable[web.StreamResponse]]
WithForm = Callable[[web.Request, SignedIn, Mapping[str, str]], Awaitable[web.StreamResponse]]

SIGN_IN: Final = f"{sessions.HOME}/sign-in"

UPLOAD_FIELDS: Final = frozenset({"once", "version", "changelog"})
"""Of forms with a file. The CSRF token is in the query: it is compared before the form is read."""

_SESSION = web.RequestKey("session", SignedIn)
_WRONG_SESSION: Final = "This form is not of your session. Load the page again, and send it from there."
_EARLIER_SESSION: Final = (
    "This form is of an earlier session, and nothing was done. Look it through, and send it again."
)
_SIGNED_OUT: Final = "You are signed out, and nothing was done. What you typed is not lost."
_SIGNED_OUT_UPLOAD: Final = (
    "You are signed out, and nothing was done. Sign in in another window, then publish again."
)

Made = bytes | Redirect | Csv


class Console:
    """Makes handlers of page functions, and has what all handlers need.

    Args:
        services: The opened data folder.
        clock: Every decision's `now`.
        threads: Run the pages.
        templates: Render them.
    """

    def __init__(
        self, services: Services, clock: Clock, threads: WorkerThreads, templates: Templates
    ) -> None:
        self.settings, self.threads = services.settings, threads
        self._services, self._clock, self._templates = services, clock, templates

    # --- sessions -----------------------------------------------------------------------------

    async def find_session(self, request: web.Request) -> SignedIn | None:
        """Return the session of a request's cookie, also one that still needs something (D-167)."""
        token = self.token(request)
        session = None if token is None else await self.threads.run(self._services.logins.authenticate, token)
        if session is not None:
            request[_SESSION] = session
        return session

    def token(self, request: web.Request) -> str | None:
        """Return the session's token, from the cookie."""
        is_https = sessions.is_https_url(self.settings.base_url)
        return sessions.read_token(request.cookies, is_https=is_https)

    def signed_in(self, handler: WithSession, *needs: Needs) -> Handler:
        """Call a handler with the request's session; redirect to the sign-in page without one.

        A session that still needs something is none, except for what is named in `needs`.
        """

        async def handle(request: web.Request) -> web.StreamResponse:
            session = await self.find_session(request)
            if session is None or session.needs not in (needs or (Needs.NOTHING,)):
                return to_sign_in(request)
            return await handler(request, session)

        return handle

    def form(self, handler: WithForm, *needs: Needs) -> Handler:
        """Call a handler with session and form, which only a page of this session can have sent."""

        async def handle(request: web.Request, session: SignedIn) -> web.StreamResponse:
            form = await self.read_form(request)
            if not sessions.is_own_form(session.token, form.get(sessions.CSRF_FIELD, "")):
                raise ApiError(403, _WRONG_SESSION)
            return await handler(request, session, form)

        return self.signed_in(handle, *needs)

    async def read_form(self, request: web.Request) -> dict[str, str]:
        """Read a small form.

        Raises:
            ApiError: 403 for a form of another site, before anything is read (D-154); 400, 408, 413.
        """
        if not is_same_origin(request):
            raise ApiError(403, "This form came from another site, and nothing was done.")
        try:
            return parse_form(await read_body(request, MAX_FORM, self.settings.body_timeout))
        except FormError as problem:
            raise ApiError(400, to_sentence(problem)) from None

    # --- pages --------------------------------------------------------------------------------

    def page(self, show: Show) -> Handler:
        """Make the handler of a page."""

        async def handle(request: web.Request, user: SignedIn) -> web.StreamResponse:
            context = self.context(request, user)
            try:
                return await self.respond(request, context, await self.run(show, context))
            except InvalidInputError as wrong:  # nothing has this name; or the query cannot be
                raise ApiError(404 if request.match_info else 422, to_sentence(wrong)) from None

        return self.signed_in(handle)

    def action(self, show: Show, act: Show) -> Handler:
        """Make the handler of a form on a page; the page is shown again if the form cannot be carried out.

        A form that is not of this session is not carried out, but what was typed into it is kept: the page
        may have been open for longer than its session was valid (D-130).
        """

        async def handle(request: web.Request) -> web.StreamResponse:
            user = await self._find_user(request)
            if user is None and not is_browser(request):
                return to_sign_in(request)
            form = await self.read_form(request)
            token = form.get(sessions.CSRF_FIELD, "")
            if user is not None and sessions.is_own_form(user.token, token):
                return await self._act(request, show, act, self.context(request, user)._replace(form=form))
            if user is None:
                return await self._hand_back(request, form) if has_token(form) else to_sign_in(request)
            if not has_token(form):
                raise ApiError(403, _WRONG_SESSION)
            return await self._show_earlier(request, show, user, form)

        return handle

    def upload(self, show: Show, take: Take) -> Handler:
        """Make the handler of a form with a file: session and token are checked before it is read (D-154)."""

        async def handle(request: web.Request) -> web.StreamResponse:
            user = await self._find_user(request)
            if user is None:
                if not is_browser(request):
                    return to_sign_in(request)
                # A page with JavaScript keeps the form as it is filled in.
                headers = INTO_UPLOAD_FORM if "HX-Request" in request.headers else {}
                raise ApiError(401, _SIGNED_OUT_UPLOAD, headers)
            if not is_same_origin(request) or not has_token(request.query):
                raise ApiError(403, _WRONG_SESSION)
            is_own = sessions.is_own_form(user.token, request.query.get(sessions.CSRF_FIELD, ""))
            return await self._receive(request, user, show, take, is_own=is_own)

        return handle

    async def _receive(
        self, request: web.Request, user: SignedIn, show: Show, take: Take, *, is_own: bool
    ) -> web.StreamResponse:
        typed: dict[str, str] = {}

        def admit(fields: Mapping[str, str]) -> None:
            typed.update(fields)
            if not is_own:  # of an earlier session: its fields are shown again, its file is not read
                raise _EarlierSessionError

        try:
            async with received(request, self.settings, self.threads, UPLOAD_FIELDS, admit) as upload:
                file = File(upload.path, upload.file_name, upload.sha256)
                context = self.context(request, user)._replace(form=upload.fields)
                act = functools.partial(_call_with_file, take, file)
                return await self._act(request, show, act, context, with_file=True)
        except _EarlierSessionError:
            return await self._show_earlier(request, show, user, typed)
        except InvalidInputError as wrong:
            again = self.context(request, user)._replace(form=typed, problem=to_sentence(wrong))
            return await self._show_again(request, show, again)

    async def _act(
        self, request: web.Request, show: Show, act: Show, context: PageContext, *, with_file: bool = False
    ) -> web.StreamResponse:
        """Carry a form out; if that is not possible, show the page again with the reason."""
        try:
            made = await self.run(act, context, with_file=with_file)
            return await self.respond(request, context, made)
        except (InvalidInputError, ArtifactsError) as problem:
            again = context._replace(problem=to_sentence(problem))
        return await self._show_again(request, show, again)

    async def _show_again(self, request: web.Request, show: Show, again: PageContext) -> web.StreamResponse:
        try:
            made = await self.run(show, again)
        except InvalidInputError as wrong:  # the page does not exist any more
            raise ApiError(404, to_sentence(wrong)) from None
        return await self.respond(request, again, made)

    async def _show_earlier(
        self, request: web.Request, show: Show, user: SignedIn, form: Mapping[str, str]
    ) -> web.StreamResponse:
        """Show a form of an earlier session again, in a page of this one."""
        context = self.context(request, user)
        again = context._replace(form=form, once=read_id(form), problem=_EARLIER_SESSION)
        try:
            return await self.respond(request, again, await self.run(show, again), 403)
        except InvalidInputError:  # there is no such page any more
            raise ApiError(403, _WRONG_SESSION) from None

    async def _hand_back(self, request: web.Request, form: Mapping[str, str]) -> web.StreamResponse:
        """Ask for a sign-in, and hand back what was typed: the session has ended in the meantime."""
        return await self.render(
            "held.html", 401, None, problem=_SIGNED_OUT, action=request.path, fields=form
        )

    async def _find_user(self, request: web.Request) -> SignedIn | None:
        session = await self.find_session(request)
        return session if session is not None and session.needs is Needs.NOTHING else None

    def context(self, request: web.Request, user: SignedIn) -> PageContext:
        """Make the context of a page, on behalf of a user.

        Raises:
            ApiError: 404 for an id that is none, or a control character; 422 for a license key in the
                address, which proxies log (D-94).
        """
        parts, query = request.match_info, request.query
        if any(map(contains_key, (*parts.values(), *query.values()))):
            raise ApiError(422, "A license key must not be in an address; search for it.")
        is_id = "id" not in parts or has_id_shape(parts["id"])
        if not (is_id and all(map(is_printable, parts.values()))):
            raise ApiError(404, "There is no page at this address.")
        services = self._services.acting_as(Actor(ActorKind.USER, user.name))
        return PageContext(services, user, self._clock(), dict(parts), dict(query))

    # --- responses ----------------------------------------------------------------------------

    async def run(self, page: Show, context: PageContext, *, with_file: bool = False) -> Made:
        """Call a page function and render its template, both on a thread."""
        run = self.threads.run_with_file if with_file else self.threads.run
        return await run(self._make, page, context)

    def _make(self, page: Show, context: PageContext) -> Made:
        reply: Reply = page(context)
        if not isinstance(reply, Page):
            return reply
        done = messages.DONE.get(context.query.get("done", "")) if context.problem is None else None
        return self._templates.render(
            reply.template,
            user=context.user,
            csrf=sessions.csrf_token(context.user.token),
            once=context.once or draw_id(),
            now=context.now,
            done=done,
            problem=context.problem,
            **reply.values,
        )

    async def respond(
        self, request: web.Request, context: PageContext, made: Made, status: int = 422
    ) -> web.StreamResponse:
        """Send what a page function returned; with `status` if there was a problem."""
        match made:
            case Csv():
                audit_export = functools.partial(_audit_export, context, made)
                return await send_csv(request, made, self.threads, audit_export)
            case Redirect():
                query = "?" + urlencode({"done": made.done}) if made.done else ""
                return redirect(request, made.to + query)
            case _:
                return web.Response(
                    status=200 if context.problem is None else status, body=made, headers=PAGE
                )

    async def render(
        self,
        template: str,
        status: int,
        session: SignedIn | None,
        problem: str | None = None,
        done: str | None = None,
        **context: Any,
    ) -> web.Response:
        """Render a template on a thread: the first page of a process loads them all, which takes time."""
        content = await self.threads.run(
            self._templates.render,
            template,
            user=session if session is not None and session.needs is Needs.NOTHING else None,
            csrf="" if session is None else sessions.csrf_token(session.token),
            problem=problem,
            done=done,
            **context,
        )
        headers = {**PAGE, "Retry-After": "61"} if status == HTTPStatus.TOO_MANY_REQUESTS else PAGE
        return web.Response(status=status, body=content, headers=headers)

    async def respond_with_page(self, request: web.Request, error: ApiError) -> web.StreamResponse:
        """Write an error as a page."""
        title, session = HTTPStatus(error.status).phrase, request.get(_SESSION)
        page = await self.render("problem.html", error.status, session, error.message, title=title)
        page.headers.update(error.headers)
        return page

    async def not_found(self, request: web.Request) -> web.StreamResponse:
        """Answer an address that is none."""
        await self.find_session(request)  # for the links of the page
        raise ApiError(404, "There is no page at this address.")


class _EarlierSessionError(Exception):
    """An upload's form is of an earlier session."""


def _call_with_file(take: Take, file: File, context: PageContext) -> Reply:
    return take(context, file)


def _audit_export(context: PageContext, csv: Csv) -> None:
    """Audit the export of a list; of its search only the fields' names, as values may name a customer."""
    object_ = ("license", context.parts["id"]) if "id" in context.parts else ("list", csv.name)
    narrowed = sorted(name for name in context.query if context.from_query(name))
    context.services.audit.record("list.export", object_, list=csv.name, narrowed_by=narrowed or None)


def has_token(form: Mapping[str, str]) -> bool:
    """Return whether a form has a CSRF token, be it of a session that has ended."""
    return sessions.has_form_token(form.get(sessions.CSRF_FIELD, ""))


def is_same_origin(request: web.Request) -> bool:
    """Return whether a page of ours sent a request, or a program that names no origin."""
    return sessions.is_from_here(request.headers, request.host)


def is_browser(request: web.Request) -> bool:
    """Return whether a browser says that a page of ours sent a request; programs name no origin."""
    names_origin = "Sec-Fetch-Site" in request.headers or "Origin" in request.headers
    return names_origin and is_same_origin(request)


def to_sign_in(request: web.Request) -> web.StreamResponse:
    """Redirect to the sign-in page, and back afterwards; what was posted is not kept."""
    path = request.rel_url.raw_path_qs if request.method in {"GET", "HEAD"} else ""
    if contains_key(unquote(path)):  # in no further address, at least
        path = ""
    path = sessions.own_path(path)
    return redirect(request, SIGN_IN if path == sessions.HOME else f"{SIGN_IN}?next={quote(path, safe='')}")
