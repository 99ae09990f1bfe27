"""Clients of the shops' APIs: lost deliveries, in their form, and a customer's e-mail address."""

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote

import aiohttp
from yarl import URL

from licserver.errors import InvalidInputError
from licserver.services.sources import may_get_key
from licserver.shops import ROWS, SHOPS, ShopKind, paddle
from licserver.shops.contract import Fetch
from licserver.shops.facts import Fact
from licserver.shops.reading import UnreadableDeliveryError

TIMEOUT: Final = 30.0  # seconds for a page
MAX_SECONDS: Final = 3600.0  # for all pages
PAGE: Final = 100
MAX_PAGE_BYTES: Final = 32 << 20
"""The largest page: a hundred orders of a WooCommerce with many plug-ins have five MiB."""
MAX_FETCHES: Final = 20  # objects that are asked for at a time
MAX_PAGES: Final = 10_000  # an API whose pages never end


class ShopApi(NamedTuple):
    """The API by which a kind of shop lists its events.

    Args:
        address: Of the API; None if each shop has its own.
        lists: Paths that are read one after the other.
        query: The parameters of a page: since the instant, the page's number from 1, the last id before.
        to_delivery: An item as the shop would deliver it; by default an item is that already.
        optional: Those of `lists` that a shop may not have: its response is 404 then.
        test_address: Of the API in test mode, if it is another one.
        items: The name of the list in a page.
        size: How many items a page has, unless it is the last one.
        next_page: The name of what leads to the next page, if a page has that.
        detail: The path of an item that a list contains in part; None if it is complete.
        has_key_pair: Whether the API key is a key and a secret with a colon between (Basic authentication).
    """

    address: str | None
    lists: tuple[str, ...]
    query: Callable[[datetime, int, str], Mapping[str, str]]
    to_delivery: Callable[[Any], Any] = lambda item: item
    optional: frozenset[str] = frozenset()
    test_address: str | None = None
    items: str = "data"
    size: int = PAGE
    next_page: str | None = None
    detail: Callable[[Any], str | None] = lambda _item: None
    has_key_pair: bool = False


def _lemon_delivery(item: Any) -> Any:
    attributes = item.get("attributes", {})
    name = "subscription_updated"
    if item.get("type") == "orders":
        name = "order_refunded" if attributes.get("refunded") else "order_created"
    return {"meta": {"event_name": name, "test_mode": attributes.get("test_mode", False)}, "data": item}


def _stripe_query(since: datetime, _number: int, last: str) -> Mapping[str, str]:
    page = {"limit": str(PAGE), "created[gte]": str(int(since.timestamp()))}
    return {**page, "starting_after": last} if last else page


def _paddle_query(since: datetime, _number: int, last: str) -> Mapping[str, str]:
    start = since.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    page = {"from": start, "per_page": str(PAGE), "order_by": "id[ASC]", "event_type": ",".join(paddle.TYPES)}
    return {**page, "after": last} if last else page


def _polar_delivery(item: Any) -> Any:
    # Only a subscription has a current period.
    kind = "subscription" if "current_period_start" in item else "order"
    return {"type": f"{kind}.updated", "data": item}


def _dodo_delivery(item: Any) -> Any:
    kind = "payment" if "payment_id" in item else "subscription"
    timestamp = item.get("updated_at") or item["created_at"]
    return {"type": f"{kind}.{item.get('status') or 'processing'}", "timestamp": timestamp, "data": item}


def _dodo_detail(item: Any) -> str | None:
    """Return the path of a payment: a list does not contain what was bought."""
    id_ = item.get("payment_id") if "product_cart" not in item else None
    return None if id_ is None else f"payments/{quote(str(id_), safe='')}"


def _gumroad_query(since: datetime, _number: int, last: str) -> Mapping[str, str]:
    page = {"after": since.date().isoformat()}
    return {**page, "page_key": last} if last else page


_WOO_SUBSCRIPTIONS: Final = "wp-json/wc/v3/subscriptions"

