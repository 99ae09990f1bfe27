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
from licserver.runtime.worker_threads import WorkerThreads
from licserver.security.redaction import contains_key
from licserver.services.installation import Services
from licserver.services.users import Needs, SignedIn
from licserver.services.validation import has_id_shape
from licserver.web.console import sessions
from licserver.web.console.formatting import DONE
from licserver.web.console.pages import (
    Csv,
    HtmlPage,
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
    cookie_header,
    read_form,
    redirect,
    render_page,
    send_csv,
    text_file_headers,
)
from licserver.web.console.sessions import Form
from licserver.web.console.wording import in_browser_terms
from licserver.web.responses import ApiError, to_sentence

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


def _explain(problem: Exception) -> str:
    return to_sentence(in_browser_terms(str(problem)))


class Console:
    """A factory of handlers for page functions, with helpers for all handlers.

    1. `page` makes the handler of a page; `action` of a form on it; `upload` of a form with a file.
    2. A handler finds the session, and checks the role; for forms also origin and CSRF token.
    3. It calls the page function with a `PageContext` on a thread, and sends the result (`show`).
    4. A failed form shows its page again, with the message and the typed values.

    Example::

        console = Console(services, clock, threads)
        handler = console.action(products.show, products.add, Role.OWNER)

    Handlers raise an `ApiError`: 403 for a missing role or a form of another session, 404 for an unknown
    page, 422 for an invalid query; requests without a session are redirected to the sign-in.
    """

    def __init__(self, services: Services, clock: Clock, threads: WorkerThreads) -> None:
        self.settings, self.threads = services.settings, threads
        self._services, self._clock = services, clock

    # --- sessions -----------------------------------------------------------------------------

    async def find_session(self, request: web.Request) -> SignedIn | None:
        """Return the session of a request's cookie, also if it still needs a step."""
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
        return sessions.read_token(cookie_header(request), is_https=is_https)

    def signed_in(self, handler: WithSession, *needs: Needs) -> Handler:
        """Call a handler with the request's session; without a session redirect to the sign-in page.

        A session that still lacks a step counts as absent, unless `needs` names the step.
        """

        async def handle(request: web.Request) -> web.StreamResponse:
            session = await self.find_session(request)
            if session is None or session.needs not in (needs or (Needs.NOTHING,)):
                return _to_sign_in(request)
            return await handler(request, session)

        return handle

    def form(self, handler: WithForm, *needs: Needs) -> Handler:
        """Call a handler with session and form, after checking the form's CSRF token."""

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
            except InvalidInputError as invalid:  # an unknown object, or an invalid query
                raise ApiError(404 if request.match_info else 422, _explain(invalid)) from None

        return self.signed_in(handle)

    def action(self, show: Show, act: Show, role: Role, *, with_file: bool = False) -> Handler:
        """Make the handler of a form on a page; a failed form shows the page again.

        A form of another session is not carried out, but its typed values are shown again: the page may have
        been open for longer than its session was valid.
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
            if user is None:  # the session has ended in the meantime: show the typed values
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
        """Make the handler of a form with a file: session and token are checked before the file is read."""

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
                    return await self._act(
                        request, show, lambda filled: take(filled, file), filled, with_file=True
                    )
            except _EarlierSessionError:
                return await self._show_earlier(request, show, context._replace(form=typed))
            except InvalidInputError as invalid:
                again = context._replace(form=typed, problem=_explain(invalid))
            return await self._show_again(request, show, again)

        return handle

    async def _act(
        self, request: web.Request, show: Show, act: Show, context: PageContext, *, with_file: bool = False
    ) -> web.StreamResponse:
        """Carry out a form; show the page again with the message if it fails."""
        try:
            return await self.show(request, act, context, with_file=with_file)
        except (InvalidInputError, ArtifactsError) as problem:
            again = context._replace(problem=_explain(problem))
        return await self._show_again(request, show, again)

    async def _show_again(self, request: web.Request, show: Show, again: PageContext) -> web.StreamResponse:
        try:
            return await self.show(request, show, again)
        except InvalidInputError as invalid:  # the page does not exist any more
            raise ApiError(404, _explain(invalid)) from None

    async def _show_earlier(self, request: web.Request, show: Show, sent: PageContext) -> web.StreamResponse:
        """Show a form of an earlier session again, in a page of the present session."""
        again = sent._replace(once=read_form_id(sent.form), problem=_EARLIER_SESSION)
        try:
            return await self.show(request, show, again, status=403)
        except InvalidInputError:  # there is no such page any more
            raise ApiError(403, _WRONG_SESSION) from None

    def context(self, request: web.Request, user: SignedIn) -> PageContext:
        """Make the context of a page, on behalf of a user.

        Raises:
            ApiError: 404 for a malformed id or a control character; 422 for a license key in the
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
        """Call a page function on a thread and send its result, with `status` if there is a problem."""
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
        if not isinstance(reply, HtmlPage):
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
        """Render a template on a thread: the first page of a process compiles templates, which is slow."""
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
        raise ApiError(403, f"Your role is “{user.role}”. This requires the role “{role}”: ask an owner.")


def _audit_export(context: PageContext, csv: Csv) -> None:
    """Audit the export of a list, with the names of its search fields: their values may be personal data."""
    object_ = ("license", context.parts["id"]) if "id" in context.parts else ("list", csv.name)
    narrowed = sorted(name for name in context.query if context.from_query(name))
    context.services.audit.record("list.export", object_, list=csv.name, narrowed_by=narrowed or None)


_MAX_RETURN: Final = 1_000  # characters of an address that the sign-in leads back to


def _to_sign_in(request: web.Request) -> web.StreamResponse:
    """Redirect to the sign-in page, which leads back to the address of a GET."""
    path = request.rel_url.raw_path_qs if request.method in {"GET", "HEAD"} else ""
    if len(path) > _MAX_RETURN:
        path = sessions.HOME
    if contains_key(unquote(path)):  # in no further address, at least
        path = ""
    path = sessions.own_path(path)
    return redirect(request, SIGN_IN if path == sessions.HOME else f"{SIGN_IN}?next={quote(path, safe='')}")
