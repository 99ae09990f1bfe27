import asyncio
import random
import signal
import subprocess
import sys
import time
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from licclient import LicenseClient, LicenseRefused, Reason, ServiceUnavailable, UntrustedAnswer
from licclient._download import open_job
from licclient._wire import Head

CONTENT = random.Random(1).randbytes(300_000)


def digest(content):
    """Write a Repr-Digest."""
    return f"sha-256=:{b64encode(sha256(content).digest()).decode()}:"


class Store:
    """A download endpoint that resumes, cuts and refuses as told, behind an update check that offers 2.0."""

    def __init__(self, service, answer) -> None:
        self.service, self.answer = service, answer
        self.content, self.etag, self.digest = CONTENT, '"v2"', digest(CONTENT)
        self.disposition = 'attachment; filename="notes-2.0.zip"'
        self.cuts: list[int] = []
        self.refusals: list[tuple[int, str]] = []
        self.ranges = True
        self.link = f"{service.url}/api/v1/update-download?id=7&sig=SECRETSIG"
        service.script = self.reply

    def reply(self, request):
        """Answer update checks and downloads."""
        if request.path.endswith("update-check"):
            return self.answer(200, self.service.listing("2.0", download_url=self.link))
        if self.refusals:
            status, code = self.refusals.pop(0)
            return self.answer(status, {"error": code, "message": f"It is {code}."})
        return self.file(request)

    def file(self, request):
        """Hand out the file, or the rest of it, or as much as the next cut leaves."""
        first, status, headers = 0, 200, {}
        wanted = request.headers.get("range")
        if self.ranges and wanted and request.headers.get("if-range") == self.etag:
            first, status = int(wanted.removeprefix("bytes=").removesuffix("-")), 206
            headers["Content_Range"] = f"bytes {first}-{len(self.content) - 1}/{len(self.content)}"
        raw = self.answer(
            status,
            self.content[first:],
            Content_Type="application/zip",
            ETag=self.etag,
            Repr_Digest=self.digest,
            Content_Disposition=self.disposition,
            **headers,
        )
        if not self.cuts:
            return raw
        head = len(raw) - len(self.content[first:])
        return raw[: head + self.cuts.pop(0)]

    @property
    def asked(self):
        """What was asked of the download endpoint: the Range of each request."""
        return [
            request.headers.get("range") for request in self.service.requests if "download" in request.path
        ]

    @property
    def checks(self):
        """Return how many update checks there were."""
        return self.service.count("update-check")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """Tries follow each other at once."""
    monkeypatch.setattr("licclient._download.RETRY_SECONDS", 0.001)


@pytest.fixture
def store(service, http_answer):
    """A store that sells Notes 2.0."""
    return Store(service, http_answer)


@pytest.fixture
def folder(tmp_path):
    """Where downloads go; afterwards, nothing but whole files may be left by a success."""
    return tmp_path / "downloads"


async def test_a_file_arrives_whole_under_its_name(client, store, folder, key):
    """The server's name, the right bytes, nothing else in the folder, and growing progress."""
    told = []
    update = await client.check_for_update(key)
    path = await client.download(update, folder, progress=lambda done, total: told.append((done, total)))
    assert path == folder / "notes-2.0.zip"
    assert path.read_bytes() == CONTENT
    assert list(folder.iterdir()) == [path]
    assert told == sorted(told)
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert (store.checks, store.asked) == (1, [None])


async def test_an_older_file_of_that_name_is_replaced(client, store, folder, key):
    """The final name changes from the old file to the new one at one stroke."""
    folder.mkdir()
    (folder / "notes-2.0.zip").write_bytes(b"old")
    path = await client.download(await client.check_for_update(key), str(folder))
    assert path.read_bytes() == CONTENT


async def test_a_cut_connection_is_taken_up_again(client, store, folder, key):
    """Only the rest is asked for, bound to the same file by its entity tag (RFC 9110)."""
    store.cuts = [100_000, 50_000]
    told = []
    path = await client.download(
        await client.check_for_update(key), folder, progress=lambda done, _: told.append(done)
    )
    assert path.read_bytes() == CONTENT
    assert store.asked == [None, "bytes=100000-", "bytes=150000-"]
    assert told == sorted(told)


