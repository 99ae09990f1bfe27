"""Sign-in of customers to the account page, by license key or by a mailed code."""

import hmac
import secrets
from collections.abc import Sequence
from typing import Final

from licserver.database.repositories.customer_sign_in import CodeRequest
from licserver.domain.customer_sign_in import CODE_ATTEMPTS, code_digits, may_request_code
from licserver.domain.decisions import is_license_key
from licserver.domain.environments import provider_network
from licserver.domain.instants import ACCOUNT_CODE, ACCOUNT_SESSION
from licserver.domain.records import IssuedLicense
from licserver.services.context import Context, Service
from licserver.services.license_lookups import find_by_key, find_ids_by_email, fold_email
from licserver.services.mail import MailService
from licserver.services.users import digest_token
from licserver.services.validation import find_email

SESSION_TIME: Final = ACCOUNT_SESSION


CODE_TIME: Final = ACCOUNT_CODE


class CustomerSignInService(Service):
    """Sessions of the account page, which shows expired and revoked licenses as well (D-214)."""

    def sign_in(self, typed: str) -> str | None:
        """Create a session for a license key; return its token, or None if no license has this key."""
        key = typed.strip()
        license_ = find_by_key(self._context, key.upper() if is_license_key(key.upper()) else key)
        return None if license_ is None else self._begin([license_.id])

    def send_code(self, typed: str, client: str, language: str | None = None) -> str | None:
        """Send a code to an address that has licenses; return the token of the requesting browser.

        None if the client or its network has requested too many codes. The result does not show whether the
        address has licenses: for an unknown address a code is stored that no mail contains.
        """
        email, now = find_email(typed), self._context.now()
        pseudonym, network = self._context.vault.pseudonym, provider_network(client)
        address = self._digest_address(email or typed.strip())
        request = CodeRequest(address, pseudonym("code client", client), pseudonym("code network", network))
        if not may_request_code(self._context.repositories.account_codes.count(request, now)):
            return None
        # Without the licenses themselves: the time must not show that an address has many.
        ids = [] if email is None else find_ids_by_email(self._context, email)
        with self._context.transaction() as tx:
            codes = tx.repositories.account_codes
            codes.lock(request.network, now)
            if not may_request_code(codes.count(request, now)):  # of requests at the same moment
                return None
            sent_today = [0]
            if ids:  # sorted: no two transactions deadlock
                daily = sorted({request.address, request.network})
                sent_today = [tx.repositories.daily_counts.add(counter, now.date()) - 1 for counter in daily]
            digits = code_digits(sent_today)
            token, code = secrets.token_urlsafe(32), f"{secrets.randbelow(10**digits):0{digits}}"
            hashes = (digest_token(token), _digest_code(token, code))
            codes.add(*hashes, request, ids, now + CODE_TIME)
            if ids and (stored := self._find_stored(tx, ids[0], request.address)) is not None:
                MailService(tx).send_code(stored, code, language, request.client.hex())
        return token

    def has_code(self, token: str) -> bool:
        """Return whether a browser may type a code."""
        return self._context.repositories.account_codes.exists(digest_token(token), self._context.now())

    def sign_in_with_code(self, token: str, typed: str) -> str | None:
        """Create a session for a code of this browser; return its token, or None for a wrong code."""
        codes, token_hash = self._context.repositories.account_codes, digest_token(token)
        pending = codes.count_attempt(token_hash, CODE_ATTEMPTS, self._context.now())
        if pending is None:
            return None
        code = "".join(typed.split())
        if not hmac.compare_digest(pending.code_hash, _digest_code(token, code)) or not pending.license_ids:
            return None
        codes.remove(token_hash)
        licenses = self._context.repositories.licenses.find_all(pending.license_ids)
        # Only licenses that the address still has: support may have given a license another address.
        ids = [
            license_.id
            for license_ in licenses
            if self._digest_address(license_.customer_email) == pending.address
        ]
        return self._begin(ids) if ids else None

    def _find_stored(self, tx: Context, license_id: bytes, address: bytes) -> str | None:
        """Return an address as it is stored: a mailbox that differs in case may be a stranger's."""
        stored = [license_.customer_email for license_ in tx.repositories.licenses.find_all([license_id])]
        return next((email for email in stored if self._digest_address(email) == address), None)

    def _digest_address(self, email: str | None) -> bytes:
        return self._context.vault.pseudonym("account", fold_email(email or ""))

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
    """Return the digest of a code and its token; the token is not stored, so digests cannot be searched."""
    return digest_token(f"{token}/{code}")
