"""Operations that happen once, and whose response is recorded for repeated requests (D-93, D-130)."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from licserver.database.repositories.tokens import IdempotencyKey
from licserver.domain.records import ActorKind
from licserver.errors import ConflictError, InvalidInputError
from licserver.services.context import Context

if TYPE_CHECKING:
    from licserver.services import Services

RESPONSES_KEPT: Final = timedelta(days=1)  # for how long a response is kept

Prepared = TypeVar("Prepared")


class ReplayedError(ConflictError):
    """Another request with the same key was faster, or the key's owner was removed."""


class IdempotencyConflictError(ConflictError):
    """The key was used for another request within the last day."""


class Response(NamedTuple):
    """A recorded response."""

    status: int
    body: bytes


class Outcome(NamedTuple):
    """The result of `run_once`; a replayed one was made by an earlier request."""

    response: Response
    is_replayed: bool


class IdempotencyService:
    """Finds and records responses."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def find(self, key: IdempotencyKey) -> Response | None:
        """Find the response that was recorded within the last day; the key must be of the same request."""
        since = self._context.now() - RESPONSES_KEPT
        found = self._context.repositories.idempotency.find(key, since)
        if found is None:
            return None
        if found.digest != key.digest:
            raise IdempotencyConflictError(
                "this Idempotency-Key was used for another request within the last day"
            )
        return Response(found.status, self._context.vault.decrypt(found.response, _label(key)))

    def record(self, key: IdempotencyKey, response: Response) -> None:
        """Record a response, in the operation's transaction; encrypted, because it may hold a license key.

        A `ReplayedError` means that another request was faster: the transaction must not be committed.
        """
        now = self._context.now()
        encrypted = self._context.vault.encrypt(response.body, _label(key))
        if not self._context.repositories.idempotency.add(
            key, response.status, encrypted, now, now - RESPONSES_KEPT
        ):
            raise ReplayedError(
                "a request with this Idempotency-Key is in progress; look at what exists before you retry"
            )


def run_once(
    services: "Services",
    key: IdempotencyKey,
    prepare: Callable[[], Prepared],
    operation: Callable[["Services", Prepared], Response],
) -> Outcome:
    """Run an operation and record its response in one transaction, unless it was done before.

    Args:
        services: On behalf of the acting user.
        key: Identifies the operation.
        prepare: Slow work before the transaction, such as storing a file; may be done in vain.
        operation: Runs within the transaction, with services bound to it and what `prepare` returned; if it
            raises, nothing was done and nothing is recorded.
    """
    recorded = services.idempotency.find(key)
    if recorded is None:
        try:
            prepared = prepare()
            with services.transaction() as tx:
                response = operation(tx, prepared)
                tx.idempotency.record(key, response)
            return Outcome(response, is_replayed=False)
        except InvalidInputError:
            # A faster request may have caused this by doing the same: then its response is the answer.
            recorded = services.idempotency.find(key)
            if recorded is None:
                raise
    return Outcome(recorded, is_replayed=True)


def _label(key: IdempotencyKey) -> bytes:
    owner = b"user " if key.by is ActorKind.USER else b""  # a token's label begins with its number
    return owner + b"%d " % key.owner_id + key.key.encode()
