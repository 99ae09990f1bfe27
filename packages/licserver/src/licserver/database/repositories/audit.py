"""The audit log: who changed what, written in the transaction of the change."""

import heapq
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, func, insert, select

from licserver.database.repositories.base import Repository
from licserver.database.tables import audit
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
    """Which lines, None is all: of an object (kind, id), of an actor, or by an actor's kind or name."""

    object: tuple[str, str] | None = None
    actor: Actor | None = None
    kind: ActorKind | None = None
    name: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class AuditRepository(Repository):
    """Lines of the audit log; none is ever changed."""

    def add(
        self, at: datetime, actor: Actor, action: str, object_: tuple[str, str], details: dict[str, Any]
    ) -> None:
        """Add a line, in the transaction of the change; `object_` is kind and id."""
        row = {
            "at": at,
            "actor_kind": actor.kind.value,
            "actor_name": actor.name,
            "action": action,
            "object_kind": object_[0],
            "object_id": object_[1],
            "details": json.dumps(details, ensure_ascii=False, separators=(",", ":")),
        }
        self._execute(insert(audit).values(row))

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
    connection: Connection, statement: Select[Any], actors: Iterator[tuple[str, str]], limit: int
) -> Select[Any]:
    """Select the newest lines of some actors, who are few.

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
    for one in [kind] if kind is not None else list(ActorKind):
        if name is not None:
            yield one.value, name
            continue
        names = select(func.min(audit.c.actor_name)).where(audit.c.actor_kind == one.value)
        found = connection.scalar(names)
        while found is not None:
            yield one.value, found
            found = connection.scalar(names.where(audit.c.actor_name > found))


def _read_entry(row: Row[Any]) -> Entry:
    actor = Actor(ActorKind(row.actor_kind), row.actor_name)
    return Entry(row.id, row.at, actor, row.action, row.object_kind, row.object_id, json.loads(row.details))
