"""The account page as a sub-application of the public side: sign-in, licenses, freed slots, downloads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final
from weakref import WeakValueDictionary

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from licserver.clock import Clock
from licserver.domain.decisions import (
    Offer,
    VerifyRefusal,
    is_imported_key,
    is_license_key,
)
from licserver.domain.languages import LANGUAGES, choose_language
from licserver.domain.offers import find_download, list_downloads
from licserver.domain.records import Environment, IssuedLicense
from licserver.errors import HeldOfflineError, InvalidInputError, NotFoundError, TooManyMovesError
from licserver.limits import MAX_ACCOUNT_BODY_BYTES
from licserver.runtime.metrics import ACCOUNT
from licserver.runtime.worker_threads import WorkerThreads
from licserver.services.context import CUSTOMER
from licserver.services.customer_sign_in import CODE_TIME, SESSION_TIME
from licserver.services.installation import Services
from licserver.services.offline_files import RefusedFileError
from licserver.web.account.pages import HOME, Look, Texts, describe_all, load_texts
from licserver.web.console import sessions
from licserver.web.console.responses import PAGE, cookie_header, read_form, redirect, text_file_headers
from licserver.web.console.sessions import Form, SessionCookie
from licserver.web.middlewares import ENDPOINT, ERRORS, ErrorFormat, add_route, get
from licserver.web.public import TOO_MANY_WRITES, PublicEndpoints
from licserver.web.rate_limits import MISS_DELAY, Write
from licserver.web.responses import ApiError, expect

COOKIE: Final = SessionCookie("__Host-licserver-account", "licserver-account", HOME)
CODE_COOKIE: Final = SessionCookie("__Host-licserver-account-code", "licserver-account-code", HOME)
"""Only the browser that requested a code may use it."""
LANGUAGE_COOKIE: Final = "licserver-language"

CODE_SECONDS: Final = 0.1
"""Minimum time of a request for a code, which must not show whether the address is known."""

_YEAR: Final = 365 * 86_400  # seconds
_NOTICES: Final = frozenset({"freed", "taken-back", "signed-out", "session-ended"})


@dataclass(frozen=True, slots=True, repr=False)
class SubmittedForm:
    """A form that was sent in a session; without a repr, because it holds the session's token."""

    token: str
    licenses: list[IssuedLicense]
    form: Form

    def license(self) -> IssuedLicense:
        """Return the license that the form names."""
        return _pick(self.licenses, self.form.get("license", ""))


