"""A schema step beside servers of the version before, with many rows: no call fails, and it leads back."""

import http.client
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from bench import many
from pydantic import SecretStr

from harness.engines import Postgres
from harness.programs import licserver, serving_process
from licserver.database import migrate, schema
from licserver.database.engine import Database, connect
from licserver.services.installation import open_services
from licserver.settings import StandaloneSettings

ROWS = int(os.environ.get("LICENSING_UPGRADE_ROWS", "100000"))  # `nox -s upgrade` asks for ten million
DATABASE = os.environ.get("LICENSING_UPGRADE_DATABASE")  # an empty one of another server, by its URL
SECONDS = 2.0  # of calls before the step, between its two ways, and after

pytestmark = pytest.mark.crash

STEP = f"""
import sqlalchemy as sa
from alembic import op
from licserver.database.migrations.online import create_index, drop_index, set_storage, update_in_pieces

revision, down_revision, oldest_program = "9999", "{schema.HEAD}", "{schema.HEAD}"
rows = sa.table("licenses", sa.column("id"), sa.column("product_name"), sa.column("region"))


def upgrade():
    there = {{one["name"] for one in sa.inspect(op.get_bind()).get_columns("licenses")}}
    if "region" not in there:
        op.add_column("licenses", sa.Column("region", sa.Text))
        zero = sa.text("0")
        op.add_column("licenses", sa.Column("weight", sa.Integer, nullable=False, server_default=zero))
        op.add_column("activations", sa.Column("build", sa.Text))
        license_id = sa.ForeignKey("licenses.id", name="fk_parcels_license_id")
        key = sa.Column("id", sa.LargeBinary(16), license_id, primary_key=True)
        op.create_table("parcels", key)
    update_in_pieces(rows, "id", {{"region": rows.c.product_name}}, rows.c.region.is_(None))
    create_index("ix_licenses_region", "licenses", ["region", "id"])
    create_index("ix_activations_build", "activations", ["build", "license_id"])
    set_storage("licenses", fillfactor=90)


def downgrade():
    drop_index("ix_activations_build", "activations")
    drop_index("ix_licenses_region", "licenses")
    op.drop_table("parcels")
    op.drop_column("activations", "build")
    op.drop_column("licenses", "weight")
    op.drop_column("licenses", "region")
    set_storage("licenses", fillfactor=100)
"""

Request = tuple[str, str, str | None, dict[str, str]]


class Caller(threading.Thread):
    """Sends requests over a kept connection, without a retry; notes what failed, and the longest wait."""

    def __init__(self, port: int, draw: Callable[[], Request]) -> None:
        super().__init__()
        self._port, self._draw = port, draw
        self.enough, self.good, self.bad = threading.Event(), 0, list[str]()
        self.longest = 0.0

    def run(self) -> None:
        """Call until it is enough."""
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)) as connection:
            while not self.enough.is_set():
                method, path, body, headers = self._draw()
                began = time.monotonic()
                try:
                    connection.request(method, path, body, headers)
                    response = connection.getresponse()
                    content = response.read()
                except (OSError, http.client.HTTPException) as problem:
                    self.bad.append(type(problem).__name__)
                    connection.close()
                    continue
                self.longest = max(self.longest, time.monotonic() - began)
                if response.status in {200, 201}:
                    self.good += 1
                else:
                    self.bad.append(f"{path.partition('?')[0]}: {response.status} {content[:200]!r}")
                time.sleep(0.002)


def verifying(keys: list[str], domains: Iterator[str]) -> Callable[[], Request]:
    """Draw verifies of the keys in turn."""
    turn = itertools.cycle(keys)

    def draw() -> Request:
        body = {"license_key": next(turn), "domain": next(domains), "ip": "192.0.2.1"}
        return "POST", "/api/v1/licenses/verify", json.dumps(body), {"Content-Type": "application/json"}

    return draw


def updating(keys: list[str]) -> Callable[[], Request]:
    """Draw update checks of the keys in turn."""
    turn = itertools.cycle(keys)

    def draw() -> Request:
        query = {"license_key": next(turn), "slug": "app", "current_version": "0.9", "domain": "home.example"}
        return "GET", f"/api/v1/update-check?{urlencode(query)}", None, {}

    return draw


