"""A backup that an older licserver wrote is filled into its tables, and then upgraded."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import inspect

from harness.engines import ENGINES
from licserver.database import migrate, schema
from licserver.database.engine import connect
from licserver.database.repositories.tokens import IdempotencyKey
from licserver.domain.decisions import mask_key
from licserver.domain.records import ActorKind, Scope
from licserver.errors import BackupError
from licserver.services.backup import write_backup
from licserver.services.installation import open_services
from licserver.services.license_search import LicenseFilter
from licserver.services.restore import restore_backup
from licserver.services.tokens import Response
from licserver.settings import Settings

OLDER = schema.REVISIONS[:-1]


def columns_of(revision: str, folder: Path) -> dict[str, set[str]]:
    """Return the columns of each table, as the migrations up to a revision make them."""
    (folder / "older.sqlite3").touch()
    database = connect(f"sqlite+pysqlite:///{folder / 'older.sqlite3'}")
    try:
        migrate.migrate(database, lambda config: command.upgrade(config, revision))
        tables = inspect(database.engine).get_multi_columns()
        return {table: {column["name"] for column in columns} for (_, table), columns in tables.items()}
    finally:
        database.close()


def as_of(revision: str, held: io.BytesIO, folder: Path) -> io.BytesIO:
    """Write a backup anew as a licserver of that schema would have."""
    older = columns_of(revision, folder)
    written, contents, columns = io.BytesIO(), dict[str, Any](), dict[str, list[str]]()
    dropped = dict[str, list[str]]()  # columns that later schemas do not have

    def is_there(table: str, column: str) -> bool:
        return column in older[table]

    with tarfile.open(fileobj=held) as new, tarfile.open(fileobj=written, mode="w") as old:
        for member in new:
            file = new.extractfile(member)
            assert file is not None
            content = file.read()
            if member.name == "licserver-backup.json":
                header = json.loads(content)
                header["revision"] = revision
                present = [table_ for table_ in header["tables"] if table_["name"] in older]
                gone = older.keys() - {table_["name"] for table_ in present} - {"alembic_version"}
                header["tables"] = present + [{"name": name, "columns": []} for name in sorted(gone)]
                for table_ in header["tables"]:
                    names = columns[table_["name"]] = [name for name, _ in table_["columns"]]
                    table_["columns"] = [
                        pair for pair in table_["columns"] if is_there(table_["name"], pair[0])
                    ]
                    dropped[table_["name"]] = sorted(older[table_["name"]] - set(names))
                    table_["columns"] += [[name, "plain"] for name in dropped[table_["name"]]]
                content = json.dumps(header).encode()
            elif member.name.startswith("database/"):
                table = member.name.split("/")[1]
                if table not in older:
                    continue
                rows = [
                    [value for name, value in zip(columns[table], row, strict=True) if is_there(table, name)]
                    + [None] * len(dropped[table])
                    for row in json.loads(gzip.decompress(content))
                ]
                content = gzip.compress(json.dumps(rows, separators=(",", ":")).encode())
            elif member.name == "contents.json":
                content = json.dumps(contents).encode()
            member.size = len(content)
            old.addfile(member, io.BytesIO(content))
            contents[member.name] = (len(content), hashlib.sha256(content).hexdigest())
    written.seek(0)
    return written


@pytest.mark.sampled(1)
@pytest.mark.parametrize("into", ENGINES)
@pytest.mark.parametrize("revision", OLDER)
def test_an_older_schema_is_upgraded_on_its_way_in(world, revision, into, clock, tmp_path, request):
    """Into either engine: licenses open with their keys, and what a shop was answered is answered again."""
    key = world.key(slots=3)
    token, _ = world.services.tokens.create("shop", Scope.WRITE)
    world.services.logins.count_attempt("192.0.2.1", "alice")
    receipt, answer = (
        IdempotencyKey(ActorKind.TOKEN, token.id, "order-17", b"d" * 32),
        Response(201, key.encode()),
    )
    world.services.idempotency.record(receipt, answer)
    held = io.BytesIO()
    write_backup(world.services, held, clock())
    held.seek(0)
    url = request.getfixturevalue("empty_database") if into == "postgresql" else None
    settings = Settings(data_dir=tmp_path / "anew", database_url=url)
    assert restore_backup(as_of(revision, held, tmp_path), settings).revision == revision
    restored = open_services(settings, clock)
    try:
        assert schema.read_version(restored.database) == schema.HEAD
        assert restored.licenses.decrypt_key(restored.licenses.get(key)) == key
        assert restored.licenses.search(LicenseFilter(mask_key(key))).items
        assert restored.idempotency.find(receipt) == answer
        other = restored.tokens.create("other", Scope.WRITE)[0]
        restored.idempotency.record(receipt._replace(owner_id=other.id), answer)  # numbered after what came
    finally:
        restored.close()


def test_a_backup_from_before_the_first_release_names_who_can_restore_it(tmp_path):
    """The steps from its schema to the first one are gone: it is not taken for a newer licserver's."""
    held = io.BytesIO()
    header = json.dumps({"format": 1, "licserver": "0.0.9", "revision": "0024"}).encode()
    with tarfile.open(fileobj=held, mode="w") as tar:
        member = tarfile.TarInfo("licserver-backup.json")
        member.size = len(header)
        tar.addfile(member, io.BytesIO(header))
    held.seek(0)
    with pytest.raises(BackupError, match=r"0\.0\.9, before the first release: restore it with that"):
        restore_backup(held, Settings(data_dir=tmp_path / "anew"))
