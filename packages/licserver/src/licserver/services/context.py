"""What every service works with: the installation, the acting user, and the repositories."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any

from licserver.artifacts import Artifacts
from licserver.clock import Clock
from licserver.database.engine import Database
from licserver.database.replica import Replica
from licserver.database.repositories import Repositories
from licserver.database.repositories.webhooks import NewEvent
from licserver.domain.records import Actor
from licserver.protocol.webhooks import EventType
from licserver.security.key_vault import KeyVault
from licserver.security.redaction import mask
from licserver.services.background import Background
from licserver.settings import Settings


@dataclass(frozen=True, slots=True, repr=False)
class Context:
    """What services share. Each call of `repositories` is a transaction, unless `transaction` gave them."""

    settings: Settings
    vault: KeyVault
    database: Database
    artifacts: Artifacts
    clock: Clock
    actor: Actor
    repositories: Repositories
    background: Background = field(default_factory=Background)
    replica: Replica | None = None

    def now(self) -> datetime:
        """Return the current instant."""
        return self.clock()

    def acting_as(self, actor: Actor) -> "Context":
        """Return the same context with another actor."""
        return replace(self, actor=actor)

    @contextmanager
    def transaction(self) -> Iterator["Context"]:
        """Open a transaction, or go on with the one that is open.

        Other writers wait until the block ends: nothing slow belongs there.
        """
        with self.repositories.transaction() as repositories:
            yield replace(self, repositories=repositories, replica=None)

    def for_lists(self) -> "Context":
        """Return a context that reads from the replica, if there is one that answers; it must not write.

        Within a transaction it is the context itself.
        """
        if self.replica is None or not self.replica.answers():
            return self
        return replace(self, repositories=Repositories(self.replica.database), replica=None)

    def add_events(self, type_: EventType, *data: Mapping[str, Any]) -> None:
        """Write events for webhook endpoints, in the transaction of the change, if any wants the type.

        `data` is for JSON; neither license keys nor secrets.
        """
        now = self.now()
        self.add_new_events(*(NewEvent(type_, now, one) for one in data))

    def add_new_events(self, *events: NewEvent) -> None:
        """Write events, as `add_events`."""
        if events:
            wanted = self.repositories.webhooks.wanted_types()
            self.repositories.webhooks.add_events(event for event in events if event.type in wanted)

    def write_audit(self, action: str, object_: tuple[str, str], **details: Any) -> None:
        """Add a line to the audit log, in the transaction of the change.

        Values are masked: a reason or a name may contain a license key.

        Args:
            action: What was done, as ``license.revoke``.
            object_: Kind and id of what was changed.
            **details: For JSON; neither secrets nor personal data.
        """
        self.repositories.audit.add(self.now(), self.actor, action, object_, {**_to_json(details)})


class Service:
    """What a vendor can do with one subject, on behalf of the context's actor."""

    def __init__(self, context: Context) -> None:
        self._context = context


def _to_json(value: Any) -> Any:
    match value:
        case dict():
            return {name: _to_json(one) for name, one in value.items()}
        case list() | tuple():
            return [_to_json(one) for one in value]
        case str():
            return mask(str(value))
        case None | bool() | int():
            return value
        case date() | datetime():
            return value.isoformat()
        case bytes():
            return value.hex()
        case _:
            raise TypeError(f"the audit log cannot store a {type(value).__name__}")
