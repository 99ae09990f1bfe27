"""Artifacts in a bucket: stored, redirected to, streamed, and away (D-34).

moto checks no signatures: that an address is signed, for how long and for what, is read from the
address; that a real store would accept it, nobody here can say.
"""

import asyncio
import hashlib
import io
import json
import signal
import sys
import time
from base64 import b64encode
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import obstore
import pytest

from harness.standstill import Standstill
from licserver.artifacts import ArtifactRedirect, open_artifacts
from licserver.errors import InvalidInputError

CONTENT = bytes(range(256)) * 40  # 10240 bytes, each offset has its own content
SIZE = len(CONTENT)
ETAG = f'"{hashlib.sha256(CONTENT).hexdigest()}"'
DIGEST = f"sha-256=:{b64encode(hashlib.sha256(CONTENT).digest()).decode()}:"
NAME = "attachment; filename=\"m_bel 1.zip\"; filename*=UTF-8''m%C3%B6bel%201.zip"
LARGE = hashlib.shake_256(b"large").digest(20 << 20)  # three parts of an upload, twenty pieces


def objects(bucket):
    """The keys and sizes of all objects of a world's bucket."""
    return {found["path"]: found["size"] for page in obstore.list(bucket._reader) for found in page}


@pytest.fixture(params=[True, False], ids=["redirect", "stream"])
async def sites(request, make_world, open_site, bucket):
    """A server with a file in its bucket, that redirects or streams, and a link to the file."""
    world = make_world(artifacts_url=bucket, artifacts_redirect=request.param)
    world.publish("1.0", CONTENT, name="möbel 1.zip")
    site = await open_site(world)
    return site, await site.link(world.key())


async def follow(method, address, **more: Any):
    """Fetch an address that we were sent to."""
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.request(method, address, **more) as answer,
    ):
        return answer.status, answer.headers, await answer.read()


async def get(site, link, method="GET", **more: Any):
    """Ask for a file and follow at most one redirect, as a customer's program does."""
    status, headers, body = await site.call(method, link, allow_redirects=False, **more)
    return await follow(method, headers["Location"], **more) if status == 307 else (status, headers, body)


# --- storing ----------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("content", [b"", CONTENT, LARGE], ids=["empty", "small", "in parts"])
async def test_what_is_stored_is_there_whole(make_world, bucket, content):
    """One object under its digest, of its size; storing it again uploads nothing and changes nothing."""
    world = make_world(artifacts_url=bucket)
    artifacts = world.services.artifacts
    artifact = artifacts.store(io.BytesIO(content), "app.zip")
    assert (artifact.sha256, artifact.size) == (hashlib.sha256(content).digest(), len(content))
    ((key, size),) = objects(artifacts).items()
    assert (key.split("/")[0], size) == (artifact.sha256.hex(), len(content))
    before = obstore.head(artifacts._reader, key)["last_modified"]
    assert artifacts.store(io.BytesIO(content), "app.zip") == artifact
    assert obstore.head(artifacts._reader, key)["last_modified"] == before


async def test_one_file_may_be_published_under_two_names(make_world, open_site, bucket):
    """Each release keeps its own name, though the bytes are the same."""
    world = make_world(artifacts_url=bucket)
    world.product("other")
    world.publish("1.0", CONTENT, name="app.zip")
    world.publish("1.0", CONTENT, slug="other", name="other.zip")
    site = await open_site(world)
    for slug, key in (("app", world.key()), ("other", world.key("other"))):
        link = (await site.check(key, slug))[1]["download_url"]
        _, headers, body = await get(site, link[link.index("/api/") :])
        assert (headers["Content-Disposition"], body) == (f'attachment; filename="{slug}.zip"', CONTENT)


class Changing(io.BytesIO):
    """A file that another program writes to between two readings."""

    def seek(self, *where: int):
        """Go back to the beginning, and find something else there."""
        self.getbuffer()[-1] ^= 1
        return super().seek(*where)


@pytest.mark.parametrize("content", [CONTENT, LARGE], ids=["small", "in parts"])
async def test_a_file_that_changes_meanwhile_is_not_stored(make_world, bucket, content):
    """Nothing may lie under a digest that is not its own: the upload is broken off."""
    world = make_world(artifacts_url=bucket)
    with pytest.raises(InvalidInputError, match="changed"):
        world.services.artifacts.store(Changing(content), "app.zip")
    assert objects(world.services.artifacts) == {}


