"""What `require` is handed, and what it does when the disk alone does not settle it (D-59, D-117, D-119)."""

import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta

import pytest
from stage.flavours import both
from stage.keyrings import Keyring

from licclient import Outage, Reason, Source
from licclient.errors import (
    InvalidRequestError,
    LicenseRefusedError,
    NotActivatedError,
    ServiceUnavailableError,
)

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
        for caller in (client, make_client()):
            with pytest.raises(LicenseRefusedError) as caught:
                await caller.require()
            assert caught.value.reason is Reason.REVOKED
    assert service.count() == before + 1
    clock.move(seconds=61)
    with pytest.raises(LicenseRefusedError):
        await client.require()
    assert service.count() == before + 2
    service.grants()
    await client.verify(force=True)
    assert (await client.require()).source is Source.CACHE


# --- after an outage --------------------------------------------------------------------------


@both
async def test_after_an_outage_nobody_waits_again_within_a_minute(make_client, service, clock, key):
    """Not in another client or process either; who presses "try again" asks at once, and so does verify."""
    service.grants()
    client = make_client()
    await client.activate(key)
    clock.move(hours=97)
    service.responds(503, b"", X_Request_Id="f00")
    before = service.count()
    with pytest.raises(ServiceUnavailableError) as first:
        await client.require()
    asked = service.count() - before
    for caller in (client, client, make_client()):
        with pytest.raises(ServiceUnavailableError) as again:
            await caller.require()
        error = again.value
        assert (error.outage, error.http_status, error.request_id) == (Outage.UNUSABLE, 503, "f00")
        assert error.message in first.value.message
    assert service.count() == before + asked
    clock.move(seconds=61)
    with pytest.raises(ServiceUnavailableError):
        await client.require()
    assert service.count() == before + 2 * asked
    service.grants()
    assert (await client.verify()).source is Source.SERVER
    assert (await client.require()).source is Source.CACHE


@both
async def test_what_leaves_no_record_is_not_asked_again_either(make_client, service, clock, key):
    """An answer that cannot be trusted, and a 422: nobody else's business, and no reason to wait twice."""
    service.grants()
    client = make_client()
    await client.activate(key)
    clock.move(hours=97)
    service.responds(422, {"message": "No.", "errors": {"ip": ["No."]}})
    before = service.count()
    for _ in range(3):
        with pytest.raises(InvalidRequestError):
            await client.require()
    assert service.count() == before + 1
    service.grants()
    await client.activate(key[:-1] + "9")
    assert (await client.require()).source is Source.CACHE


async def test_a_keyring_that_gives_nothing_is_not_waited_for_twice(
    make_client, service, clock, key, use_keyring
):
    """It leaves no record either."""
    ring = use_keyring(Keyring())
    service.grants()
    await make_client().activate(key)
    ring.lock()
    ring.woken = 0
    clock.move(hours=97)
    client = make_client()
    for _ in range(3):
        with pytest.raises(ServiceUnavailableError) as caught:
            await client.require()
        assert caught.value.outage is Outage.KEYRING
    assert (ring.woken, service.count()) == (1, 1)


# --- how long to wait -------------------------------------------------------------------------


@both
async def test_a_click_takes_what_is_known(make_client, service, clock, key, eventually):
    """Without waiting; the question is on its way, once for all clicks, and the next one has its answer."""
    service.grants()
    opened, script = threading.Event(), service.script
    client = make_client()
    await client.activate(key)
    clock.move(hours=97)
    before = service.count()
    service.script = lambda request: opened.wait(20) and script(request)
    for _ in range(5):
        began = time.monotonic()
        with pytest.raises(ServiceUnavailableError) as caught:
            await client.require(wait=0)
        assert time.monotonic() - began < 8  # the server is silent for longer
        assert caught.value.outage is Outage.PENDING
    await eventually(lambda: service.count() == before + 1)
    opened.set()

    async def has_license():
        with suppress(ServiceUnavailableError):
            return (await client.require(wait=timedelta(0))).source is Source.CACHE
        return False

    await eventually(has_license)
    assert service.count() == before + 1


@both
@pytest.mark.parametrize(("wait", "is_there"), [(30, True), (0.2, False)])
async def test_so_long_and_no_longer(make_client, service, clock, key, wait, is_there):
    """What comes in time is returned; what does not is raised within the time, and is not lost."""
    service.grants()
    script = service.script
    client = make_client()
    await client.activate(key)
    clock.move(hours=97)
    opened = threading.Event()
    service.script = lambda request: (opened.wait(0.1 if is_there else 20) and b"") or script(request)
    began = time.monotonic()
    if is_there:
        assert (await client.require(wait=wait)).source is Source.SERVER
    else:
        with pytest.raises(ServiceUnavailableError) as caught:
            await client.require(wait=wait)
        assert caught.value.outage is Outage.PENDING
        assert time.monotonic() - began < 8
        opened.set()
        assert (await client.require(wait=10)).source in (Source.SERVER, Source.CACHE)
    assert service.count() == 2


@both
async def test_an_answer_that_says_no_is_raised_in_time(make_client, service, clock, key):
    """The error of the server, not that nothing came."""
    service.grants()
    client = make_client()
    await client.activate(key)
    clock.move(hours=97)
    service.refuses(403, "License has been revoked.")
    with pytest.raises(LicenseRefusedError):
        await client.require(wait=10)


@both
@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), 4000, timedelta(days=-1)])
async def test_no_time_to_wait(make_client, wait):
    """It is an error where it is written."""
    client = make_client()
    with pytest.raises(ValueError, match="wait must be"):
        await client.require(wait=wait)
    with pytest.raises(ValueError, match="wait must be"):
        client.client.licensed("export", wait=wait)
    with pytest.raises(TypeError, match="wait must be"):
        await client.require(wait="1")


async def test_closing_does_not_wait_for_a_question_that_hangs(make_client, service, clock, key):
    """Less than a second, as with everything in the background."""
    service.grants()
    client = make_client()
    await client.activate(key)
    clock.move(hours=97)
    hang = threading.Event()
    service.script = lambda _: hang.wait(20) and b""
    with pytest.raises(ServiceUnavailableError):
        await client.require(wait=0)
    began = time.monotonic()
    await client.close()
    assert time.monotonic() - began < 8
    hang.set()


async def test_a_gated_function_can_choose(make_client, service, clock, key):
    """For windows of another toolkit than Tk and Qt."""
    service.grants()
    client = make_client()
    await client.activate(key)
    clock.move(hours=97)
    service.script = lambda _: time.sleep(3) or b""
    problems = []
    export = client.client.licensed(otherwise=problems.append, wait=0)(lambda: "exported")
    assert export() is None
    assert [problem.outage for problem in problems] == [Outage.PENDING]


# --- programs that end at once ----------------------------------------------------------------

PROGRAM = """
import sys
from datetime import datetime
from licclient import LicclientError, LicenseClient, _worker
_worker.STOP_SECONDS = 15  # a busy machine takes two to load httpx
server, folder, now = sys.argv[1:]
try:
    clock = lambda: datetime.fromisoformat(now)
    print(LicenseClient(server, storage=folder, clock=clock, slug="notes").require().source)
except LicclientError as problem:
    print(type(problem).__name__)
"""


@pytest.mark.slow
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
        assert time.monotonic() - began < 8
    hang.set()
