"""Search for licenses, a page at a time: each page is read along an index, however many licenses there are.

A page ends when it is full, or after `MAX_SCANNED` rows, so that a filter that matches next to nothing cannot
read the whole table; the cursor then says where to go on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import ColumnElement, Row, Select, literal, select, tuple_

from licserver.database.repositories.base import Repository
from licserver.database.tables import activations, license_words, licenses
from licserver.domain.text import extract_words, matches_terms

MAX_SCANNED: Final = 1_000
"""Rows read for one page."""

_LAST: Final = "\U0010ffff"
"""Sorts after every character that may follow a prefix."""

Position: TypeAlias = tuple[Any, ...]
"""Where a page ended: the number of the scan, then the values of its order."""

Predicate: TypeAlias = Callable[[Row[Any]], bool]

_CANDIDATE: Final = (
    licenses.c.id,
    licenses.c.product_id,
    licenses.c.issued_at,
    licenses.c.expires_on,
    licenses.c.lifetime,
    licenses.c.revoked_at,
    licenses.c.subscription_id,
    licenses.c.subscription_ended_at,
    licenses.c.support_until,
)


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows read along an index, from one of its ends.

    Args:
        order: The columns of the index, which identify each row.
        where: The part of the index.
        matches: Called with each candidate: a row with the dates of a license.
        descending: From which end.
        statement: Selects candidates; also the columns of `order` if they are another table's.
    """

    order: Sequence[ColumnElement[Any]]
    where: Sequence[ColumnElement[bool]] = ()
    matches: Predicate = lambda _row: True
    descending: bool = False
    statement: Select[Any] = field(default_factory=lambda: select(*_CANDIDATE))


class Found(NamedTuple):
    """A page: ids of licenses, and where the next one begins, or None at the end."""

    ids: list[bytes]
    position: Position | None


class LicenseSearchRepository(Repository):
    """Finds licenses."""

    def find(self, scans: Sequence[Scan], position: Position | None, limit: int) -> Found:
        """Read a page along scans, one after the other.

        Args:
            scans: Together they must not find a license twice.
            position: Where the page before ended, or None; it must fit (`fits`).
            limit: How many at most; a page may hold fewer and not be the last.
        """
        found: list[bytes] = []
        left, wanted = MAX_SCANNED, limit + 1
        number, *after = position or (0,)
        while number < len(scans):
            scan, size = scans[number], min(left, wanted)
            rows = self._read(scan, after, size)
            for row in rows:
                if scan.matches(row):
                    found.append(row.id)
                after = list(row[-len(scan.order) :])
                if len(found) == limit:
                    is_last = len(rows) < size and row is rows[-1] and number == len(scans) - 1
                    return Found(found, None if is_last else (number, *after))
            left, wanted = left - len(rows), 4 * wanted  # the rarer matches are, the more rows at a time
            if left <= 0:
                return Found(found, (number, *after))
            if len(rows) < size:
                number, after = number + 1, []
        return Found(found, None)

    def _read(self, scan: Scan, after: Sequence[Any], limit: int) -> list[Row[Any]]:
        statement = scan.statement.add_columns(
            *(column.label(f"at_{n}") for n, column in enumerate(scan.order))
        )
        statement = statement.where(*scan.where)
        if after:
            key = tuple_(*scan.order)
            last = tuple_(*(literal(value, one.type) for value, one in zip(after, scan.order, strict=True)))
            statement = statement.where(key < last if scan.descending else key > last)
        order = [column.desc() for column in scan.order] if scan.descending else scan.order
        with self._reading() as connection:
            return list(connection.execute(statement.order_by(*order).limit(limit)))


def fits(scans: Sequence[Scan], position: Position) -> bool:
    """Return whether a position from a cursor can be one of these scans."""
    number, *values = position or (None,)
    if type(number) is not int or not 0 <= number < len(scans):
        return False
    types = [column.type.python_type for column in scans[number].order]
    return [type(value) for value in values] in ([], types)


