"""Backups forged to exhaust the memory of whoever restores them, or to break an existing installation."""

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable
from contextlib import closing, nullcontext
from datetime import datetime

import pytest

from harness.memory import needs_proc, run_and_peak
from licserver.errors import BackupError, StoreError
from licserver.security.secrets_file import new_secrets
from licserver.services.backup import write_backup
from licserver.services.installation import Services, open_services
from licserver.services.restore import restore_backup
from licserver.settings import Settings

FORGED = {  # a member, what it begins with, what it goes on with, and how often
    "rows": ("database/products/000000", b"[[]", b",[]", 12 << 20),
    "values": ("database/products/000000", b"[[0", b",0", 20 << 20),
    "text": ("database/products/000000", b'[["', b"x" * 1024, 800 << 10),
    "depth": ("database/products/000000", b"[", b"[", 1 << 20),
    "header": ("licserver-backup.json", b"[0", b",[]", 12 << 20),
    "contents": ("contents.json", b"[0", b",[]", 12 << 20),
}


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize(
    "kind", [kind if kind == "depth" else pytest.param(kind, marks=pytest.mark.slow) for kind in FORGED]
)
def test_a_forged_backup_takes_no_more_memory_than_a_real_one(cli, program, tmp_path, kind):
    """A small file that unpacks to a gigabyte is refused in one line, in less than 200 MiB."""
    cli("product", "add", "app", "--name", "App")
    cli("backup", str(real := tmp_path / "real.backup"))
    name, begin, again, count = FORGED[kind]
    content = io.BytesIO()
    with gzip.open(content, "wb") if "/" in name else nullcontext(content) as target:
        target.write(begin)
        for _ in range(16):
            target.write(again * (count // 16))
    with tarfile.open(real) as old, tarfile.open(forged := tmp_path / "forged.backup", "w") as new:
        for member in old:
            held = content.getvalue() if member.name == name else old.extractfile(member).read()
            member.size = len(held)
            new.addfile(member, io.BytesIO(held))
    into = str(tmp_path / "into")
    printed, peak = run_and_peak(program, "restore", str(forged), "--data-dir", into, check=False)
    assert re.match(r"licserver: .+\n(Name:|$)", printed), printed[:500]
    assert peak < 200 << 20


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_claims_much_is_refused_before_it_is_read(kind, tmp_path):
    """A name of a gigabyte is not read."""
    header = tarfile.TarInfo("licserver-backup.json")
    header.type, header.size = kind, 1 << 30
    source = io.BytesIO(header.tobuf(tarfile.GNU_FORMAT) + bytes(4 << 20))
    with pytest.raises(BackupError):
        restore_backup(source, Settings(data_dir=tmp_path / "anew"))
    assert source.tell() < 1 << 20


def _forge(services: Services, now: datetime, change: Callable[[str, bytes], bytes]) -> io.BytesIO:
    """Return a backup with other members, and a table of contents that fits them."""
    real, forged, contents = io.BytesIO(), io.BytesIO(), {}
    write_backup(services, real, now)
    real.seek(0)
    with tarfile.open(fileobj=real) as old, tarfile.open(fileobj=forged, mode="w") as new:
        for member in old:
            held = change(member.name, old.extractfile(member).read())
            if member.name == "contents.json":
                held = json.dumps(contents).encode()
            contents[member.name] = [len(held), hashlib.sha256(held).hexdigest()]
            member.size = len(held)
            new.addfile(member, io.BytesIO(held))
    forged.seek(0)
    return forged


def test_other_secrets_than_those_of_the_rows(world, clock):
    """Nothing could be opened afterwards: the installation that is there stays in its place."""
    key = world.key()
    others = json.dumps(new_secrets()).encode()
    forged = _forge(world.services, clock(), lambda name, held: others if name == "secrets.json" else held)
    world.services.close()
    before = {path.name: path.read_bytes() for path in world.folder.glob("*.json")}
    with pytest.raises(StoreError, match="its database; nothing was changed"):
        restore_backup(forged, world.settings, force=True)
    assert {path.name: path.read_bytes() for path in world.folder.glob("*.json")} == before
    with closing(open_services(world.settings)) as services:
        assert services.licenses.get(key).slots_used == 0


def test_a_number_that_no_column_holds(world, clock, tmp_path):
    """It is a damaged backup, not a traceback."""
    world.key()

    def change(name: str, held: bytes) -> bytes:
        if "database/products/" not in name:
            return held
        (row,) = json.loads(gzip.decompress(held))
        row[0] = 10**30
        return gzip.compress(json.dumps([row]).encode())

    forged = _forge(world.services, clock(), change)
    with pytest.raises(BackupError):
        restore_backup(forged, Settings(data_dir=tmp_path / "anew"))
