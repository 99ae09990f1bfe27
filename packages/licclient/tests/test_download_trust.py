import pytest
from stage.scripts import digest
from stage.store import CONTENT

from licclient import ServiceUnavailable, UntrustedAnswer
from licclient._download import open_job
from licclient._wire import Head


@pytest.mark.parametrize(
    ("span", "etag"),
    [
        ("bytes 5-{last}/{size}", '"v2"'),
        ("bytes {first}-{last}/*", '"v2"'),
        ("bytes {first}-{last}/{size}", '"x"'),
    ],
)
async def test_another_part_than_asked_for_starts_over(client, store, folder, key, span, etag):
    """A 206 that does not fit what is there is thrown away, and the whole file fetched."""
    store.cuts = [100_000]
    plain = store.file

    def crooked(request):
        raw = plain(request)
        if b" 206 " in raw[:20]:
            told = {"first": 100_000, "last": len(CONTENT) - 1, "size": len(CONTENT)}
            raw = raw.replace(b"bytes 100000-299999/300000", span.format(**told).encode())
            raw = raw.replace(b'ETag: "v2"', b"ETag: " + etag.encode())
        return raw

    store.file = crooked
    assert (await client.download(await client.check_for_update(key), folder)).path.read_bytes() == CONTENT
    assert store.asked == [None, "bytes=100000-", None]


async def test_a_whole_part_needs_no_call(client, store, folder, key):
    """Killed between the last byte and the name: the next run verifies what is there, and names it."""

    def stop_at_the_end(done, total, _):
        if done == total:
            raise LookupError

    update = await client.check_for_update(key)
    with pytest.raises(LookupError):
        await client.download(update, folder, progress=stop_at_the_end)
    assert (await client.download(update, folder)).path.read_bytes() == CONTENT
    assert store.asked == [None]


async def test_a_part_that_is_too_long_is_dropped(client, store, folder, key):
    """Bytes that somebody else put at the end of the part do not get into the file."""
    store.cuts = [100_000, 0, 0, 0]
    update = await client.check_for_update(key)
    with pytest.raises(ServiceUnavailable):
        await client.download(update, folder)
    [part] = folder.glob(".*.part")
    part.write_bytes(CONTENT + b"more")
    store.service.requests.clear()
    assert (await client.download(update, folder)).path.read_bytes() == CONTENT
    assert store.asked == [None]


def test_more_than_was_said_is_untrusted(folder):
    """Whatever the HTTP library lets through, a job stops at the declared size, and keeps nothing."""
    told = {"Content-Length": "4", "ETag": '"x"', "Repr-Digest": digest(b"1234")}
    with open_job(folder, "part", "https://x.example", "notes", "key", "2.0") as job:
        job.begin(Head(200, told))
        job.write(b"1234")
        with pytest.raises(UntrustedAnswer):
            job.write(b"5")
        assert not [path for path in folder.iterdir() if path.suffix != ".lock"]


def test_without_locks_every_download_has_its_own_part(folder, monkeypatch):
    """On a file system that knows no locks nothing is shared, so nothing can be mixed."""

    def unsupported(*_: object, **__: object):
        raise NotImplementedError

    monkeypatch.setattr("filelock.FileLock.acquire", unsupported)
    told = {"Content-Length": "4", "Content-Disposition": "attachment; filename=a.txt"}
    with (
        open_job(folder, "part", "https://x.example", "notes", "key", "2.0") as one,
        open_job(folder, "part", "https://x.example", "notes", "key", "2.0") as other,
    ):
        for job, content in ((one, b"1111"), (other, b"2222")):
            job.begin(Head(200, told | {"Repr-Digest": digest(content)}))
            job.write(content)
            job.end()
        one.finish()
        assert (folder / "a.txt").read_bytes() == b"1111"
        other.finish()
        assert (folder / "a.txt").read_bytes() == b"2222"
