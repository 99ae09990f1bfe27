"""Signing in and out, and another password: what happens around a session."""

import contextlib
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import quote

from aiohttp import web

from licserver.errors import WrongUse
from licserver.services import Vendor
from licserver.services.logins import SIGN_IN_FAILED, SIGN_IN_THROTTLED
from licserver.services.users import SESSION_TIME, Needs
from licserver.web.client_addresses import ClientAddresses
from licserver.web.console import headers, messages, sessions
from licserver.web.console.handlers import SIGN_IN, PageHandlers, go, is_own, sentence, to_sign_in
from licserver.web.console.login_throttle import LoginThrottle, TooManyTriesError
from licserver.web.console.pages import account
from licserver.web.failed_requests import FailureReport

R = TypeVar("R")

ACCOUNT: Final = f"{sessions.HOME}/account"
CODE: Final = f"{SIGN_IN}/code"
SECOND_FACTOR: Final = f"{ACCOUNT}/second-factor"

TOO_MANY: Final = "Too many attempts. Wait a minute, and try again."
_NO_COOKIE: Final = (
    "This page came by http, and the server is set up for https (LICSERVER_BASE_URL), so your browser would "
    "not stay signed in. Open the console by https, or through a tunnel at http://localhost."
)


class SignInPages:
    """The addresses that make and end sessions.

    Args:
        edge: What all addresses do.
        vendor: Knows the users.
        failures: Takes what fails.
    """

    def __init__(self, edge: PageHandlers, vendor: Vendor, failures: FailureReport) -> None:
        self._edge, self._vendor, self._failures = edge, vendor, failures
        self._callers = ClientAddresses(vendor.settings)
        self.door = LoginThrottle(vendor, edge.off_loop)

    def close(self) -> None:
        """Let the door's threads end."""
        self.door.close()

    async def show_sign_in(self, request: web.Request) -> web.StreamResponse:
        """Show the form, or lead on who is signed in already."""
        who = await self._edge.session(request)
        if who is not None:
            return go(request, _next_page(who.needs, request.query.get("next", "")))
        return await self._sign_in_page(request, 200, request.query.get("next", ""))

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Begin a session."""
        form = await self._edge.form(request)
        goal, name = form.get("next", ""), form.get("name", "")
        if not sessions.is_from_here(request.headers, request.host):
            return await self._sign_in_page(request, 403, goal, "This form came from another site.")
        if sessions.loses_cookies(request.headers, self._edge.settings.base_url):
            return await self._sign_in_page(request, 403, goal, _NO_COOKIE, name)
        attempt = self.door.sign_in(self.address(request), name, form.get("password", ""))
        try:
            who = await self.throttled(request, attempt)
        except TooManyTriesError:
            return await self._sign_in_page(request, 429, goal, TOO_MANY, name)
        if who is None:
            await self.failed(request, SIGN_IN_FAILED, name)
            return await self._sign_in_page(request, 401, goal, "This name and password do not match.", name)
        await self._end_session(request)  # whoever had signed in here before
        # Not known yet whether the user must enrol: the page that is asked for next finds out.
        return go(request, _next_page(who.needs, goal), self.cookie(request, who.token))

    async def _sign_in_page(
        self, request: web.Request, status: int, goal: str, problem: str | None = None, name: str = ""
    ) -> web.StreamResponse:
        has_users = bool(await self._edge.off_loop.run(self._vendor.users))
        done = messages.DONE.get(request.query.get("done", ""))
        content = await self._edge.off_loop.run(
            self._edge.frame.write,
            "sign_in.html",
            who=None,
            has_users=has_users,
            goal=goal,
            name=name,
            problem=problem,
            done=done,
        )
        more = {"Retry-After": "61"} if status == HTTPStatus.TOO_MANY_REQUESTS else {}
        return web.Response(status=status, body=content, headers={**headers.PAGE, **more})

    async def sign_out(self, request: web.Request) -> web.StreamResponse:
        """End a session, also one that still needs something."""
        who = await self._edge.session(request)
        if who is None:
            return to_sign_in(request)
        if not is_own(request, who, await self._edge.form(request)):
            return await self._edge.forged(request, who if who.needs is Needs.NOTHING else None)
        await self._end_session(request)
        return go(request, f"{SIGN_IN}?done=signed-out", self.cookie(request, ""))

    async def change_password(self, request: web.Request) -> web.StreamResponse:
        """Change one's own password."""
        who = await self._edge.who(request)
        if who is None:
            return to_sign_in(request)
        form = await self._edge.form(request)
        if not is_own(request, who, form):
            return await self._edge.forged(request, who)
        problem, anew = None, None
        try:
            if form.get("new", "") != form.get("again", ""):
                problem = "The new password was not typed the same twice."
            else:
                change = self.door.change_password(
                    self.address(request), who, form.get("old", ""), form.get("new", "")
                )
                anew = await self.throttled(request, change)
                if anew is None:
                    problem = "This is not your password."
                    await self.failed(request, SIGN_IN_FAILED, who.name)
        except WrongUse as wrong:
            problem = sentence(wrong)
        except TooManyTriesError:
            problem = TOO_MANY
        if anew is not None:
            return go(request, f"{ACCOUNT}?done=password", self.cookie(request, anew.token))
        visit = self._edge.visit(request, who)._replace(problem=problem)
        return await self._edge.reply(request, visit, await self._edge.run(account.show, visit))

    # --- shared with the second factor --------------------------------------------------------

    def address(self, request: web.Request) -> str:
        """Return the address whose attempts are counted."""
        return self._callers.find(request).counted

    async def throttled(self, request: web.Request, attempt: Awaitable[R]) -> R:
        """Wait for an attempt, and report it if it is refused.

        Raises:
            TooManyTriesError: when it is; and whatever the attempt raises.
        """
        try:
            return await attempt
        except TooManyTriesError:
            self._failures.add(SIGN_IN_THROTTLED, None, self.address(request))
            raise

    async def failed(self, request: web.Request, action: str, name: str) -> None:
        """Report a failed attempt, with the name only if it is a user's."""
        with contextlib.suppress(Exception):  # the caller gets the same page, whatever becomes of the report
            subject = await self._edge.off_loop.run(self._vendor.find_login_name, name)
            self._failures.add(action, subject, self.address(request))

    def cookie(self, request: web.Request, token: str) -> str:
        """Write the session's cookie; without a token, take it back."""
        seconds = int(SESSION_TIME.total_seconds()) if token else 0
        is_https = sessions.is_https_url(self._edge.settings.base_url) or sessions.is_https_url(
            request.headers.get("Origin")
        )
        return sessions.write_cookie(token, is_https=is_https, seconds=seconds)

    async def _end_session(self, request: web.Request) -> None:
        token = self._edge.token(request)
        if token is not None:
            await self._edge.off_loop.run(self._vendor.sign_out, token)


def _next_page(needs: Needs, goal: str) -> str:
    """Return where a session leads: to what it needs first."""
    match needs:
        case Needs.CODE:
            return f"{CODE}?next={quote(sessions.own_path(goal), safe='')}"
        case Needs.ENROLMENT:
            return SECOND_FACTOR
        case Needs.NOTHING:
            return sessions.own_path(goal)