async def test_a_source_that_breaks_leaves_nothing(make_world, bucket):
    """An unreadable file is the caller's error, as with the folder."""

    class Breaking(io.BytesIO):
        def read(self, *size: int):
            if self.tell() > 9 << 20:
                raise OSError("broken")
            return super().read(*size)

    with pytest.raises(OSError, match="broken"):
        make_world(artifacts_url=bucket).services.artifacts.store(Breaking(LARGE), "x")


# --- sending ----------------------------------------------------------------------------------


async def test_a_link_leads_to_a_signed_address(make_world, open_site, bucket, s3, caplog):
    """307, not to be stored, with the file's digest and name; the address is signed for five minutes."""
    world = make_world(artifacts_url=bucket)
    world.publish("1.0", CONTENT, name="möbel 1.zip")
    site = await open_site(world)
    link = await site.link(world.key())
    for method in ("GET", "HEAD"):
        status, headers, body = await site.call(method, link, allow_redirects=False)
        assert (status, body, headers["Cache-Control"]) == (307, b"", "no-store")
        assert (headers["Repr-Digest"], headers["Content-Disposition"]) == (DIGEST, NAME)
        assert headers["Location"].startswith(f"{s3.url}/bucket-")
        signed = parse_qs(urlsplit(headers["Location"]).query)
        assert signed["X-Amz-Expires"] == ["300"]
        assert len(signed["X-Amz-Signature"][0]) == 64
        assert s3.environ["AWS_SECRET_ACCESS_KEY"] not in str(headers) + caplog.text
        assert signed["X-Amz-Signature"][0] not in caplog.text


@pytest.mark.sampled(2, "sites", "method", "content")
@pytest.mark.parametrize(("method", "content"), [("HEAD", b""), ("GET", CONTENT)])
async def test_the_whole_file_comes(sites, method, content):
    """Redirected or streamed: the bytes, their number and the file's name; HEAD sends the same headers."""
    site, link = sites
    status, headers, body = await get(site, link, method)
    assert (status, body) == (200, content)
    assert headers["Content-Length"] == str(SIZE)
    assert headers["Accept-Ranges"] == "bytes"
    assert headers["Content-Disposition"] == NAME
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["ETag"].startswith('"')


@pytest.mark.slow
async def test_streamed_answers_are_those_of_the_folder(make_world, open_site, bucket):
    """Without redirects nobody can tell a bucket from a folder: head, parts, tags and all."""
    headers_sent = [{}, {"Range": "bytes=5-"}, {"Range": "bytes=-1"}, {"Range": "bytes=99999-"}]
    headers_sent += [{"Range": "bytes=5-", "If-Range": tag} for tag in (ETAG, '"other"')]
    found = []
    for settings in ({}, {"artifacts_url": bucket, "artifacts_redirect": False}):
        world = make_world(**settings)
        world.publish("1.0", CONTENT, name="möbel 1.zip")
        site = await open_site(world)
        link = await site.link(world.key())
        answers = [
            await site.call(method, link, headers=h) for method in ("GET", "HEAD") for h in headers_sent
        ]
        found.append([(s, {k: v for k, v in h.items() if k != "Date"}, body) for s, h, body in answers])
    assert found[0] == found[1]


@pytest.mark.slow
async def test_many_pieces_make_one_file(make_world, open_site, bucket):
    """A file of many pieces comes in order, whole and from the middle, to several at once."""
    world = make_world(artifacts_url=bucket, artifacts_redirect=False)
    world.publish("1.0", LARGE)
    site = await open_site(world)
    link = await site.link(world.key())
    starts = (0, 1, (1 << 20) - 1, 1 << 20, (5 << 20) + 17)
    answers = await asyncio.gather(
        *(site.call("GET", link, headers={"Range": f"bytes={start}-"}) for start in starts)
    )
    assert [body == LARGE[start:] for start, (_, _, body) in zip(starts, answers, strict=True)] == [True] * 5


async def test_nobody_is_sent_from_https_to_http(make_world, open_site, bucket):
    """Customers would not follow: the bytes are streamed instead."""
    world = make_world(artifacts_url=bucket, base_url="https://licenses.example")
    world.publish("1.0", CONTENT)
    site = await open_site(world)
    status, _, body = await site.call("GET", await site.link(world.key()), allow_redirects=False)
    assert (status, body) == (200, CONTENT)


async def test_an_address_is_no_part_of_a_repr():
    """A presigned address is a credential."""
    assert "signed" not in repr(ArtifactRedirect("https://signed.example"))


