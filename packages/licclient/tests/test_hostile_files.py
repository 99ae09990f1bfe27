"""Downloads of everything that is not the file: each row ends in time, and nothing gets the final name."""

import errno
import itertools
import os
import threading
from collections import namedtuple
from functools import partial
from time import monotonic

import pytest
from stage.files import CONTENT, FILES, GOOD_FILE, HEAD
from stage.meters import bounded, crash_report
from stage.scripts import drip, http, silence

from harness.threads import call_at_once
from licclient import LicclientError, LicenseClient, Trust
from licclient.errors import ServiceUnavailableError

TIMEOUT = 0.5


@pytest.fixture
def offer(service, http_answer):
    """Plays a script on the download link, behind an honest update check."""

    def play(script):
        def reply(request):
            if request.path.endswith("update-check"):
                return http_answer(200, service.listing("2.0"))
            return script(request) if callable(script) else script

        service.script = reply

    return play


@pytest.mark.sampled(11)
@pytest.mark.parametrize("script", FILES.values(), ids=FILES.keys())
async def test_a_hostile_file_never_gets_its_name(make_client, offer, script, folder, key, tmp_path):
    """An error of our own or the disk's, in time, with little memory, and no file anywhere."""
    offer(script)
    update = (await make_client().check_for_update(key)).update
    client = make_client(timeout=TIMEOUT)
    with bounded(TIMEOUT), pytest.raises((LicclientError, OSError)) as caught:
        await client.download(update, folder, key=key)
    report = crash_report(caught.value)
    assert not [word for word in (key, "SECRETSIG", "httpx", "httpcore") if word in report]
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".licclient-")] == []
    assert {path.name for path in tmp_path.iterdir()} == {"downloads", "state"}
    assert sum(path.stat().st_size for path in folder.iterdir()) < len(CONTENT) + 1000


async def test_after_any_of_it_the_honest_file_arrives(make_client, offer, folder, key):
    """What the hostile rows left behind, one after the other in one folder, spoils nothing."""
    patient, client = make_client(), make_client(timeout=TIMEOUT)
    for name in ("cut at 5 tenths, always", "one other byte", "a part with other bytes", "a login page"):
        offer(FILES[name])
        update = (await patient.check_for_update(key, force=True)).update
        with pytest.raises(LicclientError):
            await client.download(update, folder, key=key)
    offer(GOOD_FILE)
    done = await patient.download(update, folder, key=key)
    assert done.path.read_bytes() == CONTENT
    assert list(folder.iterdir()) == [done.path]


async def test_the_rows_are_hostile_and_not_the_harness(make_client, offer, fetch):
    """The file that the rows are made from, left as it is, arrives."""
    offer(GOOD_FILE)
    client = make_client()
    done = await fetch(client)
    assert (done.path.name, done.path.read_bytes()) == ("notes-2.0.zip", CONTENT)


SLOW = {
    "silence": lambda: silence(seconds=15),
    "silence in the file": lambda: silence(GOOD_FILE[:-5], seconds=15),
    "a byte a second": lambda: itertools.chain([HEAD], drip(CONTENT, pause=1)),
    "a byte each four seconds": lambda: itertools.chain([HEAD], drip(CONTENT, pause=4)),
}

SLOW_NAMES = list(SLOW)


@pytest.mark.slow  # ten seconds: the default time limit
def test_the_slowest_files_end_within_twelve_seconds(service, http_answer, key, tmp_path, clock):
    """With the limits that an app gets when it sets none; all at once, told apart by their links."""

    def script(request):
        if request.path.endswith("update-check"):
            link = f"{service.url}/{SLOW_NAMES.index(request.query['domain'])}"
            return http_answer(200, service.listing("2.0", download_url=link))
        return SLOW[SLOW_NAMES[int(request.path[1:])]]()

    def fetch(name):
        with LicenseClient(
            service.url, storage=tmp_path / name, clock=clock, domain=name, slug="notes", version="1"
        ) as client:
            update = client.check_for_update(key).update
            began = monotonic()
            with pytest.raises(ServiceUnavailableError):
                client.download(update, tmp_path / f"{name} to", key=key)
            return monotonic() - began

    service.script = script
    assert max(call_at_once([partial(fetch, name) for name in SLOW])) < 12


