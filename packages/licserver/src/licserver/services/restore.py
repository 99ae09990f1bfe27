"""Restore of a backup to an installation."""

import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Self

from licserver.artifacts import Artifacts, open_artifacts
from licserver.database import engine, schema
from licserver.database.dump import Layout, Loading, holds_something, loading
from licserver.database.timelines import Timelines
from licserver.errors import BackupError, ConflictError, InvalidInputError, StoreError
from licserver.security.key_vault import KeyVault
from licserver.security.secrets_file import (
    SECRETS_FILE,
    name_before_restore,
    other_secrets,
    read_secrets_file,
    read_vault,
)
from licserver.services import backup
from licserver.services.backup import Reader, Summary
from licserver.services.installation import open_services
from licserver.services.personal_data import load_erasures
from licserver.settings import Settings


def restore_backup(source: IO[bytes], settings: Settings, *, force: bool = False) -> Summary:
    """Restore a backup: the artifacts first, then database and secrets, both or none.

    The backup is trusted only after it was read to its end. A failure leaves the installation unchanged,
    except for unreferenced artifacts.

    Args:
        source: The backup; need not seek.
        settings: The data folder, database and bucket; the engine may differ from the backup's.
        force: Whether an existing installation may be replaced. The old SQLite file and the old secrets are
            kept under other names.
    """
    erasures = load_erasures(settings)
    with backup.reading(source) as reader:
        header = _read_header(reader)
        secrets = reader.expect(SECRETS_FILE).decode()
        vault = read_vault(secrets, "the backup")
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_secrets(settings, vault, force=force)
        made_at = datetime.fromisoformat(header["made_at"])
        summary = Summary(made_at, str(header["licserver"]), str(header["revision"]))
        tables = [(table["name"], table["columns"]) for table in header["tables"]]
        layouts = [Layout(name, [(column, kind) for column, kind in columns]) for name, columns in tables]
        with Target(settings, force=force) as target, other_secrets(settings, secrets) as place_secrets:
            name = _restore_artifacts(reader, open_artifacts(settings), settings.data_dir, summary)
            at_last = place_secrets if target.database.is_remote else None
            revision, fingerprint = summary.revision, vault.fingerprint
            loads = loading(target.database, revision, layouts, fingerprint=fingerprint, at_last=at_last)
            with loads as rows:
                _restore_rows(reader, name, rows, summary)
            target.put_in_place(place_secrets)
    summary.size = reader.size
    with closing(open_services(settings)) as services:
        summary.erased = services.personal_data.erase_again(erasures)
    return summary


def _read_header(reader: Reader) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(reader.expect(backup.HEADER))
    if header["format"] != backup.FORMAT or header["revision"] not in schema.REVISIONS:
        is_newer = header["format"] != backup.FORMAT or header["revision"] > schema.HEAD
        age = "which is newer" if is_newer else "before the first release"
        raise BackupError(
            f"this backup was made by licserver {header['licserver']}, {age}: restore it with that"
        )
    return header


def _check_secrets(settings: Settings, vault: KeyVault, *, force: bool) -> None:
    path = settings.data_dir / SECRETS_FILE
    if settings.secrets is not None:
        text, name, advice = settings.secrets.get_secret_value(), "LICSERVER_SECRETS", "restore without it"
    elif path.exists() and not force:
        text, name, advice = read_secrets_file(path), str(path), "--force replaces the installation"
    else:
        return
    if read_vault(text, name).fingerprint != vault.fingerprint:
        raise InvalidInputError(f"{name} holds other secrets than the backup; {advice}")


