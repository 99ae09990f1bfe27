"""The slots that customers freed themselves."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select

from licserver.database.repositories.base import Repository, put_into
from licserver.database.tables.licenses import moves
from licserver.domain.records import Environment


class MoveRepository(Repository):
    """When a slot of an environment was last freed by the customer; swept after 30 days."""

    def list_all(self, license_id: bytes) -> dict[Environment, datetime]:
        """Load the freed slots of a license."""
        rows = self._all(select(moves).where(moves.c.license_id == license_id))
        return {Environment(row.domain, row.ip): row.freed_at for row in rows}

    def add(self, license_id: bytes, environments: Sequence[Environment], now: datetime) -> None:
        """Store that slots were freed, at least one; again if that had been before."""
        rows = [{"license_id": license_id, **one._asdict(), "freed_at": now} for one in environments]
        with self._writing() as connection:
            put_into(connection, moves, *rows)
