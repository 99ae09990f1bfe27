"""What people reported of updaters, machine ids, proxies and freezers, as they met it."""

import asyncio
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from stage.archives import app, content_of, downloaded, names

from licclient import AsyncLicenseClient, ClientSettings, LicenseClient, Outage, Updates
from licclient.errors import ServiceUnavailableError
from licclient.install import Installation
from licclient.testing import LicenseService

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
SETTINGS = ClientSettings("https://licenses.example.com", product="Notes", slug="notes", version="1.0")
needs_unix = pytest.mark.skipif(sys.platform == "win32", reason="needs modes of Unix")


@pytest.fixture
def shop() -> Iterator[LicenseService]:
    """A service with a license of one slot."""
    with LicenseService() as service:
        service.issue("Notes", key=KEY, slots=1)
        yield service


# --- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "installed", "is_newer"),
    [
        ("2.14.0", "2.14.0-beta.3", True),  # onllm-dev/onWatch#123: equal without the suffix
        ("4.1.0", "4.1.0-beta2", True),  # Squirrel/Squirrel.Mac#264: a suffix made it higher
        ("8.33", "8.34b1", False),  # gwdevhub/GWToolboxpp#2620: an older stable one was offered
        ("5.0.0-alpha.1", "5.0.0-alpha", True),  # fsnow/cst#140: no update was offered
        ("5.0.0-beta.10", "5.0.0-beta.9", True),
        ("v0.0.3", "0.0.3", False),  # 1bananachicken/MaaNTE#27: an endless loop of updates
        ("0.0.3", "v0.0.3", False),
        ("101100101", "101100001", True),
        ("2.3.10.1", "2.3.10", True),  # CJKondur/EVE-MultiPreview#90
        ("1.0.0", "1", False),
    ],
)
def test_onllm_dev_onwatch_123(shop: LicenseService, offered: str, installed: str, is_newer: bool) -> None:
    """Versions are compared as PEP 440 does, however they are written."""
    shop.publish(offered, slug="notes", channel="beta")
    with shop.client(SETTINGS, version=installed, updates=Updates(channels=["beta"])) as client:
        client.activate(KEY)
        assert bool(client.check_for_update(force=True)) is is_newer


