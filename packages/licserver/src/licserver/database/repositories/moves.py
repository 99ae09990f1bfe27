"""Slots that customers have freed, and which computer got them."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from sqlalchemy import bindparam, delete, insert, select

from licserver.database.repositories.base import Repository, matching
from licserver.database.repositories.instants import WATCHED
from licserver.database.tables.licenses import facts, move_records, shared_licenses, slot_moves
from licserver.domain.moves import Move, MoveRecord
from licserver.domain.records import Environment

_OF_LICENSES: Final = select(slot_moves).where(
    slot_moves.c.license_id.in_(bindparam("licenses", expanding=True))
)
_WATCHED: Final = select(facts.c.value).where(facts.c.name == WATCHED)
_RECORDS: Final = select(move_records).where(move_records.c.license_id == bindparam("license"))


class MoveRepository(Repository):
    """Computers that customers have freed or moved; swept after 30 days."""

    def list_all(self, license_ids: Collection[bytes]) -> dict[bytes, list[Move]]:
        """Load the moves of some licenses."""
        freed: dict[bytes, dict[datetime, set[Environment]]] = {license_id: {} for license_id in license_ids}
        for row in self._all(_OF_LICENSES, licenses=list(license_ids)) if license_ids else ():
            freed[row.license_id].setdefault(row.freed_at, set()).add(Environment(row.domain, row.ip))
        return {
            license_id: [Move(at, frozenset(environments)) for at, environments in moves.items()]
            for license_id, moves in freed.items()
        }

    def replace(self, license_id: bytes, gone: Iterable[Move], move: Move) -> None:
        """Store a move, which has at least one environment, and delete others of the license."""
        for former in gone:
            self._execute(
                delete(slot_moves).where(matching(slot_moves, license_id=license_id, freed_at=former.at))
            )
        rows = [
            {"license_id": license_id, "freed_at": move.at, **environment._asdict()}
            for environment in move.environments
        ]
        self._execute(insert(slot_moves).values(rows))

    def list_records(self, license_id: bytes) -> list[MoveRecord]:
        """Load which computers of a license got the slots of which."""
        return [MoveRecord._make(row[1:]) for row in self._all(_RECORDS, license=license_id)]

    def add_record(self, license_id: bytes, record: MoveRecord, gone: Iterable[MoveRecord]) -> None:
        """Store a record, and delete others of the license."""
        for former in gone:
            is_it = matching(move_records, license_id=license_id, moved_at=former.at)
            self._execute(delete(move_records).where(is_it))
        self._execute(insert(move_records).values((license_id, *record)))

    def watched_since(self) -> datetime | None:
        """Return when sweeps for stale activations began (`Retention.watched_since`)."""
        row = self._first(_WATCHED)
        return None if row is None else datetime.fromisoformat(bytes(row.value).decode())

    def mark_shared(self, license_id: bytes, now: datetime, announced_before: datetime) -> bool:
        """Mark a license, which must be locked, as probably shared; return whether that is to be announced.

        Args:
            announced_before: An announcement before that is repeated.
        """
        row = self._first(select(shared_licenses).where(shared_licenses.c.license_id == license_id))
        is_new = row is None or row.announced_at < announced_before
        announced_at = now if row is None or is_new else row.announced_at
        self._put(
            shared_licenses,
            {"license_id": license_id, "marked_at": now, "announced_at": announced_at},
        )
        return is_new

    def is_shared(self, license_id: bytes) -> bool:
        """Return whether a license is marked as probably shared."""
        return (
            self._first(select(shared_licenses).where(shared_licenses.c.license_id == license_id)) is not None
        )
