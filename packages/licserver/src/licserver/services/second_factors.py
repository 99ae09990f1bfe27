"""The second factor of users of the console: enrolment, codes, recovery codes (D-167)."""

from datetime import datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from licserver.database.repositories.repository import Repositories
from licserver.database.repositories.second_factors import SecondFactorRow
from licserver.database.repositories.users import UserRow
from licserver.errors import Conflict, Unknown, WrongUse
from licserver.security.passwords import is_password
from licserver.security.totp import (
    draw_recovery_code,
    draw_secret,
    enrolment_uri,
    find_step,
    normalize_recovery_code,
)
from licserver.services.logins import Logins, digest_token
from licserver.services.users import SignedIn

RECOVERY_CODES: Final = 10

ENROLMENT_TIME: Final = timedelta(minutes=15)
"""For how long a secret is shown and can be confirmed."""

WRONG_CODES: Final = 10
"""Wrong codes in a row, after which a user is asked for one at known addresses only, for some time."""
LOCKED_TIME: Final = timedelta(minutes=15)


class Enrolment(NamedTuple):
    """What an authenticator app needs.

    Args:
        secret: In base32, to be typed.
        uri: The same for a QR code.
    """

    secret: str
    uri: str

    def __repr__(self) -> str:
        return "Enrolment(…)"


class Enrolled(NamedTuple):
    """A confirmed second factor.

    Args:
        who: The user with a new session: all others have ended.
        recovery_codes: To be shown this once.
    """

    who: SignedIn
    recovery_codes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Enrolled({self.who})"


