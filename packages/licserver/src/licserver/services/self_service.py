"""What customers do themselves: free a slot of their license, a few times in 30 days."""

from collections.abc import Callable
from datetime import datetime

from licserver.domain.moves import counted_moves, next_move
from licserver.domain.records import Environment, IssuedLicense
from licserver.errors import HeldOfflineError, NotFoundError, TooManyMovesError
from licserver.protocol.webhooks import EventType
from licserver.services.context import Context
from licserver.services.licenses import audit_object, event_data, find_license
from licserver.services.products import ProductService


class SelfService:
    """Frees slots for the customer who owns a license."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def moves_left(self, license_: IssuedLicense) -> int:
        """Return how many slots the customer may free now."""
        allowed = ProductService(self._context).get(license_.product_slug).customer_moves
        return max(0, allowed - len(_counted(self._context, license_)))

    def free_slot(self, license_: IssuedLicense, environment: Environment) -> None:
        """Free one slot.

        Raises:
            NotFoundError: It is free already.
            HeldOfflineError: The computer has a license file, which nobody can take back.
            TooManyMovesError: The customer has freed as many as the product allows, or it allows none.
        """
        if not self._free(license_, lambda one: one == environment):
            raise NotFoundError("this computer is not activated any more")

    def deactivate(self, license_: IssuedLicense, domain: str) -> int:
        """Free the slots of a domain; return how many, which is 0 if there was none.

        Raises:
            TooManyMovesError: As `free_slot`.
        """
        return self._free(license_, lambda one: one.domain == domain)

    def make_room(self, license_: IssuedLicense, domain: str) -> None:
        """Free all slots, unless the domain has one already.

        Raises:
            TooManyMovesError: As `free_slot`.
        """
        active = self._context.repositories.licenses.list_activations(license_.id)
        if domain not in {one.environment.domain for one in active}:
            self._free(license_, lambda one: one.domain != domain)

    def _free(self, license_: IssuedLicense, is_meant: Callable[[Environment], bool]) -> int:
        with self._context.transaction() as tx:
            found = find_license(tx, license_.id.hex(), locked=True)
            active = tx.repositories.licenses.list_activations(found.id)
            held = {one.environment: one.offline_until for one in active if is_meant(one.environment)}
            meant, now = list(held), tx.now()
            if not meant:
                return 0
            if (until := max(filter(None, held.values()), default=now)) > now:
                raise HeldOfflineError(until)
            allowed = ProductService(tx).get(found.product_slug).customer_moves
            at = next_move(_counted(tx, found), allowed, now)
            if at != now:
                raise _refusal(allowed, at)
            for environment in meant:
                tx.repositories.licenses.remove_activation(found.id, environment)
            tx.repositories.moves.add(found.id, meant, now)
            tx.write_audit("license.move", audit_object(found), freed=len(meant))
            tx.add_events(EventType.ACTIVATION_FREED, event_data(found, freed=len(meant)))
        return len(meant)


def _counted(context: Context, license_: IssuedLicense) -> list[datetime]:
    freed = context.repositories.moves.list_all(license_.id)
    active = context.repositories.licenses.list_activations(license_.id) if freed else []
    return counted_moves(freed, {one.environment for one in active}, context.now())


def _refusal(allowed: int, at: datetime | None) -> TooManyMovesError:
    if at is None:
        return TooManyMovesError("computers of this license are changed by support; write to them", None)
    times = "once" if allowed == 1 else f"{allowed} times"
    day = at.date().isoformat()
    return TooManyMovesError(
        f"this license was moved to another computer {times} in 30 days; it can be moved again on {day}, "
        "or earlier by support",
        at,
    )
