"""Pinned release keys: whatever a server does, only what was signed is offered and gets its name."""

import logging
import os
import stat
from dataclasses import replace
from hashlib import sha256

import pytest
from stage.releases import ALICE, BOB, CONTENT, EVE, OTHER, document, named, word
from stage.scripts import digest

from licclient import LicclientError, Trust, Update, Updates
from licclient._core.records import seal, unseal
from licclient.errors import UntrustedResponseError


@pytest.fixture
def store(store):
    """A store that sells Notes 2.0, signed by Alice."""
    store.content, store.digest, store.manifest = CONTENT, digest(CONTENT), word(document())
    return store


@pytest.fixture
def pinned(make_client):
    """A client that pins Alice's key."""
    return make_client(trust=Trust(release_keys=[ALICE.pin]))


# --- what is signed -----------------------------------------------------------------------------


async def test_what_was_signed_is_offered_and_downloaded(pinned, store, folder, key):
    """The update says that it is authenticated and how long it is; the file is as readable as its folder."""
    update = (await pinned.check_for_update(key)).update
    assert (update.version, update.is_authenticated, update.size) == ("2.0", True, len(CONTENT))
    folder.mkdir(mode=0o755)
    path = (await pinned.download(update, folder, key=key)).path
    assert path.read_bytes() == CONTENT
    assert named(folder) == ["notes-2.0.zip"]
    assert os.name == "nt" or stat.S_IMODE(path.stat().st_mode) == 0o644


async def test_without_pins_nothing_is_required_and_nothing_is_verified(client, store, key):
    """An app that pins nothing works as ever, and nothing is marked as checked."""
    store.manifest = "rubbish"
    update = (await client.check_for_update(key)).update
    assert (update.version, update.is_authenticated, update.size) == ("2.0", False, None)


async def test_no_length_and_no_digest_are_needed_from_the_server(pinned, store, fetch):
    """The manifest alone says how long the file is, and which: it is verified."""
    store.digest, store.length = "", -1
    done = await fetch(pinned)
    assert (done.path.read_bytes(), done.is_verified) == (CONTENT, True)


async def test_a_part_is_private_until_it_is_verified(pinned, store, folder, key, break_off, fetch):
    """While it comes, nobody else can write into it; afterwards it has one name."""
    _, part = await break_off(pinned, 20_000)
    assert os.name == "nt" or stat.S_IMODE(part.stat().st_mode) == 0o600
    assert named(folder) == []
    path = (await fetch(pinned, force=True)).path
    assert path.read_bytes() == CONTENT
    assert store.service.requests[-1].headers["range"] == "bytes=20000-"


# --- nothing is offered -------------------------------------------------------------------------

ON_LINUX = Updates(platform="linux-x86_64", kind="appimage")


@pytest.mark.parametrize(
    ("platform", "kind", "word_"),
    [("linux-arm64", "appimage", "for linux-arm64"), ("linux-x86_64", "nsis", "of the kind nsis")],
)
async def test_a_file_for_another_platform_or_kind_is_not_offered(
    make_client, store, folder, key, platform, kind, word_
):
    """The vendor has signed it, and the server, or a proxy, has answered with the wrong one (D-406)."""
    client = make_client(trust=Trust(release_keys=[ALICE.pin]), updates=ON_LINUX)
    store.manifest = word(document(platform=platform, kind=kind))
    check = await client.check_for_update(key)
    assert isinstance(check.error, UntrustedResponseError)
    assert word_ in check.error.message
    store.manifest = word(document(platform="linux-x86_64", kind="appimage"))
    update = (await client.check_for_update(key, force=True)).update
    assert (update.is_authenticated, update.kind) == (True, "appimage")
    swapped = replace(update, manifest=word(document(platform=platform, kind=kind)))
    assert (await client.download(swapped, folder, key=key)).path.read_bytes() == CONTENT  # by a fresh link
    store.manifest = word(document(platform=platform, kind=kind))
    with pytest.raises(UntrustedResponseError, match=word_):
        await client.download(swapped, folder / "other", key=key)


async def test_what_another_installation_has_remembered_is_shown(make_client, store, key):
    """It shares the state and is of another kind; a download asks for the own file (D-371)."""
    there, here = (
        make_client(
            trust=Trust(release_keys=[ALICE.pin]), updates=Updates(platform=platform, channels=["beta"])
        )
        for platform in ("windows-arm64", "windows-x86_64")
    )
    store.manifest = word(document(platform="windows-arm64", kind="folder"))
    assert await there.check_for_update(key)
    assert (await here.check_for_update(key)).update.version == "2.0"
    assert isinstance((await here.check_for_update(key, force=True)).error, UntrustedResponseError)


