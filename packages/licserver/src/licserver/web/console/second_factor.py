"""The second factor: a code at the sign-in, enrolment, and removal (D-167)."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web
from markupsafe import Markup

from licserver.errors import InvalidInputError
from licserver.services import Services
from licserver.services.accounts import SignedIn
from licserver.services.logins import CODE_FAILED, SIGN_IN_FAILED
from licserver.web.console import sessions
from licserver.web.console.handlers import Console
from licserver.web.console.login import ACCOUNT, SECOND_FACTOR, TOO_MANY, WRONG_PASSWORD, Login
from licserver.web.console.login_throttle import TooManyAttemptsError
from licserver.web.console.responses import redirect
from licserver.web.responses import to_sentence

_WRONG_CODE = "This code is wrong, or was used already. Your app shows a new one every 30 seconds."
_WRONG_EITHER = "The password or the code is wrong, or the code was used already."


class SecondFactor:
    """Handlers of the second factor.

    Args:
        console: Renders pages.
        login: Bounds attempts, and writes cookies.
        services: Has the users.
    """

    def __init__(self, console: Console, login: Login, services: Services) -> None:
        self._console, self._login, self._services = console, login, services

    async def show_code(self, request: web.Request, session: SignedIn) -> web.StreamResponse:
        """Show the form for a code."""
        return await self._code_page(200, session, request.query.get("next", ""))

    async def sign_in(
        self, request: web.Request, session: SignedIn, form: Mapping[str, str]
    ) -> web.StreamResponse:
        """Create a session in place of one that needs a code."""
        goal, code, address = form.get("next", ""), form.get("code", ""), self._login.address(request)

        def compare(is_known: bool) -> SignedIn | None:
            return self._services.second_factors.sign_in(session, code, address, is_known=is_known)

        try:
            signed_in = await self._login.attempt(request, session.name, compare)
        except TooManyAttemptsError:
            return await self._code_page(429, session, goal, TOO_MANY)
        except InvalidInputError as wrong:  # too many wrong codes
            return await self._code_page(429, session, goal, to_sentence(wrong))
        if signed_in is None:
            await self._login.report_failure(request, CODE_FAILED, session.name)
            return await self._code_page(401, session, goal, _WRONG_CODE)
        return self._redirect(request, sessions.own_path(goal), signed_in)

    async def show(self, _request: web.Request, session: SignedIn) -> web.StreamResponse:
        """Show what can be done: set a second factor up, confirm it, or remove it."""
        return await self._page(200, session)

    async def begin(
        self, request: web.Request, session: SignedIn, form: Mapping[str, str]
    ) -> web.StreamResponse:
        """Draw a secret, after the password."""
        password = form.get("password", "")
        try:
            is_right = await self._login.attempt(
                request,
                session.name,
                lambda _: self._services.second_factors.begin_enrolment(session, password),
            )
        except (TooManyAttemptsError, InvalidInputError) as problem:
            return await self._refused(session, problem)
        if not is_right:
            await self._login.report_failure(request, SIGN_IN_FAILED, session.name)
            return await self._page(422, session, WRONG_PASSWORD)
        return redirect(request, SECOND_FACTOR)

    async def confirm(
        self, request: web.Request, session: SignedIn, form: Mapping[str, str]
    ) -> web.StreamResponse:
        """Confirm a secret by its first code, and show the recovery codes this once."""
        try:
            done = await self._console.threads.run(
                self._services.second_factors.confirm_enrolment, session, form.get("code", "")
            )
        except InvalidInputError as wrong:
            return await self._refused(session, wrong)
        if done is None:
            return await self._page(422, session, _WRONG_CODE)
        page = await self._render("recovery_codes.html", 200, done.who, codes=done.recovery_codes)
        page.headers["Set-Cookie"] = self._login.cookie(request, done.who.token)
        return page

    async def disable(
        self, request: web.Request, user: SignedIn, form: Mapping[str, str]
    ) -> web.StreamResponse:
        """Remove the second factor, after the password and a code."""
        password, code = form.get("password", ""), form.get("code", "")

        def compare(is_known: bool) -> SignedIn | None:
            return self._services.second_factors.disable(user, password, code, is_known=is_known)

        try:
            session = await self._login.attempt(request, user.name, compare)
        except (TooManyAttemptsError, InvalidInputError) as problem:
            return await self._refused(user, problem)
        if session is None:
            await self._login.report_failure(request, CODE_FAILED, user.name)
            return await self._page(422, user, _WRONG_EITHER)
        return self._redirect(request, f"{ACCOUNT}?done=second-factor-off", session)

    def _redirect(self, request: web.Request, path: str, session: SignedIn) -> web.StreamResponse:
        return redirect(request, path, **{"Set-Cookie": self._login.cookie(request, session.token)})

    async def _code_page(
        self, status: int, session: SignedIn, goal: str, problem: str | None = None
    ) -> web.Response:
        return await self._render("sign_in_code.html", status, session, problem, goal=goal)

    async def _refused(self, session: SignedIn, problem: Exception) -> web.Response:
        if isinstance(problem, TooManyAttemptsError):
            return await self._page(429, session, TOO_MANY)
        return await self._page(422, session, to_sentence(problem))

    async def _page(self, status: int, session: SignedIn, problem: str | None = None) -> web.Response:
        enrolment = await self._console.threads.run(self._services.second_factors.find_enrolment, session)
        return await self._render(
            "second_factor.html",
            status,
            session,
            problem,
            secret=None if enrolment is None else _in_groups(enrolment.secret),
            code=None if enrolment is None else await self._console.threads.run(_draw_code, enrolment.uri),
            left=await self._console.threads.run(self._services.second_factors.count_recovery_codes, session),
            is_required=self._console.settings.second_factor_required,
        )

    async def _render(
        self, template: str, status: int, session: SignedIn, problem: str | None = None, **context: Any
    ) -> web.Response:
        return await self._console.render(
            template, status, session, problem, user_name=session.name, **context
        )


def _in_groups(secret: str) -> str:
    return " ".join(secret[at : at + 4] for at in range(0, len(secret), 4))


def _draw_code(uri: str) -> Markup:
    """Draw a QR code as SVG without styles, which the content security policy forbids."""
    import segno  # noqa: PLC0415 - for one rare page

    code = segno.make(uri, error="m", micro=False)
    options = {"scale": 4, "border": 4, "dark": "#000", "light": "#fff", "svgclass": "qr", "lineclass": None}
    return Markup(code.svg_inline(title="QR code for an authenticator app", **options))  # noqa: S704 - no text in it
