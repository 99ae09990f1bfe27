"""The last refusals of each license: which environment, why, how often and when."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Row, bindparam, delete, false, or_, select, tuple_

from licserver.database.engine import Database
from licserver.database.repositories.base import Repository, insert_into
from licserver.database.repositories.webhooks import NewEvent, add_events
from licserver.database.tables.licenses import licenses, refusals
from licserver.domain.records import Environment

KEPT: Final = timedelta(days=30)
KEPT_PER_LICENSE: Final = 20  # environments; of what is written at once, another 20 may stay
_MAX_EXPIRED: Final = 1_000  # rows deleted in one transaction; the next ones follow with the next flush


class Refusal(NamedTuple):
    """An environment that a license was refused in; `reason` is a label of the statistics."""

    license_id: bytes
    environment: Environment
    reason: str
    times: int
    first_at: datetime
    last_at: datetime


_columns: Final = refusals.c
_of_one: Final = _columns.license_id == bindparam("of")
_TRIM: Final = delete(refusals).where(
    _of_one,
    _columns.last_at
    < select(_columns.last_at)
    .where(_of_one)
    .order_by(_columns.last_at.desc())
    .limit(1)
    .offset(KEPT_PER_LICENSE - 1)
    .correlate(None)
    .scalar_subquery(),
)


def note_refusals(
    database: Database,
    refused: Mapping[tuple[bytes, Environment, str], int],
    now: datetime,
    events: Sequence[NewEvent] = (),
) -> None:
    """Store refusals by license, environment and reason, with their numbers; drop the oldest; all or none.

    `events` are written with them.
    """
    if not refused:
        return
    rows, of_license = [], Counter[bytes]()
    for (license_id, (domain, ip), reason), count in sorted(refused.items()):  # sorted: no two deadlock
        of_license[license_id] += 1
        if of_license[license_id] <= KEPT_PER_LICENSE:
            row = {"license_id": license_id, "domain": domain, "ip": ip, "reason": reason, "times": count}
            rows.append({**row, "first_at": now, "last_at": now})
    with database.writing() as connection:
        add = insert_into(connection, refusals)
        connection.execute(
            add.on_conflict_do_update(
                index_elements=list(refusals.primary_key.columns),
                set_={"times": _columns.times + add.excluded.times, "last_at": add.excluded.last_at},
            ),
            rows,
        )
        add_events(connection, events)
        connection.execute(_TRIM, [{"of": license_id} for license_id in of_license])
        expired = select(*refusals.primary_key).where(_columns.last_at < now - KEPT)
        old = connection.execute(expired.order_by(_columns.last_at).limit(_MAX_EXPIRED)).all()
        if old:
            connection.execute(delete(refusals).where(tuple_(*refusals.primary_key).in_(map(tuple, old))))


class RefusalRepository(Repository):
    """Refusals of the last 30 days."""

    def list_recent(
        self, now: datetime, limit: int, license_id: bytes | None = None, product_id: int | None = None
    ) -> list[Refusal]:
        """Load refusals, the latest first: of one license, of the licenses of a product, or of all."""
        statement = select(refusals).where(_columns.last_at >= now - KEPT)
        if license_id is not None:
            statement = statement.where(_columns.license_id == license_id)
        if product_id is not None:
            statement = statement.join(licenses, licenses.c.id == _columns.license_id).where(
                licenses.c.product_id == product_id
            )
        rows = self._all(statement.order_by(_columns.last_at.desc(), *refusals.primary_key).limit(limit))
        return list(map(_read, rows))

    def find_licenses(self, domain: str | None, ip: str | None, limit: int) -> Sequence[bytes]:
        """Return the licenses that were refused in an environment with this domain or this address."""
        is_there = or_(
            false(), *(one == value for one, value in ((_columns.domain, domain), (_columns.ip, ip)) if value)
        )
        rows = self._all(select(_columns.license_id).where(is_there).distinct().limit(limit))
        return [row.license_id for row in rows]


def _read(row: Row[Any]) -> Refusal:
    environment = Environment(row.domain, row.ip)
    return Refusal(row.license_id, environment, row.reason, row.times, row.first_at, row.last_at)
