"""Pinned release keys: whatever a server does, only what was signed is offered and gets its name."""

import logging
import os
import stat
from dataclasses import replace

import pytest
from stage.releases import ALICE, BOB, CONTENT, EVE, SignedStore, document, named, word

from licclient import ServiceUnavailable, UntrustedAnswer, Update


@pytest.fixture
def store(service, http_answer):
    """A store that sells Notes 2.0, signed by Alice."""
    return SignedStore(service, http_answer)


@pytest.fixture
def pinned(make_client):
    """A client that pins Alice's key."""
    return make_client(release_keys=[ALICE.pin])


# --- what is signed -----------------------------------------------------------------------------


async def test_what_was_signed_is_offered_and_downloaded(pinned, store, folder, key):
    """The update says that it is authenticated and how long it is; the file is as readable as its folder."""
    update = await pinned.check_for_update(key)
    assert (update.version, update.authenticated, update.size) == ("2.0", True, len(CONTENT))
    folder.mkdir(mode=0o755)
    path = (await pinned.download(update, folder)).path
    assert path.read_bytes() == CONTENT
    assert named(folder) == ["notes.zip"]
    assert os.name == "nt" or stat.S_IMODE(path.stat().st_mode) == 0o644


async def test_without_pins_nothing_is_demanded_and_nothing_claimed(client, store, key):
    """An app that pins nothing works as ever, and is not told that anything was checked."""
    store.header = "rubbish"
    update = await client.check_for_update(key)
    assert (update.version, update.authenticated, update.size) == ("2.0", False, None)


async def test_no_length_and_no_digest_are_needed_from_the_server(pinned, store, folder, key):
    """The manifest alone says how long the file is, and which."""
    store.digest, store.length = None, -1
    assert (await pinned.download(await pinned.check_for_update(key), folder)).path.read_bytes() == CONTENT


async def test_a_part_is_private_until_it_is_verified(pinned, store, folder, key):
    """While it comes, nobody else can write into it; afterwards it has one name."""
    store.cuts = [20_000, 0, 0, 0]
    with pytest.raises(ServiceUnavailable):
        await pinned.download(await pinned.check_for_update(key), folder)
    [part] = folder.glob(".*.part")
    assert os.name == "nt" or stat.S_IMODE(part.stat().st_mode) == 0o600
    assert named(folder) == []
    path = (await pinned.download(await pinned.check_for_update(key, force=True), folder)).path
    assert path.read_bytes() == CONTENT
    assert store.service.requests[-1].headers["range"] == "bytes=20000-"


# --- nothing is offered -------------------------------------------------------------------------

UNTRUSTED = {
    "no manifest": "",
    "rubbish": "rubbish",
    "another key": word(document(EVE)),
    "another version than told": word(document(version="1.9")),
    "expired": word(document(expires_at="2026-11-21T12:00:00Z")),
}
"""One of each kind; every clause of a manifest is broken alone in `test_manifest`."""


@pytest.mark.parametrize("header", UNTRUSTED.values(), ids=UNTRUSTED)
async def test_what_is_not_vouched_for_is_neither_offered_nor_downloaded(
    make_client, store, folder, key, header, caplog
):
    """The app gets no update and the log the reason, without the key; nor is a fresh link believed."""
    pinned, other = (make_client(release_keys=[ALICE.pin], state_dir=folder / name) for name in "ab")
    update = replace(await other.check_for_update(key), download_url=None)
    store.header = header
    with caplog.at_level(logging.WARNING, "licclient"):
        assert await pinned.check_for_update(key) is None
    assert "No update is offered: " in caplog.text
    assert key not in caplog.text
    assert await pinned.check_for_update(key) is None  # nothing of it is remembered either
    with pytest.raises(UntrustedAnswer):
        await other.download(update, folder / "to")
    assert named(folder / "to") == []


async def test_no_version_below_the_highest_that_was_signed(make_client, pinned, store, key):
    """Rollback: an old version that was signed once is not offered again, whatever key, restart or pin."""
    await pinned.check_for_update(key)
    store.version, store.header = "1.5", word(document(version="1.5"))
    assert await pinned.check_for_update(key, force=True) is None
    again = make_client(release_keys=[ALICE.pin, BOB.pin])
    assert await again.check_for_update(key[:-1] + "9") is None
    store.version, store.header = "2.1", word(document(version="2.1"))
    assert (await again.check_for_update(key, force=True)).version == "2.1"
    store.version, store.header = "2.0", word(document())
    assert await pinned.check_for_update(key, force=True) is None


async def test_a_remembered_offer_ends_with_its_manifest(pinned, store, clock, key):
    """Freeze: what was signed for a time is offered for that time, also from memory; renewed, it is again."""
    store.header = word(document(expires_at="2026-11-21T13:00:00Z"))
    update = await pinned.check_for_update(key)
    clock.move(minutes=59)
    assert (await pinned.check_for_update(key)).authenticated
    clock.move(minutes=1)
    assert await pinned.check_for_update(key) is None
    store.header = word(document())
    again = await pinned.check_for_update(key, force=True)
    assert again == update


async def test_an_edited_memory_offers_nothing(make_client, pinned, store, key, tmp_path):
    """Who edits the remembered offer, and redoes its sum, still cannot sign."""
    from licclient._records import seal, unseal  # noqa: PLC0415 - only here

    await pinned.check_for_update(key)
    [path] = (tmp_path / "state").glob("update-*.state")
    held = unseal(path.stem, path.read_bytes())
    for changed in ({"version": "9.9"}, {"manifest": None}, {"manifest": word(document(EVE))}):
        path.write_bytes(seal(path.stem, {**held, "listing": held["listing"] | changed}))
        assert await make_client(release_keys=[ALICE.pin]).check_for_update(key) is None


async def test_a_client_without_pins_cannot_pass_its_offer_on(client, pinned, store, folder, key):
    """An update that was never checked is checked before it is downloaded."""
    store.header = ""
    update = await client.check_for_update(key)
    with pytest.raises(UntrustedAnswer):
        await pinned.download(update, folder)
    assert isinstance(update, Update)
    assert named(folder) == []


# --- the pure room ------------------------------------------------------------------------------
