"""Users of the console: sessions, second factors, login attempts and known addresses."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, case, delete, exists, func, insert, or_, select, update

from licserver.database.repositories.base import Repository, matching, put_into
from licserver.database.repositories.instants import settle
from licserver.database.tables.access import (
    daily_counts,
    failed_logins,
    known_addresses,
    recovery_codes,
    second_factors,
    sessions,
    tries,
    users,
)
from licserver.domain.records import Role


class User(NamedTuple):
    """A user of the console; the hash is for `security.passwords` alone."""

    id: int
    name: str
    password_hash: str
    created_at: datetime
    password_changed_at: datetime
    has_second_factor: bool
    role: Role

    def __repr__(self) -> str:
        return f"User({self.name})"


_is_confirmed: Final = second_factors.c.confirmed_at.is_not(None)
_has_factor: Final = exists().where(second_factors.c.user_id == users.c.id, _is_confirmed)
_SELECT_USER: Final = select(
    *(_has_factor if name == "has_second_factor" else users.c[name] for name in User._fields)
)


def _read_user(row: Sequence[Any]) -> User:
    return User._make((*row[:-1], Role(row[-1])))


class UserRepository(Repository):
    """Users."""

    def add(self, name: str, password_hash: str, role: Role, now: datetime) -> bool:
        """Add a user; return False when the name is taken."""
        row = {"name": name, "password_hash": password_hash, "created_at": now, "password_changed_at": now}
        return self._insert_unless_taken(insert(users).values(role=role.value, **row))

    def set_role(self, user_id: int, role: Role) -> None:
        """Change a role; it counts from the next request on."""
        self._execute(update(users).where(users.c.id == user_id).values(role=role.value))

    def list_all(self) -> list[User]:
        """Load all users, by name."""
        return [_read_user(row) for row in self._all(_SELECT_USER.order_by(users.c.name))]

    def find(self, name: str) -> User | None:
        """Load a user."""
        return self._find(_SELECT_USER.where(users.c.name == name), _read_user)

    def set_password(self, user_id: int, password_hash: str, now: datetime) -> None:
        """Change a password, and end all sessions of the user."""
        values = {"password_hash": password_hash, "password_changed_at": now}
        with self._writing() as connection:
            connection.execute(update(users).where(users.c.id == user_id).values(values))
            connection.execute(delete(sessions).where(sessions.c.user_id == user_id))

    def renew_hash(self, user: User, password_hash: str) -> User:
        """Store the same password under better parameters, unless it was changed meanwhile."""
        same = matching(users, id=user.id, password_hash=user.password_hash)
        self._execute(update(users).where(same).values(password_hash=password_hash))
        return user._replace(password_hash=password_hash)

    def remove(self, user_id: int) -> None:
        """Remove a user, and by foreign keys all that is theirs, such as sessions."""
        self._execute(delete(users).where(users.c.id == user_id))


class Session(NamedTuple):
    """A session that has not ended; `last_used_at` is stored to the minute."""

    user: User
    is_pending: bool
    last_used_at: datetime


class NewSession(NamedTuple):
    """A session that is about to begin; it ends at `pending_until` unless the second factor comes."""

    token_hash: bytes
    now: datetime
    expires_at: datetime
    pending_until: datetime
    is_verified: bool = False


class SessionRepository(Repository):
    """Sessions."""

    def add(self, user: User, new: NewSession, idle_since: datetime) -> bool | None:
        """Begin a session of a user whose password hash was verified; delete all that have ended.

        Returns:
            Whether the second factor is still missing. None, and no session begins, when the user has another
            password by now, or does not exist any more.
        """
        with self._writing() as connection:
            stored = select(users.c.password_hash).where(users.c.id == user.id).with_for_update()
            if connection.scalar(stored) != user.password_hash:
                return None
            has_factor = select(_has_factor).where(users.c.id == user.id)
            is_pending = not new.is_verified and bool(connection.scalar(has_factor))
            settled = settle(connection, new.now)  # otherwise a clock that is ahead would sign out everybody
            idle = sessions.c.last_used_at < idle_since + (settled - new.now)
            connection.execute(delete(sessions).where(or_(sessions.c.expires_at <= settled, idle)))
            row = {"token_hash": new.token_hash, "user_id": user.id, "is_pending": is_pending}
            row |= {"created_at": new.now, "last_used_at": new.now}
            row |= {"expires_at": new.pending_until if is_pending else new.expires_at}
            connection.execute(insert(sessions).values(row))
            return is_pending

    def find(self, token_hash: bytes, now: datetime, idle_since: datetime) -> Session | None:
        """Load a session that has not ended."""
        with_user = _SELECT_USER.add_columns(sessions.c.is_pending, sessions.c.last_used_at).join(sessions)
        goes_on = sessions.c.expires_at > now, sessions.c.last_used_at >= idle_since
        return self._find(
            with_user.where(sessions.c.token_hash == token_hash, *goes_on),
            lambda row: Session(_read_user(row[:-2]), *row[-2:]),
        )

    def set_last_used(self, token_hash: bytes, now: datetime) -> None:
        """Store when a session was last used."""
        self._execute(update(sessions).where(sessions.c.token_hash == token_hash).values(last_used_at=now))

    def remove(self, token_hash: bytes) -> bool:
        """End a session; return False when it has ended already."""
        return self._execute(delete(sessions).where(sessions.c.token_hash == token_hash)) == 1

    def remove_all(self, user_id: int) -> None:
        """End all sessions of a user."""
        self._execute(delete(sessions).where(sessions.c.user_id == user_id))


class SecondFactor(NamedTuple):
    """A second factor; `failures` are wrong codes in a row."""

    encrypted_secret: bytes
    created_at: datetime
    confirmed_at: datetime | None
    last_step: int
    failures: int
    failed_at: datetime | None

    def __repr__(self) -> str:
        return f"SecondFactor(confirmed_at={self.confirmed_at})"


class SecondFactorRepository(Repository):
    """Second factors of users."""

    def find(self, user_id: int) -> SecondFactor | None:
        """Load a user's second factor, confirmed or not."""
        columns = [second_factors.c[name] for name in SecondFactor._fields]
        return self._find(select(*columns).where(second_factors.c.user_id == user_id), SecondFactor._make)

    def propose(self, user_id: int, encrypted_secret: bytes, now: datetime) -> bool:
        """Store a secret that is to be confirmed; return False when the user has a confirmed one."""
        row = {"user_id": user_id, "encrypted_secret": encrypted_secret, "created_at": now}
        unconfirmed = matching(second_factors, user_id=user_id, confirmed_at=None)
        self._execute(delete(second_factors).where(unconfirmed))
        return self._insert_unless_taken(insert(second_factors).values(**row, last_step=0, failures=0))

    def confirm(
        self, user_id: int, encrypted_secret: bytes, step: int, digests: Iterable[bytes], now: datetime
    ) -> bool:
        """Confirm a second factor, and replace the recovery codes; False if it was confirmed or changed."""
        with self._writing() as connection:
            # A session that begins meanwhile waits for this, and finds the factor.
            connection.execute(select(users.c.id).where(users.c.id == user_id).with_for_update())
            this = {"user_id": user_id, "encrypted_secret": encrypted_secret, "confirmed_at": None}
            unconfirmed = update(second_factors).where(matching(second_factors, **this))
            confirmed = unconfirmed.values(confirmed_at=now, last_step=step)
            if connection.execute(confirmed).rowcount != 1:
                return False
            connection.execute(delete(recovery_codes).where(recovery_codes.c.user_id == user_id))
            rows = [{"user_id": user_id, "digest": digest} for digest in digests]
            connection.execute(insert(recovery_codes), rows)
            return True

    def use_step(self, user_id: int, step: int) -> bool:
        """Store a code's time step; return False when a step as late was accepted before."""
        this = (second_factors.c.user_id == user_id, second_factors.c.last_step < step)
        return self._execute(update(second_factors).where(*this).values(last_step=step, failures=0)) == 1

    def use_recovery_code(self, user_id: int, digest: bytes) -> bool:
        """Delete a recovery code; return False if it does not exist."""
        this = matching(recovery_codes, user_id=user_id, digest=digest)
        if self._execute(delete(recovery_codes).where(this)) != 1:
            return False
        self._execute(update(second_factors).where(second_factors.c.user_id == user_id).values(failures=0))
        return True

    def count_recovery_codes(self, user_id: int) -> int:
        """Count the recovery codes that are left."""
        return self._scalar(select(func.count()).where(recovery_codes.c.user_id == user_id)) or 0

    def count_wrong_code(self, user_id: int, now: datetime) -> None:
        """Count a wrong code."""
        of_user = update(second_factors).where(second_factors.c.user_id == user_id)
        self._execute(of_user.values(failures=second_factors.c.failures + 1, failed_at=now))

    def remove(self, user_id: int) -> bool:
        """Delete a user's second factor and recovery codes; return False if there was no factor."""
        self._execute(delete(recovery_codes).where(recovery_codes.c.user_id == user_id))
        return self._execute(delete(second_factors).where(second_factors.c.user_id == user_id)) == 1


