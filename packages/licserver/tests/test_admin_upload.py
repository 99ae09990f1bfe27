"""A large file that is uploaded through the admin API takes little memory.

Measured as the kernel does. `LICENSING_UPLOAD_MIB=2048` uploads as much as the issue names.
"""

import asyncio
import hashlib
import json
import os
import threading

import aiohttp
import pytest

from harness.admin import form
from harness.memory import needs_proc, peak_of

MIB = 1 << 20
LARGE = int(os.environ.get("LICENSING_UPLOAD_MIB", "128")) * MIB
ROOM = 60 * MIB
"""Above what a small file needs."""


async def upload(address, token, version, size):
    """Upload zeros as a version; returns the answer, and the slowest answer of `healthz` meanwhile."""

    async def body():
        yield b'--b\r\nContent-Disposition: form-data; name="version"\r\n\r\n' + version.encode()
        yield b'\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="app.zip"\r\n\r\n'
        for _ in range(0, size, MIB):
            yield bytes(min(size, MIB))
        yield b"\r\n--b--\r\n"

    headers = {"Authorization": f"Bearer {token}", "Content-Type": "multipart/form-data; boundary=b"}
    async with aiohttp.ClientSession(address) as session:
        path = "/admin/api/v1/products/app/releases"
        async with session.post(
            path, data=body(), headers=headers, timeout=aiohttp.ClientTimeout(600)
        ) as response:
            return response.status, json.loads(await response.read())


@needs_proc
@pytest.mark.slow  # 128 MiB through a process
async def test_a_large_upload_goes_to_the_disk_and_not_into_memory(program):
    """128 MiB take about what a small file takes; who breaks off in the midst leaves nothing."""
    program.run("product", "add", "app", "--name", "App")
    token = program.run("token", "create", "ci", "--scope", "write").stdout.strip()
    with program.serve() as (server, address):
        assert (await upload(address, token, "1.0", 64 << 10))[0] == 201
        before = peak_of(server)
        status, release = await upload(address, token, "2.0", LARGE)
        assert (status, release["size"]) == (201, LARGE)
        taken = peak_of(server) - before
        print(f"{LARGE / MIB:.0f} MiB took {taken / MIB:.1f} MiB of memory")  # noqa: T201 - shown with -s
        assert taken < ROOM
        assert release["sha256"] == digest_of_zeros(LARGE)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(upload(address, token, "3.0", 64 * LARGE), 0.5)
        uploads = program.folder / "uploads"
        for _ in range(200):
            if not list(uploads.iterdir()):
                break
            await asyncio.sleep(0.05)
        assert list(uploads.iterdir()) == []
    assert [
        release_["version"] for release_ in json.loads(program.run("release", "list", "app", "--json").stdout)
    ] == [
        "1.0",
        "2.0",
    ]


def digest_of_zeros(size):
    """SHA-256 of as many zeros."""
    digest, piece = hashlib.sha256(), bytes(MIB)
    for _ in range(0, size, MIB):
        digest.update(piece)
    return digest.hexdigest()


async def test_files_that_are_being_stored_keep_no_other_call_waiting(api, site, monkeypatch):
    """While a slow bucket takes four files other calls are answered, and in the end all are published."""
    artifacts, go, begun = site.world.services.artifacts, threading.Event(), threading.Event()
    store = artifacts.store

    def slow_store(*args: object):
        begun.set()
        assert go.wait(60)
        return store(*args)

    monkeypatch.setattr(artifacts, "store", slow_store)
    uploads = [
        asyncio.create_task(
            api("POST", "/products/app/releases", **form(version=f"{n}.0", file=("app.zip", b"zip")))
        )
        for n in range(4)
    ]
    try:
        await asyncio.to_thread(begun.wait, 10)
        spool = site.world.settings.data_dir / "uploads"
        async with asyncio.timeout(20):
            while len([path for path in spool.iterdir() if path.stat().st_size]) < 4:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
            assert (await api("GET", "/products"))[0] == 200
    finally:
        go.set()
    assert [status for status, _ in await asyncio.gather(*uploads)] == [201] * 4
