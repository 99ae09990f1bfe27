"""The audit log, written in the transaction of a change; and the removal of what is older than it need be."""

import heapq
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, delete, func, select

from licserver.database.names import find_changes
from licserver.database.repositories.base import BATCH, Repository, delete_free, insert_into, put_into
from licserver.database.repositories.instants import WATCHED
from licserver.database.repositories.statistics import REFUSALS_KEPT
from licserver.database.repositories.users import delete_old_attempts
from licserver.database.tables.access import failed_logins, idempotency_keys, known_addresses, sessions
from licserver.database.tables.licenses import (
    activations,
    audit,
    facts,
    licenses,
    move_records,
    moves,
    refusals,
    seats,
    shared_licenses,
    slot_moves,
)
from licserver.domain.moves import MOVES_COUNT_FOR
from licserver.domain.records import Actor, ActorKind


class Entry(NamedTuple):
    """A line of the audit log, about an object.

    Args:
        object_kind: ``license``, ``product``, ``release``, ``subscription``, ``token``, ``user``, ``list`` (a
            file of the console's), ``installation`` (its backup), ``database`` (a sweep of it), ``secret``,
            ``signing-key``.
        object_id: A license's id in hexadecimal digits, a slug, ``slug/version``, a name, a key's id.
        details: Without license keys and secrets.
    """

    id: int
    at: datetime
    actor: Actor
    action: str
    object_kind: str
    object_id: str
    details: dict[str, Any]


class AuditFilter(NamedTuple):
    """A filter of lines, None is all: of an object (kind, id), of an actor, or by an actor's kind or name."""

    object: tuple[str, str] | None = None
    actor: Actor | None = None
    kind: ActorKind | None = None
    name: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class AuditRepository(Repository):
    """Lines of the audit log; none is ever changed."""

    def add(
        self, at: datetime, actor: Actor, action: str, details: dict[str, Any], *objects: tuple[str, str]
    ) -> None:
        """Add a line for each object (kind and id), in the transaction of the change."""
        row = {"at": at, "actor_kind": actor.kind.value, "actor_name": actor.name, "action": action}
        row["details"] = json.dumps(details, ensure_ascii=False, separators=(",", ":"))
        rows = [{**row, "object_kind": kind, "object_id": id_} for kind, id_ in objects]
        with self._writing() as connection:
            connection.execute(sa.insert(audit), rows)

    def list_page(self, which: AuditFilter, before: int | None, limit: int) -> list[Entry]:
        """Load at most `limit` lines with numbers below `before`, the newest first."""
        kind, name = which.actor or (which.kind, which.name)
        conditions = [] if before is None else [audit.c.id < before]
        # By number, so that the order is that of an index.
        at, number = audit.c.at, select(audit.c.id).limit(1)
        if which.since is not None:
            first = number.where(at >= which.since).order_by(at, audit.c.id)
            conditions.append(audit.c.id >= first.scalar_subquery())
        if which.until is not None:
            last = number.where(at < which.until).order_by(at.desc(), audit.c.id.desc())
            conditions.append(audit.c.id <= last.scalar_subquery())
        if which.object is not None:
            conditions += [audit.c.object_kind == which.object[0], audit.c.object_id == which.object[1]]
            conditions += [] if kind is None else [audit.c.actor_kind == kind.value]
            conditions += [] if name is None else [audit.c.actor_name == name]
        statement = select(audit).where(*conditions).order_by(audit.c.id.desc()).limit(limit)
        with self._reading() as connection:
            if which.object is None and (kind is not None or name is not None):
                statement = _of_actors(connection, statement, _actors(connection, kind, name), limit)
            return [_read_entry(row) for row in connection.execute(statement)]


def _of_actors(
    connection: Connection, statement: sa.Select[Any], actors: Iterator[tuple[str, str]], limit: int
) -> sa.Select[Any]:
    """Select the newest lines of a few actors.

    Along the index of each: none has the lines of several in the order of their numbers, and going back
    through all lines to find three old ones takes a second in a million.
    """
    numbers: list[int] = []
    for kind, name in actors:
        theirs = statement.where(audit.c.actor_kind == kind, audit.c.actor_name == name)
        numbers += connection.scalars(theirs.with_only_columns(audit.c.id))
    newest = heapq.nlargest(limit, numbers)
    return select(audit).where(audit.c.id.in_(newest)).order_by(audit.c.id.desc())


def _actors(connection: Connection, kind: ActorKind | None, name: str | None) -> Iterator[tuple[str, str]]:
    """Name all whom a kind and a name may mean; names are found from one to the next, along the index."""
    for actor_kind in [kind] if kind is not None else list(ActorKind):
        if name is not None:
            yield actor_kind.value, name
            continue
        names = select(func.min(audit.c.actor_name)).where(audit.c.actor_kind == actor_kind.value)
        actor_name = connection.scalar(names)
        while actor_name is not None:
            yield actor_kind.value, actor_name
            actor_name = connection.scalar(names.where(audit.c.actor_name > actor_name))


def _read_entry(row: sa.Row[Any]) -> Entry:
    actor = Actor(ActorKind(row.actor_kind), row.actor_name)
    return Entry(row.id, row.at, actor, row.action, row.object_kind, row.object_id, json.loads(row.details))


# --- retention --------------------------------------------------------------------------------

RANGE: Final = 10_000  # activations that a statement looks at
SWEPT: Final = "swept_at"
"""The fact with the start of the last sweep."""

ADDRESS_KEPT: Final = timedelta(days=90)
"""After so long without a sign-in an address of a user is an unknown one again."""

_seen: Final = func.coalesce(activations.c.last_seen_at, activations.c.activated_at)


