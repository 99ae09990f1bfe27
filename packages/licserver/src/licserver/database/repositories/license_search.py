"""Lists of licenses: every filter is a condition in SQL, and a page is read in the order of an index.

The planners of both engines need help for that:

    what                                  because without it
    ------------------------------------  ----------------------------------------------------------------
    the indexes (`tables.licenses`) hold  a license that does not match costs a look-up in the table
      what decides a state
    few matches in the whole table are    the list's index is read to its end for a page that is never full
      collected first (`_conditions`)
    `LIMIT` around each count             a count reads all that match (`MAX_COUNTED_LICENSES`)
    a plus sign before a column           SQLite reads the index of any column that must equal a value, and
      (`having`)                          sorts what it leaves (sqlite.org/optoverview.html)
    `earlier.license_id = licenses.id`,   SQLite looks for earlier words before it applies the filters
      not that of the word (`by_word`)
    `domain, ip` as row values            a license with several matching activations is in the list as often
      (`_by_activation`)
    `IN` of every head that a key of      a search by the last characters reads the whole index
      ours can have (`find_masked`)
    `>=` and `<` for a prefix             `LIKE` uses no index: it ignores case in SQLite, and PostgreSQL's
      (`_begins`)                         index is not made for it
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy import Column, ColumnElement, Connection, Select, and_, exists, func, or_, select, tuple_

from licserver.database.repositories.base import Repository
from licserver.database.tables.licenses import activations, license_words, licenses, shared_licenses
from licserver.domain.decisions import KEY_ALPHABET
from licserver.domain.records import LicenseState

MAX_COLLECTED: Final = 5_000
"""Where more match, the list's index is read until a page is full: 0.5 % of a million is soon found."""

MAX_COUNTED_LICENSES: Final = 10_000
MAX_COUNTED_WORDS: Final = 1_000
"""The limit of a count; each match of a word costs a look at the license's other words."""

_LAST: Final = "\U0010ffff"  # sorts after every character that may follow a prefix

Position: TypeAlias = tuple[Any, ...]
"""The end of a page: the number of the scan, then the values of its order."""


class Scan(NamedTuple):
    """A part of a list.

    Args:
        order: The first columns of an index, which identify each license.
        where: The part of the index.
        descending: From which end it is read.
        source: What the index belongs to: licenses, or something joined with them.
        member: Whether a license is in this scan; None where no other scan follows.
    """

    order: Sequence[ColumnElement[Any]]
    where: Sequence[ColumnElement[bool]] = ()
    descending: bool = False
    source: sa.FromClause = licenses
    member: ColumnElement[bool] | None = None


class Filter(NamedTuple):
    """A condition on licenses.

    Args:
        condition: Whether a license matches, where it is left open which index is read.
        indexed: The same, where its own index is read.
    """

    condition: ColumnElement[bool]
    indexed: ColumnElement[bool]


class SearchResult(NamedTuple):
    """A page: ids of licenses, and where the next one begins, or None at the end."""

    ids: list[bytes]
    position: Position | None


