"""Patches: smaller downloads for clients that still have an older file (D-242, D-243)."""

import asyncio
import json
import random
import subprocess
import sys
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from types import SimpleNamespace

import pytest
from backports import zstd

from harness.engines import both_engines
from licserver.database.dump import take_snapshot
from licserver.domain.records import Artifact, Release
from licserver.jobs.patches import PatchesFailedError, register_patches
from licserver.services.patches import find_bases, make_patch

OLD = random.Random(1).randbytes(100_000)
NEW = OLD[:60_000] + b"what is new" + OLD[70_000:]


def ask(content=OLD, encoding="dcz"):
    """Return the headers of a client that has a file."""
    dictionary = b64encode(sha256(content).digest()).decode()
    return {"Accept-Encoding": encoding, "Available-Dictionary": f":{dictionary}:"}


def apply(patch, old=OLD):
    """Apply a patch as RFC 9842 says."""
    assert patch[:40] == bytes.fromhex("5e2a4d1820000000") + sha256(old).digest()
    return zstd.decompress(patch[40:], zstd.ZstdDict(old, is_raw=True).as_prefix)


def test_a_patch_makes_the_new_file():
    """It is small, and applied to the old file it gives the new one."""
    patch = make_patch(OLD, NEW)
    assert patch is not None
    assert len(patch) < 1000
    assert apply(patch) == NEW


@pytest.mark.parametrize("new", [b"", OLD[:50], random.Random(2).randbytes(100_000)], ids=len)
def test_a_patch_that_saves_too_little_is_none(new):
    """What is less than half as large as the file is kept, and nothing else."""
    assert make_patch(OLD, new) is None
    assert make_patch(b"tiny", NEW) is None


def release(number, *, platform="", size=10, content=None):
    """Make a release of a product."""
    digest = sha256(content or str(number).encode()).digest()
    artifact = Artifact("app.zip", size, digest)
    return Release(
        number, 1, f"{number}.0", "", datetime(2026, 11, 1, tzinfo=UTC), artifact, None, None, platform
    )


def test_patches_start_from_the_last_three_files_before():
    """Not from later ones, other platforms', the same bytes again, or too large ones; the default's count."""
    others = [release(2, platform="mac"), release(4, size=101), release(6, content=b"8"), release(9)]
    wanted = [release(1), release(3), release(5, platform="win"), release(7)]
    found = find_bases(release(8, platform="win"), [*others, *wanted], limit=100)
    assert [patch.id for patch in found] == [7, 5, 3]
    assert find_bases(release(8, size=101), wanted, limit=100) == []


@both_engines
def test_a_patch_is_made_once_and_is_part_of_backups(published):
    """A second run finds it; whoever restores has it, under the name of the file that it makes."""
    ((base, patch),) = published.services.patches.make("app", "1.1")
    published.repositories.releases.add_patch(
        published.services.releases.get("app", "1.1"), base.artifact.sha256, patch
    )
    with take_snapshot(published.services.database) as snapshot:
        stored = set(snapshot.artifacts())
    assert (patch in stored, len(stored), patch.file_name) == (True, 3, "app 2.zip")


@pytest.fixture
def world(make_world):
    """A world whose server makes patches."""
    return make_world(patch_limit=1 << 20)


@pytest.fixture
def published(world):
    """A vendor with two versions and the patch between them."""
    world.publish("1.0", OLD, name="app.zip")
    world.publish("1.1", NEW, name="app 2.zip")
    ((base, _),) = world.services.patches.make("app", "1.1")
    assert base.version == "1.0"
    return world


async def test_a_client_with_an_older_file_gets_the_patch(published, site):
    """With the digests of the patch and of the file that it makes; its range is not the file's."""
    link = await site.link(published.key())
    status, headers, patch = await site.call("GET", link, headers=ask())
    assert (status, headers["Content-Encoding"], apply(patch)) == (200, "dcz", NEW)
    assert headers["Unencoded-Digest"] == f"sha-256=:{b64encode(sha256(NEW).digest()).decode()}:"
    assert headers["Repr-Digest"] == f"sha-256=:{b64encode(sha256(patch).digest()).decode()}:"
    assert headers["Content-Disposition"] == 'attachment; filename="app 2.zip"'
    assert headers["Vary"] == "Accept-Encoding, Available-Dictionary"
    assert "Content-MD5" not in headers