async def test_a_later_run_goes_on(make_client, store, folder, key):
    """What was left by a run that gave up is used by the next one."""
    store.cuts = [200_000, 0, 0, 0]
    client = make_client()
    with pytest.raises(ServiceUnavailable):
        await client.download(await client.check_for_update(key), folder)
    assert not (folder / "notes-2.0.zip").exists()
    again = make_client()
    path = await again.download(await again.check_for_update(key, force=True), folder)
    assert path.read_bytes() == CONTENT
    assert store.asked[-1] == "bytes=200000-"
    assert list(folder.iterdir()) == [path]


async def test_a_file_that_changed_meanwhile_is_fetched_anew(make_client, store, folder, key):
    """If-Range makes the server send the new file whole, and the old part is dropped."""
    store.cuts = [200_000, 0, 0, 0]
    client = make_client()
    update = await client.check_for_update(key)
    with pytest.raises(ServiceUnavailable):
        await client.download(update, folder)
    store.content, store.etag = b"new" * 1000, '"v3"'
    store.digest = digest(store.content)
    assert (await client.download(update, folder)).read_bytes() == store.content


@pytest.mark.parametrize("tag", ["", 'W/"weak"'])
async def test_without_a_strong_tag_it_starts_over(client, store, folder, key, tag):
    """What cannot be told to be the same file is not glued together."""
    store.etag, store.cuts = tag, [100_000]
    assert (await client.download(await client.check_for_update(key), folder)).read_bytes() == CONTENT
    assert store.asked == [None, None]


async def test_a_server_without_ranges_still_works(client, store, folder, key):
    """Asked for the rest, it may send everything."""
    store.ranges, store.cuts = False, [100_000]
    assert (await client.download(await client.check_for_update(key), folder)).read_bytes() == CONTENT


async def test_a_damaged_part_is_fetched_once_more(make_client, store, folder, key):
    """Damage on our own disk is repaired, not called an attack."""
    store.cuts = [200_000, 0, 0, 0]
    client = make_client()
    update = await client.check_for_update(key)
    with pytest.raises(ServiceUnavailable):
        await client.download(update, folder)
    [part] = folder.glob(".*.part")
    part.write_bytes(bytes(200_000))
    assert (await client.download(update, folder)).read_bytes() == CONTENT
    assert store.asked[-2:] == ["bytes=200000-", None]


# --- not what was promised --------------------------------------------------------------------


async def test_a_wrong_digest_leaves_nothing(client, store, folder, key):
    """What is not the file that the server declared never gets its name, and is not kept."""
    store.digest = digest(b"something else")
    with pytest.raises(UntrustedAnswer):
        await client.download(await client.check_for_update(key), folder)
    assert list(folder.iterdir()) == []


async def test_a_digest_is_welcome_but_not_demanded(client, store, folder, key):
    """Without Repr-Digest the length alone is checked."""
    store.digest = ""
    assert (await client.download(await client.check_for_update(key), folder)).read_bytes() == CONTENT


async def test_neither_length_nor_digest_is_no_file(client, store, service, http_answer, folder, key):
    """When nothing would show that a file is whole it is not taken."""
    service.script = lambda request: (
        store.reply(request)
        if "check" in request.path
        else http_answer(200, CONTENT, Content_Length="", Content_Type="application/zip")
    )
    with pytest.raises(ServiceUnavailable):
        await client.download(await client.check_for_update(key), folder)
    assert list(folder.iterdir()) == []


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
    assert (await client.download(await client.check_for_update(key), folder)).read_bytes() == CONTENT
    assert store.asked == [None, "bytes=100000-", None]


@pytest.mark.parametrize("status", [410, 416, 500, 204])
async def test_no_file_is_no_answer(client, store, folder, key, status):
    """Whatever else the server says about the file is an outage, after a few tries."""
    store.refusals = [(status, "gone")] * 50
    with pytest.raises(ServiceUnavailable):
        await client.download(await client.check_for_update(key), folder)
    assert not [path for path in folder.iterdir() if not path.name.startswith(".")]
    assert len(store.asked) == 3


