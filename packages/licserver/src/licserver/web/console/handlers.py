"""Handlers of the console: sessions, forms and uploads around plain page functions (`pages/`)."""

import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, unquote

from aiohttp import web
from aiohttp.typedefs import Handler

from licserver.clock import Clock
from licserver.domain.environments import is_printable
from licserver.domain.records import Actor, ActorKind, Role
from licserver.errors import ArtifactsError, InvalidInputError
from licserver.security.redaction import contains_key
from licserver.services import Services
from licserver.services.license_terms import has_id_shape
from licserver.services.users import Needs, SignedIn
from licserver.web.console import sessions
from licserver.web.console.formatting import DONE
from licserver.web.console.pages import (
    Csv,
    Page,
    PageContext,
    Redirect,
    Reply,
    Show,
    TextFile,
    read_form_id,
    with_query,
)
from licserver.web.console.responses import (
    INTO_UPLOAD_FORM,
    PAGE,
    read_form,
    redirect,
    render_page,
    send_csv,
    text_file_headers,
)
from licserver.web.console.sessions import Form
from licserver.web.responses import ApiError, to_sentence
from licserver.web.worker_threads import WorkerThreads

Receive = Callable[..., AbstractAsyncContextManager[Any]]
"""`received` or `received_in_memory`, for forms with these fields; the CSRF token is in the query."""
WithSession = Callable[[web.Request, SignedIn], Awaitable[web.StreamResponse]]
WithForm = Callable[[web.Request, SignedIn, Form], Awaitable[web.StreamResponse]]

SIGN_IN: Final = f"{sessions.HOME}/sign-in"

_SESSION = web.RequestKey("session", SignedIn)
_WRONG_SESSION: Final = "This form is not of your session. Load the page again, and send it from there."
_EARLIER_SESSION: Final = (
    "This form is of an earlier session, and nothing was done. Look it through, and send it again."
)
_SIGNED_OUT: Final = "You are signed out, and nothing was done. What you typed is not lost."
_SIGNED_OUT_UPLOAD: Final = (
    "You are signed out, and nothing was done. Sign in in another window, then send this form again."
)


