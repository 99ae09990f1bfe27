"""What networks did to other clients: dead addresses, gateways, and headers that contradict the bytes."""

import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from stage.addresses import ALIVE, DEAD, Names, blackhole, names  # noqa: F401 - a fixture

from harness.standstill import Standstill
from licclient import ClientSettings, LicenseClient, LicenseState, Quota, Source
from licclient._core.clock import monotonic
from licclient.errors import ServiceUnavailableError
from licclient.testing import LicenseService

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
SETTINGS = ClientSettings("https://licenses.example.com", product="Notes", slug="notes", version="1.0")
FORBIDDEN = {"statusCode": 403, "message": "Forbidden resource", "error": "Forbidden"}


@pytest.fixture
def shop() -> Iterator[LicenseService]:
    """A service with a license, and a newer version."""
    with LicenseService() as service:
        service.issue("Notes", key=KEY, seats=2, entitlements={"exports": Quota(100, "month")})
        service.publish("2.0", slug="notes", content=b"the new version" * 1000)
        yield service


class Between(httpx.BaseTransport):
    """Something on the way: `change` gets each response of the service, and returns another."""

    def __init__(
        self, shop: LicenseService, change: Callable[[httpx.Request, httpx.Response], httpx.Response]
    ) -> None:
        self._shop, self._change, self.is_there = shop, change, True

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        response = self._shop.transport.handle_request(request)
        return self._change(request, response) if self.is_there else response


@contextmanager
def _alive() -> Iterator[int]:
    """Answer each verify with a success, on the address that is alive; yield the port."""
    body = b'{"valid": true, "product": "Notes", "expiry": null, "lifetime": false}'

    def serve() -> None:
        with suppress(OSError):
            while True:
                line, _ = listener.accept()
                with line, suppress(OSError):
                    line.recv(65536)
                    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
                    line.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode() + body)

    with socket.create_server((ALIVE, 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_nousresearch_hermes_agent_114265(
    names: Names,  # noqa: F811 - pytest's fixtures have the name of their argument
    tmp_path: Path,
) -> None:
    """The router advertises IPv6 that leads nowhere: the other address is tried beside it.

    As in NousResearch/hermes-agent#94388 and python/cpython#105249.
    """
    names.known["two.localhost"] = [DEAD, ALIVE]
    with _alive() as port, blackhole(port), Standstill() as machine:
        with LicenseClient(f"http://two.localhost:{port}", storage=tmp_path, timeout=8) as client:
            began = monotonic()
            assert client.activate(KEY).product == "Notes"
            ended = monotonic()
        assert ended - began - machine.within(began, ended) < 5


@pytest.mark.parametrize(
    "coding",
    [
        pytest.param("aws-chunked", id="versity/versitygw#2398"),
        pytest.param("x-gzip", id="NixOS/nix#1568"),
        "none",
        "identity, aws-chunked",
    ],
)
def test_versity_versitygw_2398(shop: LicenseService, tmp_path: Path, coding: str) -> None:
    """A store keeps the coding of the upload as a header, beside intact bytes: the digest decides."""

    def change(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if not request.url.path.endswith("update-download"):
            return response
        digest = b64encode(sha256(response.read()).digest()).decode()
        headers = {"Content-Encoding": coding, "Repr-Digest": f"sha-256=:{digest}:"}
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(response.content))

    with shop.client(SETTINGS, transport=Between(shop, change)) as client:
        client.activate(KEY)
        update = client.check_for_update().update
        assert update is not None
        done = client.download(update, tmp_path)
        assert done.is_verified
        assert done.path.read_bytes() == b"the new version" * 1000


def test_digitalcreations_maxto_545(shop: LicenseService) -> None:
    """A gateway answers 403 in JSON, as for wp-media/wp-rocket#1366: no license, offer, use, seat is lost."""
    between = Between(shop, lambda *_: httpx.Response(403, json=FORBIDDEN))
    between.is_there = False
    with shop.client(SETTINGS, transport=between) as client:
        client.activate(KEY)
        assert client.check_for_update()
        left = client.uses.consume("exports")
        with client.seats.take() as seat:
            between.is_there = True
            shop.clock.move(hours=30)
            assert client.verify().source is Source.GRACE
            assert client.status().state is LicenseState.GRACE
            check = client.check_for_update(force=True)
            assert isinstance(check.error, ServiceUnavailableError)
            assert client.status().update is not None
            assert client.uses.consume("exports") == left - 1
            between.is_there = False
            assert seat.seats == 2
        assert client.verify(force=True).source is Source.SERVER
        assert client.uses.consume("exports") == left - 2
