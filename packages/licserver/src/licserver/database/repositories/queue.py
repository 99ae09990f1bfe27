"""The job queue: work that any process does later, each job by one of them at a time."""

import enum
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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

MAX_ERROR: Final = 500  # characters of an error that is stored
MAX_COUNTED: Final = 10_000  # jobs of a queue that `measure` counts: some milliseconds

_columns: Final = jobs.c


class JobState(enum.StrEnum):
    """Whether a job is still to be done."""

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


class QueueSize(NamedTuple):
    """The jobs of a queue: since when the oldest is due, and how many wait or were given up."""

    oldest_due_at: datetime | None
    waiting: int  # running ones, and those that are to be repeated later, as well
    dead: int


def add_job(
    connection: Connection, queue: str, key: str, payload: Mapping[str, Any], now: datetime
) -> int | None:
    """Add a job in the transaction of what it follows from; return its id, or None when its key is known.

    Keys are unique in a queue, also among jobs that are done, until those are swept. The payload is for JSON:
    ids, and neither license keys nor secrets.
    """
    row = {"queue": queue, "key": key, **new_job(payload, now)}
    statement = insert_into(connection, jobs).values(row).on_conflict_do_nothing().returning(_columns.id)
    id_: int | None = connection.scalar(statement)
    return id_


def new_job(payload: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the columns of a job that nobody has tried yet."""
    row = {"payload": json.dumps(payload), "state": JobState.WAITING, "attempts": 0}
    return {**row, "due_at": now, "created_at": now}


class QueueRepository(Repository):
    """Jobs of all queues."""

    def add(self, queue: str, key: str, payload: Mapping[str, Any], now: datetime) -> bool:
        """Add a job, as `add_job`; return False when its key is there already."""
        with self._writing() as connection:
            return add_job(connection, queue, key, payload, now) is not None

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
        """Return the size of queues, each counted up to `MAX_COUNTED`: one statement, along two indexes."""
        with self._reading() as connection:
            rows = connection.execute(union_all(*(_measure(queue, now) for queue in queues)))
            return {queue: QueueSize(*size) for queue, *size in rows}

    def claim(self, queue: str, now: datetime, lease: timedelta, limit: int) -> list[Job]:
        """Take jobs that are due: nobody else gets them until the lease ends, or `retry` sets a time.

        The attempt is counted and committed before the work begins, so that a job that kills its process is
        not tried for ever.
        """
        due = (
            select(_columns.id)
            .where(_columns.queue == queue, _columns.due_at <= now)
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

    def finish(self, job: Job, now: datetime) -> bool:
        """Mark a claimed job as done; return False, and change nothing, if its lease was lost."""
        return self._end(job, state=JobState.DONE, due_at=None, finished_at=now, last_error=None)

    def retry(self, job: Job, at: datetime, error: str) -> bool:
        """Let a claimed job wait until an instant; as `finish`."""
        return self._end(job, due_at=at, last_error=error[:MAX_ERROR])

    def bury(self, job: Job, now: datetime, error: str) -> bool:
        """Mark a claimed job as dead; as `finish`."""
        dead = JobState.DEAD
        return self._end(job, state=dead, due_at=None, finished_at=now, last_error=error[:MAX_ERROR])

    def _end(self, job: Job, **values: Any) -> bool:
        # Whoever claimed it after the lease has counted another attempt.
        is_ours = matching(jobs, id=job.id, attempts=job.attempts, state=JobState.WAITING)
        return self._execute(update(jobs).where(is_ours).values(**values)) == 1

    def revive(self, queue: str, ids: Collection[int], now: datetime) -> int:
        """Let jobs that are dead or done wait again, from their first attempt on; return how many."""
        wanted = _columns.id.in_(ids) & (_columns.state != JobState.WAITING)
        fresh = {"state": JobState.WAITING, "attempts": 0, "due_at": now, "finished_at": None}
        return self._execute(update(jobs).where(_columns.queue == queue, wanted).values(**fresh))

    def find(self, queue: str, id_: int) -> Job | None:
        """Load one job."""
        return self._find(select(jobs).where(_columns.queue == queue, _columns.id == id_), _read)

    def list_page(
        self, queue: str, state: JobState | None = None, before: int | None = None, limit: int = 50
    ) -> Sequence[Job]:
        """Load jobs of a queue, the latest first; `before` is the id after which a page begins."""
        wanted = select(jobs).where(_columns.queue == queue).order_by(_columns.id.desc()).limit(limit)
        if state is not None:
            wanted = wanted.where(_columns.state == state)
        if before is not None:
            wanted = wanted.where(_columns.id < before)
        return list(map(_read, self._all(wanted)))

    def sweep(self, before: datetime) -> int:
        """Delete jobs that were finished before an instant, a thousand at a time; return how many."""
        return self._delete(jobs, _columns.finished_at < before)


def _measure(queue: str, now: datetime) -> Select[Any]:
    def count(state: ColumnElement[bool]) -> ScalarSelect[int]:
        counted = select(_columns.id).where(_columns.queue == queue, state).limit(MAX_COUNTED).subquery()
        return select(func.count()).select_from(counted).scalar_subquery()

    due = select(_columns.due_at).where(_columns.queue == queue, _columns.due_at <= now)
    oldest = due.order_by(_columns.due_at).limit(1).scalar_subquery()
    waiting, dead = count(_columns.due_at.is_not(None)), count(_columns.state == JobState.DEAD)
    return select(literal(queue), oldest, waiting, dead)


def _read(row: Row[Any]) -> Job:
    read = {"payload": json.loads(row.payload), "state": JobState(row.state)}
    return Job(**row._asdict() | read)
