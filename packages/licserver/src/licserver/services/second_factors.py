"""The second factor of users of the console: enrolment, codes, recovery codes (D-167)."""

from datetime import timedelta
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from licserver.database.repositories.users import User
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.security.passwords import verify_password
from licserver.security.totp import (
    enrolment_uri,
    find_step,
    generate_recovery_code,
    generate_secret,
    normalize_recovery_code,
)
from licserver.services.context import Context, Service
from licserver.services.users import LoginService, SignedIn, UserService, audit_as, digest_token

RECOVERY_CODES: Final = 10
ENROLMENT_TIME: Final = timedelta(minutes=15)  # for how long a secret is shown and can be confirmed
WRONG_CODES: Final = 10
"""Wrong codes in a row, after which for `LOCKED_TIME` only known addresses may enter codes."""
LOCKED_TIME: Final = timedelta(minutes=15)
WRONG_CODES_OF_DAY: Final = 100
"""Wrong codes in a day, at all known addresses together; three of a million codes are valid at a time."""


class Enrolment(NamedTuple):
    """A secret for an authenticator app: in base32, and as a URI for a QR code."""

    secret: str
    uri: str

    def __repr__(self) -> str:
        return "Enrolment(…)"


class Enrolled(NamedTuple):
    """A confirmed second factor: the user's new session, and the recovery codes, which are shown once."""

    session: SignedIn
    recovery_codes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Enrolled({self.session})"


class SecondFactorService(Service):
    """TOTP and recovery codes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._users = UserService(context)

    def sign_in(
        self, session: SignedIn, code: str, address: str | None = None, *, is_known: bool = False
    ) -> SignedIn | None:
        """Replace a session that needs a code; return None for a wrong code or an ended session.

        The code may be a recovery code; `is_known` is from `LoginService.is_known_address`.
        """
        with self._context.transaction() as tx:
            logins = LoginService(tx)
            user = logins.find_session_user(session.token)
            if user is None or not _use_code(tx, user, code, is_known=is_known):
                return None
            tx.repositories.sessions.remove(digest_token(session.token))
            return logins.begin_session(user, address, is_verified=True)

    def begin_enrolment(self, session: SignedIn, password: str) -> bool:
        """Generate the secret of a second factor; return False for a wrong password."""
        user = self._users.get(session.name)
        if not verify_password(user.password_hash, password):
            return False
        encrypted = self._context.vault.encrypt(generate_secret().encode(), _label(user))
        with self._context.transaction() as tx:
            if not tx.repositories.second_factors.propose(user.id, encrypted, tx.now()):
                raise ConflictError("you have a second factor already")
        return True

    def find_enrolment(self, session: SignedIn) -> Enrolment | None:
        """Return the secret that waits for confirmation, if there is any."""
        user = self._users.get(session.name)
        factor = self._context.repositories.second_factors.find(user.id)
        oldest = self._context.now() - ENROLMENT_TIME
        if factor is None or factor.confirmed_at is not None or factor.created_at < oldest:
            return None
        secret = self._context.vault.decrypt(factor.encrypted_secret, _label(user)).decode()
        host = urlsplit(self._context.settings.base_url or "").hostname
        return Enrolment(secret, enrolment_uri(secret, user.name, host or "licserver"))

    def confirm_enrolment(self, session: SignedIn, code: str) -> Enrolled | None:
        """Confirm a second factor by its first code; replace all sessions; return None for a wrong code."""
        user, now = self._users.get(session.name), self._context.now()
        enrolment = self.find_enrolment(session)
        factor = self._context.repositories.second_factors.find(user.id)
        if enrolment is None or factor is None:
            raise InvalidInputError(
                "this took longer than 15 minutes, or was done in another window; start again"
            )
        step = find_step(enrolment.secret, code, now, 0)
        if step is None:
            return None
        codes = tuple(generate_recovery_code() for _ in range(RECOVERY_CODES))
        digests = [_recovery_digest(self._context, user, recovery_code) for recovery_code in codes]
        with self._context.transaction() as tx:
            factors = tx.repositories.second_factors
            if not factors.confirm(user.id, factor.encrypted_secret, step, digests, now):
                raise ConflictError("this was done in another window meanwhile")
            tx.repositories.sessions.remove_all(user.id)
            audit_as(tx, user, "user.second_factor_on")
            begun = LoginService(tx).renew_session(user)
            if begun is None:
                raise ConflictError("your password was changed meanwhile; sign in again")
        return Enrolled(begun, codes)

    def disable(
        self, session: SignedIn, password: str, code: str, *, is_known: bool = False
    ) -> SignedIn | None:
        """Remove the user's second factor; replace all sessions; return None for a wrong password or code."""
        user = self._users.get(session.name)
        if not verify_password(user.password_hash, password):
            return None
        with self._context.transaction() as tx:
            if not _use_code(tx, user, code, is_known=is_known):
                return None
            tx.repositories.second_factors.remove(user.id)
            tx.repositories.sessions.remove_all(user.id)
            audit_as(tx, user, "user.second_factor_off")
            return LoginService(tx).renew_session(user)

    def reset(self, name: str) -> None:
        """Remove a user's lost second factor, and end all sessions of the user."""
        user = self._users.get(name)
        with self._context.transaction() as tx:
            if not tx.repositories.second_factors.remove(user.id):
                raise NotFoundError(f"{user.name} has no second factor")
            tx.repositories.sessions.remove_all(user.id)
            tx.write_audit("user.second_factor_reset", ("user", user.name))

    def count_recovery_codes(self, session: SignedIn) -> int | None:
        """Count a user's recovery codes; return None without a second factor."""
        user = self._users.get(session.name)
        factors = self._context.repositories.second_factors
        return factors.count_recovery_codes(user.id) if user.has_second_factor else None


def _use_code(tx: Context, user: User, typed: str, *, is_known: bool) -> bool:
    """Use up a valid code, or count a wrong code; return whether it was valid."""
    factors, now = tx.repositories.second_factors, tx.now()
    factor = factors.find(user.id)
    if factor is None or factor.confirmed_at is None:
        return False
    today, subject = now.date(), tx.vault.pseudonym("wrong codes at known addresses", str(user.id))
    problem = None
    if is_known and tx.repositories.daily_counts.read(subject, today) >= WRONG_CODES_OF_DAY:
        problem = "too many wrong codes today; use a recovery code, or wait until tomorrow (UTC)"
    failed_at = factor.failed_at if factor.failures >= WRONG_CODES else None
    if not is_known and failed_at is not None and now < failed_at + LOCKED_TIME:
        problem = (
            "too many wrong codes; wait 15 minutes, use a recovery code, or a computer that you used before"
        )
    if problem is None:
        secret = tx.vault.decrypt(factor.encrypted_secret, _label(user)).decode()
        step = find_step(secret, typed, now, factor.last_step)
        if step is not None and factors.use_step(user.id, step):
            return True
    if factors.use_recovery_code(user.id, _recovery_digest(tx, user, typed)):
        audit_as(tx, user, "user.recovery_code", left=factors.count_recovery_codes(user.id))
        return True
    if problem is not None:
        raise InvalidInputError(problem)
    factors.count_wrong_code(user.id, now)
    if is_known:
        tx.repositories.daily_counts.add(subject, today)
    return False


def _recovery_digest(context: Context, user: User, typed: str) -> bytes:
    return context.vault.pseudonym("recovery code", f"{user.id} {normalize_recovery_code(typed)}")


def _label(user: User) -> bytes:
    return b"second factor of user %d" % user.id
