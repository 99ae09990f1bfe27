"""Sign-in, sign-out, password and second factor, and the limits of attempts (D-97)."""

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar
from urllib.parse import quote

from aiohttp import web
from markupsafe import Markup

from licserver import libraries
from licserver.domain.environments import provider_network
from licserver.domain.records import Actor, ActorKind
from licserver.errors import InvalidInputError
from licserver.runtime.logging import FailureReport
from licserver.services.installation import Services
from licserver.services.users import (
    CODE_FAILED,
    SESSION_TIME,
    SIGN_IN_FAILED,
    SIGN_IN_THROTTLED,
    Needs,
    SignedIn,
)
from licserver.web.console import formatting, sessions
from licserver.web.console.handlers import SIGN_IN, Console
from licserver.web.console.pages import overview
from licserver.web.console.responses import read_form, redirect
from licserver.web.console.sessions import Form
from licserver.web.console.wording import in_browser_terms
from licserver.web.rate_limits import RateLimiter
from licserver.web.responses import ApiError, to_sentence

R = TypeVar("R")

ACCOUNT: Final = f"{sessions.HOME}/account"
CODE: Final = f"{SIGN_IN}/code"
SECOND_FACTOR: Final = f"{ACCOUNT}/second-factor"

_WRONG_NAME: Final = "This name and password do not match."
_WRONG_PASSWORD: Final = "This is not your password."
_WRONG_CODE: Final = "This code is wrong, or was used already. Your app shows a new one every 30 seconds."
_WRONG_EITHER: Final = "The password or the code is wrong, or the code was used already."
_NO_COOKIE: Final = (
    "This page came by http, and the server is set up for https (LICSERVER_BASE_URL), so your browser would "
    "not stay signed in. Open the console by https, or through a tunnel at http://localhost."
)

_QUEUE: Final = 20
"""Attempts that may wait for a thread that hashes: two seconds of work."""
_SHARE: Final = 5
"""Waiting attempts of a network."""
_PATIENCE: Final = 10.0
"""Seconds after which a waiting attempt is refused: beside other load a hash can take a second."""


