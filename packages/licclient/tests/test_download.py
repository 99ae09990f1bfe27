import os
from hashlib import sha256

import pytest
from stage.scripts import digest
from stage.store import CONTENT


async def test_a_file_arrives_whole_under_its_name(client, store, folder, key):
    """The server's name, the right bytes, nothing else in the folder, and growing progress."""
    reported = []
    update = (await client.check_for_update(key)).update
    done = await client.download(
        update, folder, progress=lambda done, total, _: reported.append((done, total)), key=key
    )
    path = folder / "notes-2.0.zip"
    assert (done.path, done.size, done.sha256) == (path, len(CONTENT), sha256(CONTENT).hexdigest())
    assert os.fspath(done) == str(done) == str(path)
    assert path.read_bytes() == CONTENT
    assert list(folder.iterdir()) == [path]
    assert reported == sorted(reported)
    assert reported[-1] == (len(CONTENT), len(CONTENT))
    assert (store.checks, store.requested_ranges) == (1, [None])


async def test_an_older_file_of_that_name_is_replaced(client, store, folder, fetch):
    """The final name changes from the old file to the new one at one stroke."""
    folder.mkdir()
    (folder / "notes-2.0.zip").write_bytes(b"old")
    path = (await fetch(client)).path
    assert path.read_bytes() == CONTENT


async def test_a_cut_connection_is_taken_up_again(client, store, folder, key):
    """Only the rest is asked for, bound to the same file by its entity tag (RFC 9110)."""
    store.cuts = [100_000, 50_000]
    reported = []
    path = (
        await client.download(
            (await client.check_for_update(key)).update,
            folder,
            progress=lambda done, _, __: reported.append(done),
            key=key,
        )
    ).path
    assert path.read_bytes() == CONTENT
    assert store.requested_ranges == [None, "bytes=100000-", "bytes=150000-"]
    assert reported == sorted(reported)


async def test_a_later_run_goes_on(make_client, store, folder, break_off, fetch):
    """What was left by a run that gave up is used by the next one."""
    await break_off(make_client(), 200_000)
    assert not (folder / "notes-2.0.zip").exists()
    path = (await fetch(make_client(), force=True)).path
    assert path.read_bytes() == CONTENT
    assert store.requested_ranges[-1] == "bytes=200000-"
    assert list(folder.iterdir()) == [path]


async def test_a_file_that_changed_meanwhile_is_fetched_anew(client, store, folder, break_off):
    """If-Range makes the server send the new file whole, and the old part is dropped."""
    update, _ = await break_off(client, 200_000)
    store.content, store.etag = b"new" * 1000, '"v3"'
    store.digest = digest(store.content)
    assert (await client.download(update, folder)).path.read_bytes() == store.content


@pytest.mark.parametrize("tag", ["", 'W/"weak"'])
async def test_without_a_strong_tag_it_starts_over(client, store, tag, fetch):
    """What may be another file is not joined to the part."""
    store.etag, store.cuts = tag, [100_000]
    assert (await fetch(client)).path.read_bytes() == CONTENT
    assert store.requested_ranges == [None, None]


async def test_a_server_without_ranges_still_works(client, store, fetch):
    """Asked for the rest, it may send everything."""
    store.ranges, store.cuts = False, [100_000]
    assert (await fetch(client)).path.read_bytes() == CONTENT


async def test_a_damaged_part_is_fetched_once_more(client, store, folder, break_off):
    """Damage on our own disk is repaired, not called an attack."""
    update, part = await break_off(client, 200_000)
    part.write_bytes(bytes(200_000))
    assert (await client.download(update, folder)).path.read_bytes() == CONTENT
    assert store.requested_ranges[-2:] == ["bytes=200000-", None]