def test_faisalkindi_dlss5oneclick_26(
    shop: LicenseService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of release 2.0 was built from 1.0, and says so: it is installed once, and not for ever."""
    installation = Installation(tmp_path / "app")
    installed = installation.apply(downloaded(tmp_path, app("2.0"), "2.0"))
    monkeypatch.setattr(sys, "executable", str(installed.folder / "run"))
    shop.publish("2.0", slug="notes")
    with shop.client(SETTINGS) as client:
        client.activate(KEY)
        check = client.check_for_update()
        assert not check
        assert "Version 2.0 runs here, and calls itself 1.0" in check.message
        assert client.status().update is None
        assert client.check_for_update(force=True), "the vendor has published the right file meanwhile"


# --- what is there already -------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["emptied", "a file is gone", "a file is cut"])
def test_anthropics_claude_code_62792(tmp_path: Path, damage: str) -> None:
    """A virus scanner took a program away (Rem0o/FanControl.Releases#3700): installing repairs it."""
    installation = Installation(tmp_path / "app")
    first = installation.apply(downloaded(tmp_path, app("1.0"), "1.0"))
    second = installation.apply(downloaded(tmp_path, app("2.0"), "2.0"))
    whole = content_of(second.folder)
    if damage == "emptied":
        shutil.rmtree(second.folder)
        second.folder.mkdir()
    else:
        victim = second.folder / "_internal" / "version.txt"
        victim.unlink()
        if damage == "a file is cut":
            victim.touch()
    again = installation.apply(downloaded(tmp_path, app("2.0"), "2.0"))
    assert (again.version, again) == (second.version, installation.current)
    assert again.folder != second.folder, "until the new one is whole, the damaged one is current"
    assert content_of(again.folder) == whole
    assert installation.previous == first
    assert not [name for name in names(tmp_path / "app") if name.startswith(".")]


def test_warpdotdev_warp_12806(shop: LicenseService, tmp_path: Path) -> None:
    """A failed download left a file of 0 bytes under the update's name: it does not count as the update."""
    shop.publish("2.0", slug="notes", content=b"new" * 1000)
    folder = tmp_path / "downloads"
    folder.mkdir()
    with shop.client(SETTINGS) as client:
        client.activate(KEY)
        update = client.check_for_update(force=True).update
        assert update is not None
        (folder / "notes-2.0.zip").touch()
        for name in ("part", "note", "lock"):
            folder.joinpath(f".licclient-x-0.{name}").touch()
        done = client.download(update, folder)
        assert done.is_verified
        assert done.path.read_bytes() == b"new" * 1000


def test_owncloud_client_8325(shop: LicenseService, tmp_path: Path) -> None:
    """A download that is cut off is no update; the next try goes on (ITotalJustice/atmosphere-updater#2)."""
    shop.publish("2.0", slug="notes", content=b"new" * 100_000)
    with shop.client(SETTINGS, timeout=1) as client:
        client.activate(KEY)
        update = client.check_for_update(force=True).update
        assert update is not None
        with shop.offline(), pytest.raises(ServiceUnavailableError):
            client.download(update, tmp_path)
        assert [path for path in tmp_path.iterdir() if path.name[0] != "."] == []
        assert client.download(update, tmp_path).size == 300_000


def test_henrypp_simplewall_590(shop: LicenseService, tmp_path: Path) -> None:
    """Progress is never negative, and never above the whole: "-2147483648 %"."""
    shop.publish("2.0", slug="notes", content=b"new" * 500_000)
    seen: list[tuple[int, int, float]] = []
    with shop.client(SETTINGS) as client:
        client.activate(KEY)
        update = client.check_for_update(force=True).update
        assert update is not None
        client.download(update, tmp_path, lambda *now: seen.append(now))
    assert all(0 <= done <= whole and speed >= 0 for done, whole, speed in seen)
    assert seen[-1][:2] == (1_500_000, 1_500_000)


# --- computers -------------------------------------------------------------------------------------

OF_THE_MACHINE = """
import json, sys
from licclient import LicenseClient
from licclient.testing import LicenseService
with LicenseService() as shop:
    key = shop.issue("Notes")
    client = shop.client(storage=sys.argv[1])
    client.activate(key)
    client.verify(force=True)
    print(json.dumps(shop.requests[-1].fields["domain"]))
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None or os.name == "nt", reason="needs unshare")
def test_graspnet_anygrasp_sdk_87(tmp_path: Path) -> None:
    """A container with another host name and machine id, whose volume stays, is the same installation."""
    ids = set()
    for name in ("a1b2c3", "d4e5f6"):
        machine_id = tmp_path / name
        machine_id.write_text(name * 5 + "00\n")
        script = f'hostname {name}; mount --bind "$1" /etc/machine-id 2>/dev/null; shift; exec "$@"'
        command = ["unshare", "--uts", "--mount", "sh", "-c", script, "sh", str(machine_id)]
        program = [sys.executable, "-c", OF_THE_MACHINE, str(tmp_path / "state")]
        done = subprocess.run([*command, *program], capture_output=True, text=True, check=False)
        if "Operation not permitted" in done.stderr:
            pytest.skip("this machine allows no namespaces")
        assert done.returncode == 0, done.stderr
        ids.add(json.loads(done.stdout))
    assert len(ids) == 1


def test_rssbandit_rssbandit_1053(shop: LicenseService, tmp_path: Path) -> None:
    """A synchronised folder brings conflict copies, and an older state of a record, while the app runs."""
    with shop.client(SETTINGS, storage=tmp_path) as client:
        client.activate(KEY)
        files = {path: path.read_bytes() for path in tmp_path.glob("*.state")}
        shop.clock.move(hours=30)
        client.verify()
        for path, content in files.items():
            for name, copied in ((" (conflicted copy 2026-11-26)", b"\0" * 100), ("-LAPTOP-7", content)):
                copy = tmp_path / f"{path.stem}{name}.state"
                copy.touch(0o600)
                copy.write_bytes(copied)
            path.write_bytes(content)
        assert client.require().product == "Notes"
        assert client.verify().product == "Notes"
    with shop.client(SETTINGS, storage=tmp_path) as client:
        assert client.verify().product == "Notes"
    assert len({request.fields.get("domain") for request in shop.requests}) == 1


@needs_unix
@pytest.mark.slow
@pytest.mark.parametrize(
    "zone", ["America/Denver", "Pacific/Kiritimati", "Africa/Casablanca", "Mars/Phobos", ""]
)
def test_nullptrlabs_pgmodeler_2053(tmp_path: Path, zone: str) -> None:
    """Another time zone, or one that does not exist, makes no answer older: one request in a day."""
    program = (
        "import sys\nfrom licclient.testing import LicenseService\n"
        "with LicenseService() as shop:\n"
        "    key = shop.issue('Notes')\n"
        "    client = shop.client(storage=sys.argv[1])\n"
        "    client.activate(key)\n"
        "    for _ in range(23): shop.clock.move(hours=1); client.require(); client.status()\n"
        "    print(shop.count('verify'))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, "TZ": zone}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr


# --- proxies, certificates and other servers ---------------------------------------------------------


@contextmanager
def _server(answer: tuple[int, dict[str, str], bytes]) -> Iterator[tuple[str, list[str]]]:
    """Give this answer to everything; yield the address, and what was requested."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def _reply(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append(f"{self.command} {self.path}")
            status, headers, body = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_CONNECT = _reply  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join(5)


GOOD = json.dumps({"valid": True, "product": "Notes", "expiry": None, "lifetime": True}).encode()
JSON = {"Content-Type": "application/json"}


@pytest.mark.filterwarnings("ignore:base_url is http")
@pytest.mark.parametrize(
    "exempt",
    [
        "localhost,127.0.0.1,::1,[::1]",
        "[fe80::1]",
        "fe11::/16",
        "10.0.0.0/8",
        "*",
        ",,",
        "a b",
        "[",
        "::1/999",
    ],
)
def test_basicmachines_co_basic_memory_1541(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exempt: str
) -> None:
    """NO_PROXY with brackets, networks and nonsense (encode/httpx#3221, safedep/pmg#340): it is sent."""
    with _server((200, JSON, GOOD)) as (address, asked):
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://{address}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, exempt)
        with LicenseClient(f"http://{address}", storage=tmp_path) as client:
            assert client.verify(KEY).product == "Notes"
    assert len(asked) == 1


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "SSLKEYLOGFILE"])
def test_continuumio_anaconda_issues_13509(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A variable names certificates that are gone (Aider-AI/aider#3710, Nuitka/Nuitka#1614): an outage."""
    monkeypatch.setenv(name, str(tmp_path / "gone" / "cacert.pem"))
    with (
        _server((200, JSON, GOOD)) as (address, _),
        LicenseClient(f"https://{address}", storage=tmp_path, timeout=3) as client,
    ):
        with pytest.raises(ServiceUnavailableError):
            client.verify(KEY)
        assert client.diagnose()


@pytest.mark.filterwarnings("ignore:base_url is http")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 511])
def test_gyselroth_balloon_client_desktop_120(tmp_path: Path, status: int) -> None:
    """The server moved: no POST becomes a GET (lysine-dev/retrofit#1690), and no key is sent elsewhere."""
    with _server((200, JSON, GOOD)) as (elsewhere, stolen):
        moved = (status, {"Location": f"http://{elsewhere}/login"}, b"")
        with (
            _server(moved) as (address, asked),
            LicenseClient(f"http://{address}", storage=tmp_path, timeout=2) as client,
            pytest.raises(ServiceUnavailableError) as caught,
        ):
            client.verify(KEY)
    assert caught.value.outage is Outage.LOGIN_PAGE
    assert {line.split()[0] for line in asked} == {"POST"}
    assert stolen == []