_DAILY_COUNT: Final = select(daily_counts.c.count.label("number")).where(
    daily_counts.c.day == bindparam("day"), daily_counts.c.subject == bindparam("subject")
)
_WINDOW: Final = 60  # seconds
_KEPT: Final = 10
"""Minutes for which counts are kept. Two would do; a server whose clock is fast must not delete another's."""


class Limit(NamedTuple):
    """Attempts allowed in a minute; `subject` is a digest of 16 bytes of an address, a network or a name."""

    subject: bytes
    limit: int


class LoginRepository(Repository):
    """Attempts, failures and known addresses."""

    def count_attempt(self, limits: Sequence[Limit], now: datetime) -> bool:
        """Count an attempt against all of `limits`; against none, returning False, if one is used up (D-131).

        The minute slides: of the last whole minute, the share counts that is still within it.
        """
        minute, into = divmod(now.timestamp(), _WINDOW)
        share = 1 - into / _WINDOW
        with self._reading() as connection:  # a refusal blocks no writer
            if _is_over(connection, limits, int(minute), share, 0):
                return False
        with self._writing() as connection:
            delete_old_attempts(connection, settle(connection, now))
            savepoint = connection.begin_nested()
            subjects = sorted({limit.subject for limit in limits})  # sorted, so that no two deadlock
            rows = [{"minute": int(minute), "subject": subject, "count": 1} for subject in subjects]
            put_into(connection, tries, *rows, added="count")
            # Checked again now that others wait: simultaneous attempts count as well.
            if _is_over(connection, limits, int(minute), share, 1):
                savepoint.rollback()
                return False
            savepoint.commit()
            return True

    def is_known_address(self, name: str, address: bytes) -> bool:
        """Return whether a user has signed in from an address."""
        addresses = select(known_addresses.c.user_id).join(users).where(users.c.name == name)
        return self._scalar(addresses.where(known_addresses.c.address == address)) is not None

    def remember_address(self, user_id: int, address: bytes, now: datetime, limit: int) -> None:
        """Store where a user has signed in from; keep the `limit` latest addresses."""
        columns = known_addresses.c
        theirs = columns.user_id == user_id
        by_use = select(columns.address).where(theirs).order_by(columns.last_used_at.desc(), columns.address)
        row = {"user_id": user_id, "address": address, "last_used_at": now}
        with self._writing() as connection:
            put_into(connection, known_addresses, row)
            latest = connection.scalars(by_use.limit(limit)).all()
            connection.execute(delete(known_addresses).where(theirs, columns.address.not_in(latest)))

    def count_failed_logins(self, action: str, subject: str, day: date, count: int) -> int:
        """Add to a day's failed logins of a subject; return their number so far."""
        this = matching(failed_logins, action=action, subject=subject)
        row = {"action": action, "subject": subject, "day": day, "count": count}
        with self._writing() as connection:
            connection.execute(delete(failed_logins).where(this, failed_logins.c.day != day))
            put_into(connection, failed_logins, row, added="count")
            total: int = connection.execute(select(failed_logins.c.count).where(this)).scalar_one()
            return total


