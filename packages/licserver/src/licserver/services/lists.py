"""Lists: pages with cursors that mark where the next one begins, and the search for licenses."""

import enum
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar

from licserver.database.repositories import license_search
from licserver.database.repositories.license_search import Filter, Position, Scan
from licserver.domain.decisions import is_imported_key, is_license_key
from licserver.domain.environments import is_printable
from licserver.domain.records import IssuedLicense, LicenseState, Product, Release
from licserver.domain.text import KeyPart, parse_key_part, parse_terms
from licserver.errors import InvalidInputError, SecretsError
from licserver.services.context import Context
from licserver.services.license_terms import check_subscription, find_ip, has_id_shape, read_domain
from licserver.services.products import find_product

MAX_PAGE: Final = 200  # items on a page
_MAX_CURSOR: Final = 2_000

Item = TypeVar("Item")


class Page(NamedTuple, Generic[Item]):
    """A page of a list; `cursor` marks where the next one begins, and is None at the end."""

    items: list[Item]
    cursor: str | None


def page_of(items: Sequence[Item], name: Callable[[Item], str], cursor: str | None, limit: int) -> Page[Item]:
    """Return a page of a short list that is loaded as a whole; `name` returns the unique name of an item."""
    check_limit(limit)
    place, first = read_place(cursor, str), 0
    if place is not None:
        names = [name(one) for one in items]
        if place[0] not in names:
            raise wrong_cursor()
        first = names.index(place[0]) + 1
    return cut_page(items[first : first + limit + 1], limit, lambda last: [name(last)])


def cut_page(found: Sequence[Item], limit: int, place: Callable[[Item], Sequence[Any]]) -> Page[Item]:
    """Return a page of what was found with one item more than the limit; `place` returns where an item is."""
    items = list(found[:limit])
    return Page(items, write_cursor(place(items[-1])) if len(found) > limit else None)


def page_by_id(load: Callable[[int | None, int], Sequence[Any]], cursor: str | None, limit: int) -> Page[Any]:
    """Return a page of a list that is sorted by id; `load` takes the id before the page, and how many."""
    check_limit(limit)
    place = read_place(cursor, int)
    return cut_page(load(place[0] if place else None, limit + 1), limit, lambda last: [last.id])


