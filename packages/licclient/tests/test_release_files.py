"""Pinned release keys: whatever file a server hands out, only the one that was signed gets its name."""

import os
from dataclasses import replace
from hashlib import sha256

import pytest
from stage.releases import ALICE, CONTENT, OTHER, SignedStore, document, named, word

from licclient import LicclientError, ServiceUnavailable, UntrustedAnswer
from licclient._records import seal, unseal


@pytest.fixture
def store(service, http_answer):
    """A store that sells Notes 2.0, signed by Alice."""
    return SignedStore(service, http_answer)


@pytest.fixture
def pinned(make_client):
    """A client that pins Alice's key."""
    return make_client(release_keys=[ALICE.pin])


FILES = {
    "short, and says so": {"content": CONTENT[:-1], "digest": CONTENT[:-1]},
    "short, and says nothing": {"content": CONTENT[:-1], "digest": None, "length": -1},
    "long, and says so": {"content": CONTENT + b"x", "digest": CONTENT + b"x"},
    "long, and says nothing": {"content": CONTENT + b"x" * 10_000_000, "digest": None, "length": -1},
    "long, and says otherwise": {"content": CONTENT + b"x", "digest": None, "length": len(CONTENT) + 1},
    "empty": {"content": b"", "digest": b""},
    "another file of that length": {"content": OTHER, "digest": OTHER},
    "another file that says nothing": {"content": OTHER, "digest": None},
    "another file in its name": {"content": OTHER, "digest": CONTENT},
    "one bit changed": {"content": CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]), "digest": None},
    "a digest of another": {"digest": OTHER},
}


@pytest.mark.parametrize("changes", FILES.values(), ids=FILES)
async def test_another_file_than_the_signed_one_gets_no_name(pinned, store, folder, key, changes):
    """Size, digest and signature must all hold, whatever the server says of its file."""
    update = await pinned.check_for_update(key)
    for name, value in changes.items():
        setattr(store, name, value)
    with pytest.raises(LicclientError):
        await pinned.download(update, folder)
    assert named(folder) == []
    assert sum(path.stat().st_size for path in folder.iterdir()) <= len(CONTENT) + 2000


async def test_a_file_that_changes_half_way(pinned, store, folder, key):
    """The rest of another file is no rest; nothing of the mixture is kept under its name."""
    update = await pinned.check_for_update(key)
    store.cuts = [len(CONTENT) // 2, 0, 0, 0]
    with pytest.raises(ServiceUnavailable):
        await pinned.download(update, folder)
    store.cuts, store.content, store.digest = [], OTHER, None
    with pytest.raises(LicclientError):
        await pinned.download(update, folder)
    assert named(folder) == []


@pytest.mark.parametrize("changes", [{}, {"manifest": None}], ids=["as offered", "without its manifest"])
async def test_a_whole_part_with_a_forged_note_is_not_believed(pinned, store, folder, key, changes):
    """Another file put into the folder as if it had been downloaded gets no name."""
    update = await pinned.check_for_update(key)
    store.cuts = [20_000, 0, 0, 0]
    with pytest.raises(ServiceUnavailable):
        await pinned.download(update, folder)
    [part], [note] = folder.glob(".*.part"), folder.glob(".*.note")
    forged = unseal(note.stem, note.read_bytes()) | {
        "size": len(OTHER),
        "sha256": sha256(OTHER).hexdigest(),
    }
    part.write_bytes(OTHER)
    note.write_bytes(seal(note.stem, forged))
    path = (await pinned.download(replace(update, **changes), folder)).path
    assert path.read_bytes() == CONTENT


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
@pytest.mark.parametrize("how", ["writable", "linked", "a link"])
async def test_a_part_that_others_can_change_is_not_taken_up(pinned, store, folder, key, how):
    """What somebody else could still write into while it is verified is fetched anew."""
    update = await pinned.check_for_update(key)
    store.cuts = [20_000, 0, 0, 0]
    with pytest.raises(ServiceUnavailable):
        await pinned.download(update, folder)
    [part] = folder.glob(".*.part")
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
    update = await pinned.check_for_update(key)
    store.statuses, store.version, store.content, store.digest = [403], "2.1", OTHER, OTHER
    store.header = word(document(content=OTHER, version="2.1"))
    assert (await pinned.download(update, folder)).path.read_bytes() == OTHER


async def test_a_fresh_link_to_a_lower_version(pinned, store, folder, key):
    """The same with a version that was signed once and is lower: nothing is downloaded."""
    update = await pinned.check_for_update(key)
    store.statuses, store.version, store.content = [403], "1.9", OTHER
    store.header = word(document(content=OTHER, version="1.9"))
    with pytest.raises(UntrustedAnswer, match="higher version"):
        await pinned.download(update, folder)
    assert named(folder) == []


async def test_a_fresh_link_to_a_newer_version_is_not_answered_with_the_older_file(
    pinned, store, folder, key
):
    """Half of 2.0 is there, 2.1 is signed by now, and the rest of 2.0 comes: nothing gets a name."""
    update = await pinned.check_for_update(key)
    store.cuts = [20_000, 0, 0, 0]
    with pytest.raises(ServiceUnavailable):
        await pinned.download(update, folder)
    store.cuts, store.version, store.digest = [], "2.1", None
    store.header = word(document(content=OTHER, version="2.1"))
    with pytest.raises(UntrustedAnswer):
        await pinned.download(replace(update, download_url=None), folder)
    assert named(folder) == []
