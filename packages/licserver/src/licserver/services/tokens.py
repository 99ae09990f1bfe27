"""Tokens of the admin API: made, listed, taken back, and found again by what a caller shows."""

import hashlib
import secrets
from datetime import date, datetime
from typing import Final

from licserver.database.repositories.tokens import Token
from licserver.domain.environments import is_printable
from licserver.domain.records import Scope
from licserver.errors import Conflict, Unknown, WrongUse
from licserver.security.redaction import TOKEN_PREFIX
from licserver.services.base import Room

MAX_TOKEN_NAME: Final = 100
_TOKEN_BYTES: Final = 32


class Tokens(Room):
    """Who may use the admin API."""

    def add_token(self, name: str, scope: Scope, expires_on: date | None = None) -> tuple[Token, str]:
        """Make a token.

        Args:
            name: What the vendor calls it, for the audit log; each is used once.
            scope: What it is good for.
            expires_on: Its last day, UTC; None for no end.

        Returns:
            What the books say of it, and the token itself, which is told this once and kept nowhere.

        Raises:
            Conflict: for a name that is taken, also by one that was taken back: the log must be clear.
            WrongUse: for a name that cannot be, or a day that has passed.
        """
        name = name.strip()
        if not name or not is_printable(name) or len(name) > MAX_TOKEN_NAME:
            raise WrongUse(f"a token's name must be one line of text of at most {MAX_TOKEN_NAME} characters")
        now = self._clock()
        if expires_on is not None and expires_on < now.date():
            raise WrongUse(f"{expires_on} has passed; the token would be good for nothing")
        text = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        with self._records.together() as books:
            if not books.add_token(name, _hash(text), scope, expires_on, now):
                raise Conflict(f"there is a token {name!r} already; give this one another name")
            self._note(books, "token.create", ("token", name), scope=scope.value, expires_on=expires_on)
        return self._token(name), text

    def tokens(self) -> list[Token]:
        """All tokens, by name, those that were taken back as well."""
        return self._records.tokens()

    def revoke_token(self, name: str) -> Token:
        """Take a token back; it is good for nothing from the next request on.

        Raises:
            Unknown: when there is none of that name.
        """
        found = self._token(name)
        with self._records.together() as books:
            if books.revoke_token(found.id, self._clock()):
                self._note(books, "token.revoke", ("token", name))
        return self._token(name)

    def recognise(self, text: str) -> Token | None:
        """Find the token that a caller shows, and note the day; None when it is good for nothing.

        Args:
            text: As it came.
        """
        if not text.isascii():
            return None
        # By its hash, so that how long this takes tells nothing about a token that there is.
        token, now = self._records.token(token_hash=_hash(text)), self._clock()
        if token is None or not is_good(token, now):
            return None
        if token.last_used_on is None or token.last_used_on < now.date():
            self._records.use_token(token.id, now.date())
        return token

    def find_refused_token(self, text: str) -> str | None:
        """Return the name of an expired or revoked token; None when there was never such a token."""
        token = self._records.token(token_hash=_hash(text)) if text.isascii() else None
        return None if token is None else token.name

    def _token(self, name: str) -> Token:
        found = self._records.token(name=name) if is_printable(name) else None
        if found is None:
            raise Unknown(f"there is no token {name!r}; `licserver token list` shows all")
        return found


def is_good(token: Token, now: datetime) -> bool:
    """Tell whether a token may still be used; its last day counts whole, UTC."""
    is_over = token.expires_on is not None and now.date() > token.expires_on
    return token.revoked_at is None and not is_over


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()  # of 256 random bits: there is nothing to guess
