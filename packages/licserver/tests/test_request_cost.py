"""The cost budget of what strangers send: no value of any input costs three normal requests (D-299)."""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus

import pytest

from harness.costs import MAX_BODY, MAX_LINE, SHAPES, Meter, Request, metering
from harness.memory import needs_proc
from harness.programs import serving_process
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.protocol import moves, public_api, rollbacks, seats, trials, uses
from licserver.protocol.feeds import SPARKLE_PATH, TAURI_PATH, VELOPACK_PATH
from licserver.services.installation import open_services
from licserver.settings import StandaloneSettings
from licserver.shops import ShopKind
from licserver.web.app import create_app
from licserver.web.shops import PATH as SALES_PATH

BUDGET: Final = 3.0
"""Normal requests of the same endpoint."""

KEY = "CP-AAAAAA-AAAAAA-AAAAAA-AAAAAA-AAAAAA"
TOKEN = "x" * 43
PLACE = {"domain": "pc1.example", "ip": "192.0.2.1"}
MACHINE = {"label": "Ann's laptop", "app_version": "1.2.3"}
LINK = {"license": "0" * 32, "release": "0" * 32, "expires": "1", "key": "a", "signature": "a" * 43}
COMMON = ("Host", "X-Forwarded-For", "User-Agent", "X-Request-Id", "Content-Type")
SIGNING = ("Accept-Signature", "Content-Digest")
PAGE = ("Cookie", "Accept-Language", "Origin", "HX-Request")
SHOP_HEADERS = {
    ShopKind.STRIPE: ("Stripe-Signature",),
    ShopKind.PADDLE: ("Paddle-Signature",),
    ShopKind.LEMONSQUEEZY: ("X-Signature",),
    ShopKind.WOOCOMMERCE: ("X-WC-Webhook-Signature", "X-WC-Webhook-Topic"),
    ShopKind.STANDARD: ("webhook-id", "webhook-timestamp", "webhook-signature"),
}


def post(path: str, **fields: Any) -> Request:
    """A request with a JSON body, whose response is to be signed."""
    return Request("POST", path, json={"license_key": KEY, **fields})


def form(path: str, **fields: str) -> Request:
    """A form, sent without a session."""
    return Request("POST", path, form={"csrf": TOKEN, **fields})


def canonical(path: str) -> str:
    """A route without the patterns of its parts."""
    return path.replace(":[a-z0-9-]{1,100}", "").replace(":[^/]{1,600}", "")


UPDATE = {"license_key": KEY, "slug": "app", "current_version": "1.0", "domain": "pc1.example"}
OPTIONS = {"platform": "linux-x64", "channels": "beta", "manual": "1"}
MACHINE_HASH = "0" * 64