APIS: Final[Mapping[ShopKind, ShopApi]] = {
    ShopKind.STRIPE: ShopApi("https://api.stripe.com", ("v1/events",), _stripe_query),
    ShopKind.PADDLE: ShopApi(
        "https://api.paddle.com",
        ("events",),
        _paddle_query,
        test_address="https://sandbox-api.paddle.com",
    ),
    ShopKind.LEMONSQUEEZY: ShopApi(
        "https://api.lemonsqueezy.com",
        ("v1/orders", "v1/subscriptions"),
        # Its lists cannot be limited to a period: all of them are read.
        lambda _since, number, _last: {"page[number]": str(number), "page[size]": str(PAGE)},
        _lemon_delivery,
    ),
    ShopKind.WOOCOMMERCE: ShopApi(
        None,
        # Subscriptions first: they name the orders to which the renewals among the orders belong.
        (_WOO_SUBSCRIPTIONS, "wp-json/wc/v3/orders"),
        lambda since, number, _last: {
            "modified_after": since.isoformat(timespec="seconds"),
            "dates_are_gmt": "true",
            "page": str(number),
            "per_page": str(PAGE),
        },
        optional=frozenset({_WOO_SUBSCRIPTIONS}),
        has_key_pair=True,
    ),
    ShopKind.POLAR: ShopApi(
        "https://api.polar.sh",
        ("v1/subscriptions/", "v1/orders/"),
        # Its lists cannot be limited to a period either.
        lambda _since, number, _last: {"page": str(number), "limit": str(PAGE)},
        _polar_delivery,
        test_address="https://sandbox-api.polar.sh",
        items="items",
    ),
    ShopKind.DODO: ShopApi(
        "https://live.dodopayments.com",
        ("subscriptions", "payments"),
        lambda since, number, _last: {
            "created_at_gte": since.isoformat(timespec="seconds"),
            "page_number": str(number - 1),
            "page_size": str(PAGE),
        },
        _dodo_delivery,
        test_address="https://test.dodopayments.com",
        items="items",
        detail=_dodo_detail,
    ),
    ShopKind.GUMROAD: ShopApi(
        "https://api.gumroad.com",
        ("v2/sales",),
        _gumroad_query,
        items="sales",
        size=1,
        next_page="next_page_key",
    ),
}


async def fetch_deliveries(
    kind: ShopKind, key: str, since: datetime, address: str | None = None, *, is_test: bool = False
) -> AsyncIterator[bytes]:
    """Yield what has happened since an instant, in any order, as bodies of deliveries.

    The key of WooCommerce is key and secret with a colon between; `address` is of a shop with its own API.
    With `is_test` the shop's test mode is asked.

    Raises:
        InvalidInputError: This kind has no API that is known here, or it refused or failed.
    """
    api = APIS.get(kind)
    if api is None:
        raise InvalidInputError(f"a shop of the kind {kind} cannot be queried; let the shop deliver again")
    root = _read_address(address or _find_address(kind, key, is_test=is_test))
    started = time.monotonic()
    async with _open_session(kind, key) as session:
        for path in api.lists:
            last, before = "", None
            for number in range(1, MAX_PAGES + 1):
                if time.monotonic() - started > MAX_SECONDS:
                    raise InvalidInputError(f"{root.host} took longer than an hour; choose a later --since")
                url = root / path % api.query(since, number, last)
                body = await _get(session, url, is_optional=path in api.optional)
                if body is None:
                    break
                page = _parse(url, body)
                if page == before:
                    raise InvalidInputError(f"{root.host} lists the same page of {path} again and again")
                before = page or None
                try:
                    items = list(page if isinstance(page, list) else page[api.items])
                    last = _find_last(api, page, items)
                    details = [api.detail(item) for item in items]
                    bodies = [json.dumps(api.to_delivery(item)).encode() for item in items]
                except (AttributeError, KeyError, TypeError, ValueError):
                    raise InvalidInputError(f"the response of {root.host} is not a list of {path}") from None
                for body, detail in zip(bodies, details, strict=True):
                    yield body if detail is None else await _get_detail(session, api, root / detail)
                if len(items) < api.size or (api.next_page and not last):
                    break


def _find_last(api: ShopApi, page: Any, items: Sequence[Any]) -> str:
    """Return what leads to the next page: a field of this one, or the last id."""
    if api.next_page is not None:
        return str(page.get(api.next_page) or "")
    if not items:
        return ""
    ids = [items[-1].get(name) for name in ("id", "event_id", "payment_id", "subscription_id")]
    last = next(filter(None, ids), None)
    if last is None:
        raise KeyError("id")
    return str(last)