class LicenseSearchRepository(Repository):
    """Finds licenses."""

    def find(
        self, scans: Sequence[Scan], filters: Sequence[Filter], position: Position | None, limit: int
    ) -> SearchResult:
        """Read a page: full, unless it is the last.

        Args:
            scans: The list's parts, one after the other; no license is in two of them.
            filters: All of them must match.
            position: Where the page before ended; it must fit (`fits`).
        """
        number, *after = position or (0,)
        numbered_rows: list[tuple[int, Any]] = []
        with self._reading() as connection:
            conditions, _ = _conditions(connection, scans, filters)
            for scan in scans[number:]:
                statement = _select(scan, conditions, after).limit(limit + 1 - len(numbered_rows))
                numbered_rows += [(number, row) for row in connection.execute(statement)]
                if len(numbered_rows) > limit:
                    break
                number, after = number + 1, []
        page = [row.id for _, row in numbered_rows[:limit]]
        if len(numbered_rows) <= limit:
            return SearchResult(page, None)
        last_scan, (_, *values) = numbered_rows[limit - 1]
        return SearchResult(page, (last_scan, *values))

    def count(self, scans: Sequence[Scan], filters: Sequence[Filter]) -> tuple[int, bool] | None:
        """Count what `find` finds, up to a limit: the number, and whether there are more.

        None where that would take long: filters that leave neither few licenses nor most of them.
        """
        is_plain = all(scan.source is licenses for scan in scans)
        limit = MAX_COUNTED_LICENSES if is_plain else MAX_COUNTED_WORDS
        with self._reading() as connection:
            conditions, are_few = _conditions(connection, scans, filters)
            if filters and not are_few:
                return None
            number = 0
            for scan in scans:
                matches = _select(scan, conditions, ()).limit(limit + 1 - number).subquery()
                number += connection.execute(select(func.count()).select_from(matches)).scalar_one()
        return min(number, limit), number > limit

    def list_addresses(self, word: str, limit: int) -> dict[bytes, str]:
        """Load ids and e-mail addresses of licenses with a word that begins so, the latest license first.

        `limit` words are read.
        """
        words = license_words.c
        begins = words.word >= word, words.word < word + _LAST
        hits = select(words.license_id).where(*begins).order_by(words.word).limit(limit).subquery()
        has_address = licenses.c.id.in_(select(hits.c.license_id)), licenses.c.customer_email.is_not(None)
        statement = select(licenses.c.id, licenses.c.customer_email).where(*has_address)
        statement = statement.order_by(licenses.c.issued_at.desc(), licenses.c.id.desc())
        return {row.id: row.customer_email for row in self._all(statement)}

    def choose_term(self, terms: Sequence[str], position: Position | None) -> str:
        """Return the term that begins the fewest words; on later pages that of the first page."""
        if position is not None and len(position) > 1 and isinstance(word := position[1], str):
            return next((term for term in terms if word.startswith(term)), terms[0])
        if len(terms) == 1:
            return terms[0]
        with self._reading() as connection:
            return next((term for term in terms if _are_few(connection, _with_word(term))), terms[0])

    def find_masked(self, head: str, tail: str) -> list[tuple[bytes, bytes]]:
        """Load id and encrypted key of at most `MAX_COLLECTED` licenses by their masked keys.

        A key that was sold elsewhere may have small letters: both ends are tried as typed, and in capitals.
        Without the head, the index is probed for each that a key of ours can have.
        """
        masked = licenses.c.masked_key
        if head and not tail:
            condition = or_(*(_begins(masked, f"{prefix}…") for prefix in {head, head.upper()}))
        elif head:
            condition = masked.in_({f"{head}…{tail}", f"{head}…{tail}".upper()})
        else:
            heads = map("".join, product(["CP-"], KEY_ALPHABET, KEY_ALPHABET))
            condition = masked.in_([f"{prefix}…{tail}" for prefix in heads])
        statement = select(licenses.c.id, licenses.c.encrypted_key).where(condition).limit(MAX_COLLECTED)
        return [(row.id, row.encrypted_key) for row in self._all(statement)]

    def having(self, name: str, value: object) -> Filter:
        """Return the filter by a column's value, for a scan along another index (see `by_issue`)."""
        column = licenses.c[name]
        if self._database.is_remote:
            return _filter(column == value)
        hidden = sa.literal_column(f"+licenses.{column.name}", column.type)
        return Filter(hidden == value, column == value)


def _conditions(
    connection: Connection, scans: Sequence[Scan], filters: Sequence[Filter]
) -> tuple[list[ColumnElement[bool]], bool]:
    """Return the conditions of a list, and whether few licenses of the whole table match its filters."""
    conditions = [filter_.condition for filter_ in filters]
    first = scans[0]
    if first.source is licenses:
        # PostgreSQL chooses by itself.
        may_be_rare = any(filter_.indexed is not filter_.condition for filter_ in filters)
    else:
        ids = select(first.order[-1]).where(first.where[0])
        may_be_rare = bool(filters) and not _are_few(connection, ids)
    if may_be_rare:  # reading the list's index may take long before enough licenses match
        matching = select(licenses.c.id).where(*(filter_.indexed for filter_ in filters))
        if _are_few(connection, matching):
            return [*conditions, licenses.c.id.in_(matching.limit(MAX_COLLECTED))], True
    return conditions, False