class Login:
    """Handlers of sessions, passwords and the second factor.

    Two threads hash passwords: the first for users at their known addresses, the second for all other
    requests, so that guesses never delay known addresses. Each thread needs 64 MiB.
    """

    def __init__(
        self, console: Console, services: Services, rate_limiter: RateLimiter, failures: FailureReport
    ) -> None:
        self._console, self._services, self._failures = console, services, failures
        self._factors = services.second_factors
        self._rate_limiter, self._has_users = rate_limiter, False
        self._queues = {is_known: _Queue(f"console-logins-{is_known}") for is_known in (False, True)}

    async def refuse_waiting(self, _app: web.Application) -> None:
        """Refuse the attempts that wait for a thread: the end of the server would wait for each."""
        for queue in self._queues.values():
            queue.refuse_waiting()

    async def close(self, _app: web.Application) -> None:
        """Let the threads end."""
        for queue in self._queues.values():
            queue.close()

    async def show_sign_in(self, request: web.Request) -> web.StreamResponse:
        """Show the form; redirect a signed-in user."""
        session = await self._console.find_session(request)
        if session is not None:
            return redirect(request, _next_page(session.needs, request.query.get("next", "")))
        return await self._sign_in_page(request, 200, request.query.get("next", ""))

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Create a session."""
        form = await read_form(request, self._console.settings)
        goal, name, password = form.get("next", ""), form.get("name", ""), form.get("password", "")
        if sessions.loses_cookies(request.headers, self._console.settings.base_url):
            return await self._sign_in_page(request, 403, goal, _NO_COOKIE, name)
        logins, address = self._services.logins, self.address(request)
        try:
            session = await self.attempt(
                request, name, lambda **_: logins.sign_in(name, password, address), wrong=_WRONG_NAME
            )
        except ApiError as error:
            return await self._sign_in_page(request, error.status, goal, error.message, name)
        await self._end_session(request)  # of the user signed in before
        # Not known yet whether the user must enrol: the next page finds out.
        return self.redirect(request, _next_page(session.needs, goal), session.token)

    async def _sign_in_page(
        self, request: web.Request, status: int, goal: str, problem: str | None = None, name: str = ""
    ) -> web.StreamResponse:
        if not self._has_users:  # asked once: anyone can request this page
            self._has_users = bool(await self._console.threads.run(self._services.users.list_all))
        done = formatting.DONE.get(request.query.get("done", ""))
        return await self._console.render(
            "sign_in.html", status, None, problem, done, has_users=self._has_users, goal=goal, name=name
        )

    async def sign_out(self, request: web.Request, _session: SignedIn, _form: Form) -> web.StreamResponse:
        """End a session, also if it still needs a step."""
        await self._end_session(request)
        # Not "cookies": other programs on this host have cookies as well.
        clear = {"Clear-Site-Data": '"cache", "storage"'}
        return self.redirect(request, f"{SIGN_IN}?done=signed-out", "", **clear)

    async def _end_session(self, request: web.Request) -> None:
        if (token := self._console.token(request)) is not None:
            await self._console.threads.run(self._services.logins.sign_out, token)

    async def change_password(self, request: web.Request, user: SignedIn, form: Form) -> web.StreamResponse:
        """Change the user's own password, which ends all other sessions."""
        old, new = form.get("old", ""), form.get("new", "")
        logins = self._services.acting_as(Actor(ActorKind.USER, user.name)).logins
        try:
            if new != form.get("again", ""):
                raise ApiError(422, "The new password was not typed the same twice.")  # noqa: TRY301 - shown as others are
            session = await self.attempt(
                request, user.name, lambda **_: logins.change_password(user, old, new)
            )
        except ApiError as error:
            context = self._console.context(request, user)._replace(problem=error.message)
            return await self._console.show(request, overview.show_account, context)
        return self.redirect(request, f"{ACCOUNT}?done=password", session.token)

    def redirect(self, request: web.Request, path: str, token: str, **headers: str) -> web.StreamResponse:
        """Redirect with the session's cookie; an empty token removes it."""
        return redirect(request, path, **{"Set-Cookie": self.cookie(request, token)}, **headers)

    def address(self, request: web.Request) -> str:
        """Return the address whose attempts are counted."""
        return self._rate_limiter.address(request)

    async def attempt(
        self,
        request: web.Request,
        name: str,
        compare: Callable[..., R | None],
        failure: str = SIGN_IN_FAILED,
        wrong: str = _WRONG_PASSWORD,
    ) -> R:
        """Count an attempt and compare a password or code, both on the same thread; report a failure.

        An attempt at a full queue is not counted, so that the thread's speed bounds the writes. A refused
        attempt is not compared, so that the response reveals nothing.

        Args:
            compare: Takes `is_known`, whether the user has recently signed in from this address; returns
                None for a wrong password or code.
            failure: The audit log's name of a failure.
            wrong: The message of a failure.

        Raises:
            ApiError: 401 if it fails, 429 after too many attempts, 422 for input that is refused.
        """
        address, logins, threads = self.address(request), self._services.logins, self._console.threads
        is_known = await threads.run(logins.is_known_address, address, name)

        def count_and_compare() -> R | None:
            if not logins.count_attempt(address, name, is_known=is_known):
                raise _TooManyAttemptsError
            return compare(is_known=is_known)

        try:
            result = await self._queues[is_known].run(provider_network(address), count_and_compare)
        except _TooManyAttemptsError:
            self._failures.add(SIGN_IN_THROTTLED, None, address)
            raise ApiError(429, "Too many attempts. Wait a minute, and try again.") from None
        except InvalidInputError as invalid:
            raise ApiError(422, to_sentence(in_browser_terms(str(invalid)))) from None
        if result:
            return result
        with contextlib.suppress(Exception):  # the caller gets the same page, even if the report fails
            # The name only if it is a user's: a password may have been typed in its place.
            self._failures.add(failure, await threads.run(logins.find_name, name), address)
        raise ApiError(401, wrong)

    def cookie(self, request: web.Request, token: str) -> str:
        """Write the session's cookie; an empty token removes it."""
        seconds = int(SESSION_TIME.total_seconds()) if token else 0
        urls = (self._console.settings.base_url, request.headers.get("Origin"))
        return sessions.write_cookie(token, is_https=any(map(sessions.is_https_url, urls)), seconds=seconds)

    # --- second factor ------------------------------------------------------------------------

    async def show_code(self, request: web.Request, session: SignedIn) -> web.StreamResponse:
        """Show the form for a code."""
        goal = request.query.get("next", "")
        return await self._console.render("sign_in_code.html", 200, session, goal=goal)

    async def sign_in_with_code(
        self, request: web.Request, session: SignedIn, form: Form
    ) -> web.StreamResponse:
        """Replace a session that needs a code."""
        goal, code, address = form.get("next", ""), form.get("code", ""), self.address(request)
        compare = partial(self._factors.sign_in, session, code, address)
        try:
            new = await self.attempt(request, session.name, compare, CODE_FAILED, _WRONG_CODE)
        except ApiError as error:
            status = 401 if error.status == 401 else 429  # noqa: PLR2004 - 422: too many wrong codes
            return await self._console.render("sign_in_code.html", status, session, error.message, goal=goal)
        return self.redirect(request, sessions.own_path(goal), new.token)

    async def show_factor(self, _request: web.Request, session: SignedIn) -> web.StreamResponse:
        """Show the form to set up, confirm or remove a second factor."""
        return await self._factor_page(session)

    async def begin_factor(self, request: web.Request, session: SignedIn, form: Form) -> web.StreamResponse:
        """Generate a secret, after the password."""
        begin, password = self._factors.begin_enrolment, form.get("password", "")
        try:
            await self.attempt(request, session.name, lambda **_: begin(session, password))
        except ApiError as error:
            return await self._factor_page(session, error)
        return redirect(request, SECOND_FACTOR)

    async def confirm_factor(self, request: web.Request, session: SignedIn, form: Form) -> web.StreamResponse:
        """Confirm a secret by its first code, and show the recovery codes once."""
        confirm, code = self._factors.confirm_enrolment, form.get("code", "")
        try:
            done = await self._console.threads.run(confirm, session, code)
        except InvalidInputError as invalid:
            return await self._factor_page(
                session, ApiError(422, to_sentence(in_browser_terms(str(invalid))))
            )
        if done is None:
            return await self._factor_page(session, ApiError(422, _WRONG_CODE))
        page = await self._console.render("recovery_codes.html", 200, done.session, codes=done.recovery_codes)
        page.headers["Set-Cookie"] = self.cookie(request, done.session.token)
        return page

    async def disable_factor(self, request: web.Request, user: SignedIn, form: Form) -> web.StreamResponse:
        """Remove the second factor, after the password and a code."""
        compare = partial(self._factors.disable, user, form.get("password", ""), form.get("code", ""))
        try:
            session = await self.attempt(request, user.name, compare, CODE_FAILED, _WRONG_EITHER)
        except ApiError as error:
            return await self._factor_page(user, error)
        return self.redirect(request, f"{ACCOUNT}?done=second-factor-off", session.token)

    async def _factor_page(self, session: SignedIn, error: ApiError | None = None) -> web.Response:
        status, problem = 200, None
        if error is not None:
            status, problem = 429 if error.status == 429 else 422, error.message  # noqa: PLR2004
        run = self._console.threads.run
        enrolment = await run(self._factors.find_enrolment, session)
        return await self._console.render(
            "second_factor.html",
            status,
            session,
            problem,
            secret=None if enrolment is None else re.sub("(.{4})(?=.)", r"\1 ", enrolment.secret),
            code=None if enrolment is None else await run(_draw_code, enrolment.uri),
            left=await run(self._factors.count_recovery_codes, session),
            is_required=self._console.settings.second_factor_required,
        )


