"""The audit log: who changed what."""

from datetime import datetime
from typing import Any, NamedTuple

from licserver.database.repositories.audit import Entry
from licserver.domain.environments import is_printable
from licserver.domain.records import Actor, ActorKind
from licserver.errors import InvalidInputError
from licserver.services.context import Context
from licserver.services.pagination import Page, check_limit, cut_page, read_place


class AuditFilter(NamedTuple):
    """Which lines, None is all: of an object (kind, id), of an actor, or by an actor's kind or name."""

    object: tuple[str, str] | None = None
    actor: Actor | None = None
    kind: ActorKind | None = None
    name: str | None = None
    since: datetime | None = None
    until: datetime | None = None


_ALL = AuditFilter()


class AuditService:
    """Reads and writes the audit log."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def record(self, action: str, object_: tuple[str, str], **details: Any) -> None:
        """Add a line about something that changes no row.

        For data that is handed out, before it is handed out; and for changes of the secrets, which are not in
        the database, once they are done.
        """
        with self._context.transaction() as tx:
            tx.write_audit(action, object_, **details)

    def list_page(self, which: AuditFilter = _ALL, cursor: str | None = None, limit: int = 50) -> Page[Entry]:
        """Return a page of the audit log, the newest line first."""
        check_limit(limit)
        place = read_place(cursor, int)
        kind, name = which.actor or (which.kind, which.name)
        named = [*(which.object or ()), *([name] if name is not None else [])]
        if not all(map(is_printable, named)):
            raise InvalidInputError("an actor or an object is named in one line of text")
        found = self._context.repositories.audit.list_page(
            place[0] if place else None,
            limit + 1,
            object_=which.object,
            kind=kind,
            name=name,
            since=which.since,
            until=which.until,
        )
        return cut_page(found, limit, lambda last: [last.id])