def delete_old_attempts(connection: Connection, now: datetime) -> None:
    """Delete counts of minutes and days that are over."""
    connection.execute(delete(tries).where(tries.c.minute < now.timestamp() // _WINDOW - _KEPT))
    connection.execute(delete(daily_counts).where(daily_counts.c.day < now.date() - timedelta(days=1)))


class DailyCountRepository(Repository):
    """Counts of a day in UTC; `subject` is a digest of 16 bytes of the counter's name and its subject."""

    def read(self, subject: bytes, day: date) -> int:
        """Return a count."""
        row = self._first(_DAILY_COUNT, day=day, subject=subject)
        return 0 if row is None else int(row.number)

    def add(self, subject: bytes, day: date, count: int = 1) -> int:
        """Add to a count, and return it; others wait for the end of the transaction."""
        with self._writing() as connection:
            put_into(
                connection, daily_counts, {"day": day, "subject": subject, "count": count}, added="count"
            )
        return self.read(subject, day)


def _is_over(connection: Connection, limits: Sequence[Limit], minute: int, share: float, own: int) -> bool:
    """Return whether one of `limits` is used up; `own` attempts of ours are counted already."""
    weighed = func.sum(tries.c.count * case((tries.c.minute == minute, 1.0), else_=share))
    subjects = [limit.subject for limit in limits]
    of = select(tries.c.subject, weighed).where(
        tries.c.subject.in_(subjects), tries.c.minute.in_([minute, minute - 1])
    )
    used = {bytes(row[0]): row[1] for row in connection.execute(of.group_by(tries.c.subject))}
    return any(used.get(limit.subject, 0.0) >= limit.limit + own for limit in limits)
