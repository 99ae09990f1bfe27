import pytest
from stage.scripts import digest
from stage.store import CONTENT

from licclient._core.responses import Head
from licclient._updates.part_file import open_part
from licclient.errors import UntrustedResponseError


@pytest.mark.parametrize(
    ("span", "etag"),
    [
        ("bytes 5-{last}/{size}", '"v2"'),
        ("bytes {first}-{last}/*", '"v2"'),
        ("bytes {first}-{last}/{size}", '"x"'),
    ],
)
async def test_another_part_than_asked_for_starts_over(client, store, span, etag, fetch):
    """A 206 that does not fit what is there is thrown away, and the whole file fetched."""
    store.cuts = [100_000]
    plain = store.file

    def crooked(request):
        raw = plain(request)
        if b" 206 " in raw[:20]:
            numbers = {"first": 100_000, "last": len(CONTENT) - 1, "size": len(CONTENT)}
            raw = raw.replace(b"bytes 100000-299999/300000", span.format(**numbers).encode())
            raw = raw.replace(b'ETag: "v2"', b"ETag: " + etag.encode())
        return raw

    store.file = crooked
    assert (await fetch(client)).path.read_bytes() == CONTENT
    assert store.requested_ranges == [None, "bytes=100000-", None]


async def test_a_whole_part_needs_no_call(client, store, folder, key):
    """Killed between the last byte and the name: the next run verifies what is there, and names it."""

    def stop_at_the_end(done, total, _):
        if done == total:
            raise LookupError

    update = (await client.check_for_update(key)).update
    with pytest.raises(LookupError):
        await client.download(update, folder, progress=stop_at_the_end, key=key)
    assert (await client.download(update, folder, key=key)).path.read_bytes() == CONTENT
    assert store.requested_ranges == [None]


async def test_a_part_that_is_too_long_is_dropped(client, store, folder, break_off):
    """Bytes that somebody else put at the end of the part do not get into the file."""
    update, part = await break_off(client, 100_000)
    part.write_bytes(CONTENT + b"more")
    store.service.requests.clear()
    assert (await client.download(update, folder)).path.read_bytes() == CONTENT
    assert store.requested_ranges == [None]


def test_more_than_was_announced_is_untrusted(folder):
    """Whatever the HTTP library lets through, a part stops at the declared size, and keeps nothing."""
    headers = {"Content-Length": "4", "ETag": '"x"', "Repr-Digest": digest(b"1234")}
    with open_part(folder, "part", "notes") as part:
        part.begin(Head(200, headers), "2.0")
        part.write([b"1234"])
        with pytest.raises(UntrustedResponseError):
            part.write([b"5"])
        assert not [path for path in folder.iterdir() if path.suffix != ".lock"]


def test_without_locks_every_download_has_its_own_part(folder, monkeypatch):
    """On a file system that knows no locks nothing is shared, so nothing can be mixed."""

    def unsupported(*_: object, **__: object):
        raise NotImplementedError

    monkeypatch.setattr("filelock.FileLock.acquire", unsupported)
    headers = {"Content-Length": "4", "Content-Disposition": "attachment; filename=a.txt"}
    with open_part(folder, "part", "notes") as first, open_part(folder, "part", "notes") as other:
        for part, content in ((first, b"1111"), (other, b"2222")):
            part.begin(Head(200, headers | {"Repr-Digest": digest(content)}), "2.0")
            part.write([content])
            part.end()
        one_path = first.finish().path
        assert one_path.read_bytes() == b"1111"
        assert other.finish().path.read_bytes() == b"2222"
        assert one_path.read_bytes() == b"1111"


# --- files that are elsewhere (D-34) ------------------------------------------------------------


def sends_elsewhere(store, http_answer, **promised: str):
    """Script a service that redirects to a bucket, whose response has its own name, length and tag only."""
    plain = store.reply

    def script(request):
        if request.path.endswith("update-download"):
            return http_answer(307, b"", Location="/bucket/file?signature=X", **promised)
        if request.path == "/bucket/file":
            return http_answer(200, store.content, ETag='"bucket"', Content_Disposition="filename=object-7")
        return plain(request)

    return script


async def test_what_the_service_promises_of_a_file_holds_elsewhere(
    client, store, service, http_answer, fetch
):
    """Digest and name in the redirect go before what the other place says (D-34)."""
    promised = {"Repr_Digest": digest(CONTENT), "Content_Disposition": 'attachment; filename="from-us.zip"'}
    service.script = sends_elsewhere(store, http_answer, **promised)
    path = (await fetch(client)).path
    assert (path.name, path.read_bytes()) == ("from-us.zip", CONTENT)


async def test_another_file_than_promised_is_refused(client, store, service, http_answer, folder, fetch):
    """A bucket with other bytes in it is an attack, though all that it says is consistent."""
    store.content = CONTENT[:-1] + b"!"
    service.script = sends_elsewhere(store, http_answer, Repr_Digest=digest(CONTENT))
    with pytest.raises(UntrustedResponseError):
        await fetch(client)
    assert [path for path in folder.iterdir() if path.suffix == ".part"] == []
