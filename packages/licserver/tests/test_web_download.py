"""GET /api/v1/update-download over a real socket (D-30 … D-33)."""

import asyncio
import hashlib
from base64 import b64encode
from contextlib import suppress

import pytest
from sqlalchemy import update

from licserver.database.tables.licenses import releases

CONTENT = bytes(range(256)) * 40  # 10240 bytes, each offset has its own content
SIZE = len(CONTENT)
ETAG = f'"{hashlib.sha256(CONTENT).hexdigest()}"'


@pytest.fixture
def key(world):
    """A key, and a version of known bytes to go with it."""
    world.publish("1.0", CONTENT, name="möbel 1.zip")
    return world.key()


async def test_the_whole_file_comes_with_its_headers(site, key):
    """Length, digest, validator and name are sent, and the bytes are the file's (D-32)."""
    status, headers, body = await site.call("GET", await site.link(key))
    assert (status, body) == (200, CONTENT)
    assert headers["Content-Length"] == str(SIZE)
    assert headers["Accept-Ranges"] == "bytes"
    assert headers["ETag"] == ETAG
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Repr-Digest"] == f"sha-256=:{b64encode(hashlib.sha256(CONTENT).digest()).decode()}:"
    assert headers["Content-Disposition"] == (
        "attachment; filename=\"m_bel 1.zip\"; filename*=UTF-8''m%C3%B6bel%201.zip"
    )


PARTS = {"first bytes": ("bytes=0-9", 0, 10), "the last bytes": ("bytes=-40", SIZE - 40, SIZE)}


@pytest.mark.sampled(2, "if_range", "requested_range", "start", "end")
@pytest.mark.parametrize(("requested_range", "start", "end"), PARTS.values(), ids=PARTS.keys())
@pytest.mark.parametrize("if_range", [None, ETAG])
async def test_a_part_comes_as_a_part(site, key, requested_range, start, end, if_range):
    """206 with exactly the bytes asked for, and where they belong."""
    headers = {"Range": requested_range} | ({"If-Range": if_range} if if_range else {})
    status, headers, body = await site.call("GET", await site.link(key), headers=headers)
    assert (status, body) == (206, CONTENT[start:end])
    assert headers["Content-Range"] == f"bytes {start}-{end - 1}/{SIZE}"
    assert headers["Content-Length"] == str(end - start)
    assert headers["ETag"] == ETAG


@pytest.mark.parametrize("requested_range", ["bytes=10240-", "bytes=99999-100000", "bytes=-0"])
async def test_a_part_beyond_the_end_cannot_be_had(site, key, requested_range):
    """416 names the true size and sends no byte."""
    status, headers, body = await site.call("GET", await site.link(key), headers={"Range": requested_range})
    assert (status, body) == (416, b"")
    assert headers["Content-Range"] == f"bytes */{SIZE}"


async def test_head_sends_all_but_the_bytes(site, key):
    """HEAD is GET without a body; a range means nothing to it, and the connection stays good."""
    link = await site.link(key)
    for headers in ({}, {"Range": "bytes=0-9"}, {"Range": "bytes=99999-"}):
        status, found, body = await site.call("HEAD", link, headers=headers)
        assert (status, found["Content-Length"], found["ETag"], body) == (200, str(SIZE), ETAG, b"")
    assert (await site.call("GET", link))[2] == CONTENT


async def test_the_md5_is_that_of_a_whole_body(site, world, key):
    """WordPress compares it with what it got: a part has none, nor a file without a stored one (D-206)."""
    link, md5 = await site.link(key), b64encode(hashlib.md5(CONTENT, usedforsecurity=False).digest()).decode()
    whole, part, beyond = {}, {"Range": "bytes=0-9"}, {"Range": "bytes=99999-"}
    other = {**part, "If-Range": '"another"'}
    calls = [("GET", whole), ("HEAD", whole), ("GET", other), ("GET", part), ("GET", beyond)]
    answers = [await site.call(method, link, headers=headers) for method, headers in calls]
    assert [(status, headers.get("Content-MD5")) for status, headers, _ in answers] == [
        *((200, md5) for _ in range(3)),
        (206, None),
        (416, None),
    ]
    with world.services.database.writing() as connection:
        connection.execute(update(releases).values(md5=None))
    status, headers, body = await site.call("GET", link)
    assert (status, body, "Content-MD5" in headers) == (200, CONTENT, False)