async def test_an_encoded_file_is_refused(client, store, service, http_answer, folder, key):
    """Nobody asked for gzip: few bytes could become many."""
    service.script = lambda request: (
        store.reply(request)
        if "check" in request.path
        else http_answer(200, CONTENT, Content_Encoding="gzip")
    )
    with pytest.raises(ServiceUnavailable):
        await client.download(await client.check_for_update(key), folder)


async def test_a_whole_part_needs_no_call(client, store, folder, key):
    """Killed between the last byte and the name: the next run verifies what is there, and names it."""

    def stop_at_the_end(done, total):
        if done == total:
            raise LookupError

    update = await client.check_for_update(key)
    with pytest.raises(LookupError):
        await client.download(update, folder, progress=stop_at_the_end)
    assert (await client.download(update, folder)).read_bytes() == CONTENT
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
    assert (await client.download(update, folder)).read_bytes() == CONTENT
    assert store.asked == [None]


def test_more_than_was_said_is_untrusted(folder):
    """Whatever the HTTP library lets through, a job stops at the declared size, and keeps nothing."""
    told = {"Content-Length": "4", "ETag": '"x"'}
    with open_job(folder, "part", "https://x.example", "notes", "key") as job:
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
    told = {"Content-Length": "4", "ETag": '"x"', "Content-Disposition": "attachment; filename=a.txt"}
    with (
        open_job(folder, "part", "https://x.example", "notes", "key") as one,
        open_job(folder, "part", "https://x.example", "notes", "key") as other,
    ):
        for job, content in ((one, b"1111"), (other, b"2222")):
            job.begin(Head(200, told))
            job.write(content)
            job.end()
        one.finish()
        assert (folder / "a.txt").read_bytes() == b"1111"
        other.finish()
        assert (folder / "a.txt").read_bytes() == b"2222"


# --- links (D-48) -----------------------------------------------------------------------------


async def test_a_remembered_offer_gets_a_fresh_link(make_client, store, clock, folder, key):
    """The link is never kept on disk, so a later run asks for one before it downloads."""
    await make_client().check_for_update(key)
    clock.move(hours=3)
    client = make_client()
    await client.download(await client.check_for_update(key), folder)
    assert (store.checks, store.asked) == (2, [None])
    await client.check_for_update(key)
    assert store.checks == 2


async def test_asking_for_a_link_counts_as_a_check(client, store, clock, folder, key):
    """It is never too early for a fresh link, and the next check is due twelve hours after it."""
    update = await client.check_for_update(key)
    clock.move(hours=11)
    await client.download(update, folder)
    clock.move(hours=11)
    assert (await client.check_for_update(key)).version == "2.0"
    assert store.checks == 2


@pytest.mark.parametrize("minutes", [56, -1])
async def test_a_link_that_may_have_run_out_is_renewed_first(client, store, clock, folder, key, minutes):
    """After 55 minutes, or when the clock went backwards, the link is not even tried."""
    update = await client.check_for_update(key)
    clock.move(minutes=minutes)
    store.link += "-fresh"
    await client.download(update, folder)
    assert store.checks == 2
    assert store.service.requests[-1].query["sig"] == "SECRETSIG-fresh"


@pytest.mark.parametrize("code", ["link_expired", "invalid_link"])
async def test_a_refused_link_is_renewed_once(client, store, folder, key, code):
    """The server says that the link ran out: a fresh one is fetched, and the part goes on."""
    store.cuts = [100_000]
    update = await client.check_for_update(key)
    plain = store.reply

    def refuse_the_second(request):
        if request.headers.get("range") and store.checks == 1:
            return store.answer(403, {"error": code, "message": "Late."})
        return plain(request)

    store.service.script = refuse_the_second
    assert (await client.download(update, folder)).read_bytes() == CONTENT
    assert store.asked == [None, "bytes=100000-", "bytes=100000-"]
    assert store.checks == 2


