"""Publishers that are killed (SIGKILL): no release, or a whole one with its manifest; leftovers do no harm.

What a kill cannot show is a power cut: for that, files and their folders are synced before the books
mention them.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import obstore
import pytest

from licserver.artifacts import ArtifactFolder
from licserver.protocol import release_manifests
from licserver.services.installation import open_services
from licserver.settings import load_settings

pytestmark = pytest.mark.crash
DAY = 24 * 3600
LONGER = int(os.environ.get("LICENSING_LONGER", "1"))
"""`nox -s crash` asks for 10."""
DELAYS = 15 * LONGER
EVERY = max(1, 7 // LONGER)
"""A publisher is killed at each seventh step; `nox -s crash` kills it at each one."""


@pytest.fixture
def play(program, tmp_path):
    """Let publishers of a file of `size` bytes die; returns each product, and whether it was acknowledged."""

    def run(size, *how: str):
        original = tmp_path / "original"
        original.write_bytes(os.urandom(1024) * (size // 1024))
        script = Path(__file__).with_name("publish_and_die.py")
        done = subprocess.run(
            [sys.executable, str(script), str(program.folder), str(original), *how],
            env=program.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines()]
        return original.read_bytes(), {slug: whole == "True" for slug, whole in lines}

    return run


def read(artifacts, artifact):
    """All bytes of an artifact."""
    if isinstance(artifacts, ArtifactFolder):
        with artifacts.open(artifact) as file:
            return file.read()
    key = next(
        found["path"]
        for page in obstore.list(artifacts._reader)
        for found in page
        if found["path"].startswith(artifact.sha256.hex())
    )
    return bytes(obstore.get(artifacts._reader, key).bytes())


def check(folder, content, acknowledged):
    """Every release is whole, and every acknowledged one is there; returns the products that have one."""
    services = open_services(load_settings(data_dir=folder))
    try:
        there = set()
        for product in services.products.list_all():
            releases = services.releases.list_all(product.slug)
            assert (product.latest is not None) == bool(releases)
            for release in releases:
                expected = hashlib.sha256(product.slug.encode() + content).digest()
                assert release.artifact.sha256 == expected
                assert (
                    release_manifests.read(release.manifest).manifest.sha256 == expected
                )  # both, or neither
                assert hashlib.sha256(read(services.artifacts, release.artifact)).digest() == expected
                there.add(product.slug)
        assert {slug for slug, whole in acknowledged.items() if whole} <= there
        return there
    finally:
        services.close()


def test_a_publisher_killed_at_every_step(play, program, tmp_path):
    """Between two steps of ours, or before a statement of the database: nothing, or all of it."""
    content, acknowledged = play(3 << 20, "steps", str(EVERY))
    assert len(acknowledged) > 500 / EVERY
    assert list(acknowledged.values()).count(True) == 1
    there = check(program.folder, content, acknowledged)
    assert 1 < len(there) < len(acknowledged) / 2  # most died before the books knew, some after
    file = tmp_path / "again.zip"
    file.write_bytes(b"app-0" + content)
    key = tmp_path / "key.pem"
    program.run("release", "new-key", str(key))
    program.run(
        "release", "publish", "app-0", "1.0", str(file), "--release-key", str(key)
    )  # the first to die: as if nothing had been
    assert check(program.folder, content, acknowledged) == there | {"app-0"}


def test_a_publisher_killed_after_any_delay(play, program):
    """Delays over the time that a publisher takes: the same, and what they leave is swept after a day."""
    content, acknowledged = play(16 << 20, "delays", str(DELAYS))
    assert len(acknowledged) == DELAYS + 3
    check(program.folder, content, acknowledged)
    left = sorted((program.folder / "artifacts").glob(".incoming-*"))
    assert left
    for path in left[1:]:
        long_ago = path.stat().st_mtime - 2 * DAY
        os.utime(path, (long_ago, long_ago))
    services = open_services(load_settings(data_dir=program.folder))
    with Path(__file__).open("rb") as source:
        services.artifacts.store(source, "any")
    services.close()
    assert list((program.folder / "artifacts").glob(".incoming-*")) == left[:1]  # who writes it may live


@pytest.fixture
def to_the_bucket(program, bucket, monkeypatch):
    """Let everybody use the bucket."""
    monkeypatch.setenv("LICSERVER_ARTIFACTS_URL", bucket)
    program.environ = {**os.environ, **program.environ}


@pytest.mark.usefixtures("to_the_bucket")
def test_a_publisher_to_a_bucket_killed_after_any_delay(play, program):
    """Ten kills while parts go up: an object appears whole or not at all, and a release after it."""
    content, acknowledged = play(20 << 20, "delays", "10")
    assert len(check(program.folder, content, acknowledged)) < len(acknowledged)


@pytest.mark.usefixtures("to_the_bucket")
def test_a_publisher_to_a_bucket_killed_at_every_step(play, program):
    """Before and after the upload, at steps of ours."""
    content, acknowledged = play(64 << 10, "steps", str(EVERY))
    assert 1 < len(check(program.folder, content, acknowledged)) < len(acknowledged)
