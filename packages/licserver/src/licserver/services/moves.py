"""Moves: slots that customers free by themselves, a few times in 30 days."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from licserver.database.repositories.webhooks import NewEvent
from licserver.domain.moves import Move, counted_moves, next_move
from licserver.domain.records import Environment, IssuedLicense
from licserver.errors import (
    HeldOfflineError,
    NotFoundError,
    TooManyMovesError,
)
from licserver.protocol.webhooks import EventType, derive_event_id
from licserver.services.context import Context, Service
from licserver.services.license_lookups import audit_object, event_data, find_license
from licserver.services.products import find_product

_INSTANT: Final = timedelta(microseconds=1)  # what databases distinguish


class MoveService(Service):
    """Frees slots on behalf of a license's customer."""

    def list_moves_left(self, licenses: Sequence[tuple[IssuedLicense, int]]) -> list[int]:
        """Return the moves that are left now, of licenses each with the number that its product allows."""
        now = self._context.now()
        moves = self._context.repositories.moves.list_all(
            [license_.id for license_, allowed in licenses if allowed]
        )
        moved = [license_id for license_id, license_moves in moves.items() if license_moves]
        active = {
            license_id: [activation.environment for activation in activations]
            for license_id, activations in self._context.repositories.licenses.list_few_activations(
                moved
            ).items()
        }
        counted = [
            counted_moves(moves.get(license_.id, ()), active.get(license_.id, ()), now)[0]
            for license_, _ in licenses
        ]
        return [
            max(0, allowed - len(license_moves))
            for (_, allowed), license_moves in zip(licenses, counted, strict=True)
        ]

    def free_slot(self, license_: IssuedLicense, environment: Environment) -> None:
        """Free the slot of an environment.

        Raises:
            NotFoundError: The slot is free already.
            HeldOfflineError: The computer has a license file, which cannot be revoked.
            TooManyMovesError: No moves are left, or the product allows none.
        """
        if not self._free(license_, lambda candidate: candidate == environment):
            raise NotFoundError("this computer is not activated any more")

    def deactivate(self, license_: IssuedLicense, domain: str) -> int:
        """Free the slots of a domain; return their number, 0 for an unknown domain; raise as `free_slot`."""
        return self._free(license_, lambda environment: environment.domain == domain)

    def make_room(self, license_: IssuedLicense, domain: str) -> None:
        """Free all slots, unless the domain holds a slot already; raise as `free_slot`."""
        active = self._context.repositories.licenses.list_activations(license_.id)
        if domain not in {activation.environment.domain for activation in active}:
            self._free(license_, lambda environment: environment.domain != domain)

    def _free(self, license_: IssuedLicense, is_meant: Callable[[Environment], bool]) -> int:
        with self._context.transaction() as tx:
            current = find_license(tx, license_.id.hex(), locked=True)
            active = tx.repositories.licenses.list_activations(current.id)
            held = {
                activation.environment: activation.offline_until
                for activation in active
                if is_meant(activation.environment)
            }
            meant, now = list(held), tx.now()
            if not meant:
                return 0
            if (until := max(filter(None, held.values()), default=now)) > now:
                raise HeldOfflineError(until)
            allowed = find_product(tx, current.product_slug).customer_moves
            counted, uncounted = _counted(tx, current)
            if (at := next_move(counted, allowed, now)) != now:
                raise _refusal(allowed, at)
            for environment in meant:
                tx.repositories.licenses.remove_activation(current.id, environment)
            # Each move needs a different instant: the clock may repeat an instant, or go back.
            latest = max((move.at for move in (*counted, *uncounted)), default=now - _INSTANT)
            move = Move(max(now, latest + _INSTANT), frozenset(meant))
            tx.repositories.moves.replace(current.id, uncounted, move)
            places = [f"{environment.domain} {environment.ip}" for environment in sorted(meant)]
            tx.write_repeatable_audit("license.move", audit_object(current), *places[:1], freed=len(meant))
            type_, data = EventType.ACTIVATION_FREED, event_data(current, freed=len(meant))
            event_id = derive_event_id(type_, data["license_id"], *places, now.date().isoformat())
            tx.add_new_events(NewEvent(type_, now, data, event_id))
        return len(meant)


def _counted(context: Context, license_: IssuedLicense) -> tuple[list[Move], list[Move]]:
    moves = context.repositories.moves.list_all([license_.id])[license_.id]
    active = context.repositories.licenses.list_activations(license_.id) if moves else []
    return counted_moves(moves, [activation.environment for activation in active], context.now())


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
