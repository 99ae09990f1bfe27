"""The job queue: work that any process does later, each job by one of them at a time."""

import enum
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    ScalarSelect,
    Select,
    exists,
    func,
    literal,
    select,
    union_all,
    update,
)

from licserver.database.repositories.base import Repository, insert_into, matching
from licserver.database.tables.events import jobs
from licserver.domain.instants import is_of_the_future

MAX_ERROR: Final = 500  # characters of an error that is stored
MAX_COUNTED_JOBS: Final = 10_000  # jobs of a queue that `measure` counts: some milliseconds

_columns: Final = jobs.c


class JobState(enum.StrEnum):
    """The state of a job."""

    WAITING = "waiting"  # or running: then `due_at` is the end of its lease
    DONE = "done"
    DEAD = "dead"  # tried in vain; `revive` makes it wait again


@dataclass(frozen=True, slots=True)
class Job:
    """A job; `attempts` includes the running one, and `due_at` is set while it waits."""

    id: int
    queue: str
    key: str
    payload: Mapping[str, Any]
    state: JobState
    attempts: int
    due_at: datetime | None
    created_at: datetime
    finished_at: datetime | None
    last_error: str | None
    owner: str | None = None


class QueueSize(NamedTuple):
    """The jobs of a queue: since when the oldest is due, and how many wait or were given up."""

    oldest_due_at: datetime | None
    waiting: int  # running ones, and those that are to be repeated later, as well
    dead: int


class QueueShare(NamedTuple):
    """The owner of a job: each owner gets at most a share of a queue.

    Args:
        owner: A name that is no personal data.
        burst: So many jobs of the owner may wait; each further one is due `spacing` later.
        spacing: The time between two jobs beyond the burst; without one the owner only names whose it is.
    """

    owner: str
    burst: int = 0
    spacing: timedelta = timedelta()


def add_job(
    connection: Connection,
    queue: str,
    key: str,
    payload: Mapping[str, Any],
    now: datetime,
    share: QueueShare | None = None,
) -> int | None:
    """Add a job in the transaction of what it follows from; return its id, or None when its key is known.

    Keys are unique in a queue, also among jobs that are done, until those are swept. The payload is for JSON:
    ids, and neither license keys nor secrets.
    """
    row = {"queue": queue, "key": key, **new_job(payload, now)}
    if share is not None:
        row["owner"] = share.owner
    if share is not None and share.spacing:
        of_owner = matching(jobs, queue=queue, owner=share.owner) & _columns.due_at.is_not(None)
        waiting = select(_columns.id).where(of_owner).limit(MAX_COUNTED_JOBS).subquery()
        count = connection.scalar(select(func.count()).select_from(waiting)) or 0
        row |= {"due_at": now + share.spacing * max(0, count + 1 - share.burst)}
    statement = insert_into(connection, jobs).values(row).on_conflict_do_nothing().returning(_columns.id)
    id_: int | None = connection.scalar(statement)
    return id_


