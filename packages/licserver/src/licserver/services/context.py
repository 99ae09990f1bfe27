"""The context of all services: the installation, the acting user, and the repositories."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Final

from licserver.artifacts import Artifacts
from licserver.clock import Clock
from licserver.database.engine import Database
from licserver.database.replica import Replica
from licserver.database.repositories import Repositories
from licserver.database.repositories.webhooks import NewEvent
from licserver.domain.records import Actor, ActorKind
from licserver.protocol.webhooks import EventType
from licserver.security.key_vault import KeyVault
from licserver.security.redaction import mask
from licserver.services.vendor_threads import VendorThreads
from licserver.settings import Settings

CUSTOMER: Final = Actor(ActorKind.SYSTEM, "customer")
"""A customer on the account page or in an app; the license is the object of each line of the audit log."""

_CUSTOMER_LINES: Final = 10

REPEATABLE: Final = ("license.reveal", "license.move", "license.take_back", "license.file")
"""Actions that customers can repeat: the audit log has the first ones of a day, and all are counted."""


@dataclass(frozen=True, slots=True, repr=False)
class Context:
    """The shared state of all services of an actor.

    1. A service reads through `repositories`, each call a transaction.
    2. `transaction` returns a context whose repositories share a single transaction.
    3. `write_audit` and `add_events` record each change in that transaction.
    4. `for_lists` reads lists from the replica, which may lag behind.

    Example::

        with self._context.transaction() as tx:
            license_ = find_license(tx, reference, locked=True)
            tx.repositories.licenses.change(license_, slots=3)
            tx.write_audit("license.change", audit_object(license_), slots=[license_.slots, 3])

    An exception in the block rolls back the change, its audit line and its events. A failing database raises
    a `StoreError`.
    """

    settings: Settings
    vault: KeyVault
    database: Database
    artifacts: Artifacts
    clock: Clock
    actor: Actor
    repositories: Repositories
    threads: VendorThreads = field(default_factory=VendorThreads)
    replica: Replica | None = None

    def now(self) -> datetime:
        """Return the current instant."""
        return self.clock()

    def settled_now(self) -> datetime:
        """Return the instant for decisions that cannot be undone; at most `now` (D-284)."""
        return self.repositories.clock.settle(self.now())

    def acting_as(self, actor: Actor) -> "Context":
        """Return the same context with another actor."""
        return replace(self, actor=actor)

    @contextmanager
    def transaction(self) -> Iterator["Context"]:
        """Open a transaction, or join the open transaction.

        Other writers wait until the block ends: nothing slow belongs there.
        """
        with self.repositories.transaction() as repositories:
            yield replace(self, repositories=repositories, replica=None)

    def for_lists(self) -> "Context":
        """Return a read-only context of the replica, or this context without a reachable replica.

        Within a transaction it is always this context.
        """
        if self.replica is None or not self.replica.answers():
            return self
        return replace(self, repositories=Repositories(self.replica.database), replica=None)

    def add_events(self, type_: EventType, *data: Mapping[str, Any]) -> None:
        """Write events for webhook endpoints that want the type, in the transaction of the change.

        `data` is for JSON; neither license keys nor secrets.
        """
        now = self.now()
        self.add_new_events(*(NewEvent(type_, now, values) for values in data))

    def add_new_events(self, *events: NewEvent) -> None:
        """Write events, as `add_events`."""
        if events:
            types = self.repositories.webhooks.subscribed_types()
            if self.settings.mails_activations:
                types |= {EventType.ACTIVATION_CREATED}
            self.repositories.webhooks.add_events(event for event in events if event.type in types)

    def write_audit(self, action: str, *objects: tuple[str, str], **details: Any) -> None:
        """Add a line to the audit log for each object, in the transaction of the change.

        Values are masked: a reason or a name may contain a license key.

        Args:
            action: What was done, as ``license.revoke``.
            *objects: Kind and id of what was changed.
            **details: For JSON; neither secrets nor personal data.
        """
        self.repositories.audit.add(self.now(), self.actor, action, {**_to_json(details)}, *objects)

    def write_repeatable_audit(
        self, action: str, object_: tuple[str, str], subject: str = "", **details: Any
    ) -> None:
        """Write an audit line; for customers once a day for each subject, ten times for each object (D-296).

        Further lines are only counted: a customer's repeated actions must not fill the database.
        """
        if self.actor == CUSTOMER:
            counts, today = self.repositories.daily_counts, self.now().date()
            counts.add(self.repetitions_counter(action, object_), today)
            names = [action, *object_], [action, *object_, "of", subject]
            of_object, of_subject = (
                self.vault.pseudonym("audit", " ".join(name_parts)) for name_parts in names
            )
            if counts.read(of_object, today) >= _CUSTOMER_LINES:
                counts.add(of_object, today)
                return
            if counts.add(of_subject, today) > 1:
                return
            counts.add(of_object, today)
        self.write_audit(action, object_, **details)

    def repetitions_counter(self, action: str, object_: tuple[str, str]) -> bytes:
        """Return the counter of all that a customer has done of a kind on a day."""
        return self.vault.pseudonym("audit", " ".join(["all", action, *object_]))


class Service:
    """Base of the services: operations on a subject, on behalf of the context's actor."""

    def __init__(self, context: Context) -> None:
        self._context = context


def _to_json(value: Any) -> Any:
    match value:
        case dict():
            return {name: _to_json(item) for name, item in value.items()}
        case list() | tuple():
            return [_to_json(item) for item in value]
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