def issuing(token: str) -> Callable[[], Request]:
    """Draw creations of licenses by the admin API."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = json.dumps({"product": "app", "slots": 3, "customer_email": "ann@example.com", "note": "an order"})
    return lambda: ("POST", "/admin/api/v1/licenses", body, headers)


@contextmanager
def calling(port: int, keys: list[str], token: str, name: str) -> Iterator[list[Caller]]:
    """Let customers and a shop call for a block; nothing of it may fail."""
    new = (f"{name}-{number}.example" for number in itertools.count())
    callers = [
        Caller(port, verifying(keys, itertools.repeat("home.example"))),
        Caller(port, verifying(keys[:20], new)),
        Caller(port, updating(keys)),
        Caller(port, issuing(token)),
    ]
    for caller in callers:
        caller.start()
    try:
        yield callers
    finally:
        for caller in callers:
            caller.enough.set()
        for caller in callers:
            caller.join()
    assert [problem for caller in callers for problem in caller.bad] == []
    assert all(caller.good for caller in callers)


class Newer:
    """The program of the next version, which has one more step."""

    def __init__(self, database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        (folder / "9999_next.py").write_text(STEP)
        make_config = migrate.make_config
        steps = Path(migrate.__file__).parent / "migrations" / "versions"

        def with_step() -> object:
            config = make_config()
            config.set_main_option("version_locations", f"{steps}{os.pathsep}{folder}")
            return config

        monkeypatch.setattr(migrate, "make_config", with_step)
        self._database, self._monkeypatch = database, monkeypatch

    def upgrade(self) -> None:
        """Do the step."""
        assert migrate.upgrade(self._database) == schema.HEAD
        assert schema.read_version(self._database) == "9999"

    def downgrade(self) -> None:
        """Take it back."""
        with self._monkeypatch.context() as patch:
            patch.setattr(schema, "HEAD", "9999")
            patch.setattr(schema, "REVISIONS", (*schema.REVISIONS, "9999"))
            migrate.downgrade(self._database)
        assert schema.read_version(self._database) == schema.HEAD


def describe(what: str, began: float, callers: list[Caller]) -> None:
    """Print what was done, how long it took, and how customers and the shop fared meanwhile."""
    waits = ", ".join(
        f"{name} {caller.good:,} up to {caller.longest * 1000:.0f} ms"
        for name, caller in zip(("known", "new", "updates", "creations"), callers, strict=True)
    )
    sys.stderr.write(f"{what}: {time.monotonic() - began:.1f} s; {waits}\n")


def test_no_call_fails_while_the_schema_changes_and_changes_back(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old servers serve and start on the new schema, and go on when it is taken back."""
    if DATABASE is None:
        server: Postgres = request.getfixturevalue("postgres")
        url = server.url(server.make())
    else:
        url = DATABASE
    home, data = tmp_path / "home", tmp_path / "data"
    environ = {"LICSERVER_DATA_DIR": str(data), "LICSERVER_DATABASE_URL": url, "LICSERVER_FLOOD_LIMIT": "0"}
    licserver(home, "db", "upgrade", **environ)
    licserver(home, "product", "add", "app", "--name", "App", "--environment", "domain", **environ)
    (tmp_path / "app.zip").write_bytes(b"an app")
    licserver(home, "release", "publish", "app", "1.0", str(tmp_path / "app.zip"), **environ)
    keys = licserver(home, "license", "issue", "app", "--slots", "unlimited", "--count", "200", **environ)
    token = licserver(home, "token", "create", "shop", "--scope", "write", **environ).split()[-1]
    services = open_services(StandaloneSettings(data_dir=data, database_url=SecretStr(url)))
    many.fill(services.database, ROWS, services.products.get("app").id)
    services.close()
    database = connect(url)
    newer = Newer(database, tmp_path / "next", monkeypatch)
    serve = ["serve", "--port", "0"]
    with serving_process(serve, home, None, **environ) as (_, printed):
        port = int(printed.rpartition(":")[2])
        for what, act in (("before", None), ("up", newer.upgrade), ("on the newer schema", None)):
            began = time.monotonic()
            with calling(port, keys.split(), token, what.replace(" ", "-")) as callers:
                time.sleep(SECONDS) if act is None else act()
                describe(what, began, callers)
        with serving_process(serve, home, None, **environ) as (_, again):  # one that starts now
            port = int(again.rpartition(":")[2])
            began = time.monotonic()
            with calling(port, keys.split(), token, "down") as callers:
                newer.downgrade()
                time.sleep(SECONDS)
                describe("down", began, callers)
    assert migrate.differences(database) == []
    database.close()
