"""Sign-in, sign-out and password: the handlers around a session."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import quote

from aiohttp import web

from licserver.domain.records import Actor, ActorKind
from licserver.errors import InvalidInputError
from licserver.services import Services
from licserver.services.accounts import SESSION_TIME, Needs, SignedIn
from licserver.services.logins import SIGN_IN_FAILED, SIGN_IN_THROTTLED
from licserver.web.console import messages, sessions
from licserver.web.console.handlers import SIGN_IN, Console
from licserver.web.console.login_throttle import LoginThrottle, TooManyAttemptsError
from licserver.web.console.pages import account
from licserver.web.console.responses import redirect
from licserver.web.failed_requests import FailureReport
from licserver.web.rate_limits import ClientAddresses
from licserver.web.responses import to_sentence

R = TypeVar("R")

ACCOUNT: Final = f"{sessions.HOME}/account"
CODE: Final = f"{SIGN_IN}/code"
SECOND_FACTOR: Final = f"{ACCOUNT}/second-factor"

TOO_MANY: Final = "Too many attempts. Wait a minute, and try again."
WRONG_PASSWORD: Final = "This is not your password."
_NO_COOKIE: Final = (
    "This page came by http, and the server is set up for https (LICSERVER_BASE_URL), so your browser would "
    "not stay signed in. Open the console by https, or through a tunnel at http://localhost."
)


class Login:
    """Handlers that create and end sessions.

    Args:
        console: Reads sessions and forms, and renders pages.
        services: Has the users.
        failures: Reports failed attempts.
    """

    def __init__(self, console: Console, services: Services, failures: FailureReport) -> None:
        self._console, self._services, self._failures = console, services, failures
        self._clients = ClientAddresses(services.settings)
        self._throttle = LoginThrottle(services, console.threads)

    async def close(self, _app: web.Application) -> None:
        """Let the throttle's threads end."""
        self._throttle.close()

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
        address = self.address(request)
        try:
            session = await self.attempt(
                request, name, lambda _: self._services.logins.sign_in(name, password, address)
            )
        except TooManyAttemptsError:
            return await self._sign_in_page(request, 429, goal, TOO_MANY, name)
        if session is None:
            await self.report_failure(request, SIGN_IN_FAILED, name)
            return await self._sign_in_page(request, 401, goal, "This name and password do not match.", name)
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

    async def sign_out(
        self, request: web.Request, _session: SignedIn, _form: Mapping[str, str]
    ) -> web.StreamResponse:
        """End a session, also one that still needs something."""
        await self._end_session(request)
        # No cookies: those of other programs on this host are not ours.
        headers = {"Set-Cookie": self.cookie(request, ""), "Clear-Site-Data": '"cache", "storage"'}
        return redirect(request, f"{SIGN_IN}?done=signed-out", **headers)

    async def change_password(
        self, request: web.Request, user: SignedIn, form: Mapping[str, str]
    ) -> web.StreamResponse:
        """Change one's own password, which ends all other sessions."""
        old, new = form.get("old", ""), form.get("new", "")
        services = self._services.acting_as(Actor(ActorKind.USER, user.name))
        problem, session = None, None
        try:
            if new != form.get("again", ""):
                problem = "The new password was not typed the same twice."
            else:
                session = await self.attempt(
                    request, user.name, lambda _: services.logins.change_password(user, old, new)
                )
                if session is None:
                    problem = WRONG_PASSWORD
                    await self.report_failure(request, SIGN_IN_FAILED, user.name)
        except InvalidInputError as wrong:
            problem = to_sentence(wrong)
        except TooManyAttemptsError:
            problem = TOO_MANY
        if session is not None:
            cookie = self.cookie(request, session.token)
            return redirect(request, f"{ACCOUNT}?done=password", **{"Set-Cookie": cookie})
        context = self._console.context(request, user)._replace(problem=problem)
        return await self._console.respond(request, context, await self._console.run(account.show, context))

    # --- shared with the second factor --------------------------------------------------------

    def address(self, request: web.Request) -> str:
        """Return the address whose attempts are counted."""
        return self._clients.find(request).counted

    async def attempt(self, request: web.Request, name: str, compare: Callable[[bool], R]) -> R:
        """Run a comparison of a password or code within the limits of `LoginThrottle`; report if refused.

        Raises:
            TooManyAttemptsError: when it is refused; and whatever the comparison raises.
        """
        try:
            return await self._throttle.attempt(self.address(request), name, compare)
        except TooManyAttemptsError:
            self._failures.add(SIGN_IN_THROTTLED, None, self.address(request))
            raise

    async def report_failure(self, request: web.Request, action: str, name: str) -> None:
        """Report a failed attempt, with the name only if it is a user's."""
        with contextlib.suppress(Exception):  # the caller gets the same page, whatever becomes of the report
            subject = await self._console.threads.run(self._services.logins.find_name, name)
            self._failures.add(action, subject, self.address(request))

    def cookie(self, request: web.Request, token: str) -> str:
        """Write the session's cookie; an empty token removes it."""
        seconds = int(SESSION_TIME.total_seconds()) if token else 0
        is_https = sessions.is_https_url(self._console.settings.base_url) or sessions.is_https_url(
            request.headers.get("Origin")
        )
        return sessions.write_cookie(token, is_https=is_https, seconds=seconds)

    async def _end_session(self, request: web.Request) -> None:
        token = self._console.token(request)
        if token is not None:
            await self._console.threads.run(self._services.logins.sign_out, token)


def _next_page(needs: Needs, goal: str) -> str:
    """Return where a session leads: to what it needs first."""
    match needs:
        case Needs.CODE:
            return f"{CODE}?next={quote(sessions.own_path(goal), safe='')}"
        case Needs.ENROLMENT:
            return SECOND_FACTOR
        case Needs.NOTHING:
            return sessions.own_path(goal)
