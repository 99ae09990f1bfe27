"""What is on its way when the client is closed, or the key forgotten: no outage, and nothing comes back."""

import asyncio
import threading

import pytest
from stage.flavours import both

from licclient import LicclientError, LicenseClient, LicenseState, Source


@pytest.fixture
def slow(service, http_answer):
    """Let the service answer every verify with a success, once the event is set."""
    service.grants()
    say, go_on = service.script, threading.Event()

    def script(request):
        go_on.wait(20)
        return say(request)

    yield lambda: setattr(service, "script", script) or go_on
    go_on.set()


def _close_within(monkeypatch, seconds):
    for module in ("_client", "_async_client"):
        monkeypatch.setattr(f"licclient.{module}.CLOSE_SECONDS", seconds)


@both
async def test_a_refresh_behind_that_is_cut_off_is_no_outage(
    make_client, service, slow, clock, key, eventually, monkeypatch
):
    """The settings page shows what it showed before (D-119)."""
    _close_within(monkeypatch, 0.05)
    await make_client().activate(key)
    clock.move(hours=25)
    go_on, before = slow(), service.count()
    client = make_client()
    assert (await client.require()).source is Source.GRACE
    await eventually(lambda: service.count() == before + 1)
    await client.close()
    go_on.set()
    await eventually(lambda: "licclient-refresh" not in [thread.name for thread in threading.enumerate()])
    status = await make_client().status()
    assert (status.state, status.source, status.message) == (LicenseState.VALID, Source.GRACE, None)


@both
async def test_a_refresh_behind_that_is_soon_done_is_waited_for(
    make_client, service, clock, key, monkeypatch
):
    """`with client: client.require()` is enough to keep a license fresh."""
    _close_within(monkeypatch, 8)  # a busy machine
    service.grants()
    await make_client().activate(key)
    clock.move(hours=25)
    client = make_client()
    assert (await client.require()).source is Source.GRACE
    await client.close()
    assert (await make_client().status()).source is Source.CACHE


@both
async def test_a_call_that_is_cut_off_answers_nobody_else(
    flavour, make_client, service, slow, clock, key, eventually
):
    """Its caller gets an error at once; those who waited for its result make their own calls."""
    await make_client().activate(key)
    clock.move(hours=97)
    go_on, before = slow(), service.count()
    closed, other = make_client(timeout=60), make_client(timeout=60)

    def ask(client):
        if flavour is LicenseClient:
            return asyncio.to_thread(client.client.verify)
        return client.client.verify()

    cut = asyncio.ensure_future(ask(closed))
    await eventually(lambda: service.count() == before + 1)
    waiting = asyncio.ensure_future(ask(other))
    await asyncio.sleep(0)
    await closed.close()
    with pytest.raises(LicclientError, match="closed"):
        await asyncio.wait_for(cut, 20)  # the service does not answer
    go_on.set()
    assert (await waiting).source is Source.SERVER


async def test_a_key_that_is_forgotten_meanwhile_leaves_nothing(
    make_client, service, slow, clock, key, eventually, tmp_path
):
    """A verify on its way does not bring the license back that `forget_key` forgot."""
    await make_client().activate(key)
    answer = service.script
    state = tmp_path / "state"

    def script(request):
        LicenseClient(service.url, storage=state, slug="notes", version="1.0").forget_key()
        return answer(request)

    service.script = script
    await make_client().verify(force=True)
    left = [path.name for path in state.glob("*.state") if path.name.startswith(("license", "call", "activ"))]
    assert left == []
    assert (await make_client().status()).state is LicenseState.NOT_ACTIVATED