async def _get_detail(session: aiohttp.ClientSession, api: ShopApi, url: URL) -> bytes:
    try:
        return json.dumps(api.to_delivery(_parse(url, await _get(session, url) or b""))).encode()
    except (AttributeError, KeyError, TypeError):
        raise InvalidInputError(f"the response of {url.host} is not a payment") from None


async def fetch_facts(
    kind: ShopKind, key: str, address: str | None, is_test: bool, fetches: Sequence[Fetch], now: datetime
) -> AsyncIterator[Fact]:
    """Yield what the API of a shop reports of some objects.

    Raises:
        InvalidInputError: The API refused or failed.
    """
    shop = SHOPS[kind]
    root = _read_address(address or _find_address(kind, key, is_test=is_test))
    async with _open_session(kind, key) as session:
        for fetch in fetches[:MAX_FETCHES]:
            path = shop.fetch_path(fetch)
            if path is None:
                continue
            body = await _get(
                session, root / path.partition("?")[0] % dict(parse_qsl(path.partition("?")[2]))
            )
            if body is None:
                continue
            try:
                for fact in shop.read_fetched(fetch, body, now):
                    yield fact
            except UnreadableDeliveryError as problem:
                raise InvalidInputError(
                    f"the response of {root.host} about {fetch.kind}: {problem}"
                ) from None


def _find_address(kind: ShopKind, key: str, *, is_test: bool) -> str | None:
    api, is_test_key = APIS.get(kind), ROWS[kind].is_test_key
    if api is None:
        return None
    if is_test_key is not None:
        is_test = is_test_key(key)
    return (api.test_address if is_test else None) or api.address


def _open_session(kind: ShopKind, key: str) -> aiohttp.ClientSession:
    if not (key.isascii() and key.isprintable()):
        raise InvalidInputError("the API key must be one line of ASCII characters")
    api = APIS.get(kind)
    authorization = f"Bearer {key}"
    if api is not None and api.has_key_pair:
        authorization = aiohttp.encode_basic_auth(*key.partition(":")[::2])
    # Unpacked, a small answer may be of any size: none is unpacked, and none is asked for.
    headers = {"Authorization": authorization, "Accept-Encoding": "identity"}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    return aiohttp.ClientSession(headers=headers, timeout=timeout, trust_env=True, auto_decompress=False)


def _read_address(base: str | None) -> URL:
    if base is None:
        raise InvalidInputError("this shop has an API of its own: give its address with --url")
    try:
        url = URL(base)
        is_address = bool(url.host) and url.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise InvalidInputError("--url is not a valid address; write it like https://shop.example.com")
    if not may_get_key(base):
        raise InvalidInputError("--url must begin with https://, because the API key is sent to it")
    return url


def _parse(url: URL, body: bytes) -> Any:
    try:
        return json.loads(body)
    except RecursionError:
        raise InvalidInputError(f"the response of {url.host} is nested too deeply") from None
    except ValueError:
        raise InvalidInputError(f"the response of {url.host} is not JSON") from None


async def _get(session: aiohttp.ClientSession, url: URL, *, is_optional: bool = False) -> bytes | None:
    """Return what an address responds; None for a 404 where that is allowed."""
    try:
        async with session.get(url, allow_redirects=False) as response:
            if is_optional and response.status == 404:  # noqa: PLR2004 - not found
                return None
            if response.status != 200:  # noqa: PLR2004 - OK
                raise InvalidInputError(f"{url.host} answered {response.status}; is the API key right?")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise InvalidInputError(
                    f"{url.host} sends a compressed response, although the request excludes it"
                )
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_PAGE_BYTES:
                    raise InvalidInputError(
                        f"the response of {url.host} is larger than {MAX_PAGE_BYTES} bytes"
                    )
            return bytes(body)
    except (aiohttp.ClientError, TimeoutError) as problem:
        name = type(problem).__name__
        raise InvalidInputError(f"{url.host} cannot be reached ({name}); try again later") from None
