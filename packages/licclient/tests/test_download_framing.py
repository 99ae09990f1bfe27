"""What its digest proves is accepted, whatever the headers beside it say; no header decides on memory."""

import pytest
from stage.files import CONTENT, PROVEN
from stage.flavours import both
from stage.meters import bounded
from stage.releases import named
from stage.scripts import digest, endless
from stage.signing import SIGNER, grants_signed

from licclient import Source, Trust
from licclient.errors import ServiceUnavailableError


@pytest.mark.sampled(9, "flavour")
@both
@pytest.mark.parametrize("raw", PROVEN.values(), ids=PROVEN.keys())
async def test_what_the_digest_proves_is_the_file(make_client, store, fetch, folder, raw):
    """Its bytes are those that the service declared, and nothing else is left in the folder."""
    store.file = lambda _: raw
    done = await fetch(make_client(trust=Trust(require_digest=True)))
    assert (done.path.read_bytes(), done.is_verified) == (CONTENT, True)
    assert list(folder.iterdir()) == [done.path]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("raw", PROVEN.values(), ids=PROVEN.keys())
async def test_without_the_right_digest_headers_are_no_excuse(make_client, store, fetch, folder, raw):
    """The same answers with another file in them never get its name."""
    wrong = raw.replace(digest(CONTENT).encode(), digest(b"another").encode())
    store.file = lambda _: wrong
    with pytest.raises(Exception, match="digest"):
        await fetch(make_client(timeout=0.5))
    assert named(folder) == []


async def test_a_file_of_unknown_length_is_cut_off_and_fetched_anew(make_client, store, fetch):
    """Nothing shows how much is missing: the next try begins at the start, and its progress says so."""
    whole = PROVEN["until the end of the connection"]
    answers = [whole[:-1000], PROVEN["chunks"][:-1000], whole]
    store.file = lambda _: answers.pop(0)
    assert (await fetch(make_client())).path.read_bytes() == CONTENT
    assert store.requested_ranges == [None] * 3


async def test_a_file_without_end_is_given_up(make_client, store, fetch, folder, monkeypatch):
    """It declares a digest and no length, and would fill the disk."""
    monkeypatch.setattr("licclient._updates.part_file.MAX_FILE_BYTES", 1 << 20)
    head = f"HTTP/1.1 200 OK\r\nRepr-Digest: {digest(CONTENT)}\r\n\r\n".encode()
    store.file = lambda _: endless(head, b"x" * 65536)
    with bounded(10), pytest.raises(Exception, match="longer"):
        await fetch(make_client())
    assert named(folder) == []


# --- answers ------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("encoding", ["aws-chunked", "gzip", "br"])
async def test_a_signed_answer_is_proven_by_its_digest(
    make_client, service, http_answer, clock, key, encoding
):
    """A gateway that adds a Content-Encoding to untouched bytes makes no outage of them."""
    grants_signed(service, http_answer, clock)
    answer = service.script
    service.script = lambda request: answer(request).replace(
        b"Content-Length", f"Content-Encoding: {encoding}\r\nContent-Length".encode(), 1
    )
    assert (await make_client(trust=Trust(public_keys=[SIGNER.text])).verify(key)).source is Source.SERVER


@both
async def test_without_a_digest_an_encoded_answer_is_none(make_client, service, key):
    """It was not requested, and nothing shows what was done to the bytes."""
    service.grants()
    plain = service.script
    service.script = lambda request: plain(request).replace(
        b"Connection", b"Content-Encoding: aws-chunked\r\nConnection", 1
    )
    with pytest.raises(ServiceUnavailableError):
        await make_client().verify(key)
