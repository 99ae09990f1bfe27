"""Where the key is that a person entered: in a keyring, or in a private file (D-57)."""

import asyncio
import os
import stat
import subprocess
import sys
import threading
from time import monotonic

import pytest
from stage.keyrings import Broken, Chain, Forgetful, Keyring
from stage.signing import SIGNER, grants_signed

from licclient import AsyncLicenseClient, LicenseClient, LicenseState, Source, Trust
from licclient import _worker as background
from licclient._core import activations as keyring_room
from licclient.errors import NotActivatedError, ServiceUnavailableError


def _files(folder):
    return {path.name.partition("-")[0]: path for path in folder.iterdir()}


async def test_without_a_keyring_the_key_is_in_a_private_file(client, service, key, tmp_path):
    """Readable for the user alone."""
    service.grants()
    await client.activate(key)
    path = _files(tmp_path / "state")["activation"]
    assert key in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 or os.name == "nt"


async def test_a_keyring_that_works_holds_the_key_and_is_left_asleep(
    make_client, service, clock, key, tmp_path, use_keyring
):
    """The key is on no disk, and a start that is answered from the cache does not wake the keyring."""
    backend = use_keyring(Keyring())
    service.grants()
    await make_client().activate(key)
    assert backend.licenses == [key]
    assert not any(key.encode() in path.read_bytes() for path in (tmp_path / "state").iterdir())
    backend.woken = 0
    assert (await make_client().verify()).source is Source.CACHE
    assert backend.woken == 0
    clock.move(days=2)
    client = make_client()
    assert (await client.verify()).source is Source.SERVER
    assert (await client.verify(force=True)).source is Source.SERVER
    assert backend.woken == 1
    await client.forget_key()
    assert backend.licenses == []


@pytest.mark.parametrize("backend", [Broken, Forgetful])
async def test_a_keyring_that_does_not_work_is_no_obstacle(client, service, key, use_keyring, backend):
    """The private file is used in its place, without a warning."""
    use_keyring(backend())
    service.grants()
    await client.activate(key)
    assert (await client.verify(force=True)).source is Source.SERVER


@pytest.mark.parametrize(("module", "is_used"), [("stage.keyrings", True), ("keyrings.alt.file", False)])
async def test_a_chain_of_keyrings_is_as_good_as_its_first(
    client, service, key, use_keyring, monkeypatch, tmp_path, module, is_used
):
    """Where there are several, they are put into a chain: also plain-text files, where nothing is better."""
    first = Keyring()
    monkeypatch.setattr(Keyring, "__module__", module)
    use_keyring(Chain(first, Keyring()))
    service.grants()
    await client.activate(key)
    assert bool(first.licenses) is is_used
    [record] = (tmp_path / "state").glob("activation-*.state")
    assert (key in record.read_text()) is not is_used


async def test_a_keyring_that_hangs_is_not_waited_for(client, service, key, use_keyring, monkeypatch):
    """One that asks a person who is not there, or a service that does not answer, does not stop the app."""
    monkeypatch.setattr(keyring_room, "KEYRING_SECONDS", 0.05)
    hanging, answered = use_keyring(Keyring()), threading.Event()
    hanging.set_password = lambda *_: answered.wait(20)
    service.grants()
    await client.activate(key)
    assert (await client.verify(force=True)).source is Source.SERVER
    answered.set()


@pytest.mark.parametrize("kind", [AsyncLicenseClient, LicenseClient])
def test_a_keyring_that_hangs_does_not_hold_the_end_of_a_loop(
    service, clock, key, tmp_path, use_keyring, eventually, kind
):
    """A window that is closed while the app asks is gone at once."""
    backend, options = use_keyring(Keyring()), {"storage": tmp_path, "clock": clock}
    service.grants()
    LicenseClient(service.url, **options).activate(key)
    clock.move(days=5)

    async def use():
        answered, woken = backend.stand_open(), backend.woken

        @kind(service.url, **options).licensed
        async def export():
            return None

        asking = asyncio.create_task(export())
        await eventually(lambda: backend.woken > woken)
        return answered, asking, monotonic()

    answered, asking, ended = asyncio.run(use())
    assert monotonic() < ended + 7  # a keyring is waited for ten seconds
    assert asking.cancelled()
    answered.set()