REQUESTS: Final[tuple[tuple[Request, tuple[str, ...]], ...]] = (
    (post(public_api.VERIFY_PATH, **PLACE, **MACHINE), (*COMMON, *SIGNING)),
    (Request("GET", public_api.UPDATE_CHECK_PATH, query=UPDATE | OPTIONS), (*COMMON, *SIGNING)),
    (post(public_api.DEACTIVATE_PATH, domain="pc1.example"), COMMON),
    (post(moves.COMPUTERS_PATH, domain="pc1"), SIGNING),
    (post(moves.MOVE_PATH, **PLACE, **MACHINE, **{"from": "0" * 32}), SIGNING),
    (
        Request("POST", trials.TRIAL_PATH, json={"slug": "app", "machine": MACHINE_HASH, "domain": "pc1"}),
        SIGNING,
    ),
    (post(seats.SEAT_PATH, domain="pc1", seat="0" * 32, slug="app", label="Ann"), SIGNING),
    (post(uses.CONSUME_PATH, domain="pc1", name="exports", amount=1, use_id="0" * 8), SIGNING),
    (post(rollbacks.ROLLED_BACK_PATH, slug="app", version="1.0", domain="pc1", platform="linux"), SIGNING),
    (
        Request("GET", public_api.DOWNLOAD_PATH, query=LINK),
        ("Range", "If-Range", "If-None-Match", "Available-Dictionary", "Accept-Encoding"),
    ),
    (Request("GET", public_api.MANIFEST_PATH, query=LINK), ()),
    (
        Request(
            "GET",
            canonical(TAURI_PATH),
            {"slug": "app", "target": "linux", "arch": "x86_64", "version": "1.0"},
            UPDATE,
        ),
        ("Authorization",),
    ),
    (Request("GET", canonical(SPARKLE_PATH), {"slug": "app"}, UPDATE | OPTIONS), ("Authorization",)),
    (
        Request(
            "GET",
            canonical(VELOPACK_PATH),
            {"slug": "app", "name": "releases.win.json"},
            UPDATE | {"os": "win", "arch": "x64", "localVersion": "1.0", "stagingId": "a"},
        ),
        ("Authorization",),
    ),
    *(
        (Request("POST", SALES_PATH, {"name": kind.value}, json={"type": "order"}), headers)
        for kind, headers in SHOP_HEADERS.items()
    ),
    (Request("GET", "/healthz"), COMMON),
    (Request("GET", "/readyz"), ()),
    (Request("GET", "/"), ()),
    (Request("GET", "/{anything}", {"anything": "nothing"}), COMMON),
    (Request("GET", "/account", query={"lang": "xx", "done": "freed"}), PAGE),
    (Request("GET", "/account/"), ()),
    (form("/account/sign-in", key=KEY), PAGE),
    (form("/account/code", email="ann@example.com"), ()),  # each takes a tenth of a second
    (form("/account/sign-in-by-code", code="123456"), PAGE),
    (form("/account/sign-out"), PAGE),
    (form("/account/key", license="0" * 32), PAGE),
    (form("/account/free", license="0" * 32, domain="pc1", ip="192.0.2.1"), PAGE),
    (form("/account/file", license="0" * 32, machine="a"), PAGE),
    (form("/account/take-back", license="0" * 32, seat="0" * 32), PAGE),
    (Request("GET", "/account/download/{license}", {"license": "0" * 32}, {"platform": "linux"}), PAGE),
    (Request("GET", "/account/assets/{digest}/{name}", {"digest": "0", "name": "page.css"}), ()),
    (Request("GET", "/account/{anything}", {"anything": "nothing"}), PAGE),
    (Request("GET", "/console/sign-in", query={"next": "/console/licenses", "done": "x"}), PAGE),
    (Request("GET", "/console/licenses/{id}", {"id": "0" * 32}, {"q": "ann"}), PAGE),
    (form("/console/licenses/{id}/revoke", reason="refund")._replace(params={"id": "0" * 32}), PAGE),
    (Request("GET", "/console/{anything}", {"anything": "nothing"}), PAGE),
    (
        Request(
            "GET", "/admin/api/v1/licenses", query={"q": "ann"}, headers={"Authorization": "Bearer lsv_x"}
        ),
        ("Authorization", "Idempotency-Key"),
    ),
)
"""A normal request of each public endpoint, and the header fields that it reads.

Of pages for users and operations for tokens only a few: without a session or token all of them end alike.
The form with a password is apart (D-97).
"""


def test_every_public_endpoint_is_measured(make_world):
    """A new endpoint, or one of the customer's page, has its request in the table."""
    app = create_app(make_world(account=True).services)
    routes = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource}
    known = {(request.method, request.path) for request, _ in REQUESTS}
    is_vendors = ("/console", "/admin")
    public = {
        route_ for route_ in routes if not route_[1].startswith(is_vendors) and route_[0] in ("GET", "POST")
    }
    assert public - known == set()


class Input(NamedTuple):
    """A place where a client writes what it likes, and how a text of some shape is written there."""

    name: str
    write: Callable[[Callable[[int], str]], bytes | None]


quote_all = partial(quote, safe="")


