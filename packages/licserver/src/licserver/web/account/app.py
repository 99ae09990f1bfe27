"""The customer's page as a sub-application of the public side: sign-in, licenses, freed slots, downloads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from licserver.clock import Clock
from licserver.database.hot_path.updates import UpdateQuery
from licserver.domain.decisions import VerifyRefusal, evaluate_update, is_platform
from licserver.domain.records import Environment, IssuedLicense
from licserver.errors import HeldOfflineError, InvalidInputError, NotFoundError, TooManyMovesError
from licserver.services import Services
from licserver.services.account import CODE_TIME, CUSTOMER, SESSION_TIME
from licserver.services.offline_files import RefusedFileError
from licserver.web.account.pages import HOME, LANGUAGES, Look, Texts, choose_language, describe, load_texts
from licserver.web.console import sessions
from licserver.web.console.responses import PAGE, read_form, redirect, text_file_headers
from licserver.web.console.sessions import Form, SessionCookie
from licserver.web.metrics import ACCOUNT
from licserver.web.middlewares import ENDPOINT, ERRORS, ErrorFormat, add_route, get
from licserver.web.public import PublicEndpoints
from licserver.web.rate_limits import MISS_DELAY
from licserver.web.responses import ApiError, expect
from licserver.web.worker_threads import WorkerThreads

COOKIE: Final = SessionCookie("__Host-licserver-account", "licserver-account", HOME)
CODE_COOKIE: Final = SessionCookie("__Host-licserver-account-code", "licserver-account-code", HOME)
"""Only the browser that asked for a code may use it."""
LANGUAGE_COOKIE: Final = "licserver-language"

CODE_SECONDS: Final = 0.1
"""A request for a code takes at least so long: its time must not show whether the address is known."""

_YEAR: Final = 365 * 86_400  # seconds
_NOTICES: Final = frozenset({"freed", "taken-back", "signed-out", "session-ended"})


@dataclass(frozen=True, slots=True, repr=False)
class Visit:
    """A form that was sent in a session; without a repr, because it holds the session's token."""

    token: str
    licenses: list[IssuedLicense]
    form: Form

    def license(self) -> IssuedLicense:
        """Return the license that the form names."""
        return _pick(self.licenses, self.form.get("license", ""))


