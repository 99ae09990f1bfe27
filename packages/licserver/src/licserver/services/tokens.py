"""Tokens of the admin API."""

import hashlib
import secrets
from datetime import date, datetime
from typing import Final

from licserver.database.repositories.tokens import Token
from licserver.domain.environments import is_printable
from licserver.domain.records import Scope
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.security.redaction import TOKEN_PREFIX
from licserver.services.context import Context

MAX_TOKEN_NAME: Final = 100
_TOKEN_BYTES: Final = 32


class TokenService:
    """Creates, revokes and authenticates tokens."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def create(self, name: str, scope: Scope, expires_on: date | None = None) -> tuple[Token, str]:
        """Create a token.

        Args:
            name: For the audit log; each name is used once.
            scope: What it permits.
            expires_on: Its last day, UTC; None for no end.

        Returns:
            The token's record, and the token itself, which is stored nowhere.

        Raises:
            ConflictError: for a name that is taken, also by a revoked token: the audit log must be clear.
            InvalidInputError: for an invalid name, or a day that has passed.
        """
        name = name.strip()
        if not name or not is_printable(name) or len(name) > MAX_TOKEN_NAME:
            raise InvalidInputError(
                f"a token's name must be one line of text of at most {MAX_TOKEN_NAME} characters"
            )
        now = self._context.now()
        if expires_on is not None and expires_on < now.date():
            raise InvalidInputError(f"{expires_on} has passed; the token would be good for nothing")
        text = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        with self._context.transaction() as tx:
            if not tx.repositories.tokens.add(name, _hash(text), scope, expires_on, now):
                raise ConflictError(f"there is a token {name!r} already; give this one another name")
            tx.write_audit("token.create", ("token", name), scope=scope.value, expires_on=expires_on)
        return self.get(name), text

    def list_all(self) -> list[Token]:
        """Return all tokens, by name, revoked ones as well."""
        return self._context.repositories.tokens.list_all()

    def get(self, name: str) -> Token:
        """Return one token.

        Raises:
            NotFoundError: when there is none of that name.
        """
        found = self._context.repositories.tokens.find(name=name) if is_printable(name) else None
        if found is None:
            raise NotFoundError(f"there is no token {name!r}; `licserver token list` shows all")
        return found

    def revoke(self, name: str) -> Token:
        """Revoke a token; it is refused from the next request on.

        Raises:
            NotFoundError: when there is none of that name.
        """
        found = self.get(name)
        with self._context.transaction() as tx:
            if tx.repositories.tokens.revoke(found.id, tx.now()):
                tx.write_audit("token.revoke", ("token", name))
        return self.get(name)

    def authenticate(self, text: str) -> Token | None:
        """Find the valid token of a request, and store the day of its use; None for any other text.

        Args:
            text: As sent.
        """
        if not text.isascii():
            return None
        # By its hash, so that the time it takes reveals nothing about an existing token.
        token, now = self._context.repositories.tokens.find(token_hash=_hash(text)), self._context.now()
        if token is None or not is_valid(token, now):
            return None
        if token.last_used_on is None or token.last_used_on < now.date():
            self._context.repositories.tokens.set_last_used(token.id, now.date())
        return token

    def find_refused_name(self, text: str) -> str | None:
        """Return the name of an expired or revoked token; None when there was never such a token."""
        token = self._context.repositories.tokens.find(token_hash=_hash(text)) if text.isascii() else None
        return None if token is None else token.name


def is_valid(token: Token, now: datetime) -> bool:
    """Return whether a token may be used; its last day is included, UTC."""
    has_expired = token.expires_on is not None and now.date() > token.expires_on
    return token.revoked_at is None and not has_expired


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()  # of 256 random bits: nothing to guess
