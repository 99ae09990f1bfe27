"""Lists of licenses: filtered, searched, a page at a time."""

from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple

from licserver.database.repositories import license_search as ways
from licserver.database.repositories.licenses import IssuedLicense
from licserver.domain.decisions import can_download, is_license_key, license_state
from licserver.domain.environments import BadDomain, is_printable, normalise_domain
from licserver.domain.records import LicenseState, Product, Release
from licserver.domain.search_words import parse_terms
from licserver.errors import WrongUse
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


_ALL = LicenseFilter()


def search(context: Context, which: LicenseFilter, cursor: str | None, limit: int) -> Page[IssuedLicense]:
    """Return a page of licenses; as `LicenseService.search`."""
    return _page(context, _Ways(context).find(which), cursor, limit)


def list_entitled(
    context: Context, product: Product, release: Release, cursor: str | None, limit: int
) -> Page[IssuedLicense]:
    """Return a page of the licenses that permit a download; as `LicenseService.list_entitled`."""
    now = context.now()
    if release.withdrawn_at is not None:
        check_limit(limit)
        return Page([], None)
    way = ways.by_issue(lambda row: can_download(product, row, now), product_id=product.id)
    return _page(context, [way], cursor, limit)


def _page(context: Context, along: list[ways.Way], cursor: str | None, limit: int) -> Page[IssuedLicense]:
    check_limit(limit)
    place = None if cursor is None else read_cursor(cursor)
    if place is not None and not ways.fits(along, place):
        raise wrong_cursor()
    ids, end = context.repositories.license_search.find(along, place, limit)
    return Page(context.repositories.licenses.find_all(ids), None if end is None else write_cursor(end))


class _Ways:
    def __init__(self, context: Context) -> None:
        self._context = context

    def find(self, which: LicenseFilter) -> list[ways.Way]:
        product = None if which.product is None else ProductService(self._context).get(which.product)
        if which.subscription is not None:
            check_subscription(which.subscription)
        keep = self._keep(which, product)
        if which.query is not None and which.query.strip():
            return self._ways_to(which.query, keep)
        if which.expires_from is not None or which.expires_until is not None:
            return [ways.by_expiry(keep, which.expires_from, which.expires_until)]
        if which.state is LicenseState.EXPIRED and which.subscription is None:
            return self._ways_to_expired(keep)
        return [
            ways.by_issue(
                keep,
                product_id=None if product is None else product.id,
                subscription_id=which.subscription,
                revoked=which.state is LicenseState.REVOKED,
            )
        ]

    def _ways_to_expired(self, keep: ways.Keep) -> list[ways.Way]:
        """Along the days that have passed, and then what else may have ended."""
        today = self._context.now().date()

        def by_subscription_alone(row: Any) -> bool:
            return (row.expires_on is None or row.expires_on > today) and keep(row)

        return [
            ways.by_expiry(keep, None, today, descending=True),
            ways.by_subscription(by_subscription_alone),
        ]

    def _ways_to(self, query: str, keep: ways.Keep) -> list[ways.Way]:
        query = query.strip()
        if len(query) > MAX_QUERY or not is_printable(query):
            raise WrongUse(f"what is searched for must be one line of at most {MAX_QUERY} characters")
        if is_license_key(query.upper()):
            return [ways.by_id(self._context.vault.license_id(query.upper()), keep)]
        if has_id_shape(query.lower()):
            return [ways.by_id(bytes.fromhex(query), keep)]
        terms = parse_terms(query)
        if not terms:
            raise WrongUse("search for the beginning of a word, of a domain or of an e-mail address")
        along = [ways.by_word(terms[0], terms[1:], keep)]
        if " " not in query and len(query) >= _SHORTEST_DOMAIN:
            try:
                prefix = normalise_domain(query)
            except BadDomain:
                return along
            along.append(ways.by_domain(prefix, terms, keep))
            if not prefix.startswith("www."):
                along.append(ways.by_domain(f"www.{prefix}", terms, keep, but_not=prefix))
        return along

    def _keep(self, which: LicenseFilter, product: Product | None) -> ways.Keep:
        """Make the check of everything that the way itself does not see to."""
        now = self._context.now()
        checks: list[Callable[[Any], bool]] = []
        if product is not None:
            checks.append(lambda row: row.product_id == product.id)
        if which.subscription is not None:
            checks.append(lambda row: row.subscription_id == which.subscription)
        if which.state is not None:
            checks.append(lambda row: license_state(row, now) is which.state)
        first, last = which.expires_from or date.min, which.expires_until or date.max
        if (first, last) != (date.min, date.max):
            checks.append(lambda row: row.expires_on is not None and first <= row.expires_on <= last)
        return lambda row: all(check(row) for check in checks)