@pytest.mark.parametrize(
    "method",
    ["forget_key", "deactivate", "verify", "require", "check_for_update", "close"],
)
def test_no_method_holds_the_end_of_a_loop(service, clock, key, tmp_path, use_keyring, eventually, method):
    """Whatever waits for a keyring that hangs does so where neither loop nor program waits for it."""
    backend = use_keyring(Keyring())
    options = {"storage": tmp_path, "clock": clock, "slug": "notes", "version": "1.0"}
    service.grants()
    LicenseClient(service.url, **options).activate(key)
    clock.move(days=5)
    backend.delete_password = backend.get_password

    async def use():
        answered, woken = backend.stand_open(), backend.woken
        client = AsyncLicenseClient(service.url, **options)
        if method == "close":
            client.start()
        else:
            asyncio.create_task(getattr(client, method)())  # noqa: RUF006 - left to the end of the loop
        await eventually(lambda: backend.woken > woken)
        if method == "close":
            await client.aclose()
        return answered, monotonic()

    answered, ended = asyncio.run(use())
    assert monotonic() < ended + 7  # a keyring is waited for ten seconds
    answered.set()


async def test_a_keyring_that_lost_the_key(make_client, service, clock, key, use_keyring):
    """What is remembered goes on through cache and grace; then there is no answer, rather than a refusal."""
    backend = use_keyring(Keyring())
    service.grants()
    await make_client().activate(key)
    backend.kept.clear()
    clock.move(hours=25)
    assert (await make_client().verify()).source is Source.GRACE
    assert not await make_client().check_for_update()
    clock.move(hours=72)
    with pytest.raises(ServiceUnavailableError, match="keyring"):
        await make_client().verify()


@pytest.mark.slow
def test_an_app_without_the_extra_works(service, tmp_path, key):
    """Where keyring cannot be imported, the file is used, and nothing is loaded for it."""
    service.grants()
    code = (
        "import sys; sys.modules['keyring'] = None\n"
        "import licclient\n"
        f"client = licclient.LicenseClient({service.url!r}, storage={str(tmp_path)!r})\n"
        "client.activate(sys.argv[1]); print(client.verify(force=True).source)"
    )
    done = subprocess.run([sys.executable, "-c", code, key], capture_output=True, text=True, check=True)
    assert done.stdout == "server\n"


async def test_a_pinned_app_asks_the_keyring_for_what_was_signed(
    make_client, service, http_answer, clock, key, use_keyring
):
    """The key is part of what the signature covers; a keyring that does not give it leaves no license."""
    backend = use_keyring(Keyring())
    grants_signed(service, http_answer, clock)
    await make_client(trust=Trust(public_keys=[SIGNER.text])).activate(key)
    calls = service.count()
    found = await make_client(trust=Trust(public_keys=[SIGNER.text])).verify()
    assert (found.source, found.is_authenticated, service.count()) == (Source.CACHE, True, calls)
    assert (await make_client(trust=Trust(public_keys=[SIGNER.text])).status()).product == "Notes"
    kept, backend.kept = backend.kept, {}
    client = make_client(trust=Trust(public_keys=[SIGNER.text]))
    with pytest.raises(ServiceUnavailableError, match="keyring"):
        await client.verify()
    backend.kept = kept  # unlocked
    assert (await make_client(trust=Trust(public_keys=[SIGNER.text])).verify()).source is Source.CACHE


# --- a keyring is asked sparingly (D-118) -----------------------------------------------------


@pytest.fixture
def seconds(monkeypatch):
    """The seconds that the keyring room counts; a test moves them."""
    passed = [0.0]
    monkeypatch.setattr(keyring_room, "monotonic", lambda: passed[0])
    return passed


@pytest.fixture
async def locked(make_client, service, key, use_keyring):
    """An activated key in a keyring that is locked now: it counts how often somebody is bothered with it."""
    backend = use_keyring(Keyring())
    service.offers()
    await make_client().check_for_update(key)
    service.grants()
    await make_client().activate(key)
    await make_client().check_for_update()
    backend.lock()
    backend.woken = 0
    return backend


