"""The logger `licclient` at DEBUG: what a support case needs, and never a key."""

import logging
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from stage.flavours import both

from licclient import Source
from licclient._worker import Refresh
from licclient.errors import LicenseRefusedError, ServiceUnavailableError

KEY_PARTS = re.compile("ABC123|DEF456|MNO345")


@pytest.fixture
def records(caplog):
    """Return the debug records so far, in one text, and forget them."""
    caplog.set_level(logging.DEBUG, "licclient")

    def take():
        text = "\n".join(record.getMessage() for record in caplog.records if record.name == "licclient")
        caplog.clear()
        assert not KEY_PARTS.search(text)
        return text

    return take


@both
async def test_a_request_its_retries_and_its_reason(
    make_client, service, key, records, http_answer, monkeypatch
):
    """Method and path, status or problem, time, each repetition; then what it means, and for whom to look."""
    monkeypatch.setattr("licclient._core.pace.RETRY_SECONDS", 0.01)
    client = make_client()
    answers = [http_answer(503), http_answer(503), http_answer(500, b"", X_Request_ID="r-1")]
    service.script = lambda _: answers.pop(0)
    with pytest.raises(ServiceUnavailableError):
        await client.verify(key)
    text = records()
    assert len(re.findall(r"^POST /api/v1/licenses/verify, after \d+ ms: 503$", text, re.MULTILINE)) == 2
    assert len(re.findall(r"^POST /api/v1/licenses/verify is repeated in 0\.\d s$", text, re.MULTILINE)) == 2
    assert re.search(
        r"Verify: ServiceUnavailableError outage=unusable http_status=500 request_id=r-1: ", text
    )
    service.script = lambda _: http_answer(
        403, {"valid": False, "reason": f"License {key} has been revoked."}
    )
    with pytest.raises(LicenseRefusedError):
        await client.verify(key)
    assert "Verify: LicenseRefusedError reason=" in records()


@both
async def test_answers_without_a_request(make_client, service, key, records, clock):
    """From the cache, from the grace period, and a failure of less than a minute ago."""
    service.grants()
    client = make_client()
    await client.activate(key)
    assert "Verify: licensed" in records()
    await client.verify()
    await client.require()
    assert records().count("The license holds by the cache: confirmed 2026-11-21 12:00:00+00:00.") == 2
    service.goes_down()
    clock.move(hours=25)
    assert (await client.verify()).source is Source.GRACE
    assert "The license holds without an answer (grace): confirmed 2026" in records()
    clock.move(days=9)
    for _ in range(2):
        with pytest.raises(ServiceUnavailableError):
            await client.require()
    assert "The server was asked less than a minute ago: ServiceUnavailableError outage=unusable" in records()


@both
async def test_update_checks_and_downloads(make_client, store, key, records, tmp_path, monkeypatch):
    """What a check came to, and how a download went on; no address is in it."""
    monkeypatch.setattr("licclient._core.pace.RETRY_SECONDS", 0.01)
    client = make_client()
    store.cuts = [100_000]
    update = (await client.check_for_update(key)).update
    text = records()
    assert re.search(r"^GET /api/v1/update-check, after \d+ ms: 200$", text, re.MULTILINE)
    assert f"Update check: Version {update.version} is available." in text
    await client.download(update, tmp_path / "downloads", key=key)
    text = records()
    assert "Download: 200, with 0 bytes here already" in text
    assert "Download: broke off: ServiceUnavailableError" in text
    assert re.search(r"Download: 206, with \d{4,} bytes here already", text)
    assert "sig" not in text.lower()


async def test_a_worker_logs_when_it_goes_on(license_service, records, eventually):
    """Once for each new plan, and not at each look."""
    client = license_service.client(product="Notes", slug="notes", version="1.0")
    license_service.issue("Notes", activated=True)
    seen = []
    with client.start(on_status=seen.append):
        await eventually(lambda: client.status().next_check_at is not None)
        await eventually(lambda: license_service.count("update-check"))
    planned = re.findall(r"^Next verify: (.*); next update check: (.*)\.$", records(), re.MULTILINE)
    assert planned
    assert all(before != after for before, after in pairwise(planned))
    assert planned[-1][0].startswith("2030-01-16")


async def test_what_keeps_a_refresh_from_being_made_is_logged(license_service, records, monkeypatch):
    """It is no answer, and nobody waits for one: without a record it would be lost."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    assert Refresh(refuse).wait(10) is None
    license_service.issue("Notes", activated=True)
    client = license_service.async_client()
    await client.require()
    with monkeypatch.context() as patch:
        patch.setattr("licclient._core.network.start_thread", refuse)
        await client._verify_quietly()
    record = """The license was not refreshed in the background: RuntimeError("can't start new thread")"""
    assert records().count(record) == 2


def test_a_start_loads_no_logging():
    """Until it is loaded nobody can want records: a start from the cache does without."""
    program = (
        "import sys, licclient._core.log as log; before = 'logging' in sys.modules; log.debug('%s', 1);"
        "print(before, 'logging' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
