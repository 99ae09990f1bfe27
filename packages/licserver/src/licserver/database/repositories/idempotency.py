"""What was answered to creations that are to happen once, whoever they came from (D-93, D-130)."""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, delete, insert, select

from licserver.database.repositories.base import Repository
from licserver.database.tables import receipts
from licserver.domain.records import ActorKind

_OWNERS = {ActorKind.TOKEN: receipts.c.token_id, ActorKind.USER: receipts.c.user_id}


class IdempotencyKey(NamedTuple):
    """A creation that is to happen once.

    Args:
        by: Whose it is: a token's or a user's.
        owner_id: Which one's; the number in the books.
        key: What the owner calls it: an idempotency key, or a form's own.
        digest: SHA-256 of the request.
    """

    by: ActorKind
    owner_id: int
    key: str
    digest: bytes


class RecordedResponse(NamedTuple):
    """What was answered; `answer` is sealed."""

    digest: bytes
    status: int
    answer: bytes


class IdempotencyRepository(Repository):
    """Answers to creations."""

    def answered(self, receipt: IdempotencyKey, since: datetime) -> RecordedResponse | None:
        """Load what was answered to a creation, unless that was before `since`."""
        this: ColumnElement[bool] = (
            (_OWNERS[receipt.by] == receipt.owner_id)
            & (receipts.c.key == receipt.key)
            & (receipts.c.created_at >= since)
        )
        columns = (receipts.c.digest, receipts.c.status, receipts.c.answer)
        with self._reading() as connection:
            row = connection.execute(select(*columns).where(this)).first()
        return None if row is None else RecordedResponse(*row)

    def remember(
        self, receipt: IdempotencyKey, status: int, answer: bytes, now: datetime, since: datetime
    ) -> bool:
        """Keep an answer, beside the creation (`together`), and forget those of before `since`.

        Returns:
            False when somebody else was faster with the same key, or the owner is no more: then the creation
            must not be.
        """
        row: dict[str, Any] = {
            _OWNERS[receipt.by].name: receipt.owner_id,
            "key": receipt.key,
            "digest": receipt.digest,
            "status": status,
            "answer": answer,
            "created_at": now,
        }
        with self._writing() as connection:
            connection.execute(delete(receipts).where(receipts.c.created_at < since))
        return self._insert_unless_taken(insert(receipts).values(row))
