"""Tokens of the admin API, and operations with idempotency keys (D-93, D-130)."""

import secrets
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple

from licserver.database.repositories.tokens import IdempotencyKey, Token
from licserver.domain.environments import is_printable
from licserver.domain.records import ActorKind, Scope
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.security.key_vault import KeyVault
from licserver.security.redaction import TOKEN_PREFIX
from licserver.services.context import Service
from licserver.services.users import digest_token
from licserver.services.validation import check_line

MAX_TOKEN_NAME: Final = 100
_TOKEN_BYTES: Final = 32


class TokenService(Service):
    """Creates, revokes and authenticates tokens."""

    def create(self, name: str, scope: Scope, expires_on: date | None = None) -> tuple[Token, str]:
        """Create a token; return its record and its text, which is not stored.

        A name is never reused, also after revocation: the audit log must be unambiguous. `expires_on` is the
        last day, UTC.
        """
        name = check_line("a token's name", name, MAX_TOKEN_NAME)
        now = self._context.now()
        if expires_on is not None and expires_on < now.date():
            raise InvalidInputError(f"{expires_on} has passed; the token would never be valid")
        text = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        with self._context.transaction() as tx:
            if not tx.repositories.tokens.add(name, digest_token(text), scope, expires_on, now):
                raise ConflictError(f"there is a token {name!r} already; give this one another name")
            tx.write_audit("token.create", ("token", name), scope=scope.value, expires_on=expires_on)
        return self.get(name), text

    def list_all(self) -> list[Token]:
        """Return all tokens by name, including revoked tokens."""
        return self._context.repositories.tokens.list_all()

    def get(self, name: str) -> Token:
        """Return a token."""
        token = self._context.repositories.tokens.find(name=name) if is_printable(name) else None
        if token is None:
            raise NotFoundError(f"there is no token {name!r}; `licserver token list` shows all")
        return token

    def revoke(self, name: str) -> Token:
        """Revoke a token, effective with the next request."""
        token = self.get(name)
        with self._context.transaction() as tx:
            if tx.repositories.tokens.revoke(token.id, tx.now()):
                tx.write_audit("token.revoke", ("token", name))
        return self.get(name)

    def authenticate(self, text: str) -> Token | None:
        """Return the valid token with this text, and store the day of its use; None for any other text."""
        if not text.isascii():
            return None
        # By its hash: the time of the lookup must reveal nothing about an existing token.
        token, now = (
            self._context.repositories.tokens.find(token_hash=digest_token(text)),
            self._context.now(),
        )
        if token is None or not is_valid(token, now):
            return None
        if token.last_used_on is None or token.last_used_on != now.date():
            self._context.repositories.tokens.set_last_used(token.id, now.date())
        return token

    def find_refused_name(self, text: str) -> str | None:
        """Return the name of an expired or revoked token; None for an unknown token."""
        token = (
            self._context.repositories.tokens.find(token_hash=digest_token(text)) if text.isascii() else None
        )
        return None if token is None else token.name


def is_valid(token: Token, now: datetime) -> bool:
    """Return whether a token may be used at `now`; its last day is included, UTC."""
    has_expired = token.expires_on is not None and now.date() > token.expires_on
    return token.revoked_at is None and not has_expired


# --- idempotency ------------------------------------------------------------------------------

RESPONSES_KEPT: Final = timedelta(days=1)


class IdempotencyConflictError(ConflictError):
    """The key was used for another request within the last day."""


class Response(NamedTuple):
    """A recorded response."""

    status: int
    body: bytes


class IdempotentResult(NamedTuple):
    """The result of `Services.run_once`; a replayed response is from an earlier request."""

    response: Response
    is_replayed: bool


class IdempotencyService(Service):
    """Finds and records responses."""

    def find(self, key: IdempotencyKey) -> Response | None:
        """Return the response that was recorded within the last day, if any.

        Raises:
            IdempotencyConflictError: The key was used for another request.
        """
        since = self._context.settled_now() - RESPONSES_KEPT
        recorded = self._context.repositories.idempotency.find(key, since)
        if recorded is None:
            return None
        if recorded.digest != key.digest:
            raise IdempotencyConflictError(
                "this Idempotency-Key was used for another request within the last day"
            )
        return Response(recorded.status, self._context.vault.decrypt(recorded.response, _label(key)))

    def record(self, key: IdempotencyKey, response: Response) -> None:
        """Record a response in the operation's transaction, encrypted because it may hold a license key.

        Raises:
            ConflictError: Another request was faster, or the key's owner was removed; the transaction must
                not be committed.
        """
        now, recorded = self._context.now(), self._context.repositories.idempotency
        encrypted = self._context.vault.encrypt(response.body, _label(key))
        since = self._context.settled_now() - RESPONSES_KEPT
        if not recorded.add(key, response.status, encrypted, now, since):
            raise ConflictError(
                "a request with this Idempotency-Key is in progress; look at what exists before you retry"
            )


def open_response(vault: KeyVault, row: Mapping[str, Any]) -> str:
    """Decrypt the recorded response of a row."""
    is_token = row["user_id"] is None
    by, owner = (ActorKind.TOKEN, row["token_id"]) if is_token else (ActorKind.USER, row["user_id"])
    label = _label(IdempotencyKey(by, owner, row["key"], b""))
    return vault.decrypt(row["response"], label).decode("utf-8", "replace")


def _label(key: IdempotencyKey) -> bytes:
    owner = b"user " if key.by is ActorKind.USER else b""  # a token's label begins with its number
    return owner + b"%d " % key.owner_id + key.key.encode()
