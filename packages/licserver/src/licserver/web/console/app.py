"""The console as a sub-application: its routes and their handlers.

`page` and `action` take functions of a `PageContext` (`pages/`) and run them on a thread for a signed-in
user. `signed_in` and `form` take handlers, and check session, origin and CSRF token for them.
"""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from aiohttp import web

from licserver.clock import Clock
from licserver.domain.records import Role
from licserver.runtime.logging import FailureReport
from licserver.runtime.metrics import CONSOLE
from licserver.runtime.worker_threads import WorkerThreads
from licserver.services.installation import Services
from licserver.services.users import Needs, SignedIn
from licserver.web.console import sessions
from licserver.web.console.handlers import Console
from licserver.web.console.login import Login
from licserver.web.console.pages import (
    Show,
    access,
    audit,
    files,
    licenses,
    once,
    outgoing,
    overview,
    products,
    sales,
    sources,
)
from licserver.web.console.responses import SECURITY, load_assets, redirect
from licserver.web.middlewares import ENDPOINT, ERRORS, ErrorFormat, add_route, get
from licserver.web.rate_limits import RateLimiter
from licserver.web.responses import expect
from licserver.web.uploads import received, received_in_memory


class Route(NamedTuple):
    """A page, the forms on it by their names below its path, and the roles required to see and send them.

    `searches` change nothing and require only the role to see the page. Forms of a page with `is_long` run
    on a separate thread, so that they do not delay other pages.
    """

    show: Show
    actions: Mapping[str, Show] = {}
    searches: Mapping[str, Show] = {}
    sees: Role = Role.READ_ONLY
    sends: Role = Role.OWNER
    is_long: bool = False


ROUTES: Final[Mapping[str, Route]] = {
    "": Route(overview.show),
    "/account": Route(overview.show_account),
    "/licenses": Route(
        licenses.search, {"bulk": licenses.change_many}, searches={"find": licenses.find}, sends=Role.SUPPORT
    ),
    "/licenses.csv": Route(licenses.export),
    "/licenses/issue": Route(licenses.new, {"new": licenses.issue}, sees=Role.SUPPORT, sends=Role.SUPPORT),
    "/licenses/{id}": Route(licenses.show, licenses.ACTIONS, sends=Role.SUPPORT),
    "/licenses/{id}/activations.csv": Route(licenses.export_activations),
    "/customers": Route(licenses.show_customer, licenses.CUSTOMER_ACTIONS, is_long=True),
    "/products": Route(products.show_all, {"add": once(products.add)}),
    "/products.csv": Route(products.export),
    "/products/{slug}": Route(products.show, products.ACTIONS),
    "/products/{slug}/releases.csv": Route(products.export_releases),
    "/products/{slug}/releases/{version}": Route(products.show_release, products.RELEASE_ACTIONS),
    "/products/{slug}/releases/{version}/downloads.csv": Route(products.export_holders),
    "/sales": Route(sales.show, sales.ACTIONS, sees=Role.SUPPORT, sends=Role.SUPPORT),
    "/sources": Route(sources.show_all, {"add": sources.add}, sees=Role.SUPPORT),
    "/sources/{name}": Route(sources.show, sources.MAPPING_ACTIONS, sees=Role.SUPPORT),
    "/sources/{name}/events": Route(
        sources.show_events, sources.EVENT_ACTIONS, sees=Role.SUPPORT, sends=Role.SUPPORT
    ),
    "/api": Route(access.show_api),
    "/audit": Route(audit.show),
    "/audit.csv": Route(audit.export),
    "/imports": Route(files.show_import, files.IMPORT_ACTIONS, sees=Role.OWNER, is_long=True),
    "/backups": Route(files.show_backups, files.BACKUP_ACTIONS, sees=Role.OWNER),
    "/mail": Route(outgoing.show_mail, outgoing.MAIL_ACTIONS, sees=Role.SUPPORT, sends=Role.SUPPORT),
    "/webhooks": Route(outgoing.show_webhooks, outgoing.WEBHOOK_ACTIONS, sees=Role.SUPPORT),
    "/users": Route(access.show_users, access.USER_ACTIONS, sees=Role.OWNER),
    "/tokens": Route(access.show_tokens, access.TOKEN_ACTIONS, sees=Role.OWNER),
    "/health": Route(overview.show_health, sees=Role.OWNER),
}
UPLOAD: Final = "/products/{slug}/releases"
IMPORT: Final = "/imports/preview"

_ENROLLING: Final = (Needs.NOTHING, Needs.ENROLMENT)


def create_console(
    services: Services,
    clock: Clock,
    rate_limiter: RateLimiter,
    failures: FailureReport,
    threads: WorkerThreads,
) -> web.Application:
    """Create the sub-application; `threads` run the pages, `failures` reports failed logins."""
    assets = load_assets()
    console = Console(services, clock, threads)
    login = Login(console, services, rate_limiter, failures)
    app = web.Application()
    app[ERRORS] = ErrorFormat(logging.getLogger("licserver.console"), console.respond_with_page)
    app[ENDPOINT] = CONSOLE
    app.on_shutdown.append(login.refuse_waiting)
    app.on_cleanup.append(login.close)
    for path, route in ROUTES.items():
        add_route(app, path, get(console.page(route.show, route.sees)))
        for name, act in route.actions.items():
            add_route(
                app,
                f"{path}/{name}",
                {"POST": console.action(route.show, act, route.sends, with_file=route.is_long)},
            )
        for name, search in route.searches.items():
            add_route(app, f"{path}/{name}", {"POST": console.action(route.show, search, route.sees)})
    by_path = {asset.path: asset for asset in assets.values()}

    async def send_asset(request: web.Request) -> web.StreamResponse:
        asset = by_path.get(request.path)
        return await console.not_found(request) if asset is None else asset.respond()

    async def to_overview(request: web.Request) -> web.StreamResponse:
        return redirect(request, sessions.HOME)

    async def send_document(request: web.Request, _user: SignedIn) -> web.StreamResponse:
        document = access.documents()[request.path.rpartition("/")[2]]
        return web.json_response(document, headers=SECURITY)

    release_file = partial(received, fields=frozenset({"once", *products.PUBLISH_FIELDS}))
    import_file = partial(received_in_memory, fields=frozenset(files.FIELDS))
    code = get(console.signed_in(login.show_code, Needs.CODE))
    for path, handlers in {
        UPLOAD: {"POST": console.upload(products.show, products.publish, Role.OWNER, release_file)},
        IMPORT: {"POST": console.upload(files.show_import, files.preview, Role.OWNER, import_file)},
        "/sign-in": {**get(login.show_sign_in), "POST": login.sign_in},
        "/sign-in/code": {**code, "POST": console.form(login.sign_in_with_code, Needs.CODE)},
        "/sign-out": {"POST": console.form(login.sign_out, *Needs)},
        "/account/password": {"POST": console.form(login.change_password)},
        "/account/second-factor": get(console.signed_in(login.show_factor, *_ENROLLING)),
        "/account/second-factor/begin": {"POST": console.form(login.begin_factor, *_ENROLLING)},
        "/account/second-factor/confirm": {"POST": console.form(login.confirm_factor, *_ENROLLING)},
        "/account/second-factor/disable": {"POST": console.form(login.disable_factor)},
        "/api/openapi.json": get(console.signed_in(send_document)),
        "/api/openapi-admin.json": get(console.signed_in(send_document)),
        "/assets/{digest}/{name}": get(send_asset),
        "/": get(to_overview),
    }.items():
        add_route(app, path, handlers)
    app.router.add_route("*", "/{anything:.*}", console.not_found, expect_handler=expect)
    return app
