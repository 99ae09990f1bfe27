"""Servers that are not ours: one that replays an answer, and a cable that can be cut."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from harness.vectors import LINK


class Replay:
    """Answer every request with one answer of a vector, and count them."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.count = 0
        replay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                replay.count += 1
                link = f"{replay.url}/api/v1/update-download?license=1"
                text = json.dumps(answer["json"]).replace(LINK, link).encode()
                self.send_response(answer["status"])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = _answer  # noqa: N815 - http.server's names

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def serving(self) -> Iterator["Replay"]:
        """Serve for a block."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


class Cable:
    """A TCP connection to a port that is cut when a given number of bytes has come back through it."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cut_after: list[int] = []
        self.cuts = 0
        self.pause = 0.0
        """Seconds after each piece of at most 16 KiB: a line as slow as that."""

    @contextmanager
    def plugged(self) -> Iterator["Cable"]:
        """Carry connections for a block."""
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            thread.join(5)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with closing(near), closing(socket.create_connection(("127.0.0.1", self._to))) as far:
            threading.Thread(target=_pump, args=(near, far), daemon=True).start()
            carried = 0
            with suppress(OSError):
                while piece := far.recv(16384):
                    near.sendall(piece)
                    carried += len(piece)
                    time.sleep(self.pause)
                    if self.cut_after and carried > self.cut_after[0]:
                        self.cut_after.pop(0)
                        self.cuts += 1
                        break
            with suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(16384):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
