"""The audit log: who changed what, written in the transaction of the change."""

import json
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Row, insert, select

from licserver.model import Actor, ActorKind
from licserver.store.shelf import Shelf
from licserver.store.tables import audit


class Entry(NamedTuple):
    """A line of the audit log.

    Args:
        id: Its number; later ones are greater.
        at: When.
        actor: Who.
        action: What, as ``license.revoke``.
        object_kind: Of what: ``license``, ``product``, ``release``, ``subscription``, ``token``, ``user``,
            ``list`` (a file of the console's), ``installation`` (its backup), ``database`` (a sweep of it),
            ``secret``, ``signing-key``.
        object_id: Which: a license's id in hexadecimal digits, a slug, ``slug/version``, a name, a key's id.
        details: What else; without license keys and secrets.
    """

    id: int
    at: datetime
    actor: Actor
    action: str
    object_kind: str
    object_id: str
    details: dict[str, Any]


class AuditBooks(Shelf):
    """Lines are added, and read; none is ever changed."""

    def note(
        self, at: datetime, actor: Actor, action: str, object_: tuple[str, str], details: dict[str, Any]
    ) -> None:
        """Add a line; call it within `together`, beside the change.

        Args:
            at: When.
            actor: Who.
            action: What.
            object_: Kind and id.
            details: For JSON.
        """
        row = {
            "at": at,
            "actor_kind": actor.kind.value,
            "actor_name": actor.name,
            "action": action,
            "object_kind": object_[0],
            "object_id": object_[1],
            "details": json.dumps(details, ensure_ascii=False, separators=(",", ":")),
        }
        with self._writing() as connection:
            connection.execute(insert(audit).values(row))

    def audit_page(
        self,
        before: int | None,
        limit: int,
        *,
        object_: tuple[str, str] | None = None,
        kind: ActorKind | None = None,
        name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[Entry]:
        """Load lines, the newest first.

        Args:
            before: The number of the last line that is known, or None.
            limit: How many at most.
            object_: Only of this kind and id.
            kind: Only by this way.
            name: Only by whom this names.
            since: Not older than this.
            until: Older than this.
        """
        statement = select(audit).order_by(audit.c.id.desc()).limit(limit)
        for column, value in (
            (audit.c.object_kind, object_ and object_[0]),
            (audit.c.object_id, object_ and object_[1]),
            (audit.c.actor_kind, kind and kind.value),
            (audit.c.actor_name, name),
        ):
            if value is not None:
                statement = statement.where(column == value)
        if before is not None:
            statement = statement.where(audit.c.id < before)
        with self._reading() as connection:
            if since is not None:  # by number, so that the order is that of an index
                first = select(audit.c.id).where(audit.c.at >= since).order_by(audit.c.at, audit.c.id)
                if (number := connection.scalar(first.limit(1))) is None:
                    return []
                statement = statement.where(audit.c.id >= number)
            if until is not None:
                last = (
                    select(audit.c.id)
                    .where(audit.c.at < until)
                    .order_by(audit.c.at.desc(), audit.c.id.desc())
                )
                if (number := connection.scalar(last.limit(1))) is None:
                    return []
                statement = statement.where(audit.c.id <= number)
            return [_read_entry(row) for row in connection.execute(statement)]


def _read_entry(row: Row[Any]) -> Entry:
    actor = Actor(ActorKind(row.actor_kind), row.actor_name)
    return Entry(row.id, row.at, actor, row.action, row.object_kind, row.object_id, json.loads(row.details))
