import asyncio
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest
from stage.flavours import both
from stage.store import CONTENT, Store

from licclient import LicenseClient


@pytest.mark.parametrize(
    ("disposition", "kept"), [('attachment; filename="../../evil.zip"', "evil.zip"), ("", "notes-2.0")]
)
async def test_the_name_is_harmless(client, store, folder, disposition, kept, fetch):
    """Whatever the server calls the file, it lands in the folder, under a legal name."""
    store.disposition = disposition
    done = await fetch(client)
    assert done.path == folder / kept


@both
async def test_what_progress_raises_ends_the_download(make_client, store, folder, key, fetch):
    """An app cancels by raising; the part stays for another day."""

    def stop(*_: object):
        raise LookupError

    client = make_client()
    with pytest.raises(LookupError):
        await client.download((await client.check_for_update(key)).update, folder, progress=stop, key=key)
    assert list(folder.glob(".*.part"))
    assert not (folder / "notes-2.0.zip").exists()
    assert (await fetch(client)).path.read_bytes() == CONTENT


async def test_two_downloads_at_once_do_not_mix(service, store, folder, key, tmp_path, clock):
    """Several tasks and threads that fetch the same file at the same time all get it whole."""
    plain = store.file

    def slowly(request):
        raw = plain(request)
        for start in range(0, len(raw), 50_000):
            yield raw[start : start + 50_000]
            time.sleep(0.02)

    store.file = slowly
    with LicenseClient(
        service.url, storage=tmp_path / "s", slug="notes", version="1.0", clock=clock
    ) as client:
        update = client.check_for_update(key).update
        done = await asyncio.gather(*(asyncio.to_thread(client.download, update, folder) for _ in range(4)))
    assert {download.path.read_bytes() for download in done} == {CONTENT}
    assert [path.name for path in folder.iterdir()] == ["notes-2.0.zip"]


@pytest.mark.crash
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on Windows; not tried there")
def test_a_killed_download_resumes(service, http_answer, tmp_path, key):
    """The command line, killed half way and started again, asks only for the rest."""
    store = Store(service, http_answer)
    plain = store.file

    def stalls(request):
        raw = plain(request)
        yield raw[:150_000]
        time.sleep(30)  # until the process is killed

    store.file = stalls
    command = [sys.executable, "-m", "licclient", "--server", service.url, "--state-dir", str(tmp_path / "s")]
    command += ["download", key, "notes", "1.0", "--to", str(tmp_path / "to")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if sum(path.stat().st_size for path in Path(tmp_path / "to").glob(".*.part")) > 100_000:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    store.file = plain
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    path = tmp_path / "to" / "notes-2.0.zip"
    assert path.read_bytes() == CONTENT
    assert str(path) in done.stdout
    assert sha256(CONTENT).hexdigest() in done.stdout
    assert int(store.requested_ranges[-1].removeprefix("bytes=").removesuffix("-")) > 100_000
    assert [path.name for path in path.parent.iterdir()] == ["notes-2.0.zip"]