class Console:
    """Makes handlers of page functions, and has what all handlers need."""

    def __init__(self, services: Services, clock: Clock, threads: WorkerThreads) -> None:
        self.settings, self.threads = services.settings, threads
        self._services, self._clock = services, clock

    # --- sessions -----------------------------------------------------------------------------

    async def find_session(self, request: web.Request) -> SignedIn | None:
        """Return the session of a request's cookie, also one that still needs something."""
        token = self.token(request)
        session = None if token is None else await self.threads.run(self._services.logins.authenticate, token)
        if session is not None:
            request[_SESSION] = session
        return session

    async def _find_user(self, request: web.Request) -> SignedIn | None:
        session = await self.find_session(request)
        return session if session is not None and session.needs is Needs.NOTHING else None

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
                return _to_sign_in(request)
            return await handler(request, session)

        return handle

    def form(self, handler: WithForm, *needs: Needs) -> Handler:
        """Call a handler with session and form, which only a page of this session can have sent."""

        async def handle(request: web.Request, session: SignedIn) -> web.StreamResponse:
            form = await read_form(request, self.settings)
            if not sessions.is_own_form(session.token, form):
                raise ApiError(403, _WRONG_SESSION)
            return await handler(request, session, form)

        return self.signed_in(handle, *needs)

    # --- pages --------------------------------------------------------------------------------

    def page(self, show: Show, role: Role = Role.READ_ONLY) -> Handler:
        """Make the handler of a page that users with a role may see."""

        async def handle(request: web.Request, user: SignedIn) -> web.StreamResponse:
            _check_role(user, role)
            context = self.context(request, user)
            try:
                return await self.show(request, show, context)
            except InvalidInputError as invalid:  # nothing has this name; or the query cannot be
                raise ApiError(404 if request.match_info else 422, to_sentence(invalid)) from None

        return self.signed_in(handle)

    def action(self, show: Show, act: Show, role: Role, *, with_file: bool = False) -> Handler:
        """Make the handler of a form on a page; the page is shown again if the form cannot be carried out.

        A form that is not of this session is not carried out, but what was typed into it is kept: the page
        may have been open for longer than its session was valid.
        """

        async def handle(request: web.Request) -> web.StreamResponse:
            user = await self._find_user(request)
            if user is None and not sessions.is_browser(request.headers, request.host):
                return _to_sign_in(request)
            if user is not None:  # first: a form of an earlier session is shown again in its page
                _check_role(user, role)
            form = await read_form(request, self.settings)
            has_token = sessions.has_form_token(form)
            if user is None and not has_token:
                return _to_sign_in(request)
            if user is None:  # the session has ended in the meantime: hand back what was typed
                return await self.render(
                    "held.html", 401, None, _SIGNED_OUT, action=request.path, fields=form
                )
            if not has_token:
                raise ApiError(403, _WRONG_SESSION)
            context = self.context(request, user)._replace(form=form)
            if not sessions.is_own_form(user.token, form):
                return await self._show_earlier(request, show, context)
            return await self._act(request, show, act, context, with_file=with_file)

        return handle

    def upload(
        self, show: Show, take: Callable[[PageContext, Any], Reply], role: Role, receive: Receive
    ) -> Handler:
        """Make the handler of a form with a file: session and token are checked before it is read."""

        async def handle(request: web.Request) -> web.StreamResponse:
            user, headers, host = await self._find_user(request), request.headers, request.host
            if user is None and not sessions.is_browser(headers, host):
                return _to_sign_in(request)
            if user is None:  # a page with JavaScript keeps the form as it is filled in
                raise ApiError(401, _SIGNED_OUT_UPLOAD, INTO_UPLOAD_FORM if "HX-Request" in headers else {})
            if not sessions.is_same_origin(headers, host) or not sessions.has_form_token(request.query):
                raise ApiError(403, _WRONG_SESSION)
            _check_role(user, role)
            context, typed = self.context(request, user), dict[str, str]()

            def admit(fields: Form) -> None:
                typed.update(fields)
                if not sessions.is_own_form(user.token, request.query):  # then the file is not read
                    raise _EarlierSessionError

            try:
                async with receive(request, self.settings, self.threads, admit=admit) as file:
                    filled = context._replace(form=file.fields)
                    return await self._act(request, show, lambda one: take(one, file), filled, with_file=True)
            except _EarlierSessionError:
                return await self._show_earlier(request, show, context._replace(form=typed))
            except InvalidInputError as invalid:
                again = context._replace(form=typed, problem=to_sentence(invalid))
            return await self._show_again(request, show, again)

        return handle

    async def _act(
        self, request: web.Request, show: Show, act: Show, context: PageContext, *, with_file: bool = False
    ) -> web.StreamResponse:
        """Carry a form out; if that is not possible, show the page again with the reason."""
        try:
            return await self.show(request, act, context, with_file=with_file)
        except (InvalidInputError, ArtifactsError) as problem:
            again = context._replace(problem=to_sentence(problem))
        return await self._show_again(request, show, again)

    async def _show_again(self, request: web.Request, show: Show, again: PageContext) -> web.StreamResponse:
        try:
            return await self.show(request, show, again)
        except InvalidInputError as invalid:  # the page does not exist any more
            raise ApiError(404, to_sentence(invalid)) from None

    async def _show_earlier(self, request: web.Request, show: Show, sent: PageContext) -> web.StreamResponse:
        """Show a form of an earlier session again, in a page of this one."""
        again = sent._replace(once=read_form_id(sent.form), problem=_EARLIER_SESSION)
        try:
            return await self.show(request, show, again, status=403)
        except InvalidInputError:  # there is no such page any more
            raise ApiError(403, _WRONG_SESSION) from None

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
        path = request.path
        page = path.rpartition("/")[0] if request.method == "POST" else path  # the last part names a form
        return PageContext(services, user, self._clock(), path, page, dict(parts), dict(query))

    # --- responses ----------------------------------------------------------------------------

    async def show(
        self,
        request: web.Request,
        page: Show,
        context: PageContext,
        *,
        status: int = 422,
        with_file: bool = False,
    ) -> web.StreamResponse:
        """Call a page function on a thread and send what it returns; with `status` if there is a problem."""
        run = self.threads.run_with_file if with_file else self.threads.run
        match await run(self._make, page, context):
            case Csv() as csv:
                return await send_csv(request, csv, self.threads, lambda: _audit_export(context, csv))
            case TextFile(name, text):
                return web.Response(body=text.encode(), headers=text_file_headers(name))
            case Redirect(to, done):
                return redirect(request, with_query(to, {"done": done}))
            case content:
                status = 200 if context.problem is None else status
                return web.Response(status=status, body=content, headers=PAGE)

    @staticmethod
    def _make(page: Show, context: PageContext) -> bytes | Redirect | Csv | TextFile:
        reply = page(context)
        if not isinstance(reply, Page):
            return reply
        return render_page(
            reply.template,
            user=context.user,
            csrf=sessions.csrf_token(context.user.token),
            once=context.once or secrets.token_urlsafe(16),
            now=context.now,
            done=DONE.get(context.query.get("done", "")) if context.problem is None else None,
            problem=context.problem,
            **reply.values,
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
            render_page,
            template,
            user=session if session is not None and session.needs is Needs.NOTHING else None,
            user_name="" if session is None else session.name,
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
        """Respond to an address that does not exist."""
        await self.find_session(request)  # for the links of the page
        raise ApiError(404, "There is no page at this address.")


class _EarlierSessionError(Exception):
    """An upload's form is of an earlier session."""


def _check_role(user: SignedIn, role: Role) -> None:
    if not user.role.includes(role):
        raise ApiError(403, f"Your role is “{user.role}”. This takes the role “{role}”: ask an owner.")


def _audit_export(context: PageContext, csv: Csv) -> None:
    """Audit the export of a list; of its search only the fields' names, as values may name a customer."""
    object_ = ("license", context.parts["id"]) if "id" in context.parts else ("list", csv.name)
    narrowed = sorted(name for name in context.query if context.from_query(name))
    context.services.audit.record("list.export", object_, list=csv.name, narrowed_by=narrowed or None)


def _to_sign_in(request: web.Request) -> web.StreamResponse:
    """Redirect to the sign-in page, and back afterwards; what was posted is not kept."""
    path = request.rel_url.raw_path_qs if request.method in {"GET", "HEAD"} else ""
    if contains_key(unquote(path)):  # in no further address, at least
        path = ""
    path = sessions.own_path(path)
    return redirect(request, SIGN_IN if path == sessions.HOME else f"{SIGN_IN}?next={quote(path, safe='')}")
