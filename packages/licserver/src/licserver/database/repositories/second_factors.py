"""Second factors and recovery codes."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, func, insert, select, update

from licserver.database.repositories.base import Repository
from licserver.database.tables import recovery_codes, second_factors, users


class SecondFactor(NamedTuple):
    """A second factor.

    Args:
        sealed_secret: Encrypted by the vault.
        created_at: When the secret was drawn.
        confirmed_at: When a first code was correct; None until then.
        last_step: Of the last code that was accepted.
        failures: Wrong codes in a row.
        failed_at: When the last one was typed.
    """

    sealed_secret: bytes
    created_at: datetime
    confirmed_at: datetime | None
    last_step: int
    failures: int
    failed_at: datetime | None

    def __repr__(self) -> str:
        return f"SecondFactor(confirmed_at={self.confirmed_at})"


class SecondFactorRepository(Repository):
    """Second factors of users."""

    def find(self, user_id: int) -> SecondFactor | None:
        """Load a user's second factor, confirmed or not."""
        columns = [second_factors.c[name] for name in SecondFactor._fields]
        with self._reading() as connection:
            row = connection.execute(select(*columns).where(second_factors.c.user_id == user_id)).first()
        return None if row is None else SecondFactor(*row)

    def propose(self, user_id: int, sealed_secret: bytes, now: datetime) -> bool:
        """Store a secret that is to be confirmed; return False when the user has a confirmed one."""
        unconfirmed = second_factors.c.confirmed_at.is_(None)
        row = {
            "user_id": user_id,
            "sealed_secret": sealed_secret,
            "created_at": now,
            "last_step": 0,
            "failures": 0,
        }
        with self._writing() as connection:
            connection.execute(delete(second_factors).where(second_factors.c.user_id == user_id, unconfirmed))
        return self._insert_unless_taken(insert(second_factors).values(row))

    def confirm(
        self, user_id: int, sealed_secret: bytes, step: int, digests: Iterable[bytes], now: datetime
    ) -> bool:
        """Confirm a second factor, and replace the recovery codes.

        Returns:
            False when it is confirmed already, or has another secret by now.
        """
        with self._writing() as connection:
            # A session that begins meanwhile waits for this, and finds the factor.
            connection.execute(select(users.c.id).where(users.c.id == user_id).with_for_update())
            this = (
                second_factors.c.user_id == user_id,
                second_factors.c.sealed_secret == sealed_secret,
                second_factors.c.confirmed_at.is_(None),
            )
            confirmed = update(second_factors).where(*this).values(confirmed_at=now, last_step=step)
            if connection.execute(confirmed).rowcount != 1:
                return False
            connection.execute(delete(recovery_codes).where(recovery_codes.c.user_id == user_id))
            rows = [{"user_id": user_id, "digest": digest} for digest in digests]
            connection.execute(insert(recovery_codes), rows)
            return True

    def use_step(self, user_id: int, step: int) -> bool:
        """Store a code's time step; return False when one as late was accepted before."""
        this = (second_factors.c.user_id == user_id, second_factors.c.last_step < step)
        return self._execute(update(second_factors).where(*this).values(last_step=step, failures=0)) == 1

    def use_recovery_code(self, user_id: int, digest: bytes) -> bool:
        """Delete a recovery code; return False when there is none like it."""
        this = (recovery_codes.c.user_id == user_id, recovery_codes.c.digest == digest)
        if self._execute(delete(recovery_codes).where(*this)) != 1:
            return False
        self._execute(update(second_factors).where(second_factors.c.user_id == user_id).values(failures=0))
        return True

    def count_recovery_codes(self, user_id: int) -> int:
        """Count the recovery codes that are left."""
        statement = select(func.count()).where(recovery_codes.c.user_id == user_id)
        with self._reading() as connection:
            return connection.scalar(statement) or 0

    def count_wrong_code(self, user_id: int, now: datetime) -> None:
        """Count a wrong code."""
        self._execute(
            update(second_factors)
            .where(second_factors.c.user_id == user_id)
            .values(failures=second_factors.c.failures + 1, failed_at=now)
        )

    def remove(self, user_id: int) -> bool:
        """Delete a user's second factor and recovery codes; return False when there is none."""
        self._execute(delete(recovery_codes).where(recovery_codes.c.user_id == user_id))
        return self._execute(delete(second_factors).where(second_factors.c.user_id == user_id)) == 1