async def test_links_may_run_out_more_than_once(client, store, folder, key):
    """On a slow line a download takes hours: every link that brought it further may be renewed."""
    store.cuts = [100_000, 100_000]
    plain = store.reply

    def refuse_old_links(request):
        spent = (request.headers.get("range"), store.checks) in (("bytes=100000-", 1), ("bytes=200000-", 2))
        return store.answer(403, b"<Error>AccessDenied</Error>") if spent else plain(request)

    store.service.script = refuse_old_links
    assert (await client.download(await client.check_for_update(key), folder)).read_bytes() == CONTENT
    assert store.checks == 3


async def test_a_server_that_refuses_its_own_links_is_unavailable(client, store, folder, key):
    """It does not go round in circles."""
    store.refusals = [(403, "link_expired")] * 50
    with pytest.raises(ServiceUnavailable):
        await client.download(await client.check_for_update(key), folder)
    assert len(store.asked) <= 4


async def test_a_key_revoked_within_the_hour_is_refused(client, store, folder, key):
    """The download endpoint's own no is the license's end (D-31)."""
    store.refusals = [(403, "license_revoked")]
    with pytest.raises(LicenseRefused) as caught:
        await client.download(await client.check_for_update(key), folder)
    assert (caught.value.reason, caught.value.message) == (Reason.REVOKED, "It is license_revoked.")


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, {"error": "invalid_license", "message": "No."}, Reason.OTHER),
        (401, {"error": "license_expired", "message": "No."}, Reason.EXPIRED),
        (403, {"error": "product_mismatch", "message": "No."}, Reason.OTHER_PRODUCT),
        (200, "no link", Reason.SUPPORT_ENDED),
        (200, "withdrawn", Reason.OTHER),
    ],
)
async def test_a_fresh_link_may_be_refused(client, store, service, clock, folder, key, status, body, reason):
    """When the link is asked for anew, every no of the update check is a refusal."""
    update = await client.check_for_update(key)
    clock.move(hours=2)
    if body == "no link":
        body = service.listing(download_url=None)
    elif body == "withdrawn":
        body = service.listing("1.0")
    service.says(status, body)
    with pytest.raises(LicenseRefused) as caught:
        await client.download(update, folder)
    assert caught.value.reason is reason


async def test_no_answer_when_a_link_is_needed(client, store, service, clock, folder, key):
    """Without a fresh link there is nothing to try."""
    update = await client.check_for_update(key)
    clock.move(hours=2)
    service.goes_down()
    with pytest.raises(ServiceUnavailable):
        await client.download(update, folder)


async def test_a_store_elsewhere_may_be_redirected_to(client, store, service, http_answer, folder, key):
    """A download follows a few redirects; the endpoints themselves never do."""
    plain = store.reply
    service.script = lambda request: (
        http_answer(302, b"", Location="/bucket/file?signature=X")
        if request.path.endswith("update-download")
        else plain(request)
    )
    assert (await client.download(await client.check_for_update(key), folder)).read_bytes() == CONTENT


def sends_elsewhere(store, http_answer, **promised: str):
    """Script a service that redirects, and a bucket that tells nothing but its own name, length and tag."""
    plain = store.reply

    def script(request):
        if request.path.endswith("update-download"):
            return http_answer(307, b"", Location="/bucket/file?signature=X", **promised)
        if request.path == "/bucket/file":
            return http_answer(200, store.content, ETag='"bucket"', Content_Disposition="filename=object-7")
        return plain(request)

    return script


async def test_what_the_service_promises_of_a_file_holds_elsewhere(
    client, store, service, http_answer, folder, key
):
    """Digest and name in the redirect go before what the other place says (D-34)."""
    promised = {"Repr_Digest": digest(CONTENT), "Content_Disposition": 'attachment; filename="from-us.zip"'}
    service.script = sends_elsewhere(store, http_answer, **promised)
    path = await client.download(await client.check_for_update(key), folder)
    assert (path.name, path.read_bytes()) == ("from-us.zip", CONTENT)


