"""Files of a server of the plain specification, which sends a length and no digest (D-55)."""

from hashlib import sha256

import pytest
from stage.files import CONTENT, GOOD_FILE, UNVERIFIED
from stage.flavours import both
from stage.releases import named
from stage.scripts import digest
from stage.store import CONTENT as STORED

from licclient import Trust
from licclient.errors import ServiceUnavailableError


@both
@pytest.mark.parametrize("raw", UNVERIFIED.values(), ids=UNVERIFIED.keys())
async def test_a_file_without_a_digest_is_accepted_and_marked(make_client, store, folder, key, raw):
    """It comes from the service itself; an app that requires a digest gets nothing."""
    store.file = lambda _: raw
    update = (await make_client().check_for_update(key)).update
    with pytest.raises(ServiceUnavailableError, match="require_digest"):
        await make_client(trust=Trust(require_digest=True)).download(update, folder, key=key)
    assert named(folder) == []
    done = await make_client().download(update, folder, key=key)
    assert (done.path.name, done.path.read_bytes(), done.is_verified) == ("notes-2.0.zip", CONTENT, False)
    assert (done.size, done.sha256) == (len(CONTENT), sha256(CONTENT).hexdigest())


async def test_a_file_with_its_digest_is_verified(make_client, store, fetch):
    """With and without `require_digest`."""
    store.file = lambda _: GOOD_FILE
    for client in make_client(), make_client(trust=Trust(require_digest=True)):
        assert (await fetch(client, force=True)).is_verified is True


@both
@pytest.mark.parametrize("has_digest", [True, False])
@pytest.mark.parametrize("is_redirected", [True, False])
async def test_elsewhere_without_https_a_digest_is_needed(
    make_client, store, service, http_answer, fetch, has_digest, is_redirected
):
    """An origin that the app named may be plain http: on the way there anybody can exchange the file."""
    elsewhere = f"{service.url.replace('127.0.0.1', 'localhost')}/api/v1/update-download"
    store.digest = digest(STORED) if has_digest else ""
    plain, store.link = store.reply, f"{service.url}/redirect" if is_redirected else elsewhere

    def reply(request):
        return http_answer(307, b"", Location=elsewhere) if request.path == "/redirect" else plain(request)

    service.script = reply
    client = make_client(trust=Trust(download_origins=[elsewhere.partition("/api")[0]]))
    if has_digest:
        assert (await fetch(client)).is_verified is True
    else:
        with pytest.raises(ServiceUnavailableError, match="neither by https nor from the service itself"):
            await fetch(client)


async def test_it_goes_on_within_a_run_and_not_in_a_later_one(client, store, folder, break_off):
    """Nothing would show whether what an earlier run left on the disk was damaged since."""
    store.digest = ""
    update, _ = await break_off(client, 200_000)
    assert [path.suffix for path in folder.iterdir()] == [".part"]
    store.cuts = [100_000]
    assert (await client.download(update, folder)).path.read_bytes() == STORED
    assert store.requested_ranges[-2:] == [None, "bytes=100000-"]
    assert named(folder) == ["notes-2.0.zip"]


@both
@pytest.mark.parametrize("is_verified", [True, False])
async def test_an_empty_file_is_one_only_if_its_digest_says_so(make_client, store, folder, key, is_verified):
    """A proxy or a bucket that lost the file answers with nothing, and a length that fits."""
    store.digest, store.content = digest(b"") if is_verified else "", b""
    client = make_client()
    update = (await client.check_for_update(key)).update
    if is_verified:
        assert (await client.download(update, folder, key=key)).size == 0
    else:
        with pytest.raises(ServiceUnavailableError, match="An empty file came"):
            await client.download(update, folder, key=key)
        assert named(folder) == []