class Account:
    """Handlers of the customer's page."""

    def __init__(self, services: Services, clock: Clock, public: PublicEndpoints) -> None:
        self._services, self._clock, self._public = services.acting_as(CUSTOMER), clock, public
        self._threads, self.look = WorkerThreads(), Look(services.settings)
        self._base_url = services.settings.base_url
        self.close = self._threads.close

    # --- sessions -----------------------------------------------------------------------------

    def _token(self, request: web.Request, cookie: SessionCookie = COOKIE) -> str | None:
        is_https = sessions.is_https_url(self._base_url)
        return sessions.read_token(request.cookies, is_https=is_https, cookie=cookie)

    async def _find_licenses(self, token: str | None) -> list[IssuedLicense]:
        """Return the licenses of a session; none without one."""
        return [] if token is None else await self._threads.run(self._services.account.find_licenses, token)

    def form(self, handler: Callable[[web.Request, Visit], Awaitable[web.StreamResponse]]) -> Handler:
        """Call a handler with the form, which only a page of this session can have sent."""

        async def handle(request: web.Request) -> web.StreamResponse:
            form, token = await read_form(request, self._services.settings), self._token(request)
            licenses = await self._find_licenses(token)
            if token is None or not licenses:
                return redirect(request, f"{HOME}?done=session-ended")
            if not sessions.is_own_form(token, form):
                raise ApiError(403)
            return await handler(request, Visit(token, licenses, form))

        return handle

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Begin a session for a license key; a wrong key counts as one that is guessed (D-70)."""
        form = await read_form(request, self._services.settings)
        if sessions.loses_cookies(request.headers, self._base_url):
            return await self._sign_in_page(request, 403, "sign-in.https")
        token = await self._threads.run(self._services.account.sign_in, form.get("key", ""))
        if token is not None:
            return self._redirect(request, HOME, token, SESSION_TIME)
        return await self._refuse(request, "sign-in.wrong")

    async def _refuse(self, request: web.Request, problem: str) -> web.StreamResponse:
        """Respond to what may be a guess; 429 after too many."""
        if await self._public.limits.may_miss(request):
            return await self._sign_in_page(request, 401, problem)
        page = await self._sign_in_page(request, 429, "sign-in.too-many")
        page.headers[hdrs.RETRY_AFTER] = str(MISS_DELAY)
        return page

    async def send_code(self, request: web.Request) -> web.StreamResponse:
        """Send a code to an address, if it has a license; each request counts as a guess."""
        form = await read_form(request, self._services.settings)
        if sessions.loses_cookies(request.headers, self._base_url):
            return await self._sign_in_page(request, 403, "sign-in.https")
        if not await self._public.limits.may_miss(request):
            return await self._refuse(request, "sign-in.too-many")
        sending = self._threads.run(self._services.account.send_code, form.get("email", ""))
        token, _ = await asyncio.gather(sending, asyncio.sleep(CODE_SECONDS))
        return self._redirect(request, HOME, token, CODE_TIME, CODE_COOKIE)

    async def sign_in_with_code(self, request: web.Request) -> web.StreamResponse:
        """Begin a session for a code, in the browser that asked for it."""
        form, pending = await read_form(request, self._services.settings), self._token(request, CODE_COOKIE)
        account = self._services.account
        token = pending and await self._threads.run(account.sign_in_with_code, pending, form.get("code", ""))
        if not token:
            return await self._refuse(request, "code.wrong")
        response = self._redirect(request, HOME, token, SESSION_TIME)
        response.headers.add(hdrs.SET_COOKIE, self._cookie(request, "", timedelta(), CODE_COOKIE))
        return response

    def _cookie(
        self, request: web.Request, token: str, time: timedelta, cookie: SessionCookie = COOKIE
    ) -> str:
        is_https = any(map(sessions.is_https_url, (self._base_url, request.headers.get(hdrs.ORIGIN))))
        seconds = int(time.total_seconds())
        return sessions.write_cookie(token, is_https=is_https, seconds=seconds, cookie=cookie)

    def _redirect(
        self, request: web.Request, path: str, token: str, time: timedelta, cookie: SessionCookie = COOKIE
    ) -> web.StreamResponse:
        """Redirect with a cookie; an empty token removes it."""
        return redirect(request, path, **{hdrs.SET_COOKIE: self._cookie(request, token, time, cookie)})

    async def sign_out(self, request: web.Request, visit: Visit) -> web.StreamResponse:
        """End the session."""
        await self._threads.run(self._services.account.sign_out, visit.token)
        response = self._redirect(request, f"{HOME}?done=signed-out", "", timedelta())
        response.headers["Clear-Site-Data"] = '"cache", "storage"'
        return response

    # --- pages --------------------------------------------------------------------------------

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Show the licenses of the session, or the sign-in; with ``lang`` store the language."""
        if (language := request.query.get("lang")) in LANGUAGES:
            cookie = f"{LANGUAGE_COOKIE}={language}; Path={HOME}; Max-Age={_YEAR}; HttpOnly; SameSite=Lax"
            return redirect(request, HOME, **{hdrs.SET_COOKIE: cookie})
        token = self._token(request)
        licenses = await self._find_licenses(token)
        if token is None or not licenses:
            return await self._sign_in_page(request, 200)
        return await self._licenses_page(request, Visit(token, licenses, {}))

    async def reveal(self, request: web.Request, visit: Visit) -> web.StreamResponse:
        """Show the page with a whole license key in it."""
        wanted = visit.license()
        key = await self._threads.run(self._services.licenses.reveal, wanted.id.hex())
        return await self._licenses_page(request, visit, keys={wanted.id: key})

    async def free(self, request: web.Request, visit: Visit) -> web.StreamResponse:
        """Free a slot, as often as the product allows."""
        environment = Environment(visit.form.get("domain", ""), visit.form.get("ip", ""))
        texts = _texts(request)
        try:
            await self._threads.run(self._services.self_service.free_slot, visit.license(), environment)
        except HeldOfflineError as held:
            problem = texts("file.held", date=texts.date(held.retry_at))
        except TooManyMovesError as refused:
            at = refused.retry_at
            problem = texts("free.never") if at is None else texts("free.later", date=texts.date(at))
        except NotFoundError:
            problem = texts("free.gone")
        else:
            return redirect(request, f"{HOME}?done=freed")
        return await self._licenses_page(request, visit, status=409, problem=problem)

    async def issue_file(self, request: web.Request, visit: Visit) -> web.StreamResponse:
        """Send a license file for a machine without a network, which takes a slot (D-238)."""
        texts, wanted, days = _texts(request), visit.license(), self._services.settings.account_file_days
        if not days:
            raise ApiError(404)
        issue, typed = self._services.offline_files.issue, visit.form.get("machine", "")
        try:
            issued = await self._threads.run(issue, wanted.id.hex(), typed, days)
        except RefusedFileError as refused:
            problem = texts("file.full" if refused.refusal is VerifyRefusal.ENVIRONMENT else "file.refused")
        except InvalidInputError:
            problem = texts("file.unreadable")
        else:
            return web.Response(body=issued.text.encode(), headers=text_file_headers(issued.name))
        return await self._licenses_page(request, visit, status=409, problem=problem)

    async def take_back(self, request: web.Request, visit: Visit) -> web.StreamResponse:
        """Take back a floating seat."""
        take_back, license_id = self._services.seats.take_back, visit.license().id.hex()
        try:
            await self._threads.run(take_back, license_id, visit.form.get("seat", ""))
        except NotFoundError:
            problem = _texts(request)("seat.gone")
            return await self._licenses_page(request, visit, status=409, problem=problem)
        return redirect(request, f"{HOME}?done=taken-back")

    async def download(self, request: web.Request) -> web.StreamResponse:
        """Redirect to a signed link, as an update check returns it.

        A link and not a form: the content security policy would stop a form's redirect to a bucket.
        """
        licenses = await self._find_licenses(self._token(request))
        if not licenses:
            return redirect(request, f"{HOME}?done=session-ended")
        wanted, now = _pick(licenses, request.match_info["license"]), self._clock()
        platform = request.query.get("platform", "")
        query = UpdateQuery(wanted.id, wanted.product_slug, platform if is_platform(platform) else "")
        verdict = evaluate_update(*await self._public.queries.find_update(query), now)
        link = self._public.sign_link(request, verdict, now)
        if link is None:
            raise ApiError(404)
        return redirect(request, link)

    async def send_asset(self, request: web.Request) -> web.StreamResponse:
        """Send the style sheet, the script or the logo."""
        asset = self.look.assets.get(request.path)
        return await self.not_found(request) if asset is None else asset.respond()

    async def not_found(self, _request: web.Request) -> web.StreamResponse:
        """Respond to an address that does not exist."""
        raise ApiError(404)

    # --- responses ----------------------------------------------------------------------------

    async def _sign_in_page(
        self, request: web.Request, status: int, problem: str | None = None
    ) -> web.Response:
        texts = _texts(request)
        message, pending = None if problem is None else texts(problem), self._token(request, CODE_COOKIE)
        account = self._services.account
        has_code = pending is not None and await self._threads.run(account.has_code, pending)
        values = {"has_mail": self._services.mail.is_on, "has_code": has_code}
        return await self._render(request, "sign_in.html", status, problem=message, csrf=None, **values)

    async def _licenses_page(
        self,
        request: web.Request,
        visit: Visit,
        *,
        status: int = 200,
        keys: dict[bytes, str] | None = None,
        problem: str | None = None,
    ) -> web.Response:
        texts, now, keys = _texts(request), self._clock(), keys or {}

        def describe_all() -> list[Any]:
            return [describe(self._services, one, texts, now, keys.get(one.id)) for one in visit.licenses]

        return await self._render(
            request,
            "licenses.html",
            status,
            problem=problem,
            csrf=sessions.csrf_token(visit.token),
            licenses=await self._threads.run(describe_all),
        )

    async def _render(self, request: web.Request, template: str, status: int, **values: Any) -> web.Response:
        done, texts = request.query.get("done"), _texts(request)
        values["done"] = texts(f"done.{done}") if done in _NOTICES and not values["problem"] else None
        values["languages"] = [load_texts(one) for one in LANGUAGES]
        content = await self._threads.run(self.look.render, template, texts, **values)
        return web.Response(status=status, body=content, headers=PAGE)

    async def respond_with_page(self, request: web.Request, error: ApiError) -> web.StreamResponse:
        """Write an error as a page, in the customer's language."""
        texts, name = _texts(request), f"error.{error.status}"
        is_fault = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        problem = texts("error.unavailable" if is_fault else name if name in texts else "error.other")
        page = await self._render(request, "problem.html", error.status, problem=problem, csrf=None)
        page.headers.update(error.headers)
        return page


