"""The bytes of a file arrive as the network happens to cut them, and most are read past the HTTP library."""

import time
from collections.abc import Iterator

import httpx
import pytest
from stage.flavours import both
from stage.scripts import chunked, http
from stage.store import CONTENT
from stage.tls import secured

HALF = len(CONTENT) // 2

CUTS = {
    "all at once": lambda head: [head + CONTENT],
    "the head alone": lambda head: [head, CONTENT],
    "one byte with the head": lambda head: [head + CONTENT[:1], CONTENT[1:]],
    "the last byte alone": lambda head: [head + CONTENT[:-1], CONTENT[-1:]],
    "more after the end": lambda head: [head + CONTENT[:HALF], CONTENT[HALF:] + b"HTTP/1.1 200 X\r\n\r\n"],
    "in chunks, with a length": lambda head: [
        head.replace(b"\r\n", b"\r\nTransfer-Encoding: chunked\r\n", 1)
        + chunked(CONTENT[:HALF], CONTENT[HALF:])
    ],
}


def paused(pieces):
    """Send one piece after the other, so that each arrives alone."""
    for piece in pieces:
        yield piece
        time.sleep(0.05)


def headed(store):
    """Return the head of a response with the file."""
    return http(Content_Length=str(len(CONTENT)), Repr_Digest=store.digest)


@pytest.mark.sampled(6, "flavour")
@both
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
async def test_no_byte_is_lost_wherever_the_network_cuts(client, store, cut, fetch):
    """At the first try: nothing is requested again."""
    store.file = lambda _: paused(cut(headed(store)))
    assert (await fetch(client)).path.read_bytes() == CONTENT
    assert store.requested_ranges == [None]


@pytest.mark.usefixtures("verdicts")
@both
async def test_a_file_comes_through_tls(client, store, tls, authority, fetch):
    """The bytes that are written are those within the encrypted connection."""
    tls.context = secured(authority.issue_cert("127.0.0.1"))
    tls.wrapped_answer = paused([headed(store) + CONTENT[:HALF], CONTENT[HALF:]])
    store.link = f"https://127.0.0.1:{tls.port}/notes.zip"
    assert (await fetch(client)).path.read_bytes() == CONTENT


class Counted(httpx.SyncByteStream):
    """A body whose bytes are counted."""

    def __init__(self, stream, counts) -> None:
        self.stream, self.counts = stream, counts

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.stream:
            self.counts.append(len(chunk))
            yield chunk

    def close(self) -> None:
        """Close the body."""
        self.stream.close()


class Counting(httpx.HTTPTransport):
    """A transport of an app that counts the bytes of the last body."""

    def handle_request(self, request):
        """Send a request."""
        response, self.counts = super().handle_request(request), []
        response.stream = Counted(response.stream, self.counts)
        return response


@both
async def test_a_transport_of_the_app_sees_each_byte(make_client, store, fetch):
    """It may count, slow down or decode them: nothing is read behind its back."""
    transport = Counting()
    assert (await fetch(make_client(transport=transport))).path.read_bytes() == CONTENT
    assert sum(transport.counts) == len(CONTENT)