def fit(text: str, size: int, encode: Callable[[str], str]) -> str:
    """As much of a text as has `size` characters when it is encoded."""
    return text[: len(text) * size // max(len(encode(text)), size + 1)]


def target_inputs(request: Request) -> Iterator[Input]:
    """The inputs of a path and a query."""

    def in_path(name, shape):
        value = fit(shape(MAX_LINE), MAX_LINE, quote_all)
        return request._replace(params={**request.params, name: value}).write()

    def in_query(name, shape):
        value = fit(shape(MAX_LINE), MAX_LINE, quote_plus)
        return request._replace(query={**request.query, name: value}).write()

    def whole_query(shape):
        text = shape(MAX_LINE)
        is_line = text.isascii() and text.isprintable() and not {" ", "#"} & {*text}
        return request.write(target=f"{request.target()}?{text}") if is_line else None

    def longer_path(shape):
        text = shape(MAX_LINE)
        is_path = text.isprintable() and text.count("/") > 20 and not set(" #?") & {*text} and text.isascii()
        return request.write(target=f"{request.target()}/{text}") if is_path else None

    yield from (Input(f"path {name}", partial(in_path, name)) for name in request.params)
    if request.method == "GET":
        yield Input("path", longer_path)
        yield Input("query", whole_query)
        for name in request.query or ["x"]:
            yield Input(f"query {name}", partial(in_query, name))


def body_inputs(request: Request) -> Iterator[Input]:
    """The inputs of a JSON body, of a form, and of a body that is neither."""
    fields = request.json or {}

    def text(name, shape):
        return request._replace(json={**fields, name: shape(MAX_BODY)}).write()

    def value(name, shape):
        rest = json.dumps({**fields, name: None})
        return request.write(body=rest.replace("null", shape(MAX_BODY)).encode())

    def in_form(name, shape):
        value = fit(shape(MAX_BODY), MAX_BODY, quote_plus)
        return request._replace(form={**request.form, name: value}).write()

    for name in fields:
        yield Input(f"field {name}", partial(text, name))
        yield Input(f"value of {name}", partial(value, name))
    yield from (Input(f"form {name}", partial(in_form, name)) for name in request.form or ())
    if request.method == "POST":
        yield Input("body", lambda shape: request.write(body=shape(MAX_BODY).encode()))


def header_input(request: Request, name: str) -> Input:
    """A header field."""

    def write(shape):
        value = shape(MAX_LINE).encode()
        return None if {0, ord("\n")} & {*value} else request.write((name, value))

    return Input(name, write)


def inputs(request: Request, headers: tuple[str, ...]) -> Iterator[Input]:
    """All inputs of a request."""
    yield from target_inputs(request)
    yield from body_inputs(request)
    yield from (header_input(request, name) for name in headers)


CASES = [(request, input_) for request, headers in REQUESTS for input_ in inputs(request, headers)]


@pytest.fixture(scope="module")
def meter(tmp_path_factory):
    """A server with a product, a sold key and a shop of each kind, and a meter of its processor time."""
    home = tmp_path_factory.mktemp("cost")
    services = open_services(StandaloneSettings(data_dir=home / "data"))
    try:
        services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
        services.products.change("app", trial_days=14)
        services.licenses.issue("app", LicenseTerms(customer_email="ann@example.com"))
        for kind in ShopKind:
            services.sources.add(kind.value, kind, "SHOP_SECRET")
    finally:
        services.close()
    options = {
        "ACCOUNT": "true",
        "MISS_LIMIT": "0",
        "WRITE_LIMIT": "0",
        "TRUSTED_PROXIES": "127.0.0.0/8",
        "TRIAL_ADDRESS_LIMIT": "0",
    }
    mail = {"MAIL_HOST": "127.0.0.1", "MAIL_PORT": "1", "MAIL_TLS": "none", "MAIL_SENDER": "a@shop.example"}
    environ = {f"LICSERVER_{name}": value for name, value in (options | mail).items()}
    arguments = ["serve", "--port", "0", "--data-dir", str(home / "data")]
    with serving_process(arguments, home, None, SHOP_SECRET="s" * 40, **environ) as (process, printed):
        port = re.search(r"listening on http://\S+:([0-9]+)", printed)
        with metering(process.pid, int(port[1])) as meter:
            yield meter


class Normal(NamedTuple):
    """A normal request: its processor time in nanoseconds, and the seconds until its response."""

    cost: float
    seconds: float


NORMAL: dict[bytes, Normal] = {}
PAIRS = 9
LONGEST = 0.05
"""Seconds of a batch: what waits on purpose, as the response to a request for a code, is measured alone."""


def normal_request(meter: Meter, written: bytes) -> Normal:
    """Measure a normal request once."""
    if written not in NORMAL:
        meter.measure(written, 1, 1)  # the very first loads modules
        began = time.perf_counter()
        meter.measure(written, 2, 1)
        seconds = (time.perf_counter() - began) / 2
        NORMAL[written] = Normal(meter.measure(written, batch(seconds, 10), 6), seconds)
    return NORMAL[written]


def batch(seconds: float, most: int) -> int:
    """How many requests that take so long are measured together."""
    return max(1, min(most, int(LONGEST / seconds)))


def cost_ratio(meter: Meter, data: bytes, written: bytes) -> float:
    """Normal requests that a request costs: measured in turn with them, until it is within the budget.

    The cheapest batch of each counts, since other programs on the machine only add: to both, so that none of
    a quieter moment is compared.
    """
    cost = normal = float("inf")
    # Several: /proc counts a request's time with the next one's now and then.
    count = batch(normal_request(meter, written).seconds, 16)
    for _ in range(PAIRS):
        normal = min(normal, meter.measure(written, count, 1))
        cost = min(cost, meter.measure(data, count, 1))
        if cost <= BUDGET * normal:
            break
    return cost / normal


def costly_shapes(
    meter: Meter, request: Request, field: Input, shapes: Mapping[str, Any]
) -> dict[str, float]:
    """The shapes that cost an input more than the budget, and how many normal requests each does."""
    written, found = request.write(), {}
    normal = normal_request(meter, written)
    for name, shape in shapes.items():
        data = field.write(shape)
        if data is None or meter.measure(data, batch(normal.seconds, 3), 1) <= BUDGET * normal.cost:
            continue
        if (ratio := cost_ratio(meter, data, written)) > BUDGET:
            found[name] = round(ratio, 1)
    return found


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "input_"), CASES, ids=[f"{r.method} {r.path} {i.name}" for r, i in CASES]
)
def test_no_value_of_any_input_costs_more_than_its_share(meter, request_, input_):
    """Each input of each endpoint, in every shape and as long as it may be, beside a normal request."""
    assert costly_shapes(meter, request_, input_, SHAPES) == {}


