"""Sessions of the customer's page, and the codes that were sent for them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import delete, func, insert, select, update

from licserver.database.repositories.base import Repository
from licserver.database.tables.access import account_codes, account_sessions
from licserver.security.key_vault import ID_BYTES

_PER_LICENSE: Final = 20
"""Sessions of a license at a time: who has a key must not fill the table."""


class AccountSessionRepository(Repository):
    """Sessions, with a row for each license that they may see."""

    def add(
        self, token_hash: bytes, license_ids: Sequence[bytes], expires_at: datetime, now: datetime
    ) -> None:
        """Begin a session; delete all that have ended, and the oldest ones beyond a license's number."""
        rows = account_sessions.c
        with self._writing() as connection:
            connection.execute(delete(account_sessions).where(rows.expires_at <= now))
            connection.execute(
                insert(account_sessions),
                [
                    {"token_hash": token_hash, "license_id": license_id, "expires_at": expires_at}
                    for license_id in license_ids
                ],
            )
            for license_id in license_ids:
                of_it = rows.license_id == license_id
                by_end = select(rows.token_hash).where(of_it).order_by(rows.expires_at.desc())
                surplus = connection.scalars(by_end.offset(_PER_LICENSE)).all()
                if surplus:
                    connection.execute(delete(account_sessions).where(of_it, rows.token_hash.in_(surplus)))

    def find(self, token_hash: bytes, now: datetime) -> list[bytes]:
        """Load the ids of the licenses that a session may see; none if it has ended."""
        rows = account_sessions.c
        statement = select(rows.license_id).where(rows.token_hash == token_hash, rows.expires_at > now)
        return [row.license_id for row in self._all(statement)]

    def remove(self, token_hash: bytes) -> None:
        """End a session."""
        self._execute(delete(account_sessions).where(account_sessions.c.token_hash == token_hash))


class AccountCodeRepository(Repository):
    """Codes that were sent by mail."""

    def add(
        self,
        token_hash: bytes,
        code_hash: bytes,
        address: bytes,
        license_ids: Sequence[bytes],
        now: datetime,
        expires_at: datetime,
    ) -> int:
        """Store a code; delete those that have expired. Return how many the address has now."""
        codes = account_codes.c
        with self._writing() as connection:
            connection.execute(delete(account_codes).where(codes.expires_at <= now))
            connection.execute(
                insert(account_codes).values(
                    token_hash=token_hash,
                    code_hash=code_hash,
                    address=address,
                    license_ids=b"".join(license_ids),
                    attempts=0,
                    expires_at=expires_at,
                )
            )
            count: int = connection.scalar(select(func.count()).where(codes.address == address)) or 0
            return count

    def exists(self, token_hash: bytes, now: datetime) -> bool:
        """Return whether a browser was sent a code that is valid."""
        codes = account_codes.c
        valid = select(codes.token_hash).where(codes.token_hash == token_hash, codes.expires_at > now)
        return self._first(valid) is not None

    def count_attempt(self, token_hash: bytes, most: int, now: datetime) -> tuple[bytes, list[bytes]] | None:
        """Count an attempt; return the code's hash and its licenses, or None after too many attempts."""
        codes = account_codes.c
        is_valid = (codes.token_hash == token_hash) & (codes.attempts < most) & (codes.expires_at > now)
        counted = update(account_codes).where(is_valid).values(attempts=codes.attempts + 1)
        with self._writing() as connection:
            row = connection.execute(counted.returning(codes.code_hash, codes.license_ids)).first()
        if row is None:
            return None
        ids = row.license_ids
        return row.code_hash, [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]

    def remove(self, token_hash: bytes) -> None:
        """Delete a code."""
        self._execute(delete(account_codes).where(account_codes.c.token_hash == token_hash))