async def test_an_empty_file_is_a_file(site, world):
    """Nothing can be downloaded too, whole; no part of it can."""
    world.publish("1.0", b"")
    link = await site.link(world.key())
    status, headers, body = await site.call("GET", link)
    assert (status, headers["Content-Length"], body) == (200, "0", b"")
    assert (await site.call("GET", link, headers={"Range": "bytes=0-"}))[0] == 416


async def test_a_link_carries_no_key(site, key):
    """Neither the key nor a part of it stands in the address."""
    link = await site.link(key)
    assert not [group for group in key[3:].split("-") if group in link]


@pytest.mark.parametrize("damage", ["missing", "cut", "grown"])
async def test_a_file_that_is_not_what_was_published_is_never_sent(site, world, key, damage, caplog):
    """Lost or damaged, it may be restored: a 503 as from a bucket, a line in the log, then all is well."""
    link = await site.link(key)
    path = world.services.artifacts.path(world.services.releases.list_all("app")[0].artifact)
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(CONTENT[:-1] if damage == "cut" else CONTENT + b"x")
    status, headers, answer = await site.call("GET", link)
    assert (status, answer["error"], headers["Retry-After"]) == (503, "unavailable", "5")
    assert path.name in caplog.text
    path.write_bytes(CONTENT)
    assert (await site.call("GET", link))[2] == CONTENT


async def leave_half_way(site, link):
    """Ask for a file, read its first bytes, and hang up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(f"GET {link} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert (await reader.read(1000)).startswith(b"HTTP/1.1 200 ")
    writer.transport.abort()
    writer.close()


async def test_who_goes_away_half_way_disturbs_nobody(site, world, caplog):
    """Twenty callers hang up in the middle; the next one gets all of it, and the log is silent."""
    large = b"0123456789abcdef" * (1 << 19)  # more than sockets buffer
    world.publish("1.0", large)
    link = await site.link(world.key())
    await asyncio.gather(*(leave_half_way(site, link) for _ in range(20)))
    assert (await site.call("GET", link))[2] == large
    assert caplog.text == ""


async def test_an_artifact_cut_under_a_download_breaks_the_connection(site, world, caplog):
    """A caller is never left waiting for bytes that do not come: the connection ends before its length."""
    large = b"0123456789abcdef" * (1 << 20)
    world.publish("1.0", large)
    link = await site.link(world.key())
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(f"GET {link} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    with world.services.artifacts.path(world.services.releases.list_all("app")[0].artifact).open(
        "r+b"
    ) as file:
        file.truncate(1 << 20)
    with suppress(ConnectionError):
        assert len(await asyncio.wait_for(reader.read(), 10)) < len(large)
    writer.close()
    (line,) = caplog.messages
    assert "early" in line


@pytest.mark.slow
async def test_many_downloads_at_once_are_each_whole(site, key):
    """Thirty at the same moment, whole and in parts, do not mix."""
    link = await site.link(key)
    answers = await asyncio.gather(
        *(site.call("GET", link, headers={"Range": f"bytes={n}-{n + 999}"}) for n in range(30))
    )
    assert [body for _, _, body in answers] == [CONTENT[n : n + 1000] for n in range(30)]


@pytest.mark.sampled(3, "method")
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "tags",
    [ETAG, f"W/{ETAG}", f'"another", {ETAG}', "*", f'{ETAG}, "another"'],
    ids=["it", "weak", "second", "any", "first"],
)
async def test_a_file_that_the_client_has_is_not_sent_again(site, key, method, tags):
    """304 with its validator and without its bytes, also if a part is asked for (RFC 9110, 13.2.2)."""
    for further in ({}, {"Range": "bytes=0-9"}):
        sent = {"If-None-Match": tags, **further}
        status, headers, body = await site.call(method, await site.link(key), headers=sent)
        assert (status, body, headers["ETag"]) == (304, b"", ETAG)
        assert "Content-Disposition" not in headers
    status, _, _ = await site.call("GET", await site.link(key) + "0", headers={"If-None-Match": tags})
    assert status == 403


async def test_another_file_is_sent(site, key):
    """One that the client has not."""
    for tags in ('"another"', "", ETAG.strip('"'), f'"{ETAG}"'):
        status, _, body = await site.call("GET", await site.link(key), headers={"If-None-Match": tags})
        assert (status, body) == (200, CONTENT)