UNTRUSTED = {
    "no manifest": "",
    "rubbish": "rubbish",
    "another key": word(document(EVE)),
    "another version than offered": word(document(version="1.9")),
    "expired": word(document(expires_at="2026-11-21T12:00:00Z")),
}
"""One of each kind; every clause of a manifest is broken alone in `test_signed_releases`."""


@pytest.mark.parametrize("manifest", UNTRUSTED.values(), ids=UNTRUSTED)
async def test_what_is_not_vouched_for_is_neither_offered_nor_downloaded(
    make_client, store, folder, key, manifest, caplog
):
    """The app gets no update and the log the reason, without the key; nor is a fresh link believed."""
    pinned, other = (
        make_client(trust=Trust(release_keys=[ALICE.pin]), storage=folder / name) for name in "ab"
    )
    update = replace((await other.check_for_update(key)).update, download_url=None)
    store.manifest = manifest
    with caplog.at_level(logging.WARNING, "licclient"):
        assert not await pinned.check_for_update(key)
    assert "No update is offered: " in caplog.text
    assert key not in caplog.text
    assert not await pinned.check_for_update(key)  # nothing of it is remembered either
    with pytest.raises(UntrustedResponseError):
        await other.download(update, folder / "to", key=key)
    assert named(folder / "to") == []


async def test_no_version_below_the_highest_that_was_signed(make_client, pinned, store, key):
    """Rollback: an old version that was signed once is not offered again, whatever key, restart or pin."""
    await pinned.check_for_update(key)
    store.version, store.manifest = "1.5", word(document(version="1.5"))
    assert not await pinned.check_for_update(key, force=True)
    again = make_client(trust=Trust(release_keys=[ALICE.pin, BOB.pin]))
    assert not await again.check_for_update(key[:-1] + "9")
    store.version, store.manifest = "2.1", word(document(version="2.1"))
    assert (await again.check_for_update(key, force=True)).update.version == "2.1"
    store.version, store.manifest = "2.0", word(document())
    assert not await pinned.check_for_update(key, force=True)


async def test_a_version_that_was_signed_again_after_a_withdrawn_one_is_offered(pinned, store, key, fetch):
    """The vendor withdraws 2.1 and renews 2.0 (D-178); clients that have seen 2.1 take it."""
    store.version, store.manifest = "2.1", word(document(version="2.1"))
    await pinned.check_for_update(key)
    store.version, store.manifest = "2.0", word(document(published_at="2026-11-20T10:00:01Z"))
    assert (await pinned.check_for_update(key, force=True)).update.version == "2.0"
    assert (await fetch(pinned, force=True)).version == "2.0"


async def test_a_remembered_offer_ends_with_its_manifest(pinned, store, clock, key):
    """Freeze: what was signed for a time is offered for that time, also from memory; renewed, it is again."""
    store.manifest = word(document(expires_at="2026-11-21T13:00:00Z"))
    update = (await pinned.check_for_update(key)).update
    clock.move(minutes=59)
    assert (await pinned.check_for_update(key)).update.is_authenticated
    clock.move(minutes=1)
    assert not await pinned.check_for_update(key)
    store.manifest = word(document())
    again = (await pinned.check_for_update(key, force=True)).update
    assert again == update


async def test_an_edited_memory_offers_nothing(make_client, pinned, store, key, tmp_path):
    """Who edits the remembered offer, and redoes its sum, still cannot sign."""
    await pinned.check_for_update(key)
    [path] = (tmp_path / "state").glob("update-*.state")
    held = unseal(path.stem, path.read_bytes())
    for changed in ({"version": "9.9"}, {"manifest": None}, {"manifest": word(document(EVE))}):
        path.write_bytes(seal(path.stem, {**held, "listing": held["listing"] | changed}))
        assert not await make_client(trust=Trust(release_keys=[ALICE.pin])).check_for_update(key)


async def test_a_client_without_pins_cannot_pass_its_offer_on(client, pinned, store, folder, key):
    """An update that was never checked is checked before it is downloaded."""
    store.manifest = ""
    update = (await client.check_for_update(key)).update
    with pytest.raises(UntrustedResponseError):
        await pinned.download(update, folder, key=key)
    assert isinstance(update, Update)
    assert named(folder) == []


# --- another file, or another version, when it is downloaded -----------------------------------