async def test_what_needs_no_key_leaves_the_keyring_asleep(make_client, service, locked):
    """A start from the cache: the license, the settings page, the offer that is known, the worker's plan."""
    calls, client = service.count(), make_client()
    assert (await client.require()).source is Source.CACHE
    assert (await client.check_for_update()).update.version == "2.0"
    status = await client.status()
    assert (status.state, status.update.version) == (LicenseState.VALID, "2.0")
    context = client.client._session
    now = context.now()
    assert None not in background.plan(context, background._Times(now, now), now)
    assert (locked.woken, service.count()) == (0, calls)


async def test_an_offer_without_its_key_is_downloaded_when_the_keyring_is_open(
    make_client, service, store, locked, folder
):
    """The key is fetched when the download needs it, and not before."""
    client = make_client()
    update = (await client.check_for_update()).update
    service.script = store.reply
    with pytest.raises(ServiceUnavailableError, match="keyring"):
        await client.download(update, folder)
    locked.unlock()
    done = await make_client().download(update, folder)
    assert done.path.read_bytes() == store.content
    await client.forget_key()
    with pytest.raises(NotActivatedError):
        await client.download(update, folder)


async def test_a_locked_keyring_is_not_asked_again_and_again(make_client, clock, locked, seconds):
    """One window; the next after five minutes, then ten; at once when a person wants to know."""
    client = make_client()
    clock.move(hours=97)

    async def ask(**how: bool):
        with pytest.raises(ServiceUnavailableError, match="keyring"):
            await client.verify(**how)
        assert not await client.check_for_update()
        assert (await client.status()).state is LicenseState.UNCONFIRMED
        return locked.woken

    assert [await ask(), await ask()] == [1, 1]
    seconds[0] += 299
    assert await ask() == 1
    seconds[0] += 2
    assert [await ask(), await ask()] == [2, 2]
    seconds[0] += 301
    assert await ask() == 2
    seconds[0] += 300
    assert await ask() == 3
    assert await ask(force=True) == 4
    assert not await client.check_for_update(force=True)
    assert locked.woken == 5
    locked.unlock()
    assert (await client.verify(force=True)).source is Source.SERVER


async def test_a_keyring_that_asks_a_person_is_asked_once_at_a_time(
    make_client, clock, locked, eventually, monkeypatch
):
    """Who comes while a window stands open waits no longer than the first; its answer counts late, too."""
    monkeypatch.setattr(keyring_room, "KEYRING_SECONDS", 0.3)
    clock.move(hours=97)
    client, opened = make_client(), locked.stand_open()
    for _ in range(4):
        with pytest.raises(ServiceUnavailableError, match="keyring"):
            await client.verify()
    before = monotonic()
    for _ in range(100):
        await client.status()
    assert monotonic() - before < 15, "nobody waits for it any more"
    assert locked.woken == 1
    locked.unlock()
    opened.set()

    async def licensed():
        try:
            return (await client.verify()).source is Source.SERVER
        except ServiceUnavailableError:
            return False

    await eventually(licensed)
    assert locked.woken == 1


@pytest.mark.slow
async def test_a_settings_page_does_not_wait_for_a_person(
    make_client, service, http_answer, clock, key, use_keyring, monkeypatch
):
    """Of a pinned app, whose key is part of what was signed: it asks once, and shows what it can."""
    monkeypatch.setattr(keyring_room, "QUICK_SECONDS", 0.05)
    backend = use_keyring(Keyring())
    grants_signed(service, http_answer, clock)
    await make_client(trust=Trust(public_keys=[SIGNER.text])).activate(key)
    opened = backend.stand_open()
    backend.woken = 0
    client = make_client(trust=Trust(public_keys=[SIGNER.text]))
    before = monotonic()
    assert [(await client.status()).state for _ in range(3)] == [LicenseState.UNCONFIRMED] * 3
    assert monotonic() - before < keyring_room.KEYRING_SECONDS * 0.8
    opened.set()
    assert (await client.verify()).source is Source.CACHE
    assert (await client.status()).state is LicenseState.VALID
    assert backend.woken == 1
