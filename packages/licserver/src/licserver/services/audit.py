"""The audit log: who changed what."""

from datetime import datetime
from typing import Any, NamedTuple

from licserver.database.repositories.audit import Entry
from licserver.domain.environments import is_printable
from licserver.domain.records import Actor, ActorKind
from licserver.errors import WrongUse
from licserver.services.base import Room
from licserver.services.pagination import Page, check_limit, read_cursor, write_cursor, wrong_cursor


class AuditFilter(NamedTuple):
    """Which lines; None is all.

    Args:
        object: Kind and id of what was changed.
        actor: Who changed it.
        kind: By which way, where no actor is given.
        name: Who, by whatever way, where no actor is given.
        since: Not older than this.
        until: Older than this.
    """

    object: tuple[str, str] | None = None
    actor: Actor | None = None
    kind: ActorKind | None = None
    name: str | None = None
    since: datetime | None = None
    until: datetime | None = None


_ALL = AuditFilter()


class History(Room):
    """What has been done."""

    def note_alone(self, action: str, object_: tuple[str, str], **details: Any) -> None:
        """Note what changes nothing in the books.

        That somebody takes away what they hold, before it is handed out; or what was done to the secrets,
        which lie elsewhere, once it is done.

        Args:
            action: What.
            object_: Kind and id of what is taken or changed.
            details: For JSON; neither keys nor what is a customer's.
        """
        with self._records.together() as books:
            self._note(books, action, object_, **details)

    def audit(self, which: AuditFilter = _ALL, cursor: str | None = None, limit: int = 50) -> Page[Entry]:
        """A page of the audit log, the newest line first.

        Raises:
            WrongUse: for a filter that cannot be, or a cursor that is none of this list's.
        """
        check_limit(limit)
        before: int | None = None
        if cursor is not None:
            match read_cursor(cursor):
                case (int() as place,):
                    before = place
                case _:
                    raise wrong_cursor()
        kind, name = which.actor or (which.kind, which.name)
        named = [*(which.object or ()), *([name] if name is not None else [])]
        if not all(map(is_printable, named)):
            raise WrongUse("who and what are named in one line of text")
        found = self._records.audit_page(
            before,
            limit + 1,
            object_=which.object,
            kind=kind,
            name=name,
            since=which.since,
            until=which.until,
        )
        more = len(found) > limit
        return Page(found[:limit], write_cursor([found[limit - 1].id]) if more else None)
