"""What `require` is handed, and what it does when the disk alone does not settle it (D-59, D-117, D-119)."""

import subprocess
import sys
import threading
import time

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
    """The error is raised where the feature is defined, not when a customer clicks."""
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
        for one in (client, make_client()):
            with pytest.raises(LicenseRefusedError) as caught:
                await one.require()
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
    """A second call within the minute sends a request."""
    service.grants()
    await client.activate(key)
    clock.move(hours=97)
    service.responds(500)
    with pytest.raises(ServiceUnavailableError):
        await client.require()
    service.grants()
    assert (await client.require()).source is Source.SERVER


# --- programs that end at once ----------------------------------------------------------------

PROGRAM = """
import sys
from datetime import datetime
from licclient import LicclientError, LicenseClient, _worker
_worker.STOP_SECONDS = 15  # a busy machine takes two to load httpx
server, folder, now = sys.argv[1:]
try:
    clock = lambda: datetime.fromisoformat(now)
    print(LicenseClient(server, state_dir=folder, clock=clock, slug="notes").require().source)
except LicclientError as problem:
    print(type(problem).__name__)
"""


async def test_programs_that_end_at_once_learn_of_a_refusal(make_client, service, clock, key, tmp_path):
    """The first is answered from the disk and ends after its refresh; the next one is refused."""
    service.grants()
    await make_client().activate(key)
    service.refuses(403, "License has been revoked.")
    clock.move(hours=25)

    def run():
        arguments = [service.url, str(tmp_path / "state"), clock.now.isoformat()]
        command = [sys.executable, "-c", PROGRAM, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert [run(), run()] == ["grace", "LicenseRefusedError"]


@both
async def test_a_service_that_does_not_answer_holds_up_no_click(make_client, service, clock, key):
    """What holds is returned at once, also where refreshes before it were cut off."""
    service.grants()
    await make_client().activate(key)
    clock.move(hours=25)
    hang = threading.Event()
    service.script = lambda _: hang.wait(20) and b""
    for _ in range(3):
        began = time.monotonic()
        assert (await make_client().require()).source is Source.GRACE
        assert time.monotonic() - began < 1
    hang.set()