def new_job(payload: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the columns of a job without an attempt."""
    row = {"payload": json.dumps(payload), "state": JobState.WAITING, "attempts": 0}
    return {**row, "due_at": now, "created_at": now}


class QueueRepository(Repository):
    """Jobs of all queues."""

    def add(
        self, queue: str, key: str, payload: Mapping[str, Any], now: datetime, share: QueueShare | None = None
    ) -> bool:
        """Add a job, as `add_job`; return False when its key is there already."""
        with self._writing() as connection:
            return add_job(connection, queue, key, payload, now, share) is not None

    def is_early(self, queue: str, key: str, now: datetime) -> bool:
        """Return whether a job was added by a clock that was ahead: before what it is about."""
        added_at = self._scalar(select(_columns.created_at).where(matching(jobs, queue=queue, key=key)))
        return added_at is not None and is_of_the_future(added_at, now)

    def find_due(self, queues: Collection[str], now: datetime) -> set[str]:
        """Return those of the queues that have a job to do: one statement, an index look-up each."""
        if not queues:
            return set()
        due = [
            select(literal(queue)).where(exists().where(_columns.queue == queue, _columns.due_at <= now))
            for queue in queues
        ]
        with self._reading() as connection:
            return set(connection.execute(union_all(*due)).scalars())

    def measure(self, queues: Collection[str], now: datetime) -> dict[str, QueueSize]:
        """Return the size of queues, each up to `MAX_COUNTED_JOBS`: one statement, along two indexes."""
        with self._reading() as connection:
            rows = connection.execute(union_all(*(_measure(queue, now) for queue in queues)))
            return {queue: QueueSize(*size) for queue, *size in rows}

    def claim(
        self, queue: str, now: datetime, lease: timedelta, limit: int, *, owner: str | None = None
    ) -> list[Job]:
        """Claim jobs that are due: no other process gets them until the lease ends, or `retry` sets a time.

        With an `owner` only theirs, with "" those of no owner. The attempt is counted and committed before
        the work begins, so that a job that kills its process is not tried for ever.
        """
        is_due = [_columns.queue == queue, _columns.due_at <= now]
        if owner is not None:
            is_due.append(_columns.owner == owner if owner else _columns.owner.is_(None))
        due = (
            select(_columns.id)
            .where(*is_due)
            .order_by(_columns.due_at, _columns.id)
            .limit(limit)
            .with_for_update(skip_locked=True)  # SQLite has one writer at a time, and ignores it
            .cte("due")
        )
        taken = (
            update(jobs)
            .where(_columns.id.in_(select(due.c.id)))
            .values(attempts=_columns.attempts + 1, due_at=now + lease)
            .returning(jobs)
        )
        with self._writing() as connection:
            return sorted(map(_read, connection.execute(taken)), key=lambda job: job.id)

    def find_owners(self, queue: str, now: datetime) -> list[str]:
        """Return the owners of jobs that are due: an index look-up for each owner with a waiting job.

        "" stands for jobs without an owner: earlier versions stored none.
        """
        is_waiting = (_columns.queue == queue) & _columns.owner.is_not(None) & _columns.due_at.is_not(None)
        first = select(_columns.owner, _columns.due_at).where(is_waiting)
        in_order = first.order_by(_columns.owner, _columns.due_at).limit(1)
        owners, after = list[str](), ""
        with self._reading() as connection:
            while (row := connection.execute(in_order.where(_columns.owner > after)).first()) is not None:
                after = row.owner
                if row.due_at <= now:
                    owners.append(after)
            unowned = (_columns.queue == queue) & (_columns.due_at <= now) & _columns.owner.is_(None)
            if connection.scalar(select(exists().where(unowned))):
                owners.append("")
        return owners

    def finish(self, job: Job, now: datetime, skipped: str | None = None) -> bool:
        """Mark a claimed job as done; return False, and change nothing, if its lease was lost.

        `skipped` is why there was nothing to do; `revive_skipped` makes such a job wait again.
        """
        return self._end(job, state=JobState.DONE, due_at=None, finished_at=now, last_error=skipped)

    def retry(self, job: Job, due_at: datetime, error: str, *, is_attempt: bool = True) -> bool:
        """Let a claimed job wait until an instant, as `finish`; this attempt counts with `is_attempt`."""
        attempts = job.attempts if is_attempt else job.attempts - 1
        return self._end(job, due_at=due_at, last_error=error[:MAX_ERROR], attempts=attempts)

    def bury(self, job: Job, now: datetime, error: str) -> bool:
        """Mark a claimed job as dead; as `finish`."""
        dead = JobState.DEAD
        return self._end(job, state=dead, due_at=None, finished_at=now, last_error=error[:MAX_ERROR])

    def _end(self, job: Job, **values: Any) -> bool:
        # A later claim after the lease has counted another attempt.
        is_ours = matching(jobs, id=job.id, attempts=job.attempts, state=JobState.WAITING)
        return self._execute(update(jobs).where(is_ours).values(**values)) == 1

    def revive(self, queue: str, ids: Collection[int], now: datetime) -> int:
        """Let jobs that are dead or done wait again, from their first attempt on; return how many."""
        return self._revive(queue, _columns.id.in_(ids) & (_columns.state != JobState.WAITING), now)

    def revive_skipped(self, queue: str, keys: Collection[str], now: datetime) -> int:
        """Let jobs wait again that were finished because there was nothing to do; return how many."""
        is_skipped = (_columns.state == JobState.DONE) & _columns.last_error.is_not(None)
        return self._revive(queue, _columns.key.in_(keys) & is_skipped, now)

    def _revive(self, queue: str, condition: ColumnElement[bool], now: datetime) -> int:
        fresh = {"state": JobState.WAITING, "attempts": 0, "due_at": now, "finished_at": None}
        return self._execute(update(jobs).where(_columns.queue == queue, condition).values(**fresh))

    def find(self, queue: str, id_: int) -> Job | None:
        """Load one job."""
        return self._find(select(jobs).where(_columns.queue == queue, _columns.id == id_), _read)

    def list_page(
        self, queue: str, state: JobState | None = None, before: int | None = None, limit: int = 50
    ) -> Sequence[Job]:
        """Load jobs of a queue, the latest first; `before` is the id after which a page begins."""
        statement = select(jobs).where(_columns.queue == queue).order_by(_columns.id.desc()).limit(limit)
        if state is not None:
            statement = statement.where(_columns.state == state)
        if before is not None:
            statement = statement.where(_columns.id < before)
        return list(map(_read, self._all(statement)))

    def sweep(self, before: datetime, queue: str | None = None) -> int:
        """Delete jobs that were finished before an instant, of one queue or of all; return how many."""
        is_old = _columns.finished_at < before
        return self._delete(jobs, is_old if queue is None else is_old & (_columns.queue == queue))


def _measure(queue: str, now: datetime) -> Select[Any]:
    def count(state: ColumnElement[bool]) -> ScalarSelect[int]:
        counted = select(_columns.id).where(_columns.queue == queue, state).limit(MAX_COUNTED_JOBS).subquery()
        return select(func.count()).select_from(counted).scalar_subquery()

    due = select(_columns.due_at).where(_columns.queue == queue, _columns.due_at <= now)
    oldest = due.order_by(_columns.due_at).limit(1).scalar_subquery()
    waiting, dead = count(_columns.due_at.is_not(None)), count(_columns.state == JobState.DEAD)
    return select(literal(queue), oldest, waiting, dead)


def _read(row: Row[Any]) -> Job:
    read = {"payload": json.loads(row.payload), "state": JobState(row.state)}
    return Job(**{field.name: getattr(row, field.name) for field in fields(Job)} | read)
