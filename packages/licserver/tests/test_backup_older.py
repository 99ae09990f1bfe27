"""A backup that an older licserver wrote is filled into its tables, and then upgraded."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from harness.engines import ENGINES
from licserver.database import schema
from licserver.database.repositories.idempotency import IdempotencyKey
from licserver.database.tables import metadata
from licserver.domain.records import ActorKind, Scope
from licserver.services import open_services
from licserver.services.backup import restore_backup, write_backup
from licserver.services.idempotency import Response
from licserver.settings import Settings


class Older(NamedTuple):
    """An older schema, as far as it differs from this program's.

    Args:
        tables: Those of today that it had, each with its name then.
        since: Columns that came later.
    """

    tables: Mapping[str, str]
    since: frozenset[str]


_OF_0002 = ("facts", "products", "releases", "manifests", "licenses", "activations")
_OF_0003 = (*_OF_0002, "license_words", "audit", "tokens", "users", "sessions", "totals")
_OF_0004 = (*_OF_0003, "receipts", "tries")
_SINCE_0005 = frozenset({"sessions.last_used_at", "sessions.is_pending"})
OLDER = {
    "0002": Older(
        {name: name for name in _OF_0002},
        frozenset({"licenses.customer_email", "licenses.note", "activations.last_seen_at"}),
    ),
    "0003": Older(
        {**{name: name for name in _OF_0003}, "receipts": "idempotency"},
        _SINCE_0005 | {"receipts.id", "receipts.user_id"},
    ),
    "0004": Older({name: name for name in _OF_0004}, _SINCE_0005),
    "0005": Older({name: name for name in metadata.tables}, frozenset()),
}


def as_of(revision: str, held: io.BytesIO) -> io.BytesIO:
    """Write a backup anew as a licserver of that schema would have."""
    older = OLDER[revision]
    written, contents, columns = io.BytesIO(), dict[str, Any](), dict[str, list[str]]()

    def is_there(table: str, column: str) -> bool:
        return f"{table}.{column}" not in older.since

    with tarfile.open(fileobj=held) as new, tarfile.open(fileobj=written, mode="w") as old:
        for member in new:
            file = new.extractfile(member)
            assert file is not None
            content = file.read()
            if member.name == "licserver-backup.json":
                header = json.loads(content)
                header["revision"] = revision
                header["tables"] = [one for one in header["tables"] if one["name"] in older.tables]
                for one in header["tables"]:
                    columns[one["name"]] = [name for name, _ in one["columns"]]
                    one["columns"] = [pair for pair in one["columns"] if is_there(one["name"], pair[0])]
                    one["name"] = older.tables[one["name"]]
                content = json.dumps(header).encode()
            elif member.name.startswith("database/"):
                _, table, piece = member.name.split("/")
                if table not in older.tables:
                    continue
                rows = [
                    [value for name, value in zip(columns[table], row, strict=True) if is_there(table, name)]
                    for row in json.loads(gzip.decompress(content))
                ]
                content = gzip.compress(json.dumps(rows, separators=(",", ":")).encode())
                member.name = f"database/{older.tables[table]}/{piece}"
            elif member.name == "contents.json":
                content = json.dumps(contents).encode()
            member.size = len(content)
            old.addfile(member, io.BytesIO(content))
            contents[member.name] = (len(content), hashlib.sha256(content).hexdigest())
    written.seek(0)
    return written


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
    assert restore_backup(as_of(revision, held), settings).revision == revision
    restored = open_services(settings, clock)
    try:
        assert schema.read_version(restored.database) == schema.HEAD
        assert restored.licenses.decrypt_key(restored.licenses.get(key)) == key
        assert restored.idempotency.find(receipt) == (None if revision == "0002" else answer)
        other = restored.tokens.create("other", Scope.WRITE)[0]
        restored.idempotency.record(receipt._replace(owner_id=other.id), answer)  # numbered after what came
    finally:
        restored.close()