def _next_page(needs: Needs, goal: str) -> str:
    """Return the next page of a session: the step that it needs, otherwise `goal`."""
    match needs:
        case Needs.CODE:
            return f"{CODE}?next={quote(sessions.own_path(goal), safe='')}"
        case Needs.ENROLMENT:
            return SECOND_FACTOR
        case Needs.NOTHING:
            return sessions.own_path(goal)


class _TooManyAttemptsError(Exception):
    """The limit of attempts for an address, a name or the queue, or of its time; nothing was compared."""


class _Queue:
    """A thread, and the attempts that wait for it."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._waiting = Counter[str]()
        self._refuses = False

    async def run(self, network: str, work: Callable[[], R]) -> R:
        """Run `work` on the thread, unless too many wait, or too many of a network, or it waits too long."""
        deadline = time.monotonic() + _PATIENCE

        def run_in_time() -> R:
            if self._refuses or time.monotonic() > deadline:
                raise _TooManyAttemptsError
            return work()

        if self._waiting.total() >= _QUEUE or self._waiting[network] >= _SHARE:
            raise _TooManyAttemptsError
        self._waiting[network] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, run_in_time)
        finally:
            self._waiting[network] -= 1
            if not self._waiting[network]:
                del self._waiting[network]

    def refuse_waiting(self) -> None:
        """Refuse what waits for the thread from now on."""
        self._refuses = True

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _draw_code(uri: str) -> Markup:
    """Draw a QR code as SVG without styles, which the content security policy forbids."""
    code = libraries.segno.make(uri, error="m", micro=False)
    options = {"scale": 4, "border": 4, "dark": "#000", "light": "#fff", "svgclass": "qr", "lineclass": None}
    return Markup(code.svg_inline(title="QR code for an authenticator app", **options))  # noqa: S704 - no text in it
