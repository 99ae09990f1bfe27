"""Lists of licenses: filtered, searched, a page at a time."""

from datetime import date, datetime
from typing import Any, NamedTuple

from licserver.database.repositories import license_search as scans
from licserver.database.repositories.license_search import Predicate, Scan
from licserver.domain.decisions import can_download, is_license_key, license_state
from licserver.domain.environments import InvalidDomainError, is_printable, normalise_domain
from licserver.domain.records import IssuedLicense, LicenseState, Product, Release
from licserver.domain.text import parse_terms
from licserver.errors import InvalidInputError
from licserver.services.context import Context
from licserver.services.license_terms import check_subscription, has_id_shape
from licserver.services.pagination import Page, check_limit, read_cursor, write_cursor, wrong_cursor
from licserver.services.products import ProductService

MAX_QUERY = 200
"""Characters of what is searched for."""

_SHORTEST_DOMAIN = 2


class LicenseFilter(NamedTuple):
    """Which licenses; None is all, and what is given must all hold.

    Args:
        query: The beginnings of words of the customer's e-mail and the note, or of a domain; or a whole
            key, or an id.
        product: A slug.
        subscription: An id.
        state: As of now.
        expires_from: First day of expiry, included.
        expires_until: Last day of expiry, included.
    """

    query: str | None = None
    product: str | None = None
    subscription: str | None = None
    state: LicenseState | None = None
    expires_from: date | None = None
    expires_until: date | None = None


def search(context: Context, which: LicenseFilter, cursor: str | None, limit: int) -> Page[IssuedLicense]:
    """Return a page of licenses; as `LicenseService.search`."""
    return _read_page(context, _choose_scans(context, which), cursor, limit)


def list_entitled(
    context: Context, product: Product, release: Release, cursor: str | None, limit: int
) -> Page[IssuedLicense]:
    """Return a page of the licenses that permit a download; as `LicenseService.list_entitled`."""
    now = context.now()
    if release.withdrawn_at is not None:
        check_limit(limit)
        return Page([], None)
    scan = scans.by_issue(lambda row: can_download(product, row, now), product_id=product.id)
    return _read_page(context, [scan], cursor, limit)


def _read_page(context: Context, chosen: list[Scan], cursor: str | None, limit: int) -> Page[IssuedLicense]:
    check_limit(limit)
    position = None if cursor is None else read_cursor(cursor)
    if position is not None and not scans.fits(chosen, position):
        raise wrong_cursor()
    ids, end = context.repositories.license_search.find(chosen, position, limit)
    return Page(context.repositories.licenses.find_all(ids), None if end is None else write_cursor(end))


def _choose_scans(context: Context, which: LicenseFilter) -> list[Scan]:
    """Choose the indexes that find what is searched for, the most selective first."""
    product = None if which.product is None else ProductService(context).get(which.product)
    if which.subscription is not None:
        check_subscription(which.subscription)
    now = context.now()
    matches = _make_predicate(which, product, now)
    if which.query is not None and which.query.strip():
        return _scan_text(context, which.query.strip(), matches)
    if which.expires_from is not None or which.expires_until is not None:
        return [scans.by_expiry(matches, which.expires_from, which.expires_until)]
    if which.state is LicenseState.EXPIRED and which.subscription is None:
        return _scan_expired(matches, now.date())
    return [
        scans.by_issue(
            matches,
            product_id=None if product is None else product.id,
            subscription_id=which.subscription,
            revoked=which.state is LicenseState.REVOKED,
        )
    ]


def _scan_expired(matches: Predicate, today: date) -> list[Scan]:
    """First the days that have passed, then the licenses that only their subscription has ended."""

    def by_subscription_alone(row: Any) -> bool:
        return (row.expires_on is None or row.expires_on > today) and matches(row)

    return [
        scans.by_expiry(matches, None, today, descending=True),
        scans.by_subscription(by_subscription_alone),
    ]


def _scan_text(context: Context, query: str, matches: Predicate) -> list[Scan]:
    if len(query) > MAX_QUERY or not is_printable(query):
        raise InvalidInputError(f"what is searched for must be one line of at most {MAX_QUERY} characters")
    if is_license_key(query.upper()):
        return [scans.by_id(context.vault.license_id(query.upper()), matches)]
    if has_id_shape(query.lower()):
        return [scans.by_id(bytes.fromhex(query), matches)]
    terms = parse_terms(query)
    if not terms:
        raise InvalidInputError("search for the beginning of a word, of a domain or of an e-mail address")
    chosen = [scans.by_word(terms[0], terms[1:], matches)]
    if " " not in query and len(query) >= _SHORTEST_DOMAIN:
        try:
            prefix = normalise_domain(query)
        except InvalidDomainError:
            return chosen
        chosen.append(scans.by_domain(prefix, terms, matches))
        if not prefix.startswith("www."):
            chosen.append(scans.by_domain(f"www.{prefix}", terms, matches, but_not=prefix))
    return chosen


def _make_predicate(which: LicenseFilter, product: Product | None, now: datetime) -> Predicate:
    """Check everything that a scan alone does not ensure."""
    first, last = which.expires_from or date.min, which.expires_until or date.max
    is_dated = (first, last) != (date.min, date.max)

    def matches(row: Any) -> bool:
        return (
            (product is None or row.product_id == product.id)
            and which.subscription in (None, row.subscription_id)
            and (which.state is None or license_state(row, now) is which.state)
            and (not is_dated or (row.expires_on is not None and first <= row.expires_on <= last))
        )

    return matches