def by_id(license_id: bytes, matches: Predicate) -> Scan:
    """Return the scan of one license."""
    return Scan((licenses.c.id,), [licenses.c.id == license_id], matches)


def by_issue(
    matches: Predicate,
    *,
    product_id: int | None = None,
    subscription_id: str | None = None,
    revoked: bool = False,
) -> Scan:
    """Return the scan that begins with the latest license.

    Only the rarest of what is given selects the index; `matches` checks the others.
    """
    where = []
    if subscription_id is not None:
        where.append(licenses.c.subscription_id == subscription_id)
    elif revoked:
        where.append(licenses.c.revoked_at.is_not(None))
    elif product_id is not None:
        where.append(licenses.c.product_id == product_id)
    return Scan((licenses.c.issued_at, licenses.c.id), where, matches, descending=True)


def by_expiry(matches: Predicate, first: date | None, last: date | None, *, descending: bool = False) -> Scan:
    """Return the scan along the days of expiry, from `first` to `last`, both included."""
    day = licenses.c.expires_on
    where: list[ColumnElement[bool]] = [day.is_not(None)]
    if first is not None:
        where.append(day >= first)
    if last is not None:
        where.append(day <= last)
    return Scan((day, licenses.c.id), where, matches, descending=descending)


def by_subscription(matches: Predicate) -> Scan:
    """Return the scan of all licenses with a subscription."""
    column = licenses.c.subscription_id
    return Scan((column, licenses.c.id), [column.is_not(None)], matches)


def by_word(term: str, others: list[str], matches: Predicate) -> Scan:
    """Return the scan of the words that begin with a term; it finds a license at the first of its words.

    Args:
        term: From `licserver.domain.text.parse_terms`.
        others: Words of the license must begin with these as well.
        matches: Called besides.
    """
    word = license_words.c.word
    statement = (
        select(*_CANDIDATE, licenses.c.customer_email, licenses.c.note, word)
        .select_from(license_words)
        .join(licenses, licenses.c.id == license_words.c.license_id)
    )

    def is_first(row: Row[Any]) -> bool:
        if not matches(row):
            return False
        words = extract_words(row.customer_email, row.note)
        first = min((one for one in words if one.startswith(term)), default=None)
        return first == row.word and matches_terms(words, others)

    where = [word >= term, word < term + _LAST]
    return Scan((word, license_words.c.license_id), where, is_first, statement=statement)


def by_domain(prefix: str, terms: list[str], matches: Predicate, *, but_not: str | None = None) -> Scan:
    """Return the scan of the activations whose domain begins with a prefix; it finds each license once.

    Args:
        prefix: Of a normalised domain (D-06).
        terms: The whole query: what `by_word` finds is not found again.
        matches: Called besides.
        but_not: Another prefix, whose scan comes before.
    """
    other = activations.alias("other")
    of_license = select(other.c.license_id).where(
        other.c.license_id == activations.c.license_id, other.c.last_seen_at.is_not(None)
    )
    before = tuple_(other.c.domain, other.c.ip) < tuple_(activations.c.domain, activations.c.ip)
    found = [of_license.where(other.c.domain >= prefix, before)]
    if but_not is not None:
        found.append(of_license.where(other.c.domain >= but_not, other.c.domain < but_not + _LAST))
    statement = (
        select(*_CANDIDATE, licenses.c.customer_email, licenses.c.note)
        .select_from(activations)
        .join(licenses, licenses.c.id == activations.c.license_id)
    )

    def is_new(row: Row[Any]) -> bool:
        return matches(row) and not matches_terms(extract_words(row.customer_email, row.note), terms)

    where = [
        activations.c.last_seen_at.is_not(None),
        activations.c.domain >= prefix,
        activations.c.domain < prefix + _LAST,
        *(~one.exists() for one in found),
    ]
    return Scan((activations.c.domain, activations.c.license_id), where, is_new, statement=statement)