def _restore_artifacts(reader: Reader, artifacts: Artifacts, folder: Path, summary: Summary) -> str:
    """Store the artifacts; return the name of the first member after them."""
    digests = set()
    while (name := reader.next()).startswith(backup.ARTIFACTS):
        artifact = backup.read_artifact_name(name, reader.member_size)
        # On the disk, because a bucket reads it twice; stored only if its digest is its name.
        with tempfile.TemporaryFile(dir=folder, prefix=".restore-") as spooled:
            digest = reader.copy_to(spooled)
            if digest != artifact.sha256.hex():
                raise BackupError("the backup is damaged: a release's file is not what was published")
            if not artifacts.holds(artifact):
                spooled.seek(0)
                artifacts.store(spooled, artifact.file_name)
        digests.add(digest)
    summary.artifacts = len(digests)
    return name


def _restore_rows(reader: Reader, name: str, rows: Loading, summary: Summary) -> None:
    """Write the tables' rows, and check that the backup is complete."""
    while name.startswith(backup.DATABASE):
        table = name.split("/")[1]
        summary.rows[table] = summary.rows.get(table, 0) + rows.add(table, reader.content())
        name = reader.next()
    if name != backup.CONTENTS:
        raise BackupError(f"the backup is damaged: it holds {name!r}, which does not belong there")
    reader.check()


class Target:
    """The database to fill: a new SQLite file beside the old file, or a database on a server."""

    def __init__(self, settings: Settings, *, force: bool) -> None:
        timelines = Timelines(settings.data_dir)
        with closing(engine.connect(settings.database, timelines)) as existing:
            self._file = existing.file
            if _holds_something(existing) and not force:
                raise InvalidInputError(
                    "there is an installation already, and a backup never goes over one; give an empty data "
                    "folder and database, or --force to replace it"
                )
            # Opening an empty file would remove the log beside it.
            if self._file is not None and self._file.exists() and self._file.stat().st_size:
                existing.close()
                _check_unused(self._file)
        url = settings.database
        if self._file is not None:
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=".restore-")  # mode 0600
            os.close(handle)
            self._staged = Path(name)
            url = f"sqlite+pysqlite:///{self._staged}"
        self.database = engine.connect(url, timelines)

    def __enter__(self) -> Self:
        return self

    def put_in_place(self, place_secrets: Callable[[], None]) -> None:
        """Replace the old file, which is kept under another name; undo it if `place_secrets` fails."""
        self.database.close()
        if self._file is None:
            return
        with _set_aside(self._file):
            try:
                self._staged.replace(self._file)
                place_secrets()
            except BaseException:
                self._file.unlink(missing_ok=True)
                raise

    def __exit__(self, *_: object) -> None:
        self.database.close()
        if self._file is not None:
            for ending in ("", "-wal", "-shm"):
                self._staged.with_name(self._staged.name + ending).unlink(missing_ok=True)


def _holds_something(database: engine.Database) -> bool:
    """Return whether only `--force` may replace a database: a damaged or foreign file counts as well."""
    try:
        schema.check_not_foreign(database)
        return holds_something(database)
    except (StoreError, ConflictError):
        if database.file is None:
            raise
        return True


@contextmanager
def _set_aside(file: Path) -> Iterator[None]:
    """Rename a SQLite file with its logs; rename them back if the block fails.

    SQLite would replay a log that was left behind into the new file.
    """
    moved, new_name = [], name_before_restore(file).name
    try:
        for ending in ("", "-wal", "-shm", "-journal"):
            original, moved_file = (file.with_name(name + ending) for name in (file.name, new_name))
            if os.path.lexists(original):
                original.replace(moved_file)
                moved.append((moved_file, original))
            elif ending:
                moved_file.unlink(missing_ok=True)  # of an earlier restore
        yield
    except BaseException:
        for moved_file, original in moved:
            moved_file.replace(original)
        raise


def _check_unused(file: Path) -> None:
    """Refuse a SQLite file that is open: that process would continue to write into the old file."""
    link = sqlite3.connect(file, timeout=1, isolation_level=None)
    try:
        link.execute("PRAGMA journal_mode = DELETE")  # requires exclusive access
    except sqlite3.OperationalError:
        raise InvalidInputError(f"another process has {file} open; stop the server first") from None
    except sqlite3.DatabaseError:
        return  # damaged: no process can use it
    finally:
        link.close()