def _texts(request: web.Request) -> Texts:
    chosen = request.cookies.get(LANGUAGE_COOKIE, "")
    return load_texts(choose_language(chosen, request.headers.get(hdrs.ACCEPT_LANGUAGE, "")))


def _pick(licenses: list[IssuedLicense], license_id: str) -> IssuedLicense:
    """Return one of the session's licenses by its id."""
    found = next((one for one in licenses if one.id.hex() == license_id), None)
    if found is None:
        raise ApiError(404)
    return found


def create_account(services: Services, clock: Clock, public: PublicEndpoints) -> web.Application:
    """Create the sub-application.

    Raises:
        SettingsError: The logo cannot be used.
    """
    account = Account(services, clock, public)
    app = web.Application()
    app[ERRORS] = ErrorFormat(logging.getLogger("licserver.account"), account.respond_with_page)
    app[ENDPOINT] = ACCOUNT
    app.on_cleanup.append(account.close)

    async def to_home(request: web.Request) -> web.StreamResponse:
        return redirect(request, HOME)

    routes: dict[str, dict[str, Handler]] = {
        "": get(account.show),
        "/": get(to_home),
        "/sign-in": {"POST": account.sign_in},
        "/code": {"POST": account.send_code},
        "/sign-in-by-code": {"POST": account.sign_in_with_code},
        "/sign-out": {"POST": account.form(account.sign_out)},
        "/key": {"POST": account.form(account.reveal)},
        "/free": {"POST": account.form(account.free)},
        "/file": {"POST": account.form(account.issue_file)},
        "/take-back": {"POST": account.form(account.take_back)},
        "/download/{license}": get(account.download),
        "/assets/{digest}/{name}": get(account.send_asset),
    }
    for path, handlers in routes.items():
        add_route(app, path, handlers)
    app.router.add_route("*", "/{anything:.*}", account.not_found, expect_handler=expect)
    return app