async def test_everybody_else_gets_the_file_as_before(published, site):
    """Another base, HEAD and a range are answered as if there were no patches."""
    link = await site.link(published.key())
    plain = await site.call("GET", link)
    for method, headers in (("GET", ask(b"another")), ("HEAD", ask())):
        status, found, body = await site.call(method, link, headers=headers)
        assert (status, body) == (200, NEW if method == "GET" else b"")
        assert {**found, "Date": ""} == {**plain[1], "Date": ""}
    assert (await site.call("GET", link, headers=ask() | {"Range": "bytes=0-9"}))[2] == NEW[:10]


async def test_a_patch_that_is_gone_costs_nothing(published, site):
    """Its file was removed from the folder: the whole file comes in its place."""
    for file in (published.folder / "data" / "artifacts").rglob("*"):
        if file.is_file() and file.stat().st_size < 1000:
            file.unlink()
    assert (await site.call("GET", await site.link(published.key()), headers=ask()))[2] == NEW


async def test_a_withdrawn_version_has_no_patch(published, site):
    """Its link is refused with a patch as without; and it is still a base for the next version."""
    link = await site.link(published.key())
    published.services.releases.withdraw("app", "1.1")
    assert (await site.call("GET", link, headers=ask()))[0] == 404
    published.publish("1.2", NEW + b"!")
    made = published.services.patches.make("app", "1.2")
    assert [base.version for base, _ in made] == ["1.1", "1.0"]


@pytest.mark.slow
async def test_a_running_server_makes_the_patches_of_a_release(world, open_site, tmp_path):
    """Publishing leaves a job, which a server does; a client that asks a moment later gets the patch."""
    for version, content in (("1.0", OLD), ("1.1", NEW)):
        file = tmp_path / f"app-{version}.zip"
        file.write_bytes(content)
        world.services.releases.publish("app", version, file)
    site = await open_site(world)
    link = await site.link(world.key())

    async with asyncio.timeout(100):  # its process gives way to all others
        while "Content-Encoding" not in (await site.call("GET", link, headers=ask()))[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # the background looks each second


@pytest.fixture
def make_patches(world):
    """What the queue of new releases does with a version."""
    queues = {}
    background = SimpleNamespace(register=lambda name, run, **_: queues.update({name: run}))
    register_patches(background, world.services)
    return lambda version: queues["patches"](
        SimpleNamespace(payload={"slug": "app", "version": version, "platform": ""})
    )


@pytest.mark.slow
async def test_what_no_patch_can_be_made_for_fails_its_job_alone(world, make_patches):
    """The process that makes patches says why, and exits; the job is repeated by the queue's schedule."""
    base = world.publish("1.0", OLD)
    world.publish("1.1", NEW)
    world.services.artifacts.path(base.artifact).unlink()
    with pytest.raises(PatchesFailedError, match="exited with 1"):
        await make_patches("1.1")


async def test_what_needs_no_patch_starts_no_process(world, make_patches, monkeypatch):
    """A product's first release, and one whose patches exist."""
    world.publish("1.0", OLD)
    world.publish("1.1", NEW)
    world.services.patches.make("app", "1.1")
    monkeypatch.setattr("licserver.jobs.patches.get_context", lambda _: pytest.fail("a process was started"))
    await make_patches("1.0")
    await make_patches("1.1")


PARENT = """
import multiprocessing, os, signal, time
from licserver.jobs.patches import end_with_parent

def work():
    end_with_parent()
    print("it runs", flush=True)
    time.sleep(120)

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=work).start()
    time.sleep(120)
"""


@pytest.mark.slow
def test_the_process_that_makes_patches_outlives_no_server(tmp_path):
    """Also not one that is killed: another server has the job then, and both would do it."""
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"it runs\n"
        parent.kill()
        assert parent.communicate(timeout=30) == (b"", None)  # the end comes when neither holds the pipe


def test_the_command_lists_patches(cli, tmp_path):
    """With their sizes; those that are missing are made."""
    cli("product", "add", "app", "--name", "App")
    for version, content in (("1.0", OLD), ("1.1", NEW)):
        (tmp_path / "app.zip").write_bytes(content)
        cli("release", "publish", "app", version, str(tmp_path / "app.zip"))
    (patch,) = json.loads(cli("release", "patches", "app", "1.1", "--json"))
    assert patch == {"from": "1.0", "size": len(make_patch(OLD, NEW)), "percent": 0.1}
    assert cli("release", "patches", "app", "1.0") == "no patch saves half of the download\n"