async def test_another_file_than_promised_is_refused(client, store, service, http_answer, folder, key):
    """A bucket with other bytes in it is an attack, though all that it says is consistent."""
    store.content = CONTENT[:-1] + b"!"
    service.script = sends_elsewhere(store, http_answer, Repr_Digest=digest(CONTENT))
    with pytest.raises(UntrustedAnswer):
        await client.download(await client.check_for_update(key), folder)
    assert [path for path in folder.iterdir() if path.suffix == ".part"] == []


@pytest.mark.parametrize("target", ["/api/v1/update-download?again", "ftp://127.0.0.1/x", "http://[", ""])
async def test_a_redirect_that_leads_nowhere_safe_is_no_answer(
    client, store, service, http_answer, folder, key, target
):
    """Loops and other schemes end."""
    plain = store.reply
    service.script = lambda request: (
        http_answer(302, b"", Location=target) if "download" in request.path else plain(request)
    )
    with pytest.raises(ServiceUnavailable):
        await client.download(await client.check_for_update(key), folder)


# --- the folder -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ('attachment; filename="../../evil.zip"', "evil.zip"),
        ('attachment; filename="C:\\\\Windows\\\\NUL.zip"', "_NUL.zip"),
        ("attachment; filename*=UTF-8''%2e%2e%2fna%C3%AFve.zip", "naïve.zip"),
        ('attachment; filename=".."', "notes-2.0"),
        ("attachment", "notes-2.0"),
        ("", "notes-2.0"),
    ],
)
async def test_the_name_is_harmless(client, store, folder, key, told, kept):
    """Whatever the server calls the file, it lands in the folder, under a legal name."""
    store.disposition = told
    assert await client.download(await client.check_for_update(key), folder) == folder / kept


async def test_a_folder_that_is_none_is_the_apps_matter(client, store, tmp_path, key):
    """Trouble with the target folder is an OSError, as the app knows it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        await client.download(await client.check_for_update(key), tmp_path / "file")


async def test_what_progress_raises_ends_the_download(make_client, store, folder, key):
    """An app cancels by raising; the part stays for another day."""

    def stop(done, total):
        raise LookupError

    client = make_client()
    with pytest.raises(LookupError):
        await client.download(await client.check_for_update(key), folder, progress=stop)
    assert list(folder.glob(".*.part"))
    assert not (folder / "notes-2.0.zip").exists()
    assert (await client.download(await client.check_for_update(key), folder)).read_bytes() == CONTENT


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
        service.url, state_dir=tmp_path / "s", slug="notes", version="1.0", clock=clock
    ) as client:
        update = client.check_for_update(key)
        paths = await asyncio.gather(*(asyncio.to_thread(client.download, update, folder) for _ in range(4)))
    assert {path.read_bytes() for path in paths} == {CONTENT}
    assert [path.name for path in folder.iterdir()] == ["notes-2.0.zip"]


async def test_a_cancelled_task_leaves_a_part_that_goes_on(flavour, make_client, store, folder, key):
    """Cancelling between two chunks neither corrupts the part nor keeps it locked."""
    if flavour is LicenseClient:
        pytest.skip("only tasks can be cancelled")
    plain = store.file

    def slowly(request):
        raw = plain(request)
        for start in range(0, len(raw), 30_000):
            yield raw[start : start + 30_000]
            time.sleep(0.05)

    store.file = slowly
    client = make_client()
    update = await client.check_for_update(key)
    task = asyncio.ensure_future(client.download(update, folder))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.file = plain
    assert (await client.download(update, folder)).read_bytes() == CONTENT
    assert store.asked[-1] is not None
    assert len(list(folder.iterdir())) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on Windows; not tried there")
def test_a_killed_download_resumes(service, http_answer, tmp_path, key):
    """The command line, killed half way and started again, asks only for the rest."""
    store = Store(service, http_answer)
    plain = store.file

    def stalls(request):
        raw = plain(request)
        yield raw[:150_000]
        time.sleep(30)

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
    assert int(store.asked[-1].removeprefix("bytes=").removesuffix("-")) > 100_000
    assert [path.name for path in path.parent.iterdir()] == ["notes-2.0.zip"]
