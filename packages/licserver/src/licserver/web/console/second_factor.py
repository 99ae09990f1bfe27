"""The pages of the second factor: a code at the sign-in, enrolment, and its end (D-167)."""

from collections.abc import Callable
from typing import Any

from aiohttp import web
from markupsafe import Markup

from licserver.errors import WrongUse
from licserver.services import Vendor
from licserver.services.logins import CODE_FAILED, SIGN_IN_FAILED
from licserver.services.users import Needs, SignedIn
from licserver.web.app_state import Handler
from licserver.web.console import headers, sessions
from licserver.web.console.handlers import PageHandlers, go, is_own, sentence, to_sign_in
from licserver.web.console.login import ACCOUNT, CODE, SECOND_FACTOR, TOO_MANY, SignInPages
from licserver.web.console.login_throttle import TooManyTriesError

_WRONG_CODE = "This code is wrong, or was used already. Your app shows a new one every 30 seconds."


class SecondFactorPages:
    """The addresses of the second factor.

    Args:
        edge: What all addresses do.
        entrance: Throttles attempts, and writes cookies.
        vendor: Knows the users.
    """

    def __init__(self, edge: PageHandlers, entrance: SignInPages, vendor: Vendor) -> None:
        self._edge, self._entrance, self._vendor = edge, entrance, vendor

    def add_to(self, add: Callable[[str, str, Handler], None]) -> None:
        """Name every address."""
        add("GET", CODE, self.show_code)
        add("POST", CODE, self.sign_in)
        add("GET", SECOND_FACTOR, self.show)
        add("POST", f"{SECOND_FACTOR}/begin", self.begin)
        add("POST", f"{SECOND_FACTOR}/confirm", self.confirm)
        add("POST", f"{SECOND_FACTOR}/disable", self.disable)

    # --- signing in ---------------------------------------------------------------------------

    async def show_code(self, request: web.Request) -> web.StreamResponse:
        """Show the form for a code."""
        who = await self._edge.session(request)
        if who is None or who.needs is not Needs.CODE:
            return to_sign_in(request)
        return self._write("sign_in_code.html", 200, who, goal=request.query.get("next", ""))

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Begin a session in place of one that needs a code."""
        who = await self._edge.session(request)
        if who is None or who.needs is not Needs.CODE:
            return to_sign_in(request)
        form = await self._edge.form(request)
        if not is_own(request, who, form):
            return await self._edge.forged(request, None)
        goal, address = form.get("next", ""), self._entrance.address(request)
        status, problem = 401, _WRONG_CODE
        try:
            attempt = self._entrance.door.sign_in_with_code(address, who, form.get("code", ""))
            anew = await self._entrance.throttled(request, attempt)
            if anew is not None:
                return go(request, sessions.own_path(goal), self._entrance.cookie(request, anew.token))
            await self._entrance.failed(request, CODE_FAILED, who.name)
        except TooManyTriesError:
            status, problem = 429, TOO_MANY
        except WrongUse as wrong:
            status, problem = 429, sentence(wrong)
        return self._write("sign_in_code.html", status, who, goal=goal, problem=problem)

    # --- enrolment ----------------------------------------------------------------------------

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Show what can be done: set a second factor up, confirm it, or remove it."""
        who = await self._enrolling(request)
        return to_sign_in(request) if who is None else await self._page(200, who)

    async def begin(self, request: web.Request) -> web.StreamResponse:
        """Draw a secret, after the password."""
        who, form = await self._enrolling(request), await self._edge.form(request)
        if who is None or not is_own(request, who, form):
            return await self._refuse(request, who)
        try:
            attempt = self._entrance.door.begin_enrolment(
                self._entrance.address(request), who, form.get("password", "")
            )
            if await self._entrance.throttled(request, attempt):
                return go(request, SECOND_FACTOR)
            await self._entrance.failed(request, SIGN_IN_FAILED, who.name)
            return await self._page(422, who, "This is not your password.")
        except TooManyTriesError:
            return await self._page(429, who, TOO_MANY)
        except WrongUse as wrong:
            return await self._page(422, who, sentence(wrong))

    async def confirm(self, request: web.Request) -> web.StreamResponse:
        """Confirm a secret by its first code, and show the recovery codes this once."""
        who, form = await self._enrolling(request), await self._edge.form(request)
        if who is None or not is_own(request, who, form):
            return await self._refuse(request, who)
        try:
            done = await self._edge.off_loop.run(self._vendor.confirm_enrolment, who, form.get("code", ""))
        except WrongUse as wrong:
            return await self._page(422, who, sentence(wrong))
        if done is None:
            return await self._page(422, who, _WRONG_CODE)
        page = self._write("recovery_codes.html", 200, done.who, codes=done.recovery_codes)
        page.headers["Set-Cookie"] = self._entrance.cookie(request, done.who.token)
        return page

    async def disable(self, request: web.Request) -> web.StreamResponse:
        """Remove the second factor, after the password and a code."""
        who, form = await self._edge.who(request), await self._edge.form(request)
        if who is None or not is_own(request, who, form):
            return await self._refuse(request, who)
        try:
            attempt = self._entrance.door.disable_second_factor(
                self._entrance.address(request), who, form.get("password", ""), form.get("code", "")
            )
            anew = await self._entrance.throttled(request, attempt)
        except TooManyTriesError:
            return await self._page(429, who, TOO_MANY)
        except WrongUse as wrong:
            return await self._page(422, who, sentence(wrong))
        if anew is None:
            await self._entrance.failed(request, CODE_FAILED, who.name)
            return await self._page(
                422, who, "The password or the code is wrong, or the code was used already."
            )
        return go(request, f"{ACCOUNT}?done=second-factor-off", self._entrance.cookie(request, anew.token))

    async def _enrolling(self, request: web.Request) -> SignedIn | None:
        """Find who is signed in, with or without the second factor that is required."""
        who = await self._edge.session(request)
        return None if who is None or who.needs is Needs.CODE else who

    async def _refuse(self, request: web.Request, who: SignedIn | None) -> web.StreamResponse:
        return to_sign_in(request) if who is None else await self._edge.forged(request, _inside(who))

    async def _page(self, status: int, who: SignedIn, problem: str | None = None) -> web.Response:
        enrolment = await self._edge.off_loop.run(self._vendor.enrolment, who)
        left = await self._edge.off_loop.run(self._vendor.count_recovery_codes, who)
        return self._write(
            "second_factor.html",
            status,
            who,
            problem=problem,
            secret=None if enrolment is None else _in_groups(enrolment.secret),
            code=None if enrolment is None else await self._edge.off_loop.run(_draw_code, enrolment.uri),
            left=left,
            is_required=self._edge.settings.second_factor_required,
        )

    def _write(
        self, template: str, status: int, who: SignedIn, problem: str | None = None, **context: Any
    ) -> web.Response:
        content = self._edge.frame.write(
            template,
            who=_inside(who),
            user=who.name,
            csrf=sessions.csrf_token(who.token),
            problem=problem,
            done=None,
            **context,
        )
        more = {"Retry-After": "61"} if status == 429 else {}  # noqa: PLR2004 - as `http.HTTPStatus` has it
        return web.Response(status=status, body=content, headers={**headers.PAGE, **more})


def _inside(who: SignedIn) -> SignedIn | None:
    """Return who may see the console's own frame, with its links."""
    return who if who.needs is Needs.NOTHING else None


def _in_groups(secret: str) -> str:
    return " ".join(secret[at : at + 4] for at in range(0, len(secret), 4))


def _draw_code(uri: str) -> Markup:
    """Draw a QR code as SVG without styles, which the content security policy forbids."""
    import segno  # noqa: PLC0415 - for one page that is seldom asked for

    code = segno.make(uri, error="m", micro=False)
    options = {"scale": 4, "border": 4, "dark": "#000", "light": "#fff", "svgclass": "qr", "lineclass": None}
    return Markup(code.svg_inline(title="QR code for an authenticator app", **options))  # noqa: S704 - no text in it