# --- what goes wrong --------------------------------------------------------------------------


@pytest.mark.sampled(2, "sites", "damage")
@pytest.mark.parametrize("damage", ["missing", "cut"])
async def test_a_file_that_is_not_what_was_published_is_never_sent(sites, caplog, damage):
    """Lost or damaged: 503 with Retry-After, a line in the log; and all is well when it is back."""
    site, link = sites
    artifacts = site.world.services.artifacts
    (key,) = objects(artifacts)
    if damage == "missing":
        obstore.delete(artifacts._reader, key)
    else:
        obstore.put(artifacts._reader, key, CONTENT[:-1])
    status, headers, answer = await site.call("GET", link, allow_redirects=False)
    assert (status, answer["error"], headers["Retry-After"]) == (503, "unavailable", "5")
    assert hashlib.sha256(CONTENT).hexdigest() in caplog.text
    assert "Traceback" not in caplog.text
    obstore.put(artifacts._reader, key, CONTENT)
    assert (await get(site, link))[2] == CONTENT


@pytest.mark.slow
@pytest.mark.parametrize(
    "redirect", [pytest.param(True, id="redirect", marks=pytest.mark.slow), pytest.param(False, id="stream")]
)
async def test_a_bucket_that_is_away_is_503(make_world, open_site, own_s3, monkeypatch, caplog, redirect):
    """Hanging or gone: reported within 3 s, nothing signed, no secret in the log; then well again."""
    for name, value in own_s3.environ.items():
        monkeypatch.setenv(name, value)
    world = make_world(artifacts_url=own_s3.new_bucket(), artifacts_redirect=redirect)
    world.publish("1.0", CONTENT)
    site = await open_site(world)
    link = await site.link(world.key())

    async def is_away():
        began = time.monotonic()
        with Standstill() as machine:
            status, headers, answer = await site.call("GET", link, allow_redirects=False)
            ended = time.monotonic()
        assert ended - began - machine.within(began, ended) < 3
        assert (status, answer["error"], headers["Retry-After"]) == (503, "unavailable", "5")

    own_s3.process.send_signal(signal.SIGSTOP)
    await is_away()
    own_s3.process.send_signal(signal.SIGCONT)
    assert (await get(site, link))[2] == CONTENT
    own_s3.stop()
    world.services.artifacts._known.clear()  # a minute later
    await is_away()
    assert (await site.call("GET", "/healthz"))[0] == 200
    assert (await site.check(world.key()))[0] == 200
    assert not [
        secret for secret in (link, "X-Amz", "the-bucket-secret", "AKIDOFTESTS") if secret in caplog.text
    ]