FILES = {
    "short, and says so": {"content": CONTENT[:-1], "digest": digest(CONTENT[:-1])},
    "short, and says nothing": {"content": CONTENT[:-1], "digest": "", "length": -1},
    "long, and says so": {"content": CONTENT + b"x", "digest": digest(CONTENT + b"x")},
    "long, and says nothing": {"content": CONTENT + b"x" * 10_000_000, "digest": "", "length": -1},
    "long, and says otherwise": {"content": CONTENT + b"x", "digest": "", "length": len(CONTENT) + 1},
    "empty": {"content": b"", "digest": digest(b"")},
    "another file of that length": {"content": OTHER, "digest": digest(OTHER)},
    "another file that says nothing": {"content": OTHER, "digest": ""},
    "another file in its name": {"content": OTHER, "digest": digest(CONTENT)},
    "one bit changed": {"content": CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]), "digest": ""},
    "a digest of another": {"digest": digest(OTHER)},
}


@pytest.mark.parametrize("changes", FILES.values(), ids=FILES)
async def test_another_file_than_the_signed_one_gets_no_name(pinned, store, folder, key, changes):
    """Size, digest and signature must all hold, whatever the server says of its file."""
    update = (await pinned.check_for_update(key)).update
    for name, value in changes.items():
        setattr(store, name, value)
    with pytest.raises(LicclientError):
        await pinned.download(update, folder, key=key)
    assert named(folder) == []
    assert sum(path.stat().st_size for path in folder.iterdir()) <= len(CONTENT) + 2000


async def test_a_file_that_changes_half_way(pinned, store, folder, break_off):
    """The rest of another file is no rest; nothing of the mixture is kept under its name."""
    update, _ = await break_off(pinned, len(CONTENT) // 2)
    store.content, store.digest = OTHER, ""
    with pytest.raises(LicclientError):
        await pinned.download(update, folder)
    assert named(folder) == []


@pytest.mark.parametrize("changes", [{}, {"manifest": None}], ids=["as offered", "without its manifest"])
async def test_a_whole_part_with_a_forged_note_is_not_believed(
    pinned, store, folder, changes, break_off, key
):
    """Another file put into the folder as if it had been downloaded gets no name."""
    update, part = await break_off(pinned, 20_000)
    [note] = folder.glob(".*.note")
    forged = unseal(note.stem, note.read_bytes()) | {"size": len(OTHER), "sha256": sha256(OTHER).hexdigest()}
    part.write_bytes(OTHER)
    note.write_bytes(seal(note.stem, forged))
    path = (await pinned.download(replace(update, **changes), folder, key=key)).path
    assert path.read_bytes() == CONTENT


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
@pytest.mark.parametrize("how", ["writable", "linked", "a link"])
async def test_a_part_that_others_can_change_is_not_taken_up(pinned, store, folder, how, break_off):
    """What somebody else could still write into while it is verified is fetched anew."""
    update, part = await break_off(pinned, 20_000)
    if how == "writable":
        part.chmod(0o666)
    elif how == "linked":
        (folder / ".elsewhere").hardlink_to(part)
    else:
        part.rename(folder / ".elsewhere")
        part.symlink_to(folder / ".elsewhere")
    path = (await pinned.download(update, folder)).path
    assert path.read_bytes() == CONTENT
    assert not path.is_symlink()
    assert "range" not in store.service.requests[-1].headers


async def test_a_fresh_link_to_a_newer_version(pinned, store, folder, key):
    """A link that ran out is replaced by one for a newer version: then that one must be signed (D-48)."""
    update = (await pinned.check_for_update(key)).update
    store.refusals, store.version = [(403, "link_expired")], "2.1"
    store.content, store.digest = OTHER, digest(OTHER)
    store.manifest = word(document(content=OTHER, version="2.1"))
    assert (await pinned.download(update, folder, key=key)).path.read_bytes() == OTHER


async def test_a_fresh_link_to_a_lower_version(pinned, store, folder, key):
    """The same with a version that was signed once and is lower: nothing is downloaded."""
    update = (await pinned.check_for_update(key)).update
    store.refusals, store.version, store.content = [(403, "link_expired")], "1.9", OTHER
    store.manifest = word(document(content=OTHER, version="1.9"))
    with pytest.raises(UntrustedResponseError, match="higher version"):
        await pinned.download(update, folder, key=key)
    assert named(folder) == []


async def test_a_fresh_link_to_a_newer_version_is_not_answered_with_the_older_file(
    pinned, store, folder, break_off, key
):
    """Half of 2.0 is there, 2.1 is signed by now, and the rest of 2.0 comes: nothing gets a name."""
    update, _ = await break_off(pinned, 20_000)
    store.version, store.digest = "2.1", ""
    store.manifest = word(document(content=OTHER, version="2.1"))
    with pytest.raises(UntrustedResponseError):
        await pinned.download(replace(update, download_url=None), folder, key=key)
    assert named(folder) == []
