"""Causes that keep a database's log from being removed: it grows until the disk is full."""

from datetime import timedelta
from typing import Final, NamedTuple

from licserver.database.engine import Database

MAX_LOG: Final = 64 << 20
"""Bytes of a SQLite log, which a checkpoint cuts to a quarter of that unless a reader is in the way."""

MAX_RETAINED: Final = 1 << 30
"""Bytes of PostgreSQL's log that a replication slot may retain; 64 segments."""

MAX_AGE: Final = timedelta(hours=1)  # of a transaction; an export of ten million licenses takes minutes

_SLOTS: Final = """
    SELECT slot_name, active, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)
    FROM pg_replication_slots WHERE restart_lsn IS NOT NULL AND NOT pg_is_in_recovery()
"""
_OLDEST: Final = """
    SELECT pid, application_name, extract(epoch FROM now() - xact_start) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
    ORDER BY xact_start LIMIT 1
"""


_ARCHIVER: Final = """
    SELECT failed_count FROM pg_stat_archiver
    WHERE last_failed_time > coalesce(last_archived_time, '-infinity')
        AND current_setting('archive_mode') <> 'off'
"""


class Growth(NamedTuple):
    """A growing log: its cause, and what to do."""

    message: str
    advice: str


def find_growth(database: Database) -> list[Growth]:
    """Return why a log, or what a transaction keeps, grows; nothing if all is well."""
    return _find_postgres(database) if database.is_remote else _find_sqlite(database)


def _find_sqlite(database: Database) -> list[Growth]:
    if database.file is None:
        return []
    log = database.file.with_name(f"{database.file.name}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size <= MAX_LOG:
        return []
    message = (
        f"{log.name} has {size >> 20} MiB: a reader that does not end keeps it from being emptied, "
        "or much has been written in this moment"
    )
    return [Growth(message, "end an export, a backup or a shell of SQLite that stands still")]


def _find_postgres(database: Database) -> list[Growth]:
    growths = []
    with database.reading() as connection:
        slots = connection.exec_driver_sql(_SLOTS).all()
        oldest = connection.exec_driver_sql(_OLDEST).first()
        failed = connection.exec_driver_sql(_ARCHIVER).scalar()
    for name, is_active, size in slots:
        if size > MAX_RETAINED:
            state = "whose standby is behind" if is_active else "that nothing reads"
            message = f"the replication slot {name}, {state}, retains {int(size) >> 20} MiB of the log"
            advice = f"start its standby, or SELECT pg_drop_replication_slot('{name}')"
            growths.append(Growth(message, advice))
    if failed:
        message = f"archiving the log has failed {failed} times, and fails still: nothing of it is removed"
        growths.append(Growth(message, "see what archive_command logs, and make room where it writes"))
    if oldest is not None and oldest[2] > MAX_AGE.total_seconds():
        pid, application, age = oldest
        message = f"a transaction of {application or 'a program'} is open for {age / 3600:.0f} hours"
        advice = f"nothing can be cleaned up meanwhile: end it, or SELECT pg_terminate_backend({pid})"
        growths.append(Growth(message, advice))
    return growths
