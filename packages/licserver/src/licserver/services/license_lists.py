"""Lists of licenses: filtered, searched, a page at a time."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import NamedTuple

from licserver.database.repositories import license_search
from licserver.database.repositories.license_search import Filter, Position, Scan
from licserver.domain.decisions import is_license_key
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
    now, found = context.now(), context.repositories.license_search
    position = None if cursor is None else read_cursor(cursor)
    product = None if which.product is None else ProductService(context).get(which.product)
    filters: list[Filter] = []
    if which.query is not None and which.query.strip():
        scans = _scan_text(context, which.query.strip(), position)
        if which.expires_from is not None or which.expires_until is not None:
            filters.append(license_search.expiring(which.expires_from, which.expires_until))
    else:
        scans = _choose_scans(which, product, now)
    if which.subscription is not None:
        check_subscription(which.subscription)
        filters.append(found.in_subscription(which.subscription))
    if product is not None:
        filters.append(found.in_product(product.id))
    if which.state is not None:
        filters.append(license_search.in_state(which.state, now))
    return _read_page(context, scans, filters, position, limit)


def list_entitled(
    context: Context, product: Product, release: Release, cursor: str | None, limit: int
) -> Page[IssuedLicense]:
    """Return a page of the licenses that permit a download; as `LicenseService.list_entitled`."""
    if release.withdrawn_at is not None:
        check_limit(limit)
        return Page([], None)
    now = context.now()
    filters = [license_search.in_state(LicenseState.ACTIVE, now)]
    if product.has_support_policy:
        filters.append(license_search.supported(now))
    position = None if cursor is None else read_cursor(cursor)
    return _read_page(context, [license_search.by_issue(product_id=product.id)], filters, position, limit)


def _read_page(
    context: Context,
    scans: Sequence[Scan],
    filters: Sequence[Filter],
    position: Position | None,
    limit: int,
) -> Page[IssuedLicense]:
    check_limit(limit)
    if position is not None and not license_search.fits(scans, position):
        raise wrong_cursor()
    ids, end = context.repositories.license_search.find(scans, filters, position, limit)
    return Page(context.repositories.licenses.find_all(ids), None if end is None else write_cursor(end))


def _choose_scans(which: LicenseFilter, product: Product | None, now: datetime) -> list[Scan]:
    """Choose the order of a list: by expiry if it is about expiry, else the latest first."""
    if which.expires_from is not None or which.expires_until is not None:
        return [license_search.by_expiry(which.expires_from, which.expires_until)]
    if which.state is LicenseState.EXPIRED and which.subscription is None:
        return license_search.by_end(now)
    if which.state is LicenseState.REVOKED:
        return [license_search.by_issue(revoked=True)]
    return [license_search.by_issue(product_id=None if product is None else product.id)]


def _scan_text(context: Context, query: str, position: Position | None) -> list[Scan]:
    if len(query) > MAX_QUERY or not is_printable(query):
        raise InvalidInputError(f"what is searched for must be one line of at most {MAX_QUERY} characters")
    if is_license_key(query.upper()):
        return [license_search.by_id(context.vault.license_id(query.upper()))]
    if has_id_shape(query.lower()):
        return [license_search.by_id(bytes.fromhex(query))]
    terms = parse_terms(query)
    if not terms:
        raise InvalidInputError("search for the beginning of a word, of a domain or of an e-mail address")
    first = context.repositories.license_search.choose_term(terms, position)
    scans = [license_search.by_word(first, [term for term in terms if term != first])]
    if " " not in query and len(query) >= _SHORTEST_DOMAIN:
        with suppress(InvalidDomainError):
            domain = normalise_domain(query)
            scans.append(license_search.by_domain(domain, terms))
            if not domain.startswith("www."):
                scans.append(license_search.by_domain(f"www.{domain}", terms, but_not=domain))
    return scans