@pytest.mark.filterwarnings("ignore:base_url is http")
def test_encode_httpx_2473(tmp_path: Path) -> None:
    """One asynchronous client in several loops, one after the other and on threads (encode/httpx#2058)."""
    with _server((200, JSON, GOOD)) as (address, _):
        client = AsyncLicenseClient(f"http://{address}", storage=tmp_path)

        async def verify() -> str:
            return (await client.verify(KEY, force=True)).product

        assert [asyncio.run(verify()) for _ in range(3)] == ["Notes"] * 3
        found: list[str] = []
        threads = [threading.Thread(target=lambda: found.append(asyncio.run(verify()))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert found == ["Notes"] * 3
        asyncio.run(client.aclose())


# --- folders that cannot be written to ----------------------------------------------------------------


def test_electron_electron_33356(
    shop: LicenseService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An AppImage keeps its state in its own mount, which is read-only: licensed, and not installed there."""
    opened = os.open

    def refuse(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and str(tmp_path) in str(path):
            raise OSError(30, "Read-only file system", str(path))
        return opened(path, flags, *args, **options)

    content = downloaded(tmp_path, app("1.0"), "1.0")
    monkeypatch.setattr(os, "open", refuse)
    with shop.client(SETTINGS, storage=tmp_path / "mount") as client:
        assert client.activate(KEY).product == "Notes"
        assert client.require().product == "Notes"
        assert "Read-only file system" in client.diagnose() or client.diagnose()
    with pytest.raises(OSError, match="Read-only file system"):
        Installation(tmp_path / "app").apply(content)


# --- keyrings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "problem",
    [
        "RuntimeError('No recommended backend was available.')",  # jaraco/keyring#569
        "type('GError', (Exception,), {})('g-dbus-error-quark')",  # jaraco/keyring#600
        "type('PromptDismissedException', (Exception,), {})()",  # ProtonVPN/proton-vpn-cli#2
        "ImportError('no dbus')",
        "AttributeError(\"'NoneType' object has no attribute 'unlock'\")",
        "SystemError('bad call')",
        "RecursionError()",
    ],
)
def test_jaraco_keyring_569(
    shop: LicenseService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    """A keyring without a desktop fails in its own way at each call: the key is in a private file."""
    import keyring  # noqa: PLC0415 - replaced for this test
    from keyring.backend import KeyringBackend  # noqa: PLC0415 - as above

    error = eval(problem)  # noqa: S307 - ours

    class Failing(KeyringBackend):
        priority = 1

        def get_password(self, *_: str) -> str | None:
            raise error

        def set_password(self, *_: str) -> None:
            raise error

        def delete_password(self, *_: str) -> None:
            raise error

    monkeypatch.setattr(keyring, "get_keyring", Failing)
    for is_new in (True, False):
        with shop.client(SETTINGS, storage=tmp_path) as client:
            assert (client.activate(KEY) if is_new else client.require()).product == "Notes"
    with shop.client(SETTINGS, storage=tmp_path) as client:
        client.forget_key()
        client.activate(KEY)
        client.reset()


# --- toolkits --------------------------------------------------------------------------------------------

QUIT = """
import os, sys
os.environ["QT_QPA_PLATFORM"] = "offscreen"
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from licclient.deliver import to_qt
from licclient.testing import LicenseService
app = QApplication([])
shop = LicenseService()
key = shop.issue("Notes", activated=True)
client = shop.client(slug="notes", version="1.0")
client.start(on_status=lambda _: None, on_update=lambda _: None, deliver=to_qt())
QTimer.singleShot(int(sys.argv[1]), app.quit)
app.exec()
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 30])
def test_nitrokey_nitrokey_app2_215(after: int) -> None:
    """An app quits while the worker runs: no abort by Qt (Bertrand256/dash-masternode-tool#76)."""
    pytest.importorskip("PySide6")
    done = subprocess.run(
        [sys.executable, "-c", QUIT, str(after)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "QThread" not in done.stderr
    assert "Traceback" not in done.stderr


BUSY = """
import os, threading
os.environ["QT_QPA_PLATFORM"] = "offscreen"
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from licclient.deliver import to_qt
app = QApplication([])
deliver = to_qt()
def work():
    while True:
        deliver(lambda: None)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
QTimer.singleShot(30, app.quit)
app.exec()
"""


@pytest.mark.slow
def test_an_app_quits_while_threads_call_back() -> None:
    """It ended with a segmentation fault once in four times: Qt had freed what a thread was about to use."""
    pytest.importorskip("PySide6")
    for _ in range(8):
        done = subprocess.run(
            [sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


LAUNCHER = re.compile(r"<!-- launcher -->\n```python\n(.*?)```", re.DOTALL)


@pytest.mark.slow
@needs_unix
def test_a_version_that_does_not_start_is_left_with_the_launcher(tmp_path: Path) -> None:
    """The guide's own launcher returns to the version before, and the broken one is on request only."""
    guide = Path(__file__).parents[2] / "docs" / "app" / "updates.md"
    found = LAUNCHER.search(guide.read_text(encoding="utf-8"))
    assert found is not None
    root = tmp_path / "Photo Lab"
    for version in ("1.0.0", "1.1.0"):
        Installation(root).apply(downloaded(tmp_path, app(version), version))
    code = f"import sys; sys.executable = {str(root / 'photo-lab')!r}\n{found[1]}"

    def launch(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout

    assert launch("open", "a b") == f"photo-lab 1.1.0 {root} open a b\n"
    for _ in range(2):  # without a version before, the current one starts
        assert launch("--previous-version") == f"photo-lab 1.0.0 {root}\n"
    assert launch() == f"photo-lab 1.0.0 {root}\n"
    assert (root / "rolled-back.txt").read_text(encoding="utf-8").split() == ["1.1.0"]
