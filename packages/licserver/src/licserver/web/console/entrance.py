"""Signing in and out, and another password: what happens around a session."""

import logging
from http import HTTPStatus
from typing import Final

from aiohttp import web

from licserver.errors import WrongUse
from licserver.vendor import Vendor
from licserver.vendor.users import SESSION_TIME
from licserver.web.callers import Callers
from licserver.web.console import headers, sessions, words
from licserver.web.console.door import Door, TooManyTriesError
from licserver.web.console.edge import SIGN_IN, Edge, go, is_own, sentence, to_sign_in
from licserver.web.console.pages import account

_log = logging.getLogger("licserver.console")

ACCOUNT: Final = f"{sessions.HOME}/account"


class Entrance:
    """The addresses that make and end sessions.

    Args:
        edge: What all addresses do.
        vendor: Knows the users.
    """

    def __init__(self, edge: Edge, vendor: Vendor) -> None:
        self._edge, self._vendor = edge, vendor
        self._callers = Callers(vendor.settings)
        self._door = Door(vendor)

    def close(self) -> None:
        """Let the door's thread end."""
        self._door.close()

    async def show_sign_in(self, request: web.Request) -> web.StreamResponse:
        """Show the form, or lead on who is signed in already."""
        if await self._edge.who(request) is not None:
            return go(request, sessions.own_path(request.query.get("next", "")))
        return await self._sign_in_page(request, 200, request.query.get("next", ""))

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Begin a session."""
        form = await self._edge.form(request)
        goal, name = form.get("next", ""), form.get("name", "")
        if not sessions.is_from_here(request.headers, request.host):
            return await self._sign_in_page(request, 403, goal, "This form came from another site.")
        address = self._callers.find(request).counted
        try:
            who = await self._door.sign_in(address, name, form.get("password", ""))
        except TooManyTriesError:
            _log.warning("too many attempts to sign in, the last from %s", address)
            again = "Too many attempts. Wait a minute, and try again."
            return await self._sign_in_page(request, 429, goal, again, name)
        if who is None:
            _log.warning("a failed attempt to sign in from %s", address)
            return await self._sign_in_page(request, 401, goal, "This name and password do not match.", name)
        await self._end_session(request)  # whoever had signed in here before
        return go(request, sessions.own_path(goal), self._cookie(request, who.token))

    async def _sign_in_page(
        self, request: web.Request, status: int, goal: str, problem: str | None = None, name: str = ""
    ) -> web.StreamResponse:
        has_users = bool(await self._edge.off_loop.run(self._vendor.users))
        done = words.DONE.get(request.query.get("done", ""))
        content = self._edge.frame.write(
            "sign_in.html", who=None, has_users=has_users, goal=goal, name=name, problem=problem, done=done
        )
        more = {"Retry-After": "61"} if status == HTTPStatus.TOO_MANY_REQUESTS else {}
        return web.Response(status=status, body=content, headers={**headers.PAGE, **more})

    async def sign_out(self, request: web.Request) -> web.StreamResponse:
        """End a session."""
        who = await self._edge.who(request)
        if who is None:
            return to_sign_in(request)
        if not is_own(request, who, await self._edge.form(request)):
            return await self._edge.forged(request, who)
        await self._end_session(request)
        return go(request, f"{SIGN_IN}?done=signed-out", self._cookie(request, ""))

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
                anew = await self._door.change_password(
                    self._callers.find(request).counted, who, form.get("old", ""), form.get("new", "")
                )
                problem = None if anew else "This is not your password."
        except WrongUse as wrong:
            problem = sentence(wrong)
        except TooManyTriesError:
            problem = "Too many attempts. Wait a minute, and try again."
        if anew is not None:
            return go(request, f"{ACCOUNT}?done=password", self._cookie(request, anew.token))
        visit = self._edge.visit(request, who)._replace(problem=problem)
        return await self._edge.reply(request, visit, await self._edge.run(account.show, visit))

    async def _end_session(self, request: web.Request) -> None:
        token = self._edge.token(request)
        if token is not None:
            await self._edge.off_loop.run(self._vendor.sign_out, token)

    def _cookie(self, request: web.Request, token: str) -> str:
        seconds = int(SESSION_TIME.total_seconds()) if token else 0
        return sessions.write_cookie(token, is_https=sessions.came_by_https(request.headers), seconds=seconds)