def check_limit(limit: int) -> None:
    """Refuse a page that is too large."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInputError(f"limit must be between 1 and {MAX_PAGE}")


def write_cursor(place: Sequence[Any]) -> str:
    """Encode a place for a URL: whole numbers, text, bytes, days and instants. It holds nothing secret."""
    text = json.dumps([_write(value) for value in place], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_place(cursor: str | None, *types: type) -> tuple[Any, ...] | None:
    """Decode a cursor whose place has values of these types; None for the first page."""
    place = read_cursor(cursor)
    if place is not None and [type(value) for value in place] != [*types]:
        raise wrong_cursor()
    return place


def read_cursor(cursor: str | None) -> tuple[Any, ...] | None:
    """Decode a cursor, None for the first page; the caller checks that its values fit the list."""
    if cursor is None:
        return None
    if len(cursor) > _MAX_CURSOR:
        raise wrong_cursor()
    try:
        place = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return tuple(map(_read, place))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        raise wrong_cursor() from None


def wrong_cursor() -> InvalidInputError:
    """Return the error for a cursor of another list."""
    return InvalidInputError("this cursor was not given for this list; begin without one")


def _write(value: Any) -> Any:
    match value:
        case datetime():
            return {"at": value.astimezone(UTC).isoformat()}
        case date():
            return {"on": value.isoformat()}
        case bytes():
            return {"id": value.hex()}
        case _:
            return value


def _read(value: Any) -> Any:
    match value:
        case {"at": text}:
            instant = datetime.fromisoformat(text)
            if instant.tzinfo is None:
                raise ValueError
            return instant.astimezone(UTC)
        case {"on": text}:
            return date.fromisoformat(text)
        case {"id": text}:
            return bytes.fromhex(text)
        case bool():
            raise ValueError
        case str() if is_printable(value):
            return value
        case int() if -(2**63) <= value < 2**63:
            return value
        case _:
            raise ValueError


# --- licenses ---------------------------------------------------------------------------------

MAX_QUERY = 200  # characters of what is searched for
_SHORTEST_DOMAIN = 2


class Order(enum.StrEnum):
    """How a list is sorted; what is found by a text is sorted by what it was found by."""

    NEWEST = "newest"
    OLDEST = "oldest"
    ENDING = "ending"


class LicenseFilter(NamedTuple):
    """Which licenses; None is all, and what is given must all hold.

    Args:
        query: The beginnings of words of the customer's e-mail, the note and the reason of a revocation,
            of a domain or a subscription; an IP address; a masked key, a part of one or a whole one; an id.
        product: A slug.
        subscription: An id.
        state: As of now.
        expires_from: First day of expiry, included.
        expires_until: Last day of expiry, included.
        trial: Whether trials are meant.
        order: By the instant of issue, or by the last day, with which only licenses that have one are listed.
    """

    query: str | None = None
    product: str | None = None
    subscription: str | None = None
    state: LicenseState | None = None
    expires_from: date | None = None
    expires_until: date | None = None
    order: Order = Order.NEWEST
    trial: bool | None = None


def plan(
    context: Context, which: LicenseFilter, position: Position | None
) -> tuple[list[Scan], list[Filter]]:
    """Return what a search reads, in which order, and what it leaves out."""
    now, found = context.now(), context.repositories.license_search
    product = None if which.product is None else find_product(context, which.product)
    filters: list[Filter] = []
    if which.query is not None and which.query.strip():
        scans = _scan_text(context, which.query.strip(), position)
        if which.expires_from is not None or which.expires_until is not None:
            filters.append(license_search.expiring(which.expires_from, which.expires_until))
    else:
        scans = _choose_scans(which, product, now)
    if which.subscription is not None:
        check_subscription(which.subscription)
        filters.append(found.having("subscription_id", which.subscription))
    if product is not None:
        filters.append(found.having("product_id", product.id))
    if which.state is not None:
        filters.append(license_search.in_state(which.state, now))
    if which.trial is not None:
        filters.append(license_search.is_trial(which.trial))
    if which.trial:  # trials have a short index of their own: no other one may be preferred
        filters = [one._replace(indexed=one.condition) for one in filters]
    return scans, filters


def list_entitled(
    context: Context, product: Product, release: Release, cursor: str | None, limit: int
) -> Page[IssuedLicense]:
    """Return a page of the licenses that may download a release; none once it is withdrawn."""
    if release.withdrawn_at is not None:
        check_limit(limit)
        return Page([], None)
    now = context.now()
    filters = [license_search.in_state(LicenseState.ACTIVE, now)]
    if product.has_support_policy:
        filters.append(license_search.supported(now))
    position = read_cursor(cursor)
    return read_page(context, [license_search.by_issue(product_id=product.id)], filters, position, limit)


def read_page(
    context: Context,
    scans: Sequence[Scan],
    filters: Sequence[Filter],
    position: Position | None,
    limit: int,
) -> Page[IssuedLicense]:
    """Return a page of licenses, by the order of the scans."""
    check_limit(limit)
    if position is not None and not license_search.fits(scans, position):
        raise wrong_cursor()
    ids, end = context.repositories.license_search.find(scans, filters, position, limit)
    return Page(context.repositories.licenses.find_all(ids), None if end is None else write_cursor(end))


def _choose_scans(which: LicenseFilter, product: Product | None, now: datetime) -> list[Scan]:
    """Choose the order of a list: by expiry if it is about expiry, else the instant of issue."""
    oldest_first = which.order is Order.OLDEST
    has_days = which.expires_from is not None or which.expires_until is not None
    if has_days or which.order is Order.ENDING:
        return [license_search.by_expiry(which.expires_from, which.expires_until)]
    if which.trial:
        return [license_search.by_issue(oldest_first=oldest_first)]
    if which.state is LicenseState.EXPIRED and which.subscription is None and not oldest_first:
        return license_search.by_end(now)
    if which.state is LicenseState.REVOKED:
        return [license_search.by_issue(revoked=True, oldest_first=oldest_first)]
    product_id = None if product is None else product.id
    return [license_search.by_issue(product_id=product_id, oldest_first=oldest_first)]


def _scan_text(context: Context, query: str, position: Position | None) -> list[Scan]:
    if len(query) > MAX_QUERY or not is_printable(query):
        raise InvalidInputError(f"what is searched for must be one line of at most {MAX_QUERY} characters")
    if is_license_key(query.upper()):
        return [license_search.by_ids([context.vault.license_id(query.upper())])]
    if is_imported_key(query):
        imported = context.vault.license_id(query)
        if context.repositories.licenses.find(imported) is not None:
            return [license_search.by_ids([imported])]
    if has_id_shape(query.lower()):
        return [license_search.by_ids([bytes.fromhex(query)])]
    scans = []
    part = parse_key_part(query)
    by_key = [] if part is None else find_by_key_part(context, part)
    ip, domain = _read_environment(context, query)
    refused = context.repositories.refusals.find_licenses(domain, ip, MAX_PAGE) if ip or domain else []
    if first := [*by_key, *refused]:
        scans.append(license_search.by_ids(first))
    if not (terms := parse_terms(query)) and not scans:
        raise InvalidInputError("search for the beginning of a word, of a domain or of an e-mail address")
    if terms:
        leading = context.repositories.license_search.choose_term(terms, position)
        scans.append(license_search.by_word(leading, [term for term in terms if term != leading]))
    return license_search.chain([*scans, *_scan_environments(query, ip, domain)])


def _scan_environments(query: str, ip: str | None, domain: str | None) -> Iterator[Scan]:
    if " " not in query and len(query) >= _SHORTEST_DOMAIN:
        yield license_search.by_subscription(query)
    if ip is not None:
        yield license_search.by_ip(ip)
    if domain is not None:
        yield license_search.by_domain(domain)
        if not domain.startswith("www."):
            yield license_search.by_domain(f"www.{domain}")


def _read_environment(context: Context, query: str) -> tuple[str | None, str | None]:
    """Return address and domain that a text can mean, as they are stored."""
    if " " in query or len(query) < _SHORTEST_DOMAIN:
        return None, None
    domain = None
    with suppress(InvalidInputError):
        domain = read_domain(query)
    return find_ip(query, context.settings.ipv6_prefix), domain


def find_by_key_part(context: Context, part: KeyPart) -> list[bytes]:
    """Return the ids of the licenses whose keys fit what somebody has of one."""
    candidates = context.repositories.license_search.find_masked(part.head, part.tail)
    if part.is_masked:
        return [license_id for license_id, _ in candidates]
    found = []
    for license_id, encrypted in candidates:
        with suppress(SecretsError):  # an altered row
            if part.fits(context.vault.decrypt_key(encrypted, license_id)):
                found.append(license_id)
    return found
