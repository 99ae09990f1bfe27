"""Tokens of the admin API."""

from datetime import date, datetime
from typing import Any, NamedTuple

from sqlalchemy import Row, insert, or_, select, update

from licserver.database.repositories.base import Repository
from licserver.database.tables import tokens
from licserver.domain.records import Scope


class Token(NamedTuple):
    """A token as the books know it: the secret itself is not among them.

    Args:
        id: Its number.
        name: What the vendor calls it.
        scope: What it is good for.
        created_at: When it was made.
        expires_on: Its last day, UTC, or None.
        revoked_at: When it was taken back, or None.
        last_used_on: The last day on which it was used, or None.
    """

    id: int
    name: str
    scope: Scope
    created_at: datetime
    expires_on: date | None
    revoked_at: datetime | None
    last_used_on: date | None


class TokenRepository(Repository):
    """Tokens."""

    def add_token(
        self, name: str, token_hash: bytes, scope: Scope, expires_on: date | None, now: datetime
    ) -> bool:
        """Add a token; False when the name is taken."""
        row = {
            "name": name,
            "token_hash": token_hash,
            "scope": scope.value,
            "created_at": now,
            "expires_on": expires_on,
        }
        return self._insert_unless_taken(insert(tokens).values(row))

    def tokens(self) -> list[Token]:
        """Load all tokens, by name."""
        with self._reading() as connection:
            return [_read_token(row) for row in connection.execute(select(tokens).order_by(tokens.c.name))]

    def token(self, *, name: str | None = None, token_hash: bytes | None = None) -> Token | None:
        """Load one token, by its name or by its hash."""
        this = tokens.c.name == name if token_hash is None else tokens.c.token_hash == token_hash
        with self._reading() as connection:
            row = connection.execute(select(tokens).where(this)).first()
        return None if row is None else _read_token(row)

    def revoke_token(self, token_id: int, now: datetime) -> bool:
        """Take a token back; False when it was already."""
        this = (tokens.c.id == token_id) & tokens.c.revoked_at.is_(None)
        return self._update(update(tokens).where(this).values(revoked_at=now)) == 1

    def use_token(self, token_id: int, day: date) -> None:
        """Note the day of a token's last use."""
        is_new = or_(tokens.c.last_used_on.is_(None), tokens.c.last_used_on < day)
        self._update(update(tokens).where(tokens.c.id == token_id, is_new).values(last_used_on=day))


def _read_token(row: Row[Any]) -> Token:
    return Token(
        row.id,
        row.name,
        Scope(row.scope),
        row.created_at,
        row.expires_on,
        row.revoked_at,
        row.last_used_on,
    )
