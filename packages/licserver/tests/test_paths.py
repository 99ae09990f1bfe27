"""A path means the same to us as to a proxy in front, or it is refused before it is routed (D-155)."""

import socket
from urllib.parse import urlsplit

import pytest

from licserver.serving.server import bind

AMBIGUOUS = [
    "/console/products/%2e%2e%2f%2e%2e%2f%2e%2e%2fapi",
    "/api/v1/..%2f..%2fconsole",
    "/api/v1/%2E%2E/%2e%2e/console",
    "/api/../console",
    "/console/.",
    "/./console",
    "/..",
    "/console/.%2e/console",
    "/console%2fsign-in",
    "/console%5csign-in",
    "/console\\sign-in",
    "/admin/api/v1/subscriptions/a%2Fb",
    "/admin/api/v1/products/%00",
    "/console%00",
    "/metrics/%2e%2e/metrics",
    "http://x/console/../console",
]


@pytest.fixture(scope="module")
def listeners(tmp_path_factory):
    """The three listeners of one server, by name."""
    from harness.commands import Program  # noqa: PLC0415 - its fixtures are not this module's

    program = Program(tmp_path_factory.mktemp("paths") / "vendor")
    with bind("127.0.0.1", 0)[0] as free:
        metrics = free.getsockname()[1]
    program.environ["LICSERVER_METRICS_LISTEN"] = f"127.0.0.1:{metrics}"
    program.environ["LICSERVER_ADMIN_LISTEN"] = "127.0.0.1:0"
    with program.serve() as (process, address):
        admin = process.stdout.readline().removeprefix("admin API on ").strip()
        yield {"public": urlsplit(address).port, "admin": urlsplit(admin).port, "metrics": metrics}


def get(port, target):
    """Send a request line as it is; returns the response."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while piece := sock.recv(1 << 16):
            received += piece
    return received


@pytest.mark.slow
@pytest.mark.parametrize("path", AMBIGUOUS)
def test_an_ambiguous_path_is_refused(listeners, path):
    """400 at every listener, with and without a query; problem details where the admin API would answer."""
    for port in listeners.values():
        for target in (path, f"{path}?x=1"):
            answer = get(port, target)
            assert answer.startswith(b"HTTP/1.1 400 "), answer[:300]
            kind = b"problem+json" if path.startswith("/admin/api/v1") else b"json"
            assert b"Content-Type: application/" + kind in answer


@pytest.mark.slow
def test_a_query_may_have_what_a_path_may_not(listeners):
    """Encoded slashes, dots and NULs of a query reach their handler."""
    answer = get(listeners["public"], "/api/v1/update-check?domain=a%2F..%2Fb%5c%00&slug=../x/./y")
    assert answer.startswith(b"HTTP/1.1 422 ")
    assert get(listeners["admin"], "/console/sign-in?next=%2Fconsole%2Faudit").startswith(b"HTTP/1.1 200 ")
    assert get(listeners["metrics"], "/metrics?x=%2e%2e%2f").startswith(b"HTTP/1.1 200 ")
