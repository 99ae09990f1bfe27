"""Responses to requests with an idempotency key (D-93, D-130)."""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, delete, insert, select

from licserver.database.repositories.base import Repository
from licserver.database.tables import receipts
from licserver.domain.records import ActorKind

_OWNERS = {ActorKind.TOKEN: receipts.c.token_id, ActorKind.USER: receipts.c.user_id}


class IdempotencyKey(NamedTuple):
    """An idempotency key.

    Args:
        by: Kind of its owner: a token or a user.
        owner_id: The owner's number.
        key: As sent: the header of a request, or the id of a form.
        digest: SHA-256 of the request.
    """

    by: ActorKind
    owner_id: int
    key: str
    digest: bytes


class RecordedResponse(NamedTuple):
    """A recorded response; `answer` is encrypted."""

    digest: bytes
    status: int
    answer: bytes


class IdempotencyRepository(Repository):
    """Recorded responses."""

    def find(self, key: IdempotencyKey, since: datetime) -> RecordedResponse | None:
        """Load the response recorded for a key, unless it is older than `since`."""
        this: ColumnElement[bool] = (
            (_OWNERS[key.by] == key.owner_id) & (receipts.c.key == key.key) & (receipts.c.created_at >= since)
        )
        columns = (receipts.c.digest, receipts.c.status, receipts.c.answer)
        with self._reading() as connection:
            row = connection.execute(select(*columns).where(this)).first()
        return None if row is None else RecordedResponse(*row)

    def add(self, key: IdempotencyKey, status: int, answer: bytes, now: datetime, since: datetime) -> bool:
        """Record a response, in the operation's transaction; delete those older than `since`.

        Returns:
            False when the same key was recorded meanwhile, or its owner does not exist any more: then the
            operation must not happen.
        """
        row: dict[str, Any] = {
            _OWNERS[key.by].name: key.owner_id,
            "key": key.key,
            "digest": key.digest,
            "status": status,
            "answer": answer,
            "created_at": now,
        }
        with self._writing() as connection:
            connection.execute(delete(receipts).where(receipts.c.created_at < since))
        return self._insert_unless_taken(insert(receipts).values(row))
