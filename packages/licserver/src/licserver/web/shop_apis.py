"""What the API of a shop reports: lost deliveries, in their form, and a customer's e-mail address."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import aiohttp
from yarl import URL

from licserver.errors import InvalidInputError
from licserver.sources import SourceKind, paddle

TIMEOUT: Final = 30.0  # seconds for a page
PAGE: Final = 100
MAX_PAGES: Final = 10_000  # an API whose pages never end
PADDLE_SANDBOX: Final = "https://sandbox-api.paddle.com"


class ShopApi(NamedTuple):
    """How a kind of shop lists what has happened.

    Args:
        address: Of the API; None if each shop has its own.
        lists: Paths that are read one after the other.
        query: The parameters of a page: since the instant, the page's number from 1, the last id before.
        to_delivery: An item as the shop would deliver it; by default an item is that already.
    """

    address: str | None
    lists: tuple[str, ...]
    query: Callable[[datetime, int, str], Mapping[str, str]]
    to_delivery: Callable[[Any], Any] = lambda item: item


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
    at = since.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    page = {"from": at, "per_page": str(PAGE), "order_by": "id[ASC]", "event_type": ",".join(paddle.TYPES)}
    return {**page, "after": last} if last else page


APIS: Final[Mapping[SourceKind, ShopApi]] = {
    SourceKind.STRIPE: ShopApi("https://api.stripe.com", ("v1/events",), _stripe_query),
    SourceKind.PADDLE: ShopApi("https://api.paddle.com", ("events",), _paddle_query),
    SourceKind.LEMONSQUEEZY: ShopApi(
        "https://api.lemonsqueezy.com",
        ("v1/orders", "v1/subscriptions"),
        # Its lists cannot be limited to a period: all of them are read.
        lambda _since, number, _last: {"page[number]": str(number), "page[size]": str(PAGE)},
        _lemon_delivery,
    ),
    SourceKind.WOOCOMMERCE: ShopApi(
        None,
        ("wp-json/wc/v3/orders",),
        lambda since, number, _last: {
            "modified_after": since.isoformat(timespec="seconds"),
            "dates_are_gmt": "true",
            "page": str(number),
            "per_page": str(PAGE),
        },
    ),
}


async def fetch_deliveries(
    kind: SourceKind, key: str, since: datetime, address: str | None = None
) -> AsyncIterator[bytes]:
    """Yield what has happened since an instant, in any order, as bodies of deliveries.

    The key of WooCommerce is key and secret with a colon between; `address` is of a shop with its own API.

    Raises:
        InvalidInputError: This kind has no API that is known here, or it refused or failed.
    """
    api = APIS.get(kind)
    if api is None:
        raise InvalidInputError(f"a shop of the kind {kind} cannot be asked; have it deliver again")
    root = _read_address(address or _find_address(kind, key))
    async with _open_session(kind, key) as session:
        for path in api.lists:
            last = ""
            for number in range(1, MAX_PAGES + 1):
                page = await _get(session, root / path % api.query(since, number, last))
                try:
                    found = list(page if isinstance(page, list) else page["data"])
                    last = str(found[-1].get("id") or found[-1]["event_id"]) if found else ""
                    bodies = [json.dumps(api.to_delivery(item)).encode() for item in found]
                except (AttributeError, KeyError, TypeError, ValueError):
                    raise InvalidInputError(f"the answer of {root.host} is not a list of {path}") from None
                for body in bodies:
                    yield body
                if len(found) < PAGE:
                    break


async def find_email(key: str, customer_id: str) -> str:
    """Return the e-mail address of a customer of Paddle, by its API key.

    Raises:
        InvalidInputError: The API refused or failed.
    """
    root = _read_address(_find_address(SourceKind.PADDLE, key))
    async with _open_session(SourceKind.PADDLE, key) as session:
        found = await _get(session, root / "customers" / customer_id)
    try:
        return str(found["data"]["email"])
    except (KeyError, TypeError):
        raise InvalidInputError(f"the answer of {root.host} has no e-mail address") from None


def is_sandbox(key: str) -> bool:
    """Return whether an API key of Paddle is one of its sandbox."""
    return key.startswith("pdl_sdbx_")


def _find_address(kind: SourceKind, key: str) -> str | None:
    is_sandbox_ = kind is SourceKind.PADDLE and is_sandbox(key)
    return PADDLE_SANDBOX if is_sandbox_ else APIS[kind].address


def _open_session(kind: SourceKind, key: str) -> aiohttp.ClientSession:
    if not (key.isascii() and key.isprintable()):
        raise InvalidInputError("the API key must be one line of ASCII characters")
    authorization = f"Bearer {key}"
    if kind is SourceKind.WOOCOMMERCE:
        authorization = aiohttp.encode_basic_auth(*key.partition(":")[::2])
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    return aiohttp.ClientSession(headers={"Authorization": authorization}, timeout=timeout, trust_env=True)


def _read_address(base: str | None) -> URL:
    if base is None:
        raise InvalidInputError("this shop has an API of its own: give its address with --url")
    try:
        return URL(base)
    except ValueError:
        raise InvalidInputError("--url is no address; write it like https://shop.example.com") from None


async def _get(session: aiohttp.ClientSession, url: URL) -> Any:
    try:
        async with session.get(url, allow_redirects=False) as response:
            if response.status != 200:  # noqa: PLR2004 - OK
                raise InvalidInputError(f"{url.host} answered {response.status}; is the API key right?")
            return await response.json(content_type=None)
    except ValueError:
        raise InvalidInputError(f"the answer of {url.host} is not JSON") from None
    except (aiohttp.ClientError, TimeoutError) as problem:
        name = type(problem).__name__
        raise InvalidInputError(f"{url.host} cannot be reached ({name}); try again later") from None
