"""The customer's page: who is signed in, and which licenses they see (D-214)."""

import hmac
import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from licserver.domain.decisions import is_license_key
from licserver.domain.records import Actor, ActorKind, IssuedLicense
from licserver.errors import InvalidInputError
from licserver.services.context import Context
from licserver.services.license_terms import read_email
from licserver.services.licenses import find_by_key
from licserver.services.mail import MailService
from licserver.services.support import SupportService
from licserver.services.users import digest_token

SESSION_TIME: Final = timedelta(hours=1)
CODE_TIME: Final = timedelta(minutes=15)
MAX_ATTEMPTS: Final = 5  # with one code
MAX_CODES: Final = 3  # that an address is sent while they are valid
CUSTOMER: Final = Actor(ActorKind.SYSTEM, "customer")
"""Who acts on the page, for the audit log: the object of each line is the customer's license."""


class AccountService:
    """Sessions of customers. A license that has expired or is revoked is shown as well."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def sign_in(self, typed: str) -> str | None:
        """Begin a session for a license key; return its token, or None if no license has this key."""
        key = typed.strip()
        found = find_by_key(self._context, key.upper() if is_license_key(key.upper()) else key)
        return None if found is None else self._begin([found.id])

    def send_code(self, typed: str) -> str:
        """Send a code to an address that has licenses; return the token of the browser that asked.

        Nobody learns from it whether the address has any: without licenses a code is stored that no mail has.
        """
        token, code = secrets.token_urlsafe(32), f"{secrets.randbelow(10**6):06}"
        email = None
        with suppress(InvalidInputError):
            email = read_email(typed)
        found = [] if email is None else SupportService(self._context).find_customer(email).licenses
        address = self._context.vault.pseudonym("account", typed.strip().casefold())
        with self._context.transaction() as tx:
            now = tx.now()
            ids = [one.id for one, _ in found]
            hashes = digest_token(token), _digest_code(token, code)
            count = tx.repositories.account_codes.add(*hashes, address, ids, now, now + CODE_TIME)
            if email is not None and found and count <= MAX_CODES:
                MailService(tx).send_code(email, code)
        return token

    def has_code(self, token: str) -> bool:
        """Return whether a browser may type a code."""
        return self._context.repositories.account_codes.exists(digest_token(token), self._context.now())

    def sign_in_with_code(self, token: str, typed: str) -> str | None:
        """Begin a session for the code that this browser's customer was sent; None if it is wrong."""
        codes, token_hash = self._context.repositories.account_codes, digest_token(token)
        found = codes.count_attempt(token_hash, MAX_ATTEMPTS, self._context.now())
        if found is None:
            return None
        code_hash, license_ids = found
        code = "".join(typed.split())
        if not hmac.compare_digest(code_hash, _digest_code(token, code)) or not license_ids:
            return None
        codes.remove(token_hash)
        return self._begin(license_ids)

    def _begin(self, license_ids: Sequence[bytes]) -> str:
        token, now = secrets.token_urlsafe(32), self._context.now()
        sessions = self._context.repositories.account_sessions
        sessions.add(digest_token(token), license_ids, now + SESSION_TIME, now)
        return token

    def find_licenses(self, token: str) -> list[IssuedLicense]:
        """Return the licenses that a session may see; none if it has ended."""
        ids = self._context.repositories.account_sessions.find(digest_token(token), self._context.now())
        return self._context.repositories.licenses.find_all(ids) if ids else []

    def sign_out(self, token: str) -> None:
        """End a session."""
        self._context.repositories.account_sessions.remove(digest_token(token))


def _digest_code(token: str, code: str) -> bytes:
    """Return the digest of a code, with a token that is not stored: a million codes are soon tried."""
    return digest_token(f"{token}/{code}")
