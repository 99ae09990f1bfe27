"""The console, put together: its addresses, and what each of them does."""

import functools
from collections.abc import Mapping

from aiohttp import web

from licserver.clock import Clock
from licserver.errors import ArtifactsError, WrongUse
from licserver.services import Vendor
from licserver.services.users import SignedIn
from licserver.web.app_state import FAILURES, METER, Drain, Handler
from licserver.web.console import headers, sessions
from licserver.web.console.assets import PREFIX, Asset, load_assets
from licserver.web.console.handlers import (
    SIGN_IN,
    PageHandlers,
    go,
    is_browsed,
    is_of_ours,
    is_own,
    sentence,
    to_sign_in,
)
from licserver.web.console.idempotency import read_id
from licserver.web.console.login import ACCOUNT, SignInPages
from licserver.web.console.page_context import File, PageContext, Reply
from licserver.web.console.routes import ROUTES, UPLOAD_FIELDS, UPLOADS, Address, Show, Take
from licserver.web.console.second_factor import SecondFactorPages
from licserver.web.console.templating import Templates
from licserver.web.errors import expect
from licserver.web.metric_counters import CONSOLE
from licserver.web.rate_limits import Limits
from licserver.web.uploads import Upload, received
from licserver.web.worker_threads import WorkerThreads


def mount(
    app: web.Application, vendor: Vendor, clock: Clock, limits: Limits, drain: Drain, off_loop: WorkerThreads
) -> None:
    """Let an application answer at ``/console``.

    Args:
        app: Not started yet; what takes every address must be added after this. Its meter counts, if it
            has one.
        vendor: The opened data folder.
        clock: Every decision's `now`.
        limits: Turns away who floods.
        drain: While it is active each answer is its connection's last.
        off_loop: Makes the pages.
    """
    assets = load_assets()
    edge = PageHandlers(vendor, clock, limits, drain, off_loop, Templates(assets))
    entrance = SignInPages(edge, vendor, app[FAILURES])
    console = Console(edge, entrance, assets)
    SecondFactorPages(edge, entrance, vendor).add_to(functools.partial(console.add, app))
    console.add_to(app)

    async def close(_app: web.Application) -> None:
        entrance.close()

    app.on_cleanup.append(close)


