"""The second factor: a code at the sign-in, enrolment, and removal (D-167)."""

from aiohttp import web
from markupsafe import Markup

from licserver.errors import InvalidInputError
from licserver.services import Services
from licserver.services.accounts import SignedIn
from licserver.services.logins import CODE_FAILED, SIGN_IN_FAILED
from licserver.web.console import sessions
from licserver.web.console.handlers import Console
from licserver.web.console.login import ACCOUNT, SECOND_FACTOR, WRONG_PASSWORD, Login, LoginError
from licserver.web.console.responses import redirect
from licserver.web.console.sessions import Form
from licserver.web.responses import to_sentence

_WRONG_CODE = "This code is wrong, or was used already. Your app shows a new one every 30 seconds."
_WRONG_EITHER = "The password or the code is wrong, or the code was used already."


class SecondFactor:
    """Handlers of the second factor."""

    def __init__(self, console: Console, login: Login, services: Services) -> None:
        self._console, self._login, self._factors = console, login, services.second_factors

    async def show_code(self, request: web.Request, session: SignedIn) -> web.StreamResponse:
        """Show the form for a code."""
        return await self._console.render(
            "sign_in_code.html", 200, session, goal=request.query.get("next", "")
        )

    async def sign_in(self, request: web.Request, session: SignedIn, form: Form) -> web.StreamResponse:
        """Create a session in place of one that needs a code."""
        goal, code, address = form.get("next", ""), form.get("code", ""), self._login.address(request)

        def compare(is_known: bool) -> SignedIn | None:
            return self._factors.sign_in(session, code, address, is_known=is_known)

        try:
            new = await self._login.attempt(request, session.name, compare, CODE_FAILED, _WRONG_CODE)
        except LoginError as error:
            status = 401 if error.status == 401 else 429  # noqa: PLR2004 - 422: too many wrong codes
            return await self._console.render("sign_in_code.html", status, session, error.message, goal=goal)
        return self._redirect(request, sessions.own_path(goal), new)

    async def show(self, _request: web.Request, session: SignedIn) -> web.StreamResponse:
        """Show what can be done: set a second factor up, confirm it, or remove it."""
        return await self._page(session)

    async def begin(self, request: web.Request, session: SignedIn, form: Form) -> web.StreamResponse:
        """Draw a secret, after the password."""

        def compare(_is_known: bool) -> bool:
            return self._factors.begin_enrolment(session, form.get("password", ""))

        try:
            await self._login.attempt(request, session.name, compare, SIGN_IN_FAILED, WRONG_PASSWORD)
        except LoginError as error:
            return await self._page(session, error)
        return redirect(request, SECOND_FACTOR)

    async def confirm(self, request: web.Request, session: SignedIn, form: Form) -> web.StreamResponse:
        """Confirm a secret by its first code, and show the recovery codes this once."""
        confirm, code = self._factors.confirm_enrolment, form.get("code", "")
        try:
            done = await self._console.threads.run(confirm, session, code)
        except InvalidInputError as invalid:
            return await self._page(session, LoginError(422, to_sentence(invalid)))
        if done is None:
            return await self._page(session, LoginError(422, _WRONG_CODE))
        page = await self._console.render("recovery_codes.html", 200, done.who, codes=done.recovery_codes)
        page.headers["Set-Cookie"] = self._login.cookie(request, done.who.token)
        return page

    async def disable(self, request: web.Request, user: SignedIn, form: Form) -> web.StreamResponse:
        """Remove the second factor, after the password and a code."""
        password, code = form.get("password", ""), form.get("code", "")

        def compare(is_known: bool) -> SignedIn | None:
            return self._factors.disable(user, password, code, is_known=is_known)

        try:
            session = await self._login.attempt(request, user.name, compare, CODE_FAILED, _WRONG_EITHER)
        except LoginError as error:
            return await self._page(user, error)
        return self._redirect(request, f"{ACCOUNT}?done=second-factor-off", session)

    def _redirect(self, request: web.Request, path: str, session: SignedIn) -> web.StreamResponse:
        return redirect(request, path, **{"Set-Cookie": self._login.cookie(request, session.token)})

    async def _page(self, session: SignedIn, error: LoginError | None = None) -> web.Response:
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
            secret=None if enrolment is None else _in_groups(enrolment.secret),
            code=None if enrolment is None else await run(_draw_code, enrolment.uri),
            left=await run(self._factors.count_recovery_codes, session),
            is_required=self._console.settings.second_factor_required,
        )


def _in_groups(secret: str) -> str:
    return " ".join(secret[at : at + 4] for at in range(0, len(secret), 4))


def _draw_code(uri: str) -> Markup:
    """Draw a QR code as SVG without styles, which the content security policy forbids."""
    import segno  # noqa: PLC0415 - for one rare page

    code = segno.make(uri, error="m", micro=False)
    options = {"scale": 4, "border": 4, "dark": "#000", "light": "#fff", "svgclass": "qr", "lineclass": None}
    return Markup(code.svg_inline(title="QR code for an authenticator app", **options))  # noqa: S704 - no text in it
