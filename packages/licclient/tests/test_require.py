"""What `require` is handed, and what it does when the disk alone does not settle it (D-59, D-117, D-119)."""

import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from stage.flavours import both

from licclient import LicenseRefusedError, NotActivatedError, Reason, ServiceUnavailableError, Source

# --- a slip must not open a feature -----------------------------------------------------------


async def test_a_key_opens_nothing(client, service, key):
    """`require(key)` reads like `verify(key)`: it says so, without the key, and hands out nothing truthy."""
    with pytest.raises(TypeError, match="takes no key") as caught:
        client.client.licensed(key)
    assert key not in str(caught.value)
    for slip in (7, b"CP", [print], {}):
        with pytest.raises(TypeError, match="decorates functions"):
            client.client.licensed(slip)
        with pytest.raises(TypeError, match="decorates functions"):
            client.client.licensed(slip, otherwise=print)
        with pytest.raises(TypeError, match="decorates functions"):
            client.client.licensed(otherwise=print)(slip)
    assert service.requests == []


async def test_a_class_is_not_gated(client):
    """It would become a function: no `isinstance`, no subclass."""
    with pytest.raises(TypeError, match="methods"):

        @client.client.licensed
        class Exporter:
            pass


async def test_what_cannot_be_called_stands_in_for_nothing(client):
    """It is said where the feature is defined, not when a customer clicks."""
    for slip in ("no", False, 0):
        with pytest.raises(TypeError, match="otherwise"):
            client.client.licensed(otherwise=slip)


async def test_the_function_runs_after_a_dialog_that_brought_a_license(client, service, key):
    """`otherwise` may return the license that it obtained; anything else is returned instead."""

    @client.client.licensed()
    async def plain():
        return "ran"

    with pytest.raises(NotActivatedError) as caught:
        await plain()
    assert caught.value.message == str(caught.value)
    service.grants()
    for obtained, result in ((None, None), (await client.verify(key), "ran")):
        decorate = client.client.licensed(otherwise=lambda problem, obtained=obtained: obtained)

        @decorate
        async def export():
            return "ran"

        assert await export() == result


# --- after a refusal --------------------------------------------------------------------------


async def test_clicks_after_a_refusal_do_not_become_calls(make_client, service, clock, key):
    """For a minute the answer is the one that was given; who presses "check again" asks at once."""
    service.grants()
    client = make_client()
    await client.activate(key)
    service.refuses(403, "License has been revoked.")
    clock.move(hours=97)
    before = service.count()
    for _ in range(20):
        for asked in (client, make_client()):
            with pytest.raises(LicenseRefusedError) as caught:
                await asked.require()
            assert caught.value.reason is Reason.REVOKED
    assert service.count() == before + 1
    clock.move(seconds=61)
    with pytest.raises(LicenseRefusedError):
        await client.require()
    assert service.count() == before + 2
    service.grants()
    await client.verify(force=True)
    assert (await client.require()).source is Source.CACHE


async def test_an_outage_is_no_refusal(client, service, clock, key):
    """Who comes back within the minute is heard."""
    service.grants()
    await client.activate(key)
    clock.move(hours=97)
    service.says(500)
    with pytest.raises(ServiceUnavailableError):
        await client.require()
    service.grants()
    assert (await client.require()).source is Source.SERVER


# --- programs that end at once ----------------------------------------------------------------

PROGRAM = """
import asyncio, sys
from datetime import datetime, timedelta
from licclient import AsyncLicenseClient, LicclientError, LicenseClient, _key_steps
_key_steps.WAIT_BEHIND = timedelta(seconds=15)  # a busy machine takes two to load httpx
flavour, server, folder, now = sys.argv[1:]
options = {"state_dir": folder, "clock": lambda: datetime.fromisoformat(now), "slug": "notes"}

async def main():
    return (await AsyncLicenseClient(server, **options).require()).source

try:
    if flavour == "AsyncLicenseClient":
        print(asyncio.run(main()))
    else:
        print(LicenseClient(server, **options).require().source)
except LicclientError as problem:
    print(type(problem).__name__)
"""


@both
async def test_programs_that_end_at_once_learn_of_a_refusal(
    flavour, make_client, service, clock, key, tmp_path, http_answer
):
    """The first is answered from the disk and cuts its refresh off; the next one waits for its own."""
    service.grants()
    await make_client().activate(key)
    refusal = http_answer(403, {"valid": False, "reason": "License has been revoked."})
    first_has_ended = threading.Event()

    def script(_request):
        first_has_ended.wait(20)
        return refusal

    service.script = script
    clock.move(hours=25)

    def run():
        told = [flavour.__name__, service.url, str(tmp_path / "state"), clock.now.isoformat()]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *told], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert run() == "grace"
    first_has_ended.set()
    clock.move(hours=1)
    assert run() == "LicenseRefusedError"


@both
async def test_a_refresh_that_ends_leaves_no_wait_behind(make_client, service, clock, key, eventually):
    """Answered or not, with a keyring that gives nothing or without: the next start does not wait."""
    service.grants()
    await make_client().activate(key)
    clock.move(hours=25)
    service.says(500)
    client = make_client()
    assert (await client.require()).source is Source.GRACE

    async def ended():
        return "begun" not in (
            client.client._context.storage.load(client.client._steps._call_of_activation()) or {}
        )

    await eventually(ended)
    clock.move(minutes=2)
    assert make_client().client._steps.begin_refresh() == 0


async def test_the_longer_the_more_were_cut_off(make_client, service, clock, key):
    """Two seconds for each, and never longer than a call may take."""
    service.grants()
    await make_client().activate(key)
    waits = []
    for _ in range(12):
        clock.move(minutes=1)
        waits.append(make_client(timeout=10).client._steps.begin_refresh())
    assert waits[:4] == [0, 2, 4, 6]
    assert waits[-1] == 15


@both
async def test_a_wait_that_is_over_leaves_the_answer_from_the_disk(
    make_client, service, clock, key, monkeypatch
):
    """A service that does not answer holds a start up for two seconds, not for a call's whole time."""
    monkeypatch.setattr("licclient._key_steps.WAIT_BEHIND", timedelta(milliseconds=50))
    service.grants()
    await make_client().activate(key)
    clock.move(hours=25)
    hang = threading.Event()

    def script(_request):
        hang.wait(20)
        return b""

    service.script = script
    make_client().client._steps.begin_refresh()
    clock.move(minutes=1)
    client = make_client()
    assert (await client.require()).source is Source.GRACE
    assert not hang.is_set()
    hang.set()
