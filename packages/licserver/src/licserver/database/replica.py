"""A standby that lists are read from, which may be some moments behind (D-252)."""

import logging
import time
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection

from licserver.database.engine import Database, connect
from licserver.database.hosts import HostRole, HostState, Server
from licserver.database.schema import check_owner
from licserver.database.timelines import Timelines
from licserver.errors import LicserverError, SettingsError, StoreUnavailableError

_log = logging.getLogger("licserver.database")
_AWAY: Final = 30.0  # seconds until a replica that failed is used again

_WRONG: Final = "name a standby of the database of LICSERVER_DATABASE_URL"
_PATIENCE: Final = 1.0  # seconds that a standby has to reach what the primary has written
_INTERVAL: Final = 0.05
_MOST_SECONDS: Final = 30.0
_MOST_BYTES: Final = 64 << 20

_POSITION: Final = "SELECT pg_current_wal_flush_lsn()::text, clock_timestamp()"
_BEHIND: Final = """
SELECT pg_wal_lsn_diff(%s::pg_lsn, pg_last_wal_replay_lsn())::bigint,
    extract(epoch FROM %s - pg_last_xact_replay_timestamp())::float8
"""
"""The age is that of the last change that it has, by the primary's clock; it is behind for less."""


class Replica:
    """A standby of the database; while it does not answer, readers take the database itself. Thread-safe.

    Args:
        url: Any host that it names will do, a standby first.
        fingerprint: Of the secrets that the database was written with.
        timelines: Those of the database: a former primary is no replica.
    """

    def __init__(self, url: str, fingerprint: bytes, timelines: Timelines | None = None) -> None:
        query = "" if "target_session_attrs" in url else "target_session_attrs=prefer-standby"
        try:
            self.database: Final = connect(f"{url}{'&' if '?' in url else '?'}{query}", timelines)
        except SettingsError as error:
            raise SettingsError(str(error).replace("_DATABASE_URL", "_REPLICA_URL")) from None
        self._fingerprint = fingerprint
        self._away_until = 0.0
        self._has_own_sessions = False

    def answers(self) -> bool:
        """Return whether it can be read from: it answers, and is of this installation."""
        if time.monotonic() < self._away_until:
            return False
        try:
            self._check()
        except LicserverError as error:
            self._away_until = time.monotonic() + _AWAY
            _log.warning("the replica is not used for %.0f s: %s", _AWAY, error)
            return False
        return True

    def _check(self) -> None:
        if not self._has_own_sessions:
            self.database.check_pooler()
            self._has_own_sessions = True
        check_owner(self.database, self._fingerprint, expected=True)

    def examine(self, primary: Database) -> HostState:
        """Find out what it is, and how far it is behind; waits for it for a second."""
        name = "LICSERVER_REPLICA_URL"
        try:
            self._check()
            description, fault = self._compare(primary)
        except StoreUnavailableError as problem:
            fault = "see that it runs; until then lists are read from the primary"
            return HostState(name, f"cannot be read from: {problem}", fault, is_warning=True)
        except LicserverError as problem:
            return HostState(name, f"cannot be read from: {problem}", _WRONG)
        return HostState(name, description, fault, is_warning=fault != _WRONG)

    def _compare(self, primary: Database) -> tuple[str, str]:
        with primary.reading() as on_primary, self.database.reading() as other:
            ours, theirs = (_server_of(connection) for connection in (on_primary, other))
            if not ours.system or not theirs.system:
                return "answers; how far it is behind, this database cannot say", ""
            if theirs.system != ours.system:
                return "names another database, which does not follow the primary", _WRONG
            if theirs.role is not HostRole.STANDBY:
                advice = "name a standby: lists cost the primary as much as without"
                return "names no standby", advice
            row = on_primary.exec_driver_sql(_POSITION).one()
            return _describe(*_measure(other, *row))

    def close(self) -> None:
        """Close its connections."""
        self.database.close()


def _server_of(connection: Connection) -> Server:
    driver: Any = connection.connection.driver_connection
    server: Server = driver.server
    return server


def _measure(standby: Connection, position: str, now: datetime) -> tuple[int, float | None]:
    """Return how many bytes and seconds a standby is behind a position of the primary's log."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        size, seconds = standby.exec_driver_sql(_BEHIND, (position, now)).one()
        if size <= 0:
            return 0, 0.0
        if time.monotonic() > deadline:
            return size, seconds
        time.sleep(_INTERVAL)


def _describe(size: int, seconds: float | None) -> tuple[str, str]:
    if not size:
        return f"is a standby, less than {_PATIENCE:g} s behind", ""
    age = (
        "and has got no change since it started"
        if seconds is None
        else f"its last change is {seconds:.0f} s old"
    )
    description = f"is a standby, {size:,} bytes behind; {age}"
    if size < _MOST_BYTES and seconds is not None and seconds < _MOST_SECONDS:
        return description, ""
    return (
        description,
        "lists are as old; see its log, its way to the primary, and max_standby_streaming_delay",
    )
