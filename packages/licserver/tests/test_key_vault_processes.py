"""Secrets and encrypted keys among real processes and databases; `test_key_vault` tests them alone."""

import os
import subprocess
import sys

import pytest

from harness import engines
from licserver.errors import SecretsError

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps


@pytest.mark.slow
def test_processes_that_start_together_agree_on_the_secrets(tmp_path):
    """Of several first starts at once one draws the secrets, and the others take them."""
    code = (
        "import sys; from pathlib import Path; from licserver.services.installation import open_services;"
        "from licserver.settings import Settings; sys.stdin.read();"
        "vault = open_services(Settings(data_dir=Path(sys.argv[1]))).vault; print(vault.fingerprint.hex())"
    )
    for number in range(int(os.environ.get("LICENSING_RACES", "1"))):
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(tmp_path / str(number))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(4)
        ]
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        results = [process.communicate(timeout=60) for process in processes]
        assert [problem for _, problem in results] == [""] * 4
        assert len({fingerprint for fingerprint, _ in results}) == 1


def test_no_issued_key_stands_in_any_file(world, meddler, request):
    """After selling, showing and revoking, no byte on the disk spells a key, in any of its groups."""
    keys = [world.key(expires_on=None, allowed=("site.example",)) for _ in range(20)]
    world.services.licenses.revoke(keys[0], "refunded")
    for license_ in world.services.licenses.list_all():
        assert world.services.licenses.decrypt_key(license_) in keys
    folders = [world.folder / "data"]
    if meddler.is_remote:
        meddler.do("", "CHECKPOINT")
        folders.append(request.getfixturevalue("postgres").folder / "base")
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    everything = b"".join(path.read_bytes() for path in files)
    assert b"site.example" in everything  # the books are what we are looking at
    assert not [key for key in keys if any(group.encode() in everything for group in key[3:].split("-"))]


def test_swapped_rows_are_noticed_by_the_vendor(world, meddler):
    """Somebody who writes into the database cannot make the vendor reveal one key as another."""
    keys = [world.key(), world.key()]
    first, second = (world.services.vault.license_id(key).hex() for key in keys)
    swap = "UPDATE licenses SET sealed_key = (SELECT sealed_key FROM licenses WHERE id = {1}) WHERE id = {0}"
    meddler.do(swap.format(f"x'{first}'", f"x'{second}'"), swap.format(f"'\\x{first}'", f"'\\x{second}'"))
    with pytest.raises(SecretsError):
        world.services.licenses.decrypt_key(world.services.licenses.get(keys[0]))
    assert world.services.licenses.decrypt_key(world.services.licenses.get(keys[1])) == keys[1]
