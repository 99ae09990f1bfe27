"""A large file on its way through a bucket takes little memory, measured by the kernel (VmHWM)."""

import hashlib
import re

import aiohttp
import pytest

from harness.memory import needs_proc, peak_of, run_and_peak

MIB = 1 << 20
LARGE = 64 * MIB
PUBLISHING, SENDING = 32 * MIB, 16 * MIB
"""Room above a small file. Measured: 15 and 4 MiB; parts of 8 MiB go up two at a time."""


@pytest.fixture
def publish(program, tmp_path):
    """Publish a file of zeros that takes no room; returns the most memory that it took, and the digest."""

    def run(version, size):
        path = tmp_path / "app.zip"
        with path.open("wb") as file:
            file.truncate(size)
        output, peak = run_and_peak(program, "release", "publish", "app", version, str(path))
        return peak, re.search(r"sha256 (\w+)", output)[1]

    return run


async def download(address, key):
    """Get the latest version; returns its size and its digest."""
    query = {"license_key": key, "slug": "app", "current_version": "0", "domain": "a.example"}
    digest, size = hashlib.sha256(), 0
    async with aiohttp.ClientSession(address) as session:
        async with session.get("/api/v1/update-check", params=query) as answer:
            link = (await answer.json())["download_url"]
        async with session.get(link, allow_redirects=False) as answer:
            assert answer.status == 200
            async for chunk in answer.content.iter_chunked(MIB):
                digest.update(chunk)
                size += len(chunk)
    return size, digest.hexdigest()


@needs_proc
@pytest.mark.slow  # 64 MiB, twice, through processes
async def test_a_large_file_passes_through_the_bucket_in_pieces(program, publish, own_s3):
    """Published and streamed, 64 MiB need about what a few kilobytes need."""
    program.environ |= own_s3.environ
    program.environ |= {
        "LICSERVER_ARTIFACTS_URL": own_s3.new_bucket(),
        "LICSERVER_ARTIFACTS_REDIRECT": "false",
    }
    program.run("product", "add", "app", "--name", "App")
    key = program.run("license", "issue", "app").stdout.strip()
    small, _ = publish("1.0", 64 << 10)
    with program.serve() as (server, address):
        await download(address, key)
        before = peak_of(server)
        large, digest = publish("2.0", LARGE)
        assert await download(address, key) == (LARGE, digest)
        sending = peak_of(server) - before
    assert large - small < PUBLISHING
    assert sending < SENDING
