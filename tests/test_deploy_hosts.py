"""haproxy, nginx and Caddy in front of two servers: one stops, one dies, both are away."""

import json
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import trustme

from harness.programs import licserver, serving_process
from harness.proxies import PROXIES, Site, create_site, free_port, running

pytestmark = pytest.mark.system_tools
VERIFY = "/api/v1/licenses/verify"
CALLERS = 4
LOST_WITH_A_HOST = {"haproxy": CALLERS, "nginx": CALLERS, "caddy": 100}
"""Calls that may fail when a host dies: those on their way. Caddy notices after half a second."""
DRAIN_DELAY = "3"  # seconds; haproxy needs up to two to notice
every_proxy = pytest.mark.parametrize("name", PROXIES)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Who certifies the proxies here."""
    return trustme.CA()


@pytest.fixture
def trust(authority: trustme.CA) -> ssl.SSLContext:
    """What a client of these proxies trusts."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


class Host:
    """A server behind the proxy, on a port of its own; all have the same data folder."""

    def __init__(self, home: Path) -> None:
        self._home, self.port = home, free_port()
        self._running = ExitStack()
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it; return once it answers."""
        settings = {"LICSERVER_DRAIN_DELAY": DRAIN_DELAY, "LICSERVER_TRUSTED_PROXIES": "127.0.0.1"}
        serving = serving_process(["serve", "--port", str(self.port)], self._home, None, **settings)
        self.process, _ = self._running.enter_context(serving)

    def stop(self) -> None:
        """Stop it with SIGTERM; return when it has ended."""
        self._running.close()

    def kill(self) -> None:
        """End it on the spot."""
        assert self.process is not None
        self.process.kill()
        self._running.close()


@contextmanager
def calling(
    site: Site, trust: ssl.SSLContext, key: str
) -> Iterator[Callable[[], list[httpx.Response | None]]]:
    """Verify a key all the time, some 100 times a second; yields a function that returns new answers."""
    answers: list[httpx.Response | None] = []
    end = threading.Event()

    def call(number: int) -> None:
        with httpx.Client(base_url=site.url, verify=trust, timeout=20) as client:
            body = {"license_key": key, "domain": f"{number}.example", "ip": "192.0.2.1"}
            while not end.wait(0.04):
                try:
                    answers.append(client.post(VERIFY, json=body))
                except httpx.HTTPError:
                    answers.append(None)

    def take() -> list[httpx.Response | None]:
        taken = answers[:]
        del answers[: len(taken)]
        return taken

    threads = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    try:
        yield take
    finally:
        end.set()
        for thread in threads:
            thread.join()


def is_unavailable(answer: httpx.Response | None) -> bool:
    """Whether an answer is the one that the server itself gives when it cannot decide."""
    return (
        answer is not None
        and answer.status_code == 503
        and answer.headers["Content-Type"] == "application/json"
        and answer.headers["Retry-After"] == "5"
        and answer.headers["Cache-Control"] == "no-store"
        and answer.json()
        == {"error": "unavailable", "message": "The service is not available now; try again."}
    )


def statuses(answers: list[httpx.Response | None]) -> Counter[int | None]:
    """Count answers by status; None is no answer."""
    return Counter(None if answer is None else answer.status_code for answer in answers)


@every_proxy
def test_a_host_that_stops_costs_no_call_and_one_that_dies_few(
    name: str, tmp_path: Path, authority: trustme.CA, trust: ssl.SSLContext
) -> None:
    """SIGTERM: no call fails. SIGKILL: only calls of that moment. Both away: 503 as the server's own."""
    home = tmp_path / "home"
    licserver(home, "product", "add", "app", "--name", "App", "--environment", "domain")
    key = licserver(home, "license", "issue", "app", "--slots", str(CALLERS))
    hosts = [Host(home), Host(home)]
    site = create_site(tmp_path / name, authority, *(f"127.0.0.1:{host.port}" for host in hosts))
    with ExitStack() as stack:
        for host in hosts:
            host.start()
            stack.callback(host.stop)
        stack.enter_context(running(name, site))
        take = stack.enter_context(calling(site, trust, key))
        wait_until_good(take)

        hosts[0].stop()
        time.sleep(0.5)  # calls after the port was closed
        stopped = take()
        assert statuses(stopped).keys() == {200}
        assert len(stopped) > 100

        hosts[0].start()
        time.sleep(3)  # the proxy looks once a second, and believes the second answer
        assert statuses(take()).keys() == {200}
        hosts[1].kill()
        time.sleep(3)
        died = take()
        failed = [answer for answer in died if answer is None or answer.status_code != 200]
        assert len(failed) <= LOST_WITH_A_HOST[name], statuses(died)
        # Over a connection that it has kept, haproxy closes it in place of the answer.
        assert all(is_unavailable(call) or (call is None and name == "haproxy") for call in failed), failed
        assert len(died) > 50

        hosts[0].kill()
        time.sleep(2)
        take()
        time.sleep(0.5)
        away = take()
        assert away
        assert all(map(is_unavailable, away)), [answer and (answer.headers, answer.text) for answer in away]


def wait_until_good(take: Callable[[], list[httpx.Response | None]]) -> None:
    """Wait until a dozen answers in a row are right."""
    deadline = time.monotonic() + 20
    while True:
        time.sleep(0.5)
        answers = take()
        if len(answers) >= 12 and statuses(answers).keys() == {200}:
            return
        assert time.monotonic() < deadline, statuses(answers)


class DyingHost(ThreadingHTTPServer):
    """A host that is ready, reads whole requests, and closes the connection without an answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ReadAndClose)
        self.read: list[str] = []


class _ReadAndClose(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/readyz":
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._die()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._die()

    def _die(self) -> None:
        assert isinstance(self.server, DyingHost)
        self.server.read.append(self.command)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@every_proxy
def test_what_may_have_been_done_is_not_sent_to_the_other_host(
    name: str, tmp_path: Path, authority: trustme.CA, trust: ssl.SSLContext
) -> None:
    """Both hosts die over each request: one of them has read the POST, once, and the caller a 503."""
    hosts = [DyingHost(), DyingHost()]
    with ExitStack() as stack:
        for host in hosts:
            stack.enter_context(suppress(OSError))
            stack.callback(host.server_close)
            stack.callback(host.shutdown)
            threading.Thread(target=host.serve_forever, args=(0.01,), daemon=True).start()
        site = create_site(tmp_path / name, authority, *(f"127.0.0.1:{host.server_port}" for host in hosts))
        stack.enter_context(running(name, site))
        answer = httpx.post(f"{site.url}{VERIFY}", json={"license_key": "x"}, verify=trust, timeout=20)
        assert hosts[0].read + hosts[1].read == ["POST"]
        assert is_unavailable(answer), (answer.headers, answer.text)
        answer = httpx.get(f"{site.url}/api/v1/update-check", verify=trust, timeout=20)
        assert is_unavailable(answer), (answer.headers, answer.text)
        assert "GET" in hosts[0].read + hosts[1].read


def test_each_file_has_the_servers_own_answer() -> None:
    """The sentence in the files is the one that the server sends."""
    from harness.proxies import DEPLOY  # noqa: PLC0415 - for this line only
    from licserver.web.responses import send_unavailable  # noqa: PLC0415

    ours = json.loads(send_unavailable().content)  # type: ignore[attr-defined]
    for file in ("haproxy.cfg", "nginx.conf", "Caddyfile"):
        text = (DEPLOY / file).read_text()
        assert json.dumps(ours, separators=(",", ":")) in text, file
