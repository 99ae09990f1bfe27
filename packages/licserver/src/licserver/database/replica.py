"""A standby that lists are read from, which may be some moments behind (D-252)."""

import logging
import time
from typing import Final

from licserver.database.engine import connect
from licserver.database.schema import check_owner
from licserver.database.timelines import Timelines
from licserver.errors import LicserverError, SettingsError

_log = logging.getLogger("licserver.database")
_AWAY: Final = 30.0  # seconds until a replica that failed is asked again


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

    def answers(self) -> bool:
        """Return whether it can be read from: it answers, and is of this installation."""
        if time.monotonic() < self._away_until:
            return False
        try:
            check_owner(self.database, self._fingerprint, expected=True)
        except LicserverError as error:
            self._away_until = time.monotonic() + _AWAY
            _log.warning("the replica is not used for %.0f s: %s", _AWAY, error)
            return False
        return True

    def close(self) -> None:
        """Close its connections."""
        self.database.close()
