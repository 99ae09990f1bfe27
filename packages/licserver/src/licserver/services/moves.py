"""Moves: slots that customers free or move to another computer by themselves, a few times in 30 days."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from licserver.database.repositories.webhooks import NewEvent, activation_event
from licserver.domain.decisions import Valid, VerifyRefusal, VerifyVerdict, evaluate_verify, license_state
from licserver.domain.environments import is_printable
from licserver.domain.moves import (
    MOVES_COUNT_FOR,
    UNKNOWN_KEY,
    Computer,
    ComputerList,
    Move,
    MoveHistory,
    MoveRecord,
    RefusedMove,
    counted_moves,
    evaluate_license,
    evaluate_move,
    find_idle,
    find_moved_to,
    group_computers,
    is_probably_shared,
    least_idle_days,
    mask_domain,
    next_move,
    superseded_records,
)
from licserver.domain.records import Environment, IssuedLicense, Machine, Product
from licserver.errors import (
    HeldOfflineError,
    NotFoundError,
    TooManyMovesError,
)
from licserver.protocol.webhooks import EventType, derive_event_id
from licserver.services.context import Context, Service
from licserver.services.license_lookups import audit_object, event_data, find_by_key, find_license
from licserver.services.products import find_product

MAX_COMPUTERS: Final = 100
"""Computers of a license that its customer can list and move, those seen last."""

_INSTANT: Final = timedelta(microseconds=1)  # what databases distinguish
_NO_MACHINE: Final = Machine()


class MoveService(Service):
    """Frees and moves slots on behalf of a license's customer."""

    def list_moves_left(
        self, licenses: Sequence[tuple[IssuedLicense, Product]]
    ) -> list[tuple[int, datetime | None]]:
        """Return the moves that are left now of each license, and when the next is possible.

        Args:
            licenses: Each with its product.

        Returns:
            The instant is `now` while one is left, and None for never.
        """
        now = self._context.now()
        moves = self._context.repositories.moves.list_all(
            [license_.id for license_, product in licenses if product.customer_moves]
        )
        moved = [license_id for license_id, license_moves in moves.items() if license_moves]
        active = {
            license_id: [activation.environment for activation in activations]
            for license_id, activations in self._context.repositories.licenses.list_few_activations(
                moved
            ).items()
        }
        left = list[tuple[int, datetime | None]]()
        for license_, product in licenses:
            of_license = moves.get(license_.id, ()), active.get(license_.id, ())
            counted, allowed = counted_moves(*of_license, now, product.policy).counted, product.customer_moves
            left.append((max(0, allowed - len(counted)), next_move(counted, allowed, now)))
        return left

    def free_slot(self, license_: IssuedLicense, environment: Environment) -> None:
        """Free the slot of an environment.

        Raises:
            NotFoundError: The slot is free already.
            HeldOfflineError: The computer has a license file, which cannot be revoked.
            TooManyMovesError: No moves are left, or the product allows none.
        """
        if not self._free(license_, environment.domain, lambda candidate: candidate == environment):
            raise NotFoundError("this computer is not activated any more")

    def deactivate(self, license_: IssuedLicense, domain: str) -> int:
        """Free the slots of a domain; return their number, 0 for an unknown domain; raise as `free_slot`."""
        return self._free(license_, domain)

    def make_room(self, license_: IssuedLicense, domain: str) -> None:
        """Free all slots, unless the domain holds a slot already; raise as `free_slot`."""
        if not self._context.repositories.licenses.has_slot(license_.id, domain):
            self._free(license_, None)

    def list_computers(self, key: str, environment: Environment) -> ComputerList | RefusedMove:
        """Return the computers that hold slots, as the one in an environment sees them (D-332)."""
        context, now = self._context, self._context.now()
        license_ = find_by_key(context, key)
        if license_ is None:
            return UNKNOWN_KEY
        if (refusal := _refuse(context, license_)) is not None:
            return refusal
        licenses, moves = context.repositories.licenses, context.repositories.moves
        latest = licenses.list_by_last_seen(license_.id, MAX_COMPUTERS)
        computers = [(self._id(license_.id, each.domain), each) for each in group_computers(latest)]
        product = find_product(context, license_.product_slug)
        allowed = product.customer_moves
        counted = _load_history(context, license_, product, environment).counted
        next_at = next_move(counted, allowed, now)
        moved_to = find_moved_to(moves.list_records(license_.id), environment.domain)
        if moved_to is not None and licenses.has_slot(license_.id, environment.domain):
            moved_to = None
        moves_left = max(0, allowed - len(counted))
        return ComputerList(
            license_.slots,
            license_.slots_used,
            computers,
            moves_left,
            None if next_at == now else next_at,
            moved_to,
        )

    def move(
        self, key: str, environment: Environment, computer_id: bytes, machine: Machine | None = None
    ) -> Computer | RefusedMove | None:
        """Free the slots of a computer, and give one to an environment (D-333).

        Args:
            computer_id: As `list_computers` returned it.

        Returns:
            The computer that lost its slots, or why none did; None if the environment has a slot already.
        """
        with self._context.transaction() as tx:
            license_, now = find_by_key(tx, key, locked=True), tx.now()
            if license_ is None:
                return UNKNOWN_KEY
            if (refusal := _refuse(tx, license_)) is not None:
                return refusal
            licenses = tx.repositories.licenses
            verify = evaluate_verify(key, licenses.find_snapshot(license_.id, environment), environment, now)
            if isinstance(verify, Valid) and not verify.takes_slot:
                return None
            latest = group_computers(licenses.list_by_last_seen(license_.id, MAX_COMPUTERS))
            meant = (computer for computer in latest if self._id(license_.id, computer.domain) == computer_id)
            product = find_product(tx, license_.product_slug)
            history = _load_history(tx, license_, product, environment)
            verdict = evaluate_move(next(meant, None), history.counted, product.customer_moves, now)
            if isinstance(verdict, Computer):
                _hand_over(tx, license_, verdict, environment, machine or _NO_MACHINE, history)
        return verdict

    def take_idle_slot(
        self, key: str, environment: Environment, machine: Machine | None = None
    ) -> VerifyVerdict:
        """Verify an environment that got no slot; the product may give it that of an idle computer (D-334).

        That counts as a move of the customer.
        """
        license_ = find_by_key(self._context, key)
        # Without a lock first: refused requests must not block others.
        if license_ is None or _find_idle(self._context, license_) is None:
            return VerifyRefusal.ENVIRONMENT
        with self._context.transaction() as tx:
            license_, now = find_by_key(tx, key, locked=True), tx.now()
            if license_ is None:
                return VerifyRefusal.NOT_FOUND
            snapshot = tx.repositories.licenses.find_snapshot(license_.id, environment)
            verdict = evaluate_verify(key, snapshot, environment, now)
            if isinstance(verdict, Valid) and verdict.takes_slot:
                _activate(tx, license_, environment, machine or _NO_MACHINE)
            if verdict is not VerifyRefusal.ENVIRONMENT or snapshot is None:
                return verdict
            source, product = _find_idle(tx, license_), find_product(tx, license_.product_slug)
            history = _load_history(tx, license_, product, environment)
            if source is None or next_move(history.counted, product.customer_moves, now) != now:
                return verdict
            _hand_over(tx, license_, source, environment, machine or _NO_MACHINE, history)
        return Valid(snapshot, takes_slot=True)

    def computer_id(self, key: str, domain: str) -> bytes:
        """Return the id by which the customer of a license names one of its computers."""
        return self._id(self._context.vault.license_id(key), domain)

    def _id(self, license_id: bytes, domain: str) -> bytes:
        return self._context.vault.pseudonym("computer", f"{license_id.hex()} {domain}")

    def _free(
        self,
        license_: IssuedLicense,
        domain: str | None,
        is_meant: Callable[[Environment], bool] = lambda _: True,
    ) -> int:
        """Free the slots of a domain, or of all; a license may have very many others."""
        if domain is not None and not is_printable(domain):
            return 0  # no stored domain is such, and PostgreSQL refuses a NUL
        with self._context.transaction() as tx:
            current, licenses = find_license(tx, license_.id.hex(), locked=True), tx.repositories.licenses
            if domain is None:
                active = licenses.list_activations(current.id)
            else:
                active = licenses.list_activations_of(current.id, {domain})
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
            product = find_product(tx, current.product_slug)
            history = _load_history(tx, current, product)
            if (next_at := next_move(history.counted, product.customer_moves, now)) != now:
                raise _refusal(product.customer_moves, next_at)
            _release(tx, current, meant, history, now)
        return len(meant)