class Console:
    """Pages, and what can be done on them, at their addresses.

    Args:
        edge: What all addresses do.
        entrance: Those around a session.
        assets: From `load_assets`.
    """

    def __init__(self, edge: PageHandlers, entrance: SignInPages, assets: Mapping[str, Asset]) -> None:
        self._edge, self._entrance = edge, entrance
        self._assets = {asset.path: asset for asset in assets.values()}

    # --- addresses ----------------------------------------------------------------------------

    def add_to(self, app: web.Application) -> None:
        """Name every address."""
        add = functools.partial(self.add, app)
        add("GET", PREFIX + "{digest}/{name}", self._asset)
        add("GET", SIGN_IN, self._entrance.show_sign_in)
        add("POST", SIGN_IN, self._entrance.sign_in)
        add("POST", f"{sessions.HOME}/sign-out", self._entrance.sign_out)
        add("GET", sessions.HOME + "/", _to_home)
        for path, show in ROUTES.items():
            add("GET", path, functools.partial(self._answer_get, show.page))
            for name, act in show.posts.items():
                add("POST", f"{path}/{name}", functools.partial(self._answer_post, show, act))
        for path, (again, take) in UPLOADS.items():
            add("POST", path, functools.partial(self._answer_upload, again, take))
        add("POST", f"{ACCOUNT}/password", self._entrance.change_password)
        add("*", sessions.HOME + "/{anything:.*}", self._nothing_here)

    def add(self, app: web.Application, method: str, path: str, handler: Handler) -> None:
        """Name one address."""
        guarded = self._edge.guarded(handler)
        if METER in app:
            guarded = app[METER].measuring(CONSOLE, guarded)
        for one in ("GET", "HEAD") if method == "GET" else (method,):
            app.router.add_route(one, path, guarded, expect_handler=expect)

    # --- pages --------------------------------------------------------------------------------

    async def _answer_get(self, page: Show, request: web.Request) -> web.StreamResponse:
        who = await self._edge.who(request)
        if who is None:
            return to_sign_in(request)
        visit = self._edge.visit(request, who)
        try:
            return await self._edge.reply(request, visit, await self._edge.run(page, visit))
        except WrongUse as wrong:
            status = 404 if request.match_info else 422  # nothing of this name, or no search that can be
            return await self._edge.problem(request, status, str(wrong), who)

    async def _answer_post(self, show: Address, act: Show, request: web.Request) -> web.StreamResponse:
        who = await self._edge.who(request)
        if who is None and not is_browsed(request):
            return to_sign_in(request)
        form = await self._edge.form(request)
        if who is None or not is_own(request, who, form):
            return await self._refuse(request, show.page, who, form)
        return await self._act(request, show.page, act, self._edge.visit(request, who)._replace(form=form))

    async def _answer_upload(self, show: Show, take: Take, request: web.Request) -> web.StreamResponse:
        """Take a form with a file; session and token are checked before any of it is read (D-154)."""
        who = await self._edge.who(request)
        if who is None:
            return await self._edge.hold_upload(request) if is_browsed(request) else to_sign_in(request)
        if not is_of_ours(request, request.query):
            return await self._edge.forged(request, who)
        is_admitted = is_own(request, who, request.query)
        typed: dict[str, str] = {}

        def admit(fields: Mapping[str, str]) -> None:
            typed.update(fields)
            if not is_admitted:  # of an earlier session: its fields are shown again, its file is not read
                raise web.HTTPForbidden

        settings, off_loop = self._edge.settings, self._edge.off_loop
        try:
            async with received(request, settings, off_loop, UPLOAD_FIELDS, admit) as upload:
                visit = self._edge.visit(request, who)._replace(form=upload.fields)
                act = functools.partial(_with_file, take, upload)
                return await self._act(request, show, act, visit, with_file=True)
        except web.HTTPForbidden:
            return await self._show_earlier(request, show, who, typed)
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        except WrongUse as wrong:
            again = self._edge.visit(request, who)._replace(form=typed, problem=sentence(wrong))
            return await self._show(request, show, again)

    async def _refuse(
        self, request: web.Request, page: Show, who: SignedIn | None, form: Mapping[str, str]
    ) -> web.StreamResponse:
        """Do nothing of a form that is not of this session; what was typed into a page of ours is kept.

        It may have been open for longer than its session was good, or for the time of another one (D-130).
        """
        if not is_of_ours(request, form):
            return to_sign_in(request) if who is None else await self._edge.forged(request, who)
        if who is None:
            return await self._edge.hold(request, form)
        return await self._show_earlier(request, page, who, form)

    async def _show_earlier(
        self, request: web.Request, page: Show, who: SignedIn, form: Mapping[str, str]
    ) -> web.StreamResponse:
        """Show a form of an earlier session again."""
        problem = (
            "This form is of an earlier session, and nothing was done. Look it through, and send it again."
        )
        again = self._edge.visit(request, who)._replace(form=form, once=read_id(form), problem=problem)
        try:
            return await self._edge.reply(request, again, await self._edge.run(page, again), 403)
        except WrongUse:  # there is no such page any more
            return await self._edge.forged(request, who)

    async def _act(
        self, request: web.Request, page: Show, act: Show, visit: PageContext, *, with_file: bool = False
    ) -> web.StreamResponse:
        """Do something; when it cannot be done, show the page again and say why."""
        run = self._edge.run_with_file if with_file else self._edge.run
        try:
            return await self._edge.reply(request, visit, await run(act, visit))
        except (WrongUse, ArtifactsError) as problem:
            again = visit._replace(problem=sentence(problem))
        return await self._show(request, page, again)

    async def _show(self, request: web.Request, page: Show, again: PageContext) -> web.StreamResponse:
        """Show a page again with what was typed."""
        try:
            content = await self._edge.run(page, again)
        except WrongUse as gone:
            return await self._edge.problem(request, 404, str(gone), again.who)
        return await self._edge.reply(request, again, content)

    # --- what is not a page -------------------------------------------------------------------

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        asset = self._assets.get(request.path)
        if asset is None:
            return await self._nothing_here(request)
        return web.Response(body=asset.content, headers={**headers.ASSET, "Content-Type": asset.content_type})

    async def _nothing_here(self, request: web.Request) -> web.StreamResponse:
        if request.method not in {"GET", "HEAD"}:
            return await self._edge.problem(request, 405, "This address does not take this.")
        who = await self._edge.who(request)
        return await self._edge.problem(request, 404, "There is no page at this address.", who)


def _with_file(take: Take, upload: Upload, visit: PageContext) -> Reply:
    return take(visit, File(upload.path, upload.file_name, upload.sha256))


async def _to_home(request: web.Request) -> web.StreamResponse:
    return go(request, sessions.HOME)
