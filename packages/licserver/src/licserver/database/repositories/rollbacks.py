"""Which installations went back from a release to the version before."""

from collections.abc import Collection
from datetime import datetime
from hashlib import sha256

from sqlalchemy import func, insert, select

from licserver.database.repositories.base import Repository
from licserver.database.tables.licenses import activations, rollbacks


class RollbackRepository(Repository):
    """Reports of apps, one for each installation and release."""

    def add(self, release_id: int, license_id: bytes, domain: str, now: datetime) -> bool:
        """Store a report; return False for an installation without an activation, and for a repeated one."""
        is_active = (activations.c.license_id == license_id, activations.c.domain == domain)
        if self._first(select(activations.c.domain).where(*is_active).limit(1)) is None:
            return False
        installation = sha256(license_id + domain.encode()).digest()[:16]
        row = {"release_id": release_id, "installation": installation, "reported_at": now}
        return self._insert_unless_taken(insert(rollbacks).values(row))

    def count(self, release_ids: Collection[int]) -> int:
        """Count the installations that went back from any of these releases."""
        meant = rollbacks.c.release_id.in_(release_ids)
        return self._scalar(select(func.count()).select_from(rollbacks).where(meant)) or 0
