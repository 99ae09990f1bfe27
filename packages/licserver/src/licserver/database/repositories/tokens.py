"""The admin API's tokens, and the responses recorded for idempotency keys."""

from datetime import date, datetime
from typing import Any, NamedTuple

from sqlalchemy import Row, delete, insert, or_, select, update

from licserver.database.repositories.base import Repository, matching
from licserver.database.tables.access import idempotency_keys, tokens
from licserver.domain.records import ActorKind, Scope


class Token(NamedTuple):
    """A token of the admin API, without its secret. It is valid through `expires_on`."""

    id: int
    name: str
    scope: Scope
    created_at: datetime
    expires_on: date | None
    revoked_at: datetime | None
    last_used_on: date | None


_SELECT_TOKEN = select(*(tokens.c[name] for name in Token._fields))


class TokenRepository(Repository):
    """Tokens."""

    def add(self, name: str, token_hash: bytes, scope: Scope, expires_on: date | None, now: datetime) -> bool:
        """Add a token; return False when the name is taken."""
        row = {"name": name, "token_hash": token_hash, "scope": scope.value, "created_at": now}
        return self._insert_unless_taken(insert(tokens).values(**row, expires_on=expires_on))

    def list_all(self) -> list[Token]:
        """Load all tokens, by name."""
        return [_read_token(row) for row in self._all(_SELECT_TOKEN.order_by(tokens.c.name))]

    def find(self, *, name: str | None = None, token_hash: bytes | None = None) -> Token | None:
        """Load one token, by its name or by its hash."""
        this = tokens.c.name == name if token_hash is None else tokens.c.token_hash == token_hash
        return self._find(_SELECT_TOKEN.where(this), _read_token)

    def revoke(self, token_id: int, now: datetime) -> bool:
        """Revoke a token; return False when it is revoked already."""
        valid = matching(tokens, id=token_id, revoked_at=None)
        return self._execute(update(tokens).where(valid).values(revoked_at=now)) == 1

    def set_last_used(self, token_id: int, day: date) -> None:
        """Store the day of a token's last use."""
        is_new = or_(tokens.c.last_used_on.is_(None), tokens.c.last_used_on != day)
        self._execute(update(tokens).where(tokens.c.id == token_id, is_new).values(last_used_on=day))


def _read_token(row: Row[Any]) -> Token:
    return Token(**row._asdict() | {"scope": Scope(row.scope)})


_OWNERS = {ActorKind.TOKEN: "token_id", ActorKind.USER: "user_id"}


class IdempotencyKey(NamedTuple):
    """An idempotency key, as sent by a token or a user; `digest` is the SHA-256 of the request."""

    by: ActorKind
    owner_id: int
    key: str
    digest: bytes


class RecordedResponse(NamedTuple):
    """A recorded response, encrypted."""

    digest: bytes
    status: int
    response: bytes


class IdempotencyRepository(Repository):
    """Recorded responses."""

    def find(self, key: IdempotencyKey, since: datetime) -> RecordedResponse | None:
        """Load the response recorded for a key, unless it is older than `since`."""
        this = matching(idempotency_keys, key=key.key, **{_OWNERS[key.by]: key.owner_id})
        columns = (idempotency_keys.c[name] for name in RecordedResponse._fields)
        recorded = select(*columns).where(this, idempotency_keys.c.created_at >= since)
        return self._find(recorded, RecordedResponse._make)

    def add(self, key: IdempotencyKey, status: int, response: bytes, now: datetime, since: datetime) -> bool:
        """Record a response, in the operation's transaction; delete those older than `since`.

        Returns:
            False when the key was recorded meanwhile, or its owner was removed: do not commit.
        """
        row: dict[str, Any] = {_OWNERS[key.by]: key.owner_id, "key": key.key, "digest": key.digest}
        row |= {"status": status, "response": response, "created_at": now}
        self._execute(delete(idempotency_keys).where(idempotency_keys.c.created_at < since))
        return self._insert_unless_taken(insert(idempotency_keys).values(row))
