"""What all rooms of the vendor stand on: the data folder, and who acts."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from typing import Any, Self

from licserver.artifacts import Artifacts, open_artifacts
from licserver.clock import Clock, system_clock
from licserver.database.engine import Database
from licserver.database.repositories.repository import Repositories
from licserver.database.schema import is_in_use, open_database
from licserver.domain.records import SYSTEM, Actor
from licserver.security.key_vault import Vault
from licserver.security.redaction import mask
from licserver.security.secrets_file import expects_database, note_database, open_vault
from licserver.settings import Settings


class Room:
    """The vendor's data folder, as one who acts has it open.

    Args and Raises: as `licserver.services.Vendor`.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock = system_clock,
        actor: Actor = SYSTEM,
        *,
        new_database: bool = False,
    ) -> None:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.settings = settings
        self.actor = actor
        self.vault: Vault = open_vault(settings, lambda: is_in_use(settings.database))
        expected = expects_database(settings, self.vault) and not new_database
        self.database: Database = open_database(settings.database, self.vault.fingerprint, expected=expected)
        try:
            note_database(settings, self.vault)
            self.artifacts: Artifacts = open_artifacts(settings)
        except BaseException:
            self.database.close()
            raise
        self._records = Repositories(self.database)
        self._clock = clock

    def close(self) -> None:
        """Close the database, for all who act on it."""
        self.database.close()

    def now(self) -> datetime:
        """The instant by which this vendor judges."""
        return self._clock()

    def acting_as(self, actor: Actor) -> Self:
        """Give the same data folder, in the hands of somebody else; it is not to be closed by them."""
        other = copy.copy(self)
        other.actor = actor
        return other

    @contextmanager
    def together(self) -> Iterator[Self]:
        """Do several operations in one transaction: all of them, or none when the block raises.

        Yields:
            The vendor for whom this holds; its operations must not take long (none that stores a file),
            because others who write wait.
        """
        with self._records.together() as records:
            bound = copy.copy(self)
            bound._records = records  # noqa: SLF001 - our own
            yield bound

    def _note(self, records: Repositories, action: str, object_: tuple[str, str], **details: Any) -> None:
        """Add a line to the audit log, in the transaction of the change.

        Masked: somebody may have written a license key into a reason or a name.
        """
        records.note(self._clock(), self.actor, action, object_, {**_plain(details)})


def _plain(value: Any) -> Any:
    """Make what JSON can hold, with what is secret masked."""
    match value:
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case str():
            return mask(str(value))
        case None | bool() | int():
            return value
        case date() | datetime():
            return value.isoformat()
        case bytes():
            return value.hex()
        case _:
            raise TypeError(f"the audit log takes no {type(value).__name__}")