@pytest.mark.slow
async def test_a_slow_line_is_not_a_hostile_one(make_client, offer, fetch):
    """A file that takes many times the time limit arrives, as long as it comes at a pace."""
    pieces = [CONTENT[at : at + 5000] for at in range(0, len(CONTENT), 5000)]

    def slowly(_):
        yield HEAD
        for piece in pieces:
            yield piece
            threading.Event().wait(0.12)

    offer(slowly)
    limit = 1  # and not less: the machine that runs this may stand still for a moment
    client = make_client(timeout=limit)
    began = monotonic()
    done = await fetch(client)
    assert done.path.read_bytes() == CONTENT
    assert monotonic() - began > 2 * limit


@pytest.mark.slow
async def test_an_app_that_takes_its_time_is_not_the_servers_fault(make_client, offer, folder, key):
    """Time limits are for the network: a progress callback that asks something may take its time."""
    offer(GOOD_FILE)
    client = make_client(timeout=1)
    update = (await client.check_for_update(key)).update
    pauses = iter([1.5])  # longer than the time limit
    done = await client.download(
        update, folder, progress=lambda *_: threading.Event().wait(next(pauses, 0)), key=key
    )
    assert done.path.read_bytes() == CONTENT


async def test_a_full_disk_is_reported_before_the_first_byte(make_client, offer, folder, monkeypatch, fetch):
    """The app hears how much is missing, and nothing has been written."""
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 - as the system's own
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10**9, 10**9 - 5000, 5000))
    offer(GOOD_FILE)
    client = make_client()
    with pytest.raises(OSError, match=r"it needs \d+ MB, and 0 MB are free") as caught:
        await fetch(client)
    assert caught.value.errno == errno.ENOSPC
    assert [path for path in folder.iterdir() if path.suffix == ".part"] == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full here")  # noqa: PTH110
async def test_a_disk_that_fills_up_is_the_apps_matter(make_client, offer, folder, monkeypatch, fetch):
    """When the room goes away meanwhile, the OSError reaches the app as it is."""
    real = os.open

    def to_full(path, flags, mode=0o777):
        return real("/dev/full", os.O_RDWR) if str(path).endswith(".part") else real(path, flags, mode)

    monkeypatch.setattr(os, "open", to_full)
    offer(GOOD_FILE)
    client = make_client()
    with pytest.raises(OSError, match="No space left"):
        await fetch(client)
    assert not (folder / "notes-2.0.zip").exists()


# --- where from (D-53) ------------------------------------------------------------------------


async def test_an_app_may_say_where_files_come_from(make_client, service, offer, folder, key):
    """A redirect to a place that the app did not name is not followed; to one that it named, it is."""
    elsewhere = service.url.replace("127.0.0.1", "localhost")

    def script(request):
        return GOOD_FILE if "bucket" in request.path else http(307, b"", Location=f"{elsewhere}/bucket")

    offer(script)
    strict = make_client(trust=Trust(download_origins=[]))
    update = (await strict.check_for_update(key)).update
    with pytest.raises(ServiceUnavailableError):
        await strict.download(update, folder, key=key)
    assert not service.count("bucket")
    open_minded = make_client(trust=Trust(download_origins=[elsewhere]))
    assert (await open_minded.download(update, folder, key=key)).path.read_bytes() == CONTENT


async def test_a_link_to_a_place_that_the_app_did_not_name_is_no_offer(make_client, service, key):
    """It would only fail later; who looks for the reason finds it."""
    service.offers(download_url="https://evil.example/x")
    client = make_client(trust=Trust(download_origins=["https://cdn.example"]))
    check = await client.check_for_update(key)
    assert not check
    assert "download_origins" in check.message
