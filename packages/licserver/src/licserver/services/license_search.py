"""The search of licenses: its scans, filters and order."""

import enum
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import NamedTuple

from licserver.database.repositories import license_search
from licserver.database.repositories.license_search import Filter, Position, Scan
from licserver.domain.decisions import is_imported_key, is_license_key
from licserver.domain.environments import is_printable
from licserver.domain.records import AfterSupport, IssuedLicense, LicenseState, Product, Release
from licserver.domain.text import KeyPart, parse_key_part, parse_terms
from licserver.errors import InvalidInputError, SecretsError
from licserver.services.context import Context
from licserver.services.lists import MAX_PAGE, Page, check_limit, read_cursor, write_cursor, wrong_cursor
from licserver.services.products import find_product
from licserver.services.validation import check_subscription, find_ip, has_id_shape, read_domain

MAX_QUERY = 200  # characters of a search


_SHORTEST_DOMAIN = 2


class SortOrder(enum.StrEnum):
    """The order of a list; results of a text search are sorted by the matching term."""

    NEWEST = "newest"
    OLDEST = "oldest"
    ENDING = "ending"


class LicenseFilter(NamedTuple):
    """Conditions on licenses, all of which must hold; None is no condition.

    Args:
        query: The beginnings of words of the customer's e-mail, the note and the reason of a revocation,
            of a domain or a subscription; an IP address; a whole, masked or partial key; an id.
        product: A slug.
        subscription: An id.
        state: The present state.
        expires_from: First day of expiry, included.
        expires_until: Last day of expiry, included.
        trial: Whether the license is a trial.
        shared: Whether it is marked as probably shared.
        order: By instant of issue, or by last day, which lists only licenses with a last day.
    """

    query: str | None = None
    product: str | None = None
    subscription: str | None = None
    state: LicenseState | None = None
    expires_from: date | None = None
    expires_until: date | None = None
    order: SortOrder = SortOrder.NEWEST
    trial: bool | None = None
    shared: bool | None = None


def plan(
    context: Context, which: LicenseFilter, position: Position | None
) -> tuple[list[Scan], list[Filter]]:
    """Return the scans of a search, in order, and its filters."""
    now, search = context.now(), context.repositories.license_search
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
        filters.append(search.having("subscription_id", which.subscription))
    if product is not None:
        filters.append(search.having("product_id", product.id))
    if which.state is not None:
        filters.append(license_search.in_state(which.state, now))
    if which.trial is not None:
        filters.append(license_search.is_trial(which.trial))
    if which.shared is not None:
        filters.append(license_search.is_shared(which.shared))
    if which.trial:  # the short index of trials must be used: the other conditions get no index
        filters = [filter_._replace(indexed=filter_.condition) for filter_ in filters]
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
    if release.security is not None:
        filters = [license_search.may_have_fixes(now)]
    elif product.has_support_policy:
        is_covered = product.after_support is AfterSupport.COVERED
        filters.append(license_search.supported(release.published_at if is_covered else now))
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
    """Return the scans of a list: by last day with a condition on expiry, otherwise by instant of issue."""
    oldest_first = which.order is SortOrder.OLDEST
    has_days = which.expires_from is not None or which.expires_until is not None
    if has_days or which.order is SortOrder.ENDING:
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
        raise InvalidInputError(f"a search must be one line of at most {MAX_QUERY} characters")
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
    """Return the IP address and the domain that a text can be, in their stored form."""
    if " " in query or len(query) < _SHORTEST_DOMAIN:
        return None, None
    domain = None
    with suppress(InvalidInputError):
        domain = read_domain(query)
    return find_ip(query, context.settings.ipv6_prefix), domain


def find_by_key_part(context: Context, part: KeyPart) -> list[bytes]:
    """Return the ids of the licenses whose keys match a partial key."""
    candidates = context.repositories.license_search.find_masked(part.head, part.tail)
    if part.is_masked:
        return [license_id for license_id, _ in candidates]
    ids = []
    for license_id, encrypted in candidates:
        with suppress(SecretsError):  # an altered row
            if part.fits(context.vault.decrypt_key(encrypted, license_id)):
                ids.append(license_id)
    return ids
