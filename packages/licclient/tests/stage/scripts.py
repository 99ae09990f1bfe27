"""Small scripts of bytes that a hostile server plays: answers that are wrong in a chosen way."""

import itertools
import json
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any

RESET = b"\0reset the connection\0"
"""In the place of a piece: the connection ends with a reset, as if the machine had died."""

Script = bytes | Callable[[Any], bytes | Iterable[bytes]]
"""What to send, or what makes it out of a request."""


def http(status: int = 200, body: Any = b"", **headers: str) -> bytes:
    """Write an answer, with whatever headers it is given; a body that is not bytes goes as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status} X",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    if "Content_Length" not in headers and "Transfer_Encoding" not in headers:
        lines.append(f"Content-Length: {len(raw)}")
    return "\r\n".join([*lines, "", ""]).encode() + raw


def chunked(*pieces: bytes) -> bytes:
    """Write a body in chunks."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])


def digest(content: bytes) -> str:
    """Write a Repr-Digest."""
    return f"sha-256=:{b64encode(sha256(content).digest()).decode()}:"


def drip(raw: bytes, pause: float = 0.2) -> Iterator[bytes]:
    """Hand out byte by byte, each in time for a limit per read."""
    for byte in raw:
        yield bytes([byte])
        time.sleep(pause)


def endless(head: bytes, piece: bytes) -> Iterator[bytes]:
    """Never stop."""
    return itertools.chain([head], itertools.repeat(piece))


def silence(*pieces: bytes, seconds: float = 3) -> Iterator[bytes]:
    """Send something, and then nothing more, for much longer than anybody waits."""
    yield from pieces
    time.sleep(seconds)


def play(connection: socket.socket, script: Script, request: Any = None) -> None:
    """Send what a script says, and hang up; raises OSError when the other side has."""
    response = script(request) if callable(script) else script
    for piece in [response] if isinstance(response, bytes) else response:
        if piece == RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            return
        connection.sendall(piece)
    connection.shutdown(socket.SHUT_RDWR)
