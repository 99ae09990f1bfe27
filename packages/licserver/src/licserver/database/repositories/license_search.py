"""Lists of licenses, a page at a time: each page is read along an index, however many licenses there are.

A page ends when it is full, or when so many rows were looked at that it would take too long to go on; the
cursor then says where. Nothing is ever skipped by counting.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import ColumnElement, Row, Select, literal, select, tuple_

from licserver.database.repositories.base import Repository
from licserver.database.tables import activations, license_words, licenses
from licserver.domain.search_words import extract_words, matches_terms

MAX_SCANNED: Final = 1_000
"""Rows that are looked at for one page."""

_BEHIND: Final = "\U0010ffff"
"""Sorts behind whatever may follow in a word."""

EnvironmentRequest: TypeAlias = tuple[Any, ...]
"""Where a page ended: the number of the way, and then the values of its order."""

Keep: TypeAlias = Callable[[Row[Any]], bool]

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
class Way:
    """One way through the licenses: along an index, from an end of it.

    Args:
        order: The columns of the index, which tell all rows apart.
        where: What the index holds, or what bounds the part of it.
        keep: Asked of each candidate: a row with the dates of a license.
        descending: From which end.
        statement: Selects candidates; also what `order` names, if that is of another table.
    """

    order: Sequence[ColumnElement[Any]]
    where: Sequence[ColumnElement[bool]] = ()
    keep: Keep = lambda _row: True
    descending: bool = False
    statement: Select[Any] = field(default_factory=lambda: select(*_CANDIDATE))


class Found(NamedTuple):
    """A page: ids of licenses, and where the next one begins, or None at the end."""

    ids: list[bytes]
    place: EnvironmentRequest | None


class LicenseSearchRepository(Repository):
    """Finds licenses."""

    def find(self, ways: Sequence[Way], place: EnvironmentRequest | None, limit: int) -> Found:
        """Read a page along ways, one after the other.

        Args:
            ways: Together they must meet no license twice that they keep.
            place: Where the page before this one ended, or None; it must fit (`fits`).
            limit: How many at most; a page may hold fewer and not be the last.
        """
        found: list[bytes] = []
        left, wanted = MAX_SCANNED, limit + 1
        number, *after = place or (0,)
        while number < len(ways):
            size = min(left, wanted)
            rows = self._candidates(ways[number], after, size)
            for row in rows:
                if ways[number].keep(row):
                    found.append(row.id)
                after = list(row[-len(ways[number].order) :])
                if len(found) == limit:
                    is_last = len(rows) < size and row is rows[-1] and number == len(ways) - 1
                    return Found(found, None if is_last else (number, *after))
            left, wanted = left - len(rows), 4 * wanted  # the rarer they are, the more at a time
            if left <= 0:
                return Found(found, (number, *after))
            if len(rows) < size:
                number, after = number + 1, []
        return Found(found, None)

    def _candidates(self, way: Way, after: Sequence[Any], limit: int) -> list[Row[Any]]:
        statement = way.statement.add_columns(
            *(column.label(f"at_{n}") for n, column in enumerate(way.order))
        )
        statement = statement.where(*way.where)
        if after:
            key = tuple_(*way.order)
            held = tuple_(*(literal(value, one.type) for value, one in zip(after, way.order, strict=True)))
            statement = statement.where(key < held if way.descending else key > held)
        order = [column.desc() for column in way.order] if way.descending else way.order
        with self._reading() as connection:
            return list(connection.execute(statement.order_by(*order).limit(limit)))


def fits(ways: Sequence[Way], place: EnvironmentRequest) -> bool:
    """Tell whether a place, which has travelled, can be one on these ways."""
    number, *values = place or (None,)
    if type(number) is not int or not 0 <= number < len(ways):
        return False
    types = [column.type.python_type for column in ways[number].order]
    return [type(value) for value in values] in ([], types)


def by_id(license_id: bytes, keep: Keep) -> Way:
    """Make the way to one license."""
    return Way((licenses.c.id,), [licenses.c.id == license_id], keep)


def by_issue(
    keep: Keep, *, product_id: int | None = None, subscription_id: str | None = None, revoked: bool = False
) -> Way:
    """Make the way that meets the latest license first.

    Of what is given only the rarest bounds it, because it has an index of its own; `keep` sees to the rest.
    """
    where = []
    if subscription_id is not None:
        where.append(licenses.c.subscription_id == subscription_id)
    elif revoked:
        where.append(licenses.c.revoked_at.is_not(None))
    elif product_id is not None:
        where.append(licenses.c.product_id == product_id)
    return Way((licenses.c.issued_at, licenses.c.id), where, keep, descending=True)


def by_expiry(keep: Keep, first: date | None, last: date | None, *, descending: bool = False) -> Way:
    """Make the way along the days of expiry, from `first` to `last`, both included."""
    day = licenses.c.expires_on
    where: list[ColumnElement[bool]] = [day.is_not(None)]
    if first is not None:
        where.append(day >= first)
    if last is not None:
        where.append(day <= last)
    return Way((day, licenses.c.id), where, keep, descending=descending)


def by_subscription(keep: Keep) -> Way:
    """Make the way that meets what hangs on a subscription."""
    column = licenses.c.subscription_id
    return Way((column, licenses.c.id), [column.is_not(None)], keep)


def by_word(term: str, others: list[str], keep: Keep) -> Way:
    """Make the way through the words that begin with a term; a license is met at the first of its words.

    Args:
        term: As `licserver.domain.search_words.parse_terms` gives it.
        others: What must begin words of the license as well.
        keep: Asked besides.
    """
    word = license_words.c.word
    statement = (
        select(*_CANDIDATE, licenses.c.customer_email, licenses.c.note, word)
        .select_from(license_words)
        .join(licenses, licenses.c.id == license_words.c.license_id)
    )

    def is_first(row: Row[Any]) -> bool:
        if not keep(row):
            return False
        words = extract_words(row.customer_email, row.note)
        first = min((one for one in words if one.startswith(term)), default=None)
        return first == row.word and matches_terms(words, others)

    where = [word >= term, word < term + _BEHIND]
    return Way((word, license_words.c.license_id), where, is_first, statement=statement)


def by_domain(prefix: str, terms: list[str], keep: Keep, *, but_not: str | None = None) -> Way:
    """Make the way through the activations whose domain begins like this; each license is met once.

    Args:
        prefix: Of a domain in its normal form (D-06).
        terms: What was searched for: who is found by words is left to `by_word`.
        keep: Asked besides.
        but_not: Another prefix, whose way has been gone.
    """
    other = activations.alias("other")
    of_it = select(other.c.license_id).where(
        other.c.license_id == activations.c.license_id, other.c.last_seen_at.is_not(None)
    )
    before = tuple_(other.c.domain, other.c.ip) < tuple_(activations.c.domain, activations.c.ip)
    met = [of_it.where(other.c.domain >= prefix, before)]
    if but_not is not None:
        met.append(of_it.where(other.c.domain >= but_not, other.c.domain < but_not + _BEHIND))
    statement = (
        select(*_CANDIDATE, licenses.c.customer_email, licenses.c.note)
        .select_from(activations)
        .join(licenses, licenses.c.id == activations.c.license_id)
    )

    def is_new(row: Row[Any]) -> bool:
        return keep(row) and not matches_terms(extract_words(row.customer_email, row.note), terms)

    where = [
        activations.c.last_seen_at.is_not(None),
        activations.c.domain >= prefix,
        activations.c.domain < prefix + _BEHIND,
        *(~one.exists() for one in met),
    ]
    return Way((activations.c.domain, activations.c.license_id), where, is_new, statement=statement)