@pytest.mark.slow
async def test_a_bucket_that_goes_away_half_way_breaks_the_connection(
    make_world, open_site, own_s3, monkeypatch, caplog
):
    """What has begun and cannot be ended is broken off: nothing half looks whole."""
    for name, value in own_s3.environ.items():
        monkeypatch.setenv(name, value)
    world = make_world(artifacts_url=own_s3.new_bucket(), artifacts_redirect=False)
    world.publish("1.0", LARGE)
    site = await open_site(world)
    link = await site.link(world.key())
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=1 << 16)
    writer.write(f"GET {link} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert f"Content-Length: {len(LARGE)}".encode() in head
    own_s3.stop()
    got = 0
    with suppress(ConnectionError):
        while chunk := await asyncio.wait_for(reader.read(1 << 16), 20):
            got += len(chunk)
    assert 0 < got < len(LARGE)
    writer.close()
    (line,) = caplog.messages
    assert "half way" in line


@pytest.mark.parametrize("kind", ["away", "no bucket"])
def test_publishing_without_the_bucket_is_one_clear_line(cli, bucket, s3, monkeypatch, kind, tmp_path):
    """Exit 1, one line, no release, no secret printed; the same command works later."""
    file = tmp_path / "app.zip"
    file.write_bytes(CONTENT)
    cli("product", "add", "app", "--name", "App")
    monkeypatch.setenv("LICSERVER_ARTIFACTS_URL", "s3://nobody-made-this")
    if kind == "away":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    err = cli("release", "publish", "app", "1.0", str(file), expect=1)
    assert len(err.splitlines()) == 1
    assert ("cannot be reached" if kind == "away" else "NoSuchBucket") in err
    assert "nobody-made-this" in err
    assert not [secret for secret in s3.environ.values() if secret in err]
    assert "no versions" in cli("release", "list", "app")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    monkeypatch.setenv("LICSERVER_ARTIFACTS_URL", bucket)
    cli("release", "publish", "app", "1.0", str(file))


MISUSES = {
    "credentials": ({"LICSERVER_ARTIFACTS_URL": "s3://me:hunter2@bucket/x"}, "AWS_"),
    "another scheme": ({"LICSERVER_ARTIFACTS_URL": "https://bucket.s3.example"}, "s3://bucket/prefix"),
    "no bucket": ({"LICSERVER_ARTIFACTS_URL": "s3:///x"}, "s3://bucket/prefix"),
    "a query": ({"LICSERVER_ARTIFACTS_URL": "s3://bucket/x?region=y"}, "s3://bucket/prefix"),
    "no address": ({"AWS_ENDPOINT_URL": "minio:9000"}, "AWS_ENDPOINT_URL"),
    "a password": ({"AWS_ENDPOINT_URL": "https://me:hunter2@s3.example"}, "AWS_ENDPOINT_URL"),
    "open": ({"AWS_ENDPOINT_URL": "http://minio.example:9000"}, "AWS_ALLOW_HTTP"),
    "neither yes nor no": ({"LICSERVER_ARTIFACTS_REDIRECT": "perhaps"}, "LICSERVER_ARTIFACTS_REDIRECT"),
}


@pytest.mark.parametrize(("environ", "expected"), MISUSES.values(), ids=MISUSES.keys())
def test_a_wrong_setting_is_one_clear_line(cli, monkeypatch, environ, expected):
    """Exit 2, the variable's name and a valid form; nothing that could be a secret is printed."""
    for name, value in ({"LICSERVER_ARTIFACTS_URL": "s3://bucket"} | environ).items():
        monkeypatch.setenv(name, value)
    err = cli("product", "list", expect=2)
    assert len(err.splitlines()) == 1
    assert expected in err
    assert "hunter2" not in err


def test_http_is_allowed_when_it_is_asked_for(make_world, monkeypatch):
    """A store on a private network may be reached without https, by a word of its own."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio.example:9000")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert open_artifacts(make_world(artifacts_url="s3://bucket").services.settings)


def test_without_credentials_the_message_says_what_to_set(cli, bucket, monkeypatch, tmp_path):
    """No credentials in the environment, and no role of the machine: the error names the variables."""
    monkeypatch.setenv("LICSERVER_ARTIFACTS_URL", bucket)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    cli("product", "add", "app", "--name", "App")
    file = tmp_path / "app.zip"
    file.write_bytes(CONTENT)
    err = cli("release", "publish", "app", "1.0", str(file), expect=1)
    assert len(err.splitlines()) == 1
    assert "AWS_ACCESS_KEY_ID" in err


@pytest.mark.slow
def test_without_the_extra_the_message_says_what_to_install(program):
    """Exit 2 and the command, when obstore is not installed."""
    hide = "import sys, runpy; sys.modules['obstore'] = None; sys.argv[0] = 'licserver'; "
    program.command = [sys.executable, "-c", f"{hide}runpy.run_module('licserver', run_name='__main__')"]
    program.run("product", "list")  # artifacts in a folder do not need it
    program.environ["LICSERVER_ARTIFACTS_URL"] = "s3://bucket"
    done = program.run("product", "list", check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "pip install 'licserver[s3]'" in done.stderr


@pytest.mark.slow  # a server with workers, and an S3 server of its own
async def test_several_processes_share_a_bucket(program, own_s3, tmp_path):
    """Each worker reaches the bucket after its fork."""
    program.environ |= own_s3.environ
    program.environ |= {
        "LICSERVER_ARTIFACTS_URL": own_s3.new_bucket(),
        "LICSERVER_ARTIFACTS_REDIRECT": "false",
    }
    program.run("product", "add", "app", "--name", "App")
    file = tmp_path / "app.zip"
    file.write_bytes(CONTENT)
    program.run("release", "publish", "app", "1.0", str(file))
    key = program.run("license", "issue", "app").stdout.strip()
    query = {"license_key": key, "slug": "app", "current_version": "0", "domain": "a.example"}
    with program.serve("--workers", "2") as (_, address):
        _, _, answer = await follow("GET", f"{address}/api/v1/update-check", params=query)
        link = json.loads(answer)["download_url"]
        for _ in range(10):  # a connection each: some worker
            assert (await follow("GET", link))[2] == CONTENT