def _are_few(connection: Connection, ids: Select[Any]) -> bool:
    sample = ids.limit(MAX_COLLECTED + 1).subquery()
    return connection.execute(select(func.count()).select_from(sample)).scalar_one() <= MAX_COLLECTED


def _select(scan: Scan, conditions: Sequence[ColumnElement[bool]], after: Sequence[Any]) -> Select[Any]:
    columns = [column.label(f"at_{n}") for n, column in enumerate(scan.order)]
    statement = select(licenses.c.id, *columns).select_from(scan.source).where(*scan.where, *conditions)
    if after:
        key = tuple_(*scan.order)
        last = tuple_(
            *(sa.literal(value, column.type) for value, column in zip(after, scan.order, strict=True))
        )
        statement = statement.where(key < last if scan.descending else key > last)
    return statement.order_by(*(column.desc() if scan.descending else column for column in scan.order))


def fits(scans: Sequence[Scan], position: Position) -> bool:
    """Return whether a position from a cursor can be one of these scans."""
    number, *values = position or (None,)
    if type(number) is not int or not 0 <= number < len(scans):
        return False
    types = [column.type.python_type for column in scans[number].order]
    return [type(value) for value in values] in ([], types)


# --- scans ------------------------------------------------------------------------------------


def by_issue(*, product_id: int | None = None, revoked: bool = False, oldest_first: bool = False) -> Scan:
    """Return the scan by the instant of issue: of one product, or of the revoked ones."""
    where = [] if product_id is None else [licenses.c.product_id == product_id]
    where += [licenses.c.revoked_at.is_not(None)] if revoked else []
    return Scan((licenses.c.issued_at, licenses.c.id), where, descending=not oldest_first)


def by_ids(ids: Sequence[bytes]) -> Scan:
    """Return the scan of some licenses."""
    is_one = licenses.c.id.in_(ids)
    return Scan((licenses.c.id,), [is_one], member=is_one)


def by_expiry(first: date | None, last: date | None) -> Scan:
    """Return the scan along the days of expiry, from `first` to `last`, both included."""
    day = licenses.c.expires_on
    where: list[ColumnElement[bool]] = [day.is_not(None)]
    if first is not None:
        where.append(day >= first)
    if last is not None:
        where.append(day <= last)
    return Scan((day, licenses.c.id), where)


def by_end(now: datetime) -> list[Scan]:
    """Return the scans of all licenses that may have expired, the latest first.

    First the days that have passed, then the licenses that only their subscription has ended.
    """
    day, ended_at, today = licenses.c.expires_on, licenses.c.subscription_ended_at, now.date()
    return [
        by_expiry(None, today - timedelta(days=1))._replace(descending=True),
        Scan((ended_at, licenses.c.id), [ended_at <= now, or_(day.is_(None), day >= today)], descending=True),
    ]


def by_word(term: str, others: Sequence[str]) -> Scan:
    """Return the scan of the words that begin with a term; it finds a license at the first of its words.

    Words of the license must begin with `others` as well.
    """
    word, of_license = license_words.c.word, license_words.c.license_id
    earlier = license_words.alias("earlier")
    is_found_before = exists().where(
        earlier.c.license_id == licenses.c.id, earlier.c.word >= term, earlier.c.word < word
    )
    where = [_begins(word, term), ~is_found_before, *map(_has_word, others)]
    return Scan(
        (word, of_license),
        where,
        source=license_words.join(licenses, licenses.c.id == of_license),
        member=and_(*map(_has_word, (term, *others))),
    )


def by_domain(prefix: str) -> Scan:
    """Return the scan of the activations whose normalised domain begins with a prefix."""
    return _by_activation(activations.c.domain, lambda domain: _begins(domain, prefix))


