"""Slots that customers have freed."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from sqlalchemy import bindparam, delete, insert, select

from licserver.database.repositories.base import Repository, matching
from licserver.database.tables.licenses import slot_moves
from licserver.domain.moves import Move
from licserver.domain.records import Environment

_OF_LICENSES: Final = select(slot_moves).where(
    slot_moves.c.license_id.in_(bindparam("licenses", expanding=True))
)


class MoveRepository(Repository):
    """Which computers the customer has freed; swept after 30 days."""

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
