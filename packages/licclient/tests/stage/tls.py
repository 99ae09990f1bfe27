"""A service behind TLS, with whatever certificate a test wants, and an authority that the system trusts."""

import socket
import ssl
import threading
from contextlib import suppress

import pytest
import trustme

from stage.answers import GOOD_RAW
from stage.scripts import silence


class TlsService:
    """Grants whatever it is asked, once the other side has accepted its certificate."""

    def __init__(self) -> None:
        self.received = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.context: ssl.SSLContext | None = None
        self.greeting: bytes | None = None
        self.wrapped_answer = [GOOD_RAW]

    def serve(self) -> None:
        """Answer until the listener is closed."""
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(5)
        with suppress(OSError), connection:
            if self.context is None:
                for piece in self.greeting or silence():
                    connection.sendall(piece if isinstance(piece, bytes) else bytes([piece]))
                return
            with self.context.wrap_socket(connection, server_side=True) as secured:
                ends = b"}", b"\r\n\r\n"  # of a POST, and of a GET
                while ends[self.received.startswith(b"GET")] not in self.received and (
                    piece := secured.recv(65536)
                ):
                    self.received += piece
                for piece in self.wrapped_answer:
                    secured.sendall(piece)
                with suppress(OSError):
                    secured.unwrap()

    def close(self) -> None:
        """Stop answering."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture(scope="session")
def authority():
    """The authority that the operating system trusts in these tests."""
    return trustme.CA()


@pytest.fixture
def tls(authority, tmp_path, monkeypatch):
    """A service behind TLS, and a system that trusts one authority."""
    trusted = tmp_path / "trusted.pem"
    authority.cert_pem.write_to_path(trusted)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    served = TlsService()
    thread = threading.Thread(target=served.serve, daemon=True)
    thread.start()
    yield served
    served.close()
    thread.join(5)


def secured(certificate):
    """Make the server's side of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context