def _refuse(context: Context, license_: IssuedLicense) -> RefusedMove | None:
    allowed = find_product(context, license_.product_slug).customer_moves
    return evaluate_license(license_state(license_, context.now()), allowed)


def _hand_over(
    tx: Context,
    license_: IssuedLicense,
    source: Computer,
    environment: Environment,
    machine: Machine,
    history: MoveHistory,
) -> None:
    """Free all slots of a computer, and give one to an environment; the number in use does not grow."""
    now, repositories = tx.now(), tx.repositories
    at = _release(tx, license_, source.environments, history, now, to=mask_domain(environment.domain))
    _activate(tx, license_, environment, machine)
    if source.domain == environment.domain:
        return  # its address has changed: nothing to report to another computer
    record = MoveRecord(at, source.domain, source.label, environment.domain, machine.label)
    records = [*repositories.moves.list_records(license_.id), record]
    repositories.moves.add_record(license_.id, record, superseded_records(records))
    if is_probably_shared(records, now) and repositories.moves.mark_shared(
        license_.id, now, now - MOVES_COUNT_FOR
    ):
        tx.add_events(EventType.LICENSE_PROBABLY_SHARED, event_data(license_))


def _activate(tx: Context, license_: IssuedLicense, environment: Environment, machine: Machine) -> None:
    now = tx.now()
    tx.repositories.licenses.add_activation(license_.id, environment, now, machine)
    tx.add_new_events(activation_event(license_.id, environment, now))


