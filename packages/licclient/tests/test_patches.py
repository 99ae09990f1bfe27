"""Smaller updates: a patch is applied to the last download, and any doubt leads to the whole file (D-243)."""

import random
from hashlib import sha256

import pytest
from backports import zstd
from stage.flavours import both
from stage.meters import bounded
from stage.releases import ALICE, document, manifest_payload, word
from stage.scripts import digest, endless
from stage.store import CONTENT

from licclient import Trust
from licclient._updates import patches as _patches

OLD = CONTENT[:200_000] + random.Random(2).randbytes(1000)
MAGIC = bytes.fromhex("5e2a4d1820000000")


def make_patch(new=CONTENT, old=OLD):
    """Make a patch, as the server does."""
    options = {zstd.CompressionParameter.window_log: 19}
    prefix = zstd.ZstdDict(old, is_raw=True).as_prefix
    return MAGIC + sha256(old).digest() + zstd.compress(new, options=options, zstd_dict=prefix)


PATCH = make_patch()
NAME = 'attachment; filename="notes-2.0.zip"'
GOOD = {"Content_Encoding": "dcz", "Unencoded_Digest": digest(CONTENT), "Content_Disposition": NAME}


@pytest.fixture
async def serve(make_client, store, folder, fetch, http_answer):
    """Download Notes 1.0; then answer requests for a patch with this, and others with Notes 2.0."""
    store.content, store.digest, store.disposition = OLD, digest(OLD), 'filename="notes-1.0.zip"'
    last = make_client(version="0.9")
    await fetch(last)
    store.content, store.digest, store.disposition = CONTENT, digest(CONTENT), 'filename="notes-2.0.zip"'

    def serve(body, **headers: str):
        def reply(request):
            if "available-dictionary" in request.headers:
                requests.append(request.headers)
                return http_answer(200, body, **GOOD | headers)
            return store.reply(request)

        requests = []
        store.service.script = reply
        return requests

    return serve


@both
async def test_only_a_patch_is_downloaded(serve, make_client, store, folder, key):
    """The file is whole and verified, progress grows, and nothing else is asked for; next time again."""
    requests, progress = serve(PATCH), []
    client = make_client()
    update = (await client.check_for_update(key, force=True)).update
    done = await client.download(
        update, folder, progress=lambda done, total, _: progress.append((done, total)), key=key
    )
    assert (done.path.name, done.path.read_bytes()) == ("notes-2.0.zip", CONTENT)
    assert progress == sorted(progress)
    assert progress[-1] == (len(CONTENT), len(CONTENT))
    assert len(store.requested_ranges) == 2  # the file of the last download, and the patch
    assert requests[0]["accept-encoding"] == "dcz"
    assert len(PATCH) < len(CONTENT) / 2


BOMB = make_patch(bytes(50_000_000))
HOSTILE = {
    "of another file": {"body": make_patch(old=b"another file")},
    "another magic": {"body": b"?" + PATCH[1:]},
    "cut": {"body": PATCH[:-10]},
    "only its head": {"body": PATCH[:40]},
    "nothing": {"body": b""},
    "one other byte": {"body": PATCH[:-100] + b"?" + PATCH[-99:]},
    "a bomb": {"body": BOMB, "limit": 1 << 20},
    "a bomb that hides its size": {"body": MAGIC + sha256(OLD).digest() + BOMB[40:44]},
    "another digest": {"body": PATCH, "Unencoded_Digest": digest(b"another")},
    "without a digest": {"body": PATCH, "Unencoded_Digest": ""},
    "of unknown length": {"body": PATCH, "Content_Length": ""},
    "shorter than declared": {"body": PATCH, "Content_Length": str(len(PATCH) + 1)},
    "gzip": {"body": PATCH, "Content_Encoding": "gzip"},
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("row", HOSTILE.values(), ids=HOSTILE.keys())
async def test_any_doubt_leads_to_the_whole_file(serve, make_client, fetch, folder, row, monkeypatch):
    """One request for a patch, then the file as ever; nothing else stays in the folder."""
    row = dict(row)
    monkeypatch.setattr(_patches, "MAX_PATCHED_BYTES", row.pop("limit", _patches.MAX_PATCHED_BYTES))
    requests = serve(row.pop("body"), **row)
    done = await fetch(make_client(), force=True)
    assert (done.path.read_bytes(), len(requests)) == (CONTENT, 1)
    assert {path.name for path in folder.iterdir()} == {"notes-1.0.zip", "notes-2.0.zip"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Length": str(10**15)},
        {"Content_Length": "", "Transfer_Encoding": "chunked"},
        {"Content_Length": ""},
    ],
    ids=["a huge length", "chunks", "no length"],
)
@pytest.mark.parametrize("is_signed", [True, False])
async def test_no_header_of_a_patch_decides_on_memory(
    serve, make_client, store, fetch, monkeypatch, headers, is_signed
):
    """It is received up to the size of the signed file, or to a limit; then the whole file is fetched."""
    monkeypatch.setattr("licclient._updates.download.MAX_PATCH_BYTES", 4 << 20)
    if is_signed:
        store.manifest = word(document(payload=manifest_payload(CONTENT)))
    requests = serve(b"", **headers)
    reply = store.service.script
    piece = b"x" * 65536
    if "Transfer_Encoding" in headers:
        piece = b"10000\r\n" + piece + b"\r\n"
    store.service.script = lambda request: (
        endless(reply(request), piece) if "available-dictionary" in request.headers else reply(request)
    )
    client = make_client(trust=Trust(release_keys=[ALICE.pin] if is_signed else None))
    with bounded(10):
        assert (await fetch(client, force=True)).path.read_bytes() == CONTENT
    assert len(requests) == 1


async def test_a_patch_makes_only_what_the_vendor_signed(serve, make_client, store, fetch):
    """Another file than the signed one is not made, though the service declares it."""
    store.manifest = word(document(payload=manifest_payload(CONTENT)))
    other = CONTENT[:-1] + b"?"
    requests = serve(make_patch(other), Unencoded_Digest=digest(other))
    done = await fetch(make_client(trust=Trust(release_keys=[ALICE.pin])), force=True)
    assert (done.path.read_bytes(), len(requests)) == (CONTENT, 1)


async def test_a_file_that_changed_is_no_base(serve, make_client, fetch, folder):
    """Changed, removed, or too large: no patch is asked for."""
    requests = serve(PATCH)
    (folder / "notes-1.0.zip").write_bytes(OLD + b"!")
    assert (await fetch(make_client(), force=True)).path.read_bytes() == CONTENT
    (folder / "notes-2.0.zip").unlink()
    assert (await fetch(make_client(), force=True)).path.read_bytes() == CONTENT
    assert requests == []


async def test_without_the_library_nothing_changes(serve, make_client, fetch, monkeypatch):
    """No patch is asked for, and no file is remembered."""
    requests = serve(PATCH)
    monkeypatch.setattr(_patches, "_zstd", lambda: __import__("no_such_library"))
    assert (await fetch(make_client(), force=True)).path.read_bytes() == CONTENT
    assert requests == []