SAMPLE: Final = {
    ("POST /api/v1/licenses/verify", "field domain"): ["arabic digits, a name", "han, a name", "colons"],
    ("POST /api/v1/licenses/verify", "field label"): ["joiners"],
    ("POST /api/v1/licenses/consume", "value of domain"): ["floats"],
    ("GET /api/v1/update-check", "query domain"): ["at signs", "han, as a host may have"],
    ("GET /api/v1/update-check", "query"): ["percents"],
    ("GET /api/v1/update-download", "query"): ["query"],
    ("GET /account", "path"): ["slashes", "segments"],
    ("GET /account", "Cookie"): ["pairs"],
    ("GET /account", "Accept-Language"): ["commas"],
    ("POST /account/sign-in", "body"): ["percents"],
    ("POST /account/free", "form domain"): ["addresses"],
    ("GET /console/licenses/{id}", "path id"): ["han, a name"],
    ("GET /admin/api/v1/licenses", "Authorization"): ["bearer"],
    ("POST /events/in/{name}", "body"): ["nested lists"],
}


@pytest.mark.sampled(1)
@needs_proc
@pytest.mark.parametrize("name", SAMPLE, ids=" ".join)
def test_what_once_cost_more_than_its_share_does_not(meter, name):
    """The worst that were found, in each run."""
    request, field = next((r, i) for r, i in CASES if (f"{r.method} {r.path}", i.name) == name)
    assert costly_shapes(meter, request, field, {shape: SHAPES[shape] for shape in SAMPLE[name]}) == {}