class SecondFactors(Logins):
    """TOTP and recovery codes."""

    def sign_in_with_code(
        self, who: SignedIn, code: str, address: str | None = None, *, is_known: bool = False
    ) -> SignedIn | None:
        """Begin a session in place of one that needs a code.

        Args:
            who: From `sign_in`.
            code: As typed: of the authenticator app, or a recovery code.
            address: As for `sign_in`.
            is_known: From `is_known_address`.

        Returns:
            The user with a new session; None for a wrong code, or when the session has ended meanwhile.

        Raises:
            WrongUse: after too many wrong codes.
        """
        now = self._clock()
        with self._records.together() as books:
            session = books.session(digest_token(who.token), now, self._idle_since(now))
            if session is None or not session.is_pending:
                return None
            if not self._is_code(books, session.user, code, is_known=is_known):
                return None
            books.end_session(digest_token(who.token))
            return self._begin(books, session.user, address, is_verified=True)

    def begin_enrolment(self, who: SignedIn, password: str) -> bool:
        """Draw the secret of a second factor; False for a wrong password.

        Raises:
            WrongUse: when the user has a second factor.
        """
        user = self.user(who.name)
        if not is_password(user.password_hash, password):
            return False
        sealed = self.vault.lock(draw_secret().encode(), _label(user))
        with self._records.together() as books:
            if not books.propose_second_factor(user.id, sealed, self._clock()):
                raise Conflict("you have a second factor already")
        return True

    def enrolment(self, who: SignedIn) -> Enrolment | None:
        """Return the secret that is to be confirmed, if there is one."""
        user = self.user(who.name)
        factor, oldest = self._records.second_factor(user.id), self._clock() - ENROLMENT_TIME
        if factor is None or factor.confirmed_at is not None or factor.created_at < oldest:
            return None
        secret = self.vault.unlock(factor.sealed_secret, _label(user)).decode()
        host = urlsplit(self.settings.base_url or "").hostname
        return Enrolment(secret, enrolment_uri(secret, user.name, host or "licserver"))

    def confirm_enrolment(self, who: SignedIn, code: str) -> Enrolled | None:
        """Confirm a second factor by its first code; all sessions of the user end, and a new one begins.

        Returns:
            None for a wrong code.

        Raises:
            WrongUse: when no secret is waiting for its first code.
        """
        user, now = self.user(who.name), self._clock()
        enrolment, factor = self.enrolment(who), self._records.second_factor(user.id)
        if enrolment is None or factor is None:
            raise WrongUse("this took longer than 15 minutes, or was done in another window; begin anew")
        step = find_step(enrolment.secret, code, now, 0)
        if step is None:
            return None
        codes = tuple(draw_recovery_code() for _ in range(RECOVERY_CODES))
        digests = [self._recovery_digest(user, one) for one in codes]
        with self._records.together() as books:
            if not books.confirm_second_factor(user.id, factor.sealed_secret, step, digests, now):
                raise Conflict("this was done in another window meanwhile")
            books.end_sessions(user.id)
            self._acting(user)._note(books, "user.second_factor_on", ("user", user.name))  # noqa: SLF001 - our own
            begun = self._begin_anew(books, user)
            if begun is None:
                raise Conflict("your password was changed meanwhile; sign in anew")
        return Enrolled(begun, codes)

    def disable_second_factor(
        self, who: SignedIn, password: str, code: str, *, is_known: bool = False
    ) -> SignedIn | None:
        """Remove one's own second factor; all sessions of the user end, and a new one begins.

        Returns:
            None for a wrong password or code.

        Raises:
            WrongUse: after too many wrong codes.
        """
        user = self.user(who.name)
        if not is_password(user.password_hash, password):
            return None
        with self._records.together() as books:
            if not self._is_code(books, user, code, is_known=is_known):
                return None
            books.delete_second_factor(user.id)
            books.end_sessions(user.id)
            self._acting(user)._note(books, "user.second_factor_off", ("user", user.name))  # noqa: SLF001 - our own
            return self._begin_anew(books, user)

    def reset_second_factor(self, name: str) -> None:
        """Remove the second factor of a user who has lost it; the user is signed out everywhere.

        Raises:
            WrongUse: for an unknown user, or one without a second factor.
        """
        user = self.user(name)
        with self._records.together() as books:
            if not books.delete_second_factor(user.id):
                raise Unknown(f"{user.name} has no second factor")
            books.end_sessions(user.id)
            self._note(books, "user.second_factor_reset", ("user", user.name))

    def count_recovery_codes(self, who: SignedIn) -> int | None:
        """Count a user's recovery codes; None when the user has no second factor."""
        user = self.user(who.name)
        return self._records.count_recovery_codes(user.id) if user.has_second_factor else None

    def _is_code(self, books: Repositories, user: UserRow, typed: str, *, is_known: bool) -> bool:
        """Use a code up, or count a wrong one.

        Raises:
            WrongUse: after too many wrong codes, at an unknown address; then it is not even checked.
        """
        factor, now = books.second_factor(user.id), self._clock()
        if factor is None or factor.confirmed_at is None:
            return False
        if not is_known and _is_locked(factor, now):
            raise WrongUse("too many wrong codes; wait 15 minutes, or use a computer that you used before")
        secret = self.vault.unlock(factor.sealed_secret, _label(user)).decode()
        step = find_step(secret, typed, now, factor.last_step)
        if step is not None and books.use_step(user.id, step):
            return True
        if books.use_recovery_code(user.id, self._recovery_digest(user, typed)):
            left = books.count_recovery_codes(user.id)
            acting = self._acting(user)
            acting._note(books, "user.recovery_code", ("user", user.name), left=left)  # noqa: SLF001 - our own
            return True
        books.fail_code(user.id, now)
        return False

    def _recovery_digest(self, user: UserRow, typed: str) -> bytes:
        return self.vault.pseudonym("recovery code", f"{user.id} {normalize_recovery_code(typed)}")


def _is_locked(factor: SecondFactorRow, now: datetime) -> bool:
    """Return whether so many wrong codes were typed that none is checked for some time."""
    return (
        factor.failures >= WRONG_CODES
        and factor.failed_at is not None
        and now < factor.failed_at + LOCKED_TIME
    )


def _label(user: UserRow) -> bytes:
    return b"second factor of user %d" % user.id
