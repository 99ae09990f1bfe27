"""Tokens of the admin API."""

from datetime import date, datetime
from typing import Any, NamedTuple

from sqlalchemy import Row, insert, or_, select, update

from licserver.database.repositories.base import Repository
from licserver.database.tables import tokens
from licserver.domain.records import Scope


class Token(NamedTuple):
    """A token of the admin API, without its secret.

    Args:
        id: Its number.
        name: For the audit log.
        scope: What it permits.
        created_at: When it was created.
        expires_on: Its last day, UTC, or None.
        revoked_at: When it was revoked, or None.
        last_used_on: The last day on which it was used, or None.
    """

    id: int
    name: str
    scope: Scope
    created_at: datetime
    expires_on: date | None
    revoked_at: datetime | None
    last_used_on: date | None


_SELECT = select(*(tokens.c[name] for name in Token._fields))


class TokenRepository(Repository):
    """Tokens."""

    def add(self, name: str, token_hash: bytes, scope: Scope, expires_on: date | None, now: datetime) -> bool:
        """Add a token; return False when the name is taken."""
        row = {
            "name": name,
            "token_hash": token_hash,
            "scope": scope.value,
            "created_at": now,
            "expires_on": expires_on,
        }
        return self._insert_unless_taken(insert(tokens).values(row))

    def list_all(self) -> list[Token]:
        """Load all tokens, by name."""
        with self._reading() as connection:
            return [_read(row) for row in connection.execute(_SELECT.order_by(tokens.c.name))]

    def find(self, *, name: str | None = None, token_hash: bytes | None = None) -> Token | None:
        """Load one token, by its name or by its hash."""
        this = tokens.c.name == name if token_hash is None else tokens.c.token_hash == token_hash
        with self._reading() as connection:
            row = connection.execute(_SELECT.where(this)).first()
        return None if row is None else _read(row)

    def revoke(self, token_id: int, now: datetime) -> bool:
        """Revoke a token; return False when it is revoked already."""
        this = (tokens.c.id == token_id) & tokens.c.revoked_at.is_(None)
        return self._execute(update(tokens).where(this).values(revoked_at=now)) == 1

    def set_last_used(self, token_id: int, day: date) -> None:
        """Store the day of a token's last use."""
        is_new = or_(tokens.c.last_used_on.is_(None), tokens.c.last_used_on < day)
        self._execute(update(tokens).where(tokens.c.id == token_id, is_new).values(last_used_on=day))


def _read(row: Row[Any]) -> Token:
    values = row._asdict()
    return Token(**{**values, "scope": Scope(values["scope"])})
