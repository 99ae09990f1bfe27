"""Sign-in, sign-out and password, and the limits of attempts (D-97, D-165)."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar
from urllib.parse import quote

from aiohttp import web

from licserver.domain.environments import provider_network
from licserver.domain.records import Actor, ActorKind
from licserver.errors import InvalidInputError
from licserver.services import Services
from licserver.services.accounts import SESSION_TIME, Needs, SignedIn
from licserver.services.logins import SIGN_IN_FAILED, SIGN_IN_THROTTLED
from licserver.web.console import messages, sessions
from licserver.web.console.handlers import SIGN_IN, Console
from licserver.web.console.pages import overview
from licserver.web.console.responses import redirect
from licserver.web.console.sessions import Form
from licserver.web.logging import FailureReport
from licserver.web.rate_limits import ClientAddresses
from licserver.web.responses import to_sentence

R = TypeVar("R")

ACCOUNT: Final = f"{sessions.HOME}/account"
CODE: Final = f"{SIGN_IN}/code"
SECOND_FACTOR: Final = f"{ACCOUNT}/second-factor"

WRONG_PASSWORD: Final = "This is not your password."
_NO_COOKIE: Final = (
    "This page came by http, and the server is set up for https (LICSERVER_BASE_URL), so your browser would "
    "not stay signed in. Open the console by https, or through a tunnel at http://localhost."
)

_QUEUE: Final = 20
"""Attempts that may wait for a thread that hashes: two seconds of work."""
_SHARE: Final = 5
"""Of them, those of one network."""


class LoginError(Exception):
    """An attempt failed.

    Args:
        status: 401 for a wrong password or code, 429 for too many attempts, 422 for input that is refused.
        message: A sentence for the user.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Login:
    """Handlers that create and end sessions.

    Two threads hash: one for users at addresses from which they have signed in before, one for everybody
    else, so that guesses from elsewhere never delay the former. Each thread needs 64 MiB.
    """

    def __init__(self, console: Console, services: Services, failures: FailureReport) -> None:
        self._console, self._services, self._failures = console, services, failures
        self._clients = ClientAddresses(services.settings)
        self._queues = {is_known: _Queue(f"console-logins-{is_known}") for is_known in (False, True)}

    async def close(self, _app: web.Application) -> None:
        """Let the threads end."""
        for queue in self._queues.values():
            queue.close()

    async def show_sign_in(self, request: web.Request) -> web.StreamResponse:
        """Show the form; redirect a user who is signed in already."""
        session = await self._console.find_session(request)
        if session is not None:
            return redirect(request, _next_page(session.needs, request.query.get("next", "")))
        return await self._sign_in_page(request, 200, request.query.get("next", ""))

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Create a session."""
        form = await self._console.read_form(request)
        goal, name, password = form.get("next", ""), form.get("name", ""), form.get("password", "")
        if sessions.loses_cookies(request.headers, self._console.settings.base_url):
            return await self._sign_in_page(request, 403, goal, _NO_COOKIE, name)

        def compare(_is_known: bool) -> SignedIn | None:
            return self._services.logins.sign_in(name, password, self.address(request))

        try:
            session = await self.attempt(
                request, name, compare, SIGN_IN_FAILED, "This name and password do not match."
            )
        except LoginError as error:
            return await self._sign_in_page(request, error.status, goal, error.message, name)
        await self._end_session(request)  # of the user who was signed in before
        # Not known yet whether the user must enrol: the next page finds out.
        headers = {"Set-Cookie": self.cookie(request, session.token)}
        return redirect(request, _next_page(session.needs, goal), **headers)

    async def _sign_in_page(
        self, request: web.Request, status: int, goal: str, problem: str | None = None, name: str = ""
    ) -> web.StreamResponse:
        has_users = bool(await self._console.threads.run(self._services.users.list_all))
        done = messages.DONE.get(request.query.get("done", ""))
        return await self._console.render(
            "sign_in.html", status, None, problem, done, has_users=has_users, goal=goal, name=name
        )

    async def sign_out(self, request: web.Request, _session: SignedIn, _form: Form) -> web.StreamResponse:
        """End a session, also one that still needs something."""
        await self._end_session(request)
        # No cookies: those of other programs on this host are not ours.
        headers = {"Set-Cookie": self.cookie(request, ""), "Clear-Site-Data": '"cache", "storage"'}
        return redirect(request, f"{SIGN_IN}?done=signed-out", **headers)

    async def _end_session(self, request: web.Request) -> None:
        token = self._console.token(request)
        if token is not None:
            await self._console.threads.run(self._services.logins.sign_out, token)

    async def change_password(self, request: web.Request, user: SignedIn, form: Form) -> web.StreamResponse:
        """Change one's own password, which ends all other sessions."""
        try:
            session = await self._change_password(request, user, form)
        except LoginError as error:
            context = self._console.context(request, user)._replace(problem=error.message)
            return await self._console.show(request, overview.show_account, context)
        cookie = self.cookie(request, session.token)
        return redirect(request, f"{ACCOUNT}?done=password", **{"Set-Cookie": cookie})

    async def _change_password(self, request: web.Request, user: SignedIn, form: Form) -> SignedIn:
        old, new = form.get("old", ""), form.get("new", "")
        if new != form.get("again", ""):
            raise LoginError(422, "The new password was not typed the same twice.")
        services = self._services.acting_as(Actor(ActorKind.USER, user.name))

        def compare(_is_known: bool) -> SignedIn | None:
            return services.logins.change_password(user, old, new)

        return await self.attempt(request, user.name, compare, SIGN_IN_FAILED, WRONG_PASSWORD)

    # --- shared with the second factor --------------------------------------------------------

    def address(self, request: web.Request) -> str:
        """Return the address whose attempts are counted."""
        return self._clients.find(request).counted

    async def attempt(
        self, request: web.Request, name: str, compare: Callable[[bool], R | None], failure: str, wrong: str
    ) -> R:
        """Count an attempt and compare a password or code, both on one thread; report a failure.

        An attempt that finds a full queue is not even counted: what is written is bounded by what a thread
        can hash. One that is refused is compared with nothing, so that the response reveals nothing.

        Args:
            compare: Takes whether the user has signed in from this address lately; returns nothing for a
                wrong password or code.
            failure: The audit log's name of a failure.
            wrong: The message of a failure.

        Raises:
            LoginError: if it fails or is refused.
        """
        address, logins, threads = self.address(request), self._services.logins, self._console.threads
        is_known = await threads.run(logins.is_known_address, address, name)

        def count_and_compare() -> R | None:
            if not logins.count_attempt(address, name, is_known=is_known):
                raise _TooManyAttemptsError
            return compare(is_known)

        try:
            result = await self._queues[is_known].run(provider_network(address), count_and_compare)
        except _TooManyAttemptsError:
            self._failures.add(SIGN_IN_THROTTLED, None, address)
            raise LoginError(429, "Too many attempts. Wait a minute, and try again.") from None
        except InvalidInputError as invalid:
            raise LoginError(422, to_sentence(invalid)) from None
        if result:
            return result
        with contextlib.suppress(Exception):  # the caller gets the same page, whatever becomes of the report
            # The name only if it is a user's: a password may have been typed in its place.
            self._failures.add(failure, await threads.run(logins.find_name, name), address)
        raise LoginError(401, wrong)

    def cookie(self, request: web.Request, token: str) -> str:
        """Write the session's cookie; an empty token removes it."""
        seconds = int(SESSION_TIME.total_seconds()) if token else 0
        urls = (self._console.settings.base_url, request.headers.get("Origin"))
        return sessions.write_cookie(token, is_https=any(map(sessions.is_https_url, urls)), seconds=seconds)


def _next_page(needs: Needs, goal: str) -> str:
    """Return where a session leads: to what it needs first."""
    match needs:
        case Needs.CODE:
            return f"{CODE}?next={quote(sessions.own_path(goal), safe='')}"
        case Needs.ENROLMENT:
            return SECOND_FACTOR
        case Needs.NOTHING:
            return sessions.own_path(goal)


class _TooManyAttemptsError(Exception):
    """Too many attempts for this address, for this name, or altogether; nothing was compared."""


class _Queue:
    """One thread, and the attempts that wait for it."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._waiting = Counter[str]()

    async def run(self, network: str, work: Callable[[], R]) -> R:
        """Run `work` on the thread, unless too many are waiting, or too many of this network."""
        if self._waiting.total() >= _QUEUE or self._waiting[network] >= _SHARE:
            raise _TooManyAttemptsError
        self._waiting[network] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting[network] -= 1
            if not self._waiting[network]:
                del self._waiting[network]

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