def _find_idle(context: Context, license_: IssuedLicense) -> Computer | None:
    """Return the idle computer whose slots a new one may get, by the rule of the product."""
    days = find_product(context, license_.product_slug).idle_days
    if not days:
        return None
    # Not earlier than a computer in use is stored, whatever was set when the rule was chosen.
    days = max(days, least_idle_days(context.settings.last_seen_days))
    settled = context.settled_now()  # a slot that is given away cannot be given back
    repositories = context.repositories
    oldest = repositories.licenses.list_by_last_seen(license_.id, MAX_COMPUTERS, oldest_first=True)
    used_before = settled - timedelta(days=days)
    return find_idle(group_computers(oldest), used_before, repositories.moves.watched_since())


def _release(
    tx: Context,
    license_: IssuedLicense,
    meant: Collection[Environment],
    history: MoveHistory,
    now: datetime,
    **details: str,
) -> datetime:
    """Free the slots of some environments as one move; return its instant, which no other move has."""
    for environment in meant:
        tx.repositories.licenses.remove_activation(license_.id, environment)
    # Each move needs a different instant: the clock may repeat an instant, or go back.
    latest = max((move.at for move in chain(*history)), default=now - _INSTANT)
    move = Move(max(now, latest + _INSTANT), frozenset(meant))
    tx.repositories.moves.replace(license_.id, history.uncounted, move)
    places = [f"{environment.domain} {environment.ip}" for environment in sorted(meant)]
    details = {"computer": mask_domain(next(iter(meant)).domain), **details}
    subject = places[0] if places else ""
    tx.write_repeatable_audit("license.move", audit_object(license_), subject, freed=len(meant), **details)
    type_, data = EventType.ACTIVATION_FREED, event_data(license_, freed=len(meant))
    event_id = derive_event_id(type_, data["license_id"], *places, now.date().isoformat())
    tx.add_new_events(NewEvent(type_, now, data, event_id))
    return move.at


def _load_history(
    context: Context, license_: IssuedLicense, product: Product, returning: Environment | None = None
) -> MoveHistory:
    """Return the moves of a license.

    Args:
        returning: An environment that is about to get a slot: its own return is free as well (D-218).
    """
    moves = context.repositories.moves.list_all([license_.id])[license_.id]
    # Of a license with very many computers, only those that gave up a slot make a difference.
    domains = {environment.domain for move in moves for environment in move.environments}
    activations = context.repositories.licenses.list_activations_of(license_.id, domains)
    active = {activation.environment for activation in activations}
    if returning is not None:
        active.add(returning)
    return counted_moves(moves, active, context.now(), product.policy)


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