class Account:
    """Handlers of the account page, for customers.

    1. `sign_in` checks a license key, or `send_code` mails a code that `sign_in_with_code` checks.
    2. `show` lists the session's licenses; `form` wraps a handler of a form on that page.
    3. `free`, `issue_file`, `take_back` and `reveal` act on a license of the session.
    4. `download` redirects to a signed link.

    Example::

        account = Account(services, clock, public)
        add_route(app, "/free", {"POST": account.form(account.free)})

    Handlers raise an `ApiError`: 403 for a form of another session, 404 for a license of another customer,
    429 after too many writes. A refused action shows the page again with a message, status 409.
    """

    def __init__(self, services: Services, clock: Clock, public: PublicEndpoints) -> None:
        self._services, self._clock, self._public = services.acting_as(CUSTOMER), clock, public
        self._threads, self.look = WorkerThreads(), Look(services.settings)
        self._base_url = services.settings.base_url
        self._turns: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self.close = self._threads.close

    # --- sessions -----------------------------------------------------------------------------

    def _token(self, request: web.Request, cookie: SessionCookie = COOKIE) -> str | None:
        is_https = sessions.is_https_url(self._base_url)
        return sessions.read_token(cookie_header(request), is_https=is_https, cookie=cookie)

    async def _read_form(self, request: web.Request) -> Form:
        return await read_form(request, self._services.settings, MAX_ACCOUNT_BODY_BYTES)

    async def _find_licenses(self, token: str | None) -> list[IssuedLicense]:
        """Return the licenses of a session; an empty list without a session."""
        return (
            []
            if token is None
            else await self._threads.run(self._services.customer_sign_in.find_licenses, token)
        )

    def form(self, handler: Callable[[web.Request, SubmittedForm], Awaitable[web.StreamResponse]]) -> Handler:
        """Call a handler with session and form, after checking the form's CSRF token."""

        async def handle(request: web.Request) -> web.StreamResponse:
            token = self._token(request)
            licenses = await self._find_licenses(token)
            if token is None or not licenses:
                return redirect(request, f"{HOME}?done=session-ended")
            form = await self._read_form(request)
            if not sessions.is_own_form(token, form):
                raise ApiError(403)
            self._count_write(request, licenses[0].id, licenses)
            return await handler(request, SubmittedForm(token, licenses, form))

        return handle

    def _count_write(
        self, request: web.Request, license_id: bytes | None, licenses: Sequence[IssuedLicense] = ()
    ) -> None:
        """Count a request that writes, before its work; 429 after too many."""
        size = sum((license_.slots or 0) + (license_.floating_seats or 0) for license_ in licenses)
        caller = self._public.callers.find(request)
        if delay := self._public.rate_limiter.count_write(Write(license_id, size), caller):
            raise ApiError(429, TOO_MANY_WRITES, {hdrs.RETRY_AFTER: str(delay)})

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Create a session for a license key; a wrong key counts as a guess."""
        form = await self._read_form(request)
        if sessions.loses_cookies(request.headers, self._base_url):
            return await self._sign_in_page(request, 403, "sign-in.https")
        key = form.get("key", "").strip()
        key = key.upper() if is_license_key(key.upper()) else key
        is_key = is_license_key(key) or is_imported_key(key)
        if self._public.rate_limiter.refuses_guess(request, key):
            return await self._refuse_late(request)
        self._count_write(request, self._public.vault.license_id(key) if is_key else None)
        token = await self._threads.run(self._services.customer_sign_in.sign_in, key)
        if token is not None:
            return self._redirect(request, HOME, token, SESSION_TIME)
        return await self._refuse(request, "sign-in.wrong")

    async def _refuse(self, request: web.Request, problem: str) -> web.StreamResponse:
        """Refuse a sign-in and count it as a guess; 429 after too many guesses."""
        if await self._public.rate_limiter.count_miss(request):
            return await self._sign_in_page(request, 401, problem)
        return await self._refuse_late(request)

    async def _refuse_late(self, request: web.Request) -> web.StreamResponse:
        page = await self._sign_in_page(request, 429, "sign-in.too-many")
        page.headers[hdrs.RETRY_AFTER] = str(MISS_DELAY)
        return page

    async def send_code(self, request: web.Request) -> web.StreamResponse:
        """Send a code to an address, if it has a license; each request counts as a guess."""
        form = await self._read_form(request)
        if sessions.loses_cookies(request.headers, self._base_url):
            return await self._sign_in_page(request, 403, "sign-in.https")
        if not await self._public.rate_limiter.count_miss(request):
            return await self._refuse(request, "sign-in.too-many")
        language, client = _texts(request).language, self._public.rate_limiter.address(request)
        sending = self._threads.run(
            self._services.customer_sign_in.send_code, form.get("email", ""), client, language
        )
        token, _ = await asyncio.gather(sending, asyncio.sleep(CODE_SECONDS))
        if token is None:  # the browser's code stays valid
            page = await self._sign_in_page(request, 429, "code.too-many")
            page.headers[hdrs.RETRY_AFTER] = str(int(CODE_TIME.total_seconds()))
            return page
        return self._redirect(request, HOME, token, CODE_TIME, CODE_COOKIE)

    async def sign_in_with_code(self, request: web.Request) -> web.StreamResponse:
        """Create a session for a code, in the browser that requested it."""
        form, pending = await self._read_form(request), self._token(request, CODE_COOKIE)
        account = self._services.customer_sign_in
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

    async def sign_out(self, request: web.Request, submitted: SubmittedForm) -> web.StreamResponse:
        """End the session."""
        await self._threads.run(self._services.customer_sign_in.sign_out, submitted.token)
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
        return await self._licenses_page(request, SubmittedForm(token, licenses, {}))

    async def reveal(self, request: web.Request, submitted: SubmittedForm) -> web.StreamResponse:
        """Show the page with a whole license key in it."""
        license_ = submitted.license()
        key = await self._threads.run(self._services.licenses.reveal, license_.id.hex())
        return await self._licenses_page(request, submitted, keys={license_.id: key})

    async def free(self, request: web.Request, submitted: SubmittedForm) -> web.StreamResponse:
        """Free a slot, as often as the product allows."""
        environment = Environment(submitted.form.get("domain", ""), submitted.form.get("ip", ""))
        texts = _texts(request)
        try:
            await self._threads.run(self._services.moves.free_slot, submitted.license(), environment)
        except HeldOfflineError as held:
            problem = texts("file.held", date=texts.date(held.retry_at))
        except TooManyMovesError as refused:
            retry_at = refused.retry_at
            problem = (
                texts("free.never") if retry_at is None else texts("free.later", date=texts.date(retry_at))
            )
        except NotFoundError:
            problem = texts("free.gone")
        else:
            return redirect(request, f"{HOME}?done=freed")
        return await self._licenses_page(request, submitted, status=409, problem=problem)

    async def issue_file(self, request: web.Request, submitted: SubmittedForm) -> web.StreamResponse:
        """Send a license file for a machine without a network, which takes a slot."""
        texts, license_ = _texts(request), submitted.license()
        days = self._services.settings.account_file_days
        if not days:
            raise ApiError(404)
        issue, typed = self._services.offline_files.issue, submitted.form.get("machine", "")
        try:
            issued = await self._threads.run(issue, license_.id.hex(), typed, days)
        except RefusedFileError as refused:
            problem = texts("file.full" if refused.refusal is VerifyRefusal.ENVIRONMENT else "file.refused")
        except InvalidInputError:
            problem = texts("file.unreadable")
        else:
            return web.Response(body=issued.text.encode(), headers=text_file_headers(issued.name))
        return await self._licenses_page(request, submitted, status=409, problem=problem)

    async def take_back(self, request: web.Request, submitted: SubmittedForm) -> web.StreamResponse:
        """Take back a floating seat."""
        take_back, license_id = self._services.seats.take_back, submitted.license().id.hex()
        try:
            await self._threads.run(take_back, license_id, submitted.form.get("seat", ""))
        except NotFoundError:
            problem = _texts(request)("seat.gone")
            return await self._licenses_page(request, submitted, status=409, problem=problem)
        return redirect(request, f"{HOME}?done=taken-back")

    async def download(self, request: web.Request) -> web.StreamResponse:
        """Redirect to a signed link, as an update check returns it.

        A link and not a form: the content security policy would block a form's redirect to a bucket.
        """
        licenses = await self._find_licenses(self._token(request))
        if not licenses:
            return redirect(request, f"{HOME}?done=session-ended")
        license_, now = _pick(licenses, request.match_info["license"]), self._clock()
        platform, kind = request.query.get("platform", ""), request.query.get("kind", "")
        offered = await self._public.queries.find_releases(license_.product_slug)
        if offered is None:
            raise ApiError(404)
        # In a thread: of thousands of releases it takes a tenth of a second after a change.
        downloads = await self._threads.run(
            list_downloads, offered, license_.snapshot(), license_.channels, now
        )
        release = find_download(downloads, platform, kind)
        if release is None:
            raise ApiError(404)
        offer = Offer(offered.product, release, license_.snapshot(), downloadable=True)
        link = self._public.sign_link(request, offer, now)
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
        account = self._services.customer_sign_in
        has_code = pending is not None and await self._threads.run(account.has_code, pending)
        values = {"has_mail": self._services.mail.is_on, "has_code": has_code}
        return await self._render(request, "sign_in.html", status, problem=message, csrf=None, **values)

    async def _licenses_page(
        self,
        request: web.Request,
        submitted: SubmittedForm,
        *,
        status: int = 200,
        keys: dict[bytes, str] | None = None,
        problem: str | None = None,
    ) -> web.Response:
        texts, now, keys = _texts(request), self._clock(), keys or {}

        # A single page of a customer at a time: many licenses are slow, and all customers share the threads.
        async with self._turns.setdefault(submitted.licenses[0].id, asyncio.Lock()):
            slugs = {license_.product_slug for license_ in submitted.licenses}
            read = {slug: await self._public.queries.find_releases(slug) for slug in slugs}
            products = {slug: offered for slug, offered in read.items() if offered is not None}
            cards = await self._threads.run(
                describe_all, self._services, submitted.licenses, products, texts, now, keys
            )
        csrf = sessions.csrf_token(submitted.token)
        values = {"problem": problem, "csrf": csrf, "licenses": cards}
        return await self._render(request, "licenses.html", status, **values)

    async def _render(self, request: web.Request, template: str, status: int, **values: Any) -> web.Response:
        done, texts = request.query.get("done"), _texts(request)
        values["done"] = texts(f"done.{done}") if done in _NOTICES and not values["problem"] else None
        values["languages"] = [load_texts(language) for language in LANGUAGES]
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
    chosen = sessions.read_cookie(cookie_header(request), LANGUAGE_COOKIE) or ""
    return load_texts(choose_language(chosen, request.headers.get(hdrs.ACCEPT_LANGUAGE, "")))


def _pick(licenses: list[IssuedLicense], license_id: str) -> IssuedLicense:
    """Return a license of the session by its id, or raise an `ApiError` 404."""
    license_ = next((candidate for candidate in licenses if candidate.id.hex() == license_id), None)
    if license_ is None:
        raise ApiError(404)
    return license_


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
