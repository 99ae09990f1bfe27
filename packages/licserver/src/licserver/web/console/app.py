"""The console as a sub-application: its routes, and what runs around each.

`page` and `action` take plain functions of a `PageContext` (`pages/`) and run them on a thread for a user who
is signed in. `signed_in` and `form` take handlers, and check session, origin and CSRF token for them.
"""

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from aiohttp import web

from licserver.clock import Clock
from licserver.services import Services
from licserver.services.accounts import Needs
from licserver.web.app_state import Handler
from licserver.web.console import sessions
from licserver.web.console.handlers import Console, Show
from licserver.web.console.idempotency import once
from licserver.web.console.login import Login
from licserver.web.console.pages import account, audit, licenses, overview, products, releases
from licserver.web.console.responses import ASSET, redirect
from licserver.web.console.second_factor import SecondFactor
from licserver.web.console.templating import Asset, Templates, load_assets
from licserver.web.failed_requests import FailureReport
from licserver.web.metric_counters import CONSOLE
from licserver.web.middlewares import ENDPOINT, ERRORS, ErrorFormat, add_route, get
from licserver.web.responses import expect
from licserver.web.worker_threads import WorkerThreads


class Route(NamedTuple):
    """A page, and the forms on it by their names below its path."""

    show: Show
    actions: Mapping[str, Show] = {}


ROUTES: Final[Mapping[str, Route]] = {
    "": Route(overview.show),
    "/account": Route(account.show),
    "/licenses": Route(licenses.search, {"find": licenses.find}),
    "/licenses.csv": Route(licenses.export),
    "/licenses/issue": Route(licenses.new, {"new": once(licenses.issue)}),
    "/licenses/{id}": Route(licenses.show, licenses.ACTIONS),
    "/licenses/{id}/activations.csv": Route(licenses.export_activations),
    "/products": Route(products.show_all, {"add": once(products.add)}),
    "/products.csv": Route(products.export),
    "/products/{slug}": Route(products.show, {"rename": products.rename, "rules": products.change_rules}),
    "/products/{slug}/releases.csv": Route(releases.export),
    "/products/{slug}/releases/{version}": Route(releases.show, {"withdraw": releases.withdraw}),
    "/products/{slug}/releases/{version}/downloads.csv": Route(releases.export_holders),
    "/audit": Route(audit.show),
    "/audit.csv": Route(audit.export),
}
UPLOAD: Final = "/products/{slug}/releases"

_ANY: Final = tuple(Needs)
_ENROLLING: Final = (Needs.NOTHING, Needs.ENROLMENT)


def create_console(
    services: Services, clock: Clock, failures: FailureReport, threads: WorkerThreads
) -> web.Application:
    """Create the sub-application.

    Args:
        services: The opened data folder.
        clock: Every decision's `now`.
        failures: Reports failed logins.
        threads: Run the pages.
    """
    assets = load_assets()
    console = Console(services, clock, threads, Templates(assets))
    login = Login(console, services, failures)
    factor = SecondFactor(console, login, services)
    app = web.Application()
    app[ERRORS] = ErrorFormat(logging.getLogger("licserver.console"), console.respond_with_page)
    app[ENDPOINT] = CONSOLE
    app.on_cleanup.append(login.close)
    for path, route in ROUTES.items():
        add_route(app, path, get(console.page(route.show)))
        for name, act in route.actions.items():
            add_route(app, f"{path}/{name}", {"POST": console.action(route.show, act)})
    add_route(app, UPLOAD, {"POST": console.upload(products.show, releases.publish)})
    add_route(app, "/sign-in", {**get(login.show_sign_in), "POST": login.sign_in})
    add_route(
        app,
        "/sign-in/code",
        {
            **get(console.signed_in(factor.show_code, Needs.CODE)),
            "POST": console.form(factor.sign_in, Needs.CODE),
        },
    )
    add_route(app, "/sign-out", {"POST": console.form(login.sign_out, *_ANY)})
    add_route(app, "/account/password", {"POST": console.form(login.change_password)})
    add_route(app, "/account/second-factor", get(console.signed_in(factor.show, *_ENROLLING)))
    add_route(app, "/account/second-factor/begin", {"POST": console.form(factor.begin, *_ENROLLING)})
    add_route(app, "/account/second-factor/confirm", {"POST": console.form(factor.confirm, *_ENROLLING)})
    add_route(app, "/account/second-factor/disable", {"POST": console.form(factor.disable)})
    add_route(app, "/assets/{digest}/{name}", get(_send_asset(assets, console)))
    add_route(app, "/", get(_to_overview))
    app.router.add_route("*", "/{anything:.*}", console.not_found, expect_handler=expect)
    return app


def _send_asset(assets: Mapping[str, Asset], console: Console) -> Handler:
    by_path = {asset.path: asset for asset in assets.values()}

    async def send(request: web.Request) -> web.StreamResponse:
        asset = by_path.get(request.path)
        if asset is None:
            return await console.not_found(request)
        return web.Response(body=asset.content, headers={**ASSET, "Content-Type": asset.content_type})

    return send


async def _to_overview(request: web.Request) -> web.StreamResponse:
    return redirect(request, sessions.HOME)