class Stale(NamedTuple):
    """Activations last seen before an instant: all, or those of licenses with unlimited slots."""

    before: datetime
    is_unlimited: bool = False

    def condition(self) -> ColumnElement[bool]:
        """Return it for a statement."""
        file_ended = func.coalesce(activations.c.offline_until, _seen) < self.before
        is_stale = (_seen < self.before) & file_ended
        if not self.is_unlimited:
            return is_stale
        of_license = select(licenses.c.id).where(licenses.c.id == activations.c.license_id)
        return is_stale & of_license.where(licenses.c.slots.is_(None)).exists()


class Retention(Repository):
    """Removes rows; what was removed before a `StoreUnavailableError` stays removed."""

    def watched_since(self, now: datetime) -> datetime:
        """Return when sweeps for stale activations began; that is now, the first time."""
        value = now.astimezone(UTC).isoformat().encode()
        with self._database.writing() as connection:
            first = insert_into(connection, facts).values(name=WATCHED, value=value)
            connection.execute(first.on_conflict_do_nothing())
            stored = connection.execute(select(facts.c.value).where(facts.c.name == WATCHED)).scalar_one()
        return datetime.fromisoformat(bytes(stored).decode())

    def begin_sweep(self, now: datetime, every: timedelta) -> bool:
        """Return whether a sweep is due, and let the next one be due later; never at the first call."""
        with self._database.writing() as connection:
            stored = connection.scalar(select(facts.c.value).where(facts.c.name == SWEPT))
            began_at = None if stored is None else datetime.fromisoformat(bytes(stored).decode())
            # An instant of the future was stored by a clock that was ahead.
            if began_at is not None and timedelta() <= now - began_at < every:
                return False
            value = now.astimezone(UTC).isoformat().encode()
            put_into(connection, facts, {"name": SWEPT, "value": value})
        self.watched_since(now)
        return began_at is not None

    def stale(self, which: Stale, watched_since: datetime) -> Iterator[Counter[bytes]]:
        """Free the slots of stale activations; yield their numbers by license.

        All count as seen at `watched_since`: what was stored before it may be missing. What another
        transaction has locked stays.
        """
        if watched_since >= which.before:
            return
        is_stale = which.condition()
        key = sa.tuple_(*activations.primary_key)
        for within in self._ranges():
            rows = self._all(select(*activations.primary_key).where(within, is_stale))
            for start in range(0, len(rows), BATCH):
                freed = Counter[bytes]()
                with self._database.writing() as connection:
                    for row in rows[start : start + BATCH]:
                        # Checked again: it may have been seen meanwhile.
                        still = select(*activations.primary_key).where(key == tuple(row), is_stale)
                        freed[row.license_id] += connection.execute(delete_free(activations, still)).rowcount
                yield +freed

    def normalise_names(self) -> int:
        """Bring domains of programs before schema 0036 into their normal form; return how many."""
        total = 0
        while True:
            with self._database.reading() as connection:
                changes = list(islice(find_changes(connection), BATCH))
            for change in changes:
                with self._database.writing() as connection:
                    change(connection)
            total += len(changes)
            if len(changes) < BATCH:
                return total

    def _ranges(self) -> Iterator[ColumnElement[bool]]:
        """Divide the activations by their licenses; yield conditions, each of some thousand rows.

        To look for the next stale one, a single statement might read all: no index has `last_seen_at`.
        """
        column = activations.c.license_id
        after: ColumnElement[bool] = sa.true()
        while True:
            ends = select(column).where(after).order_by(column).offset(RANGE - 1).limit(1)
            if (end := self._scalar(ends)) is None:
                yield after
                return
            yield sa.and_(after, column <= end)
            after = column > end

    def old_lines(self, before: datetime) -> Iterator[int]:
        """Remove lines of the audit log, in batches; yield the number of each."""
        old = select(audit.c.id).where(audit.c.at < before).order_by(audit.c.at).limit(BATCH)
        while count := self._execute(delete(audit).where(audit.c.id.in_(old))):
            yield count

    def over(self, now: datetime, responses_before: datetime, idle_since: datetime) -> tuple[int, int]:
        """Remove what has expired; return the numbers of sessions and of recorded responses.

        Beside these: known addresses, and counts of attempts.
        """
        has_ended = sa.or_(sessions.c.expires_at < now, sessions.c.last_used_at < idle_since)
        with self._writing() as connection:
            delete_old_attempts(connection, now)
        self._delete(known_addresses, known_addresses.c.last_used_at < now - ADDRESS_KEPT)
        for column in (
            moves.c.freed_at,
            slot_moves.c.freed_at,
            move_records.c.moved_at,
            shared_licenses.c.marked_at,
        ):
            self._delete(column.table, column < now - MOVES_COUNT_FOR)
        self._delete(seats, seats.c.expires_at <= now)
        self._delete(refusals, refusals.c.last_at < now - REFUSALS_KEPT)
        self._delete(failed_logins, failed_logins.c.day < now.date() - timedelta(days=1))
        ended = self._delete(sessions, has_ended)
        return ended, self._delete(idempotency_keys, idempotency_keys.c.created_at < responses_before)

    def count_stale(self, which: Stale, watched_since: datetime) -> int:
        """Count what `stale` would free; looks at all activations."""
        if watched_since >= which.before:
            return 0
        count = select(func.count()).select_from(activations).where(which.condition())
        return sum(self._scalar(count.where(within)) for within in self._ranges())

    def count_lines(self, before: datetime) -> int:
        """Count what `old_lines` would remove."""
        with self._database.snapshot() as connection:
            return connection.scalar(select(func.count()).select_from(audit).where(audit.c.at < before)) or 0
