"""Where the key is that a person entered: in a keyring, or in a private file (D-57)."""

import os
import stat
import subprocess
import sys

import pytest
from stage.keyrings import Broken, Forgetful, Keyring
from stage.signing import SIGNER, grants_signed

from licclient import ServiceUnavailable, Source
from licclient import _keyring as keyring_room


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
    assert list(backend.kept.values()) == [key]
    assert not any(key.encode() in path.read_bytes() for path in (tmp_path / "state").iterdir())
    backend.woken = 0
    assert (await make_client().verify()).source is Source.CACHE
    assert backend.woken == 0
    clock.move(days=2)
    client = make_client()
    assert (await client.verify()).source is Source.SERVER
    assert (await client.verify(recheck=True)).source is Source.SERVER
    assert backend.woken == 1
    await client.deactivate_locally()
    assert backend.kept == {}


@pytest.mark.parametrize("backend", [Broken, Forgetful])
async def test_a_keyring_that_does_not_work_is_no_obstacle(client, service, key, use_keyring, backend):
    """The private file stands in, and nothing is said about it."""
    use_keyring(backend())
    service.grants()
    await client.activate(key)
    assert (await client.verify(recheck=True)).source is Source.SERVER


async def test_a_keyring_that_hangs_is_not_waited_for(client, service, key, use_keyring, monkeypatch):
    """One that asks a person who is not there, or a service that does not answer, does not stop the app."""
    monkeypatch.setattr(keyring_room, "SECONDS", 0.05)
    hanging = use_keyring(Keyring())
    hanging.set_password = lambda *_: __import__("time").sleep(0.5)
    service.grants()
    await client.activate(key)
    assert (await client.verify(recheck=True)).source is Source.SERVER


async def test_a_keyring_that_lost_the_key(make_client, service, clock, key, use_keyring):
    """What is remembered goes on through cache and grace; then there is no answer, rather than a refusal."""
    backend = use_keyring(Keyring())
    service.grants()
    await make_client().activate(key)
    backend.kept.clear()
    clock.move(hours=25)
    assert (await make_client().verify()).source is Source.GRACE
    assert await make_client().check_for_update() is None
    clock.move(hours=72)
    with pytest.raises(ServiceUnavailable, match="keyring"):
        await make_client().verify()


def test_an_app_without_the_extra_works(service, tmp_path, key):
    """Where keyring cannot be imported, the file is used, and nothing is loaded for it."""
    service.grants()
    code = (
        "import sys; sys.modules['keyring'] = None\n"
        "import licclient\n"
        f"client = licclient.LicenseClient({service.url!r}, state_dir={str(tmp_path)!r})\n"
        "client.activate(sys.argv[1]); print(client.verify(recheck=True).source)"
    )
    done = subprocess.run([sys.executable, "-c", code, key], capture_output=True, text=True, check=True)
    assert done.stdout == "server\n"


async def test_a_pinned_app_asks_the_keyring_for_what_was_signed(
    make_client, service, http_answer, clock, key, use_keyring
):
    """The key is part of what the signature covers; a keyring that does not give it leaves no license."""
    backend = use_keyring(Keyring())
    grants_signed(service, http_answer, clock)
    await make_client(public_keys=[SIGNER.text]).activate(key)
    calls = service.count()
    found = await make_client(public_keys=[SIGNER.text]).verify()
    assert (found.source, found.authenticated, service.count()) == (Source.CACHE, True, calls)
    assert (await make_client(public_keys=[SIGNER.text]).status()).product == "Notes"
    kept, backend.kept = backend.kept, {}
    client = make_client(public_keys=[SIGNER.text])
    with pytest.raises(ServiceUnavailable, match="keyring"):
        await client.verify()
    backend.kept = kept  # unlocked
    assert (await client.verify()).source is Source.CACHE