def by_ip(ip: str) -> Scan:
    """Return the scan of the activations from an address."""
    return _by_activation(activations.c.ip, lambda column: column == ip)


def _by_activation(column: Column[str], fits: Callable[[ColumnElement[str]], ColumnElement[bool]]) -> Scan:
    """Return a scan along an index of the activations; it finds each license once."""
    other = activations.alias("other")
    of_it = exists().where(other.c.license_id == licenses.c.id, fits(other.c[column.name]))
    before = tuple_(other.c.domain, other.c.ip) < tuple_(activations.c.domain, activations.c.ip)
    return Scan(
        (column, activations.c.license_id),
        [fits(column), ~of_it.where(before)],
        source=activations.join(licenses, licenses.c.id == activations.c.license_id),
        member=of_it,
    )


def by_subscription(prefix: str) -> Scan:
    """Return the scan of the licenses whose subscription's id begins with a prefix."""
    column = licenses.c.subscription_id
    begins = and_(column.is_not(None), _begins(column, prefix))
    return Scan((column, licenses.c.id), [begins], member=begins)


def chain(scans: Sequence[Scan]) -> list[Scan]:
    """Return the scans such that none finds a license that is in one before it."""
    members = [scan.member for scan in scans if scan.member is not None]
    return [
        scan._replace(where=[*scan.where, *(~member for member in members[:number])])
        for number, scan in enumerate(scans)
    ]


def _begins(column: ColumnElement[str], prefix: str) -> ColumnElement[bool]:
    return and_(column >= prefix, column < prefix + _LAST)


def _with_word(term: str) -> Select[Any]:
    return select(license_words.c.license_id).where(_begins(license_words.c.word, term))


def _has_word(term: str) -> ColumnElement[bool]:
    words = license_words.alias()
    return exists().where(words.c.license_id == licenses.c.id, _begins(words.c.word, term))


# --- filters ----------------------------------------------------------------------------------


def in_state(state: LicenseState, now: datetime) -> Filter:
    """Return the filter by state: `decisions.license_state` in SQL; a test holds the two together."""
    columns, today = licenses.c, now.date()
    if state is LicenseState.REVOKED:
        return _filter(columns.revoked_at.is_not(None))
    if state is LicenseState.EXPIRED:
        is_over = or_(columns.subscription_ended_at <= now, columns.expires_on < today)
        return _filter(and_(columns.revoked_at.is_(None), sa.not_(columns.lifetime), is_over))
    runs = or_(columns.subscription_ended_at.is_(None), columns.subscription_ended_at > now)
    lasts = or_(columns.expires_on.is_(None), columns.expires_on >= today)
    return _filter(and_(columns.revoked_at.is_(None), or_(columns.lifetime, and_(runs, lasts))))


def is_trial(value: bool) -> Filter:
    """Return the filter by whether a license is a trial; these have an index of their own."""
    return _filter(licenses.c.trial.is_(sa.true() if value else sa.false()))


def is_shared(value: bool) -> Filter:
    """Return the filter by whether a license is marked as probably shared, which few are."""
    shared = select(shared_licenses.c.license_id)
    if not value:
        return _filter(licenses.c.id.not_in(shared))
    is_marked = exists().where(shared_licenses.c.license_id == licenses.c.id)
    return Filter(is_marked, licenses.c.id.in_(shared))


def supported(at: datetime) -> Filter:
    """Return the filter by support period: not `decisions.is_support_over`, for a product with the policy."""
    return _filter(or_(licenses.c.support_until.is_(None), licenses.c.support_until >= at.date()))


def may_have_fixes(now: datetime) -> Filter:
    """Return the filter of licenses that are offered security releases."""
    is_active = in_state(LicenseState.ACTIVE, now).condition
    return _filter(and_(licenses.c.revoked_at.is_(None), or_(sa.not_(licenses.c.trial), is_active)))


def expiring(first: date | None, last: date | None) -> Filter:
    """Return the filter by day of expiry, as `by_expiry`."""
    return _filter(and_(*by_expiry(first, last).where))


def _filter(condition: ColumnElement[bool]) -> Filter:
    return Filter(condition, condition)
