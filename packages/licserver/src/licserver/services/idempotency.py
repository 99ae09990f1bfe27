"""What happens once: creations whose answers are kept for who asks again (D-93, D-130)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple, Self

from licserver.database.repositories.idempotency import IdempotencyKey
from licserver.domain.records import ActorKind
from licserver.errors import Conflict, WrongUse
from licserver.services.base import Room

ANSWERS_KEPT: Final = timedelta(days=1)
"""For how long an answer is kept for who asks again."""


class ReplayedError(Conflict):
    """Somebody else was faster with the same receipt, and what came of it cannot be told."""


class IdempotencyConflictError(Conflict):
    """A receipt was used for another request within the last day."""


class Answer(NamedTuple):
    """What was answered to a creation."""

    status: int
    body: bytes


class Done(NamedTuple):
    """What came of a creation.

    Args:
        answer: The same, however often it is asked for.
        before: Whether it was done by an earlier request.
    """

    answer: Answer
    before: bool


class Receipts(Room):
    """Does things once."""

    def once(self, receipt: IdempotencyKey, begin: Callable[[], Callable[[Self], Answer]]) -> Done:
        """Do something and keep what is answered, in one transaction; if it was done before, give that.

        Args:
            receipt: Names what is to happen once.
            begin: Does what takes long and may be in vain, and gives what is to happen in the transaction: a
                function of the vendor for whom it holds (`together`).

        Raises:
            SentOtherwise: when another request came with the same receipt.
            AnsweredAlready: when the owner of the receipt is no more.
            WrongUse: and whatever else is raised on the way; then nothing was done and nothing is kept.
        """
        told = self.recall(receipt)
        if told is None:
            try:
                work = begin()
                with self.together() as bound:
                    answer = work(bound)
                    bound.remember(receipt, answer)
                    return Done(answer, before=False)
            except WrongUse:
                # Whoever was faster may have kept ours from being done by doing it: then that is the answer.
                told = self.recall(receipt)
                if told is None:
                    raise
        return Done(told, before=True)

    def recall(self, receipt: IdempotencyKey) -> Answer | None:
        """Find what was answered to a creation within the last day, if it was.

        Raises:
            SentOtherwise: when another request came with the same receipt.
        """
        found = self._records.answered(receipt, self._clock() - ANSWERS_KEPT)
        if found is None:
            return None
        if found.digest != receipt.digest:
            raise IdempotencyConflictError(
                "this Idempotency-Key was used for another request within the last day"
            )
        return Answer(found.status, self.vault.unlock(found.answer, _label(receipt)))

    def remember(self, receipt: IdempotencyKey, answer: Answer) -> None:
        """Keep what is answered to a creation, in its transaction (`together`); sealed, as it may hold a key.

        Raises:
            AnsweredAlready: when somebody else was faster; leave the transaction by it.
        """
        now = self._clock()
        sealed = self.vault.lock(answer.body, _label(receipt))
        if not self._records.remember(receipt, answer.status, sealed, now, now - ANSWERS_KEPT):
            raise ReplayedError(
                "somebody else was at it at the same moment; look what there is before you try again"
            )


def _label(receipt: IdempotencyKey) -> bytes:
    owner = b"user " if receipt.by is ActorKind.USER else b""  # a token's begins with its number
    return owner + b"%d " % receipt.owner_id + receipt.key.encode()
