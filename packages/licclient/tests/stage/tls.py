"""A service behind TLS, with whatever certificate a test wants, and an authority that the system trusts."""

import socket
import ssl
import sys
import threading
from contextlib import suppress
from functools import partial

import pytest
import trustme
import truststore

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


def trusting_context(make, trusted, protocol):
    """Make a context that trusts one authority more than the system does."""
    context = make(protocol)
    context.load_verify_locations(trusted)
    return context


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
    if sys.platform == "win32":  # it reads no such variable, and asks the user before it trusts an authority
        trusting = partial(trusting_context, truststore.SSLContext, trusted)
        monkeypatch.setattr(truststore, "SSLContext", trusting)
    served = TlsService()
    thread = threading.Thread(target=served.serve, daemon=True)
    thread.start()
    yield served
    served.close()
    thread.join(5)


@pytest.fixture(scope="session")
def verdicts(authority, tmp_path_factory):
    """Skip a test on a system that trusts everybody, or knows no addresses: it would show nothing of ours."""
    if sys.platform != "win32":
        return
    trusted = tmp_path_factory.mktemp("authority") / "trusted.pem"
    authority.cert_pem.write_to_path(trusted)
    context = trusting_context(truststore.SSLContext, trusted, ssl.PROTOCOL_TLS_CLIENT)
    for issuer, is_good in ((authority, True), (trustme.CA(), False)):
        if is_accepted(context, issuer.issue_cert("127.0.0.1")) is not is_good:
            pytest.skip("this Windows judges certificates wrongly, as wine 8 does")


def is_accepted(context, certificate):
    """Return whether a context accepts a certificate for 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def shake_hands():
            with suppress(OSError), listener.accept()[0] as connection:
                secured(certificate).wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=shake_hands)
        thread.start()
        try:
            with socket.create_connection(listener.getsockname()) as line:
                context.wrap_socket(line, server_hostname="127.0.0.1").close()
        except OSError:
            return False
        else:
            return True
        finally:
            thread.join()


def secured(certificate):
    """Make the server's side of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context
