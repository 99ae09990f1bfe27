"""What desktops did to other SDKs, updaters and frozen apps: at their start, at their end, and in between."""

import errno
import json
import socket
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from stage.archives import app, downloaded

from licclient import (
    ClientSettings,
    LicenseClient,
    LicenseState,
    LicenseStatus,
    Outage,
    Source,
    explain,
)
from licclient.errors import ServiceUnavailableError
from licclient.install import Installation
from licclient.testing import LicenseService, Misbehaviour

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
SETTINGS = ClientSettings("https://licenses.example.com", product="Notes", slug="notes", version="1.0")


@pytest.fixture
def shop() -> Iterator[LicenseService]:
    """A service with a license of one slot."""
    with LicenseService() as service:
        service.issue("Notes", key=KEY, slots=1)
        yield service


def _eventually(holds: Callable[[], object], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


# --- programs ------------------------------------------------------------------------------------

WITHOUT_A_CONSOLE = """
import sys, threading, warnings
out, state = sys.argv[1:]
sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None
import licclient
from licclient._cli import main
from licclient.testing import LicenseService
found, reported = [], threading.Event()
with LicenseService() as shop:
    key = shop.issue("Notes")
    client = shop.client("http://licenses.example.com", storage=state, product="Notes")
    found.append(client.activate(key).product)
    def fail(_):
        reported.set()
        raise ValueError("a fault of the app")
    with client.start(on_status=fail):
        reported.wait(10)
    found.append(client.require().product)
    found.append(client.diagnose().splitlines()[0] != "")
found.append(main(["roll-back", state]))
open(out, "w").write(repr(found))
"""

AT_ITS_END = """
import atexit, sys
from licclient.testing import LicenseService
from licclient import LicclientError
shop = LicenseService()
key = shop.issue("Notes")
client = shop.client(storage=sys.argv[2], product="Notes")
client.activate(key)
def at_exit():
    found = []
    for act in (client.require, lambda: client.verify(force=True), client.check_for_update, client.close):
        try:
            found.append(type(act()).__name__)
        except (LicclientError, ValueError) as problem:
            found.append(type(problem).__name__)
    open(sys.argv[1], "w").write(repr(found))
atexit.register(at_exit)
"""

PENDING = """
import asyncio, sys
from licclient import AsyncLicenseClient
client = AsyncLicenseClient("https://licenses.example.com", storage=sys.argv[2])
loop = asyncio.new_event_loop()

async def begin():
    return client.start()

kept = loop.run_until_complete(begin()), loop
open(sys.argv[1], "w").write("'ends'")
"""


def _run(program: str, folder: Path) -> Any:
    """Run a program to its end; return what it wrote."""
    out = folder / "out.txt"
    command = [sys.executable, "-c", program, str(out), str(folder / "state")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return eval(out.read_text(), {})  # noqa: S307 - it is ours


@pytest.mark.slow
def test_pyinstaller_pyinstaller_7782(tmp_path: Path) -> None:
    """An app without a console has neither stdout nor stderr: nothing prints, warns or logs into None."""
    assert _run(WITHOUT_A_CONSOLE, tmp_path) == ["Notes", "Notes", True, 1]


@pytest.mark.slow
def test_python_cpython_113964(tmp_path: Path) -> None:
    """From Python 3.12 on, no thread starts any more at the end of a program: an error of ours at most."""
    found = _run(AT_ITS_END, tmp_path)
    assert found[0] == "License"
    assert found[1] in ("License", "ServiceUnavailableError")
    assert found[3] == "NoneType"


def test_open_telemetry_opentelemetry_python_4752(tmp_path: Path) -> None:
    """A program ends while a task is pending, whose cleanup would start a thread: that waited for ever."""
    assert _run(PENDING, tmp_path) == "ends"


# --- keys as they are pasted ---------------------------------------------------------------------

INVISIBLE = ("\ufeff", "\u200b", "\u00a0", "\u00ad", "\u2060", "\r\n", "\t", "\u202a", "\u2028", "\u3000")


@pytest.mark.parametrize("letter", INVISIBLE, ids=[f"U+{ord(letter[0]):04X}" for letter in INVISIBLE])
def test_mehtadone_ptfeeder_8(shop: LicenseService, letter: str) -> None:
    """A key from a mail, with what nobody sees before, behind and within it."""
    with shop.client(SETTINGS) as client:
        assert client.activate(f"{letter}{KEY[:9]}{letter}{KEY[9:]}{letter}").product == "Notes"


def test_sameerasw_airsync_mac_93(shop: LicenseService, tmp_path: Path) -> None:
    """A key that is entered again and again on one computer uses one slot of one."""
    with shop.client(SETTINGS, storage=tmp_path) as client:
        ways: list[Callable[[], object]] = [lambda: None, client.forget_key, client.reset, client.deactivate]
        for leave in ways:
            assert client.activate(KEY).product == "Notes"
            leave()
        assert client.activate(KEY).product == "Notes"


# --- before the network is there, and after it was away --------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("hours", [1, 30])
def test_cymian_mouseless_597(shop: LicenseService, hours: int) -> None:
    """The app starts at login, before the Wi-Fi: licensed all the time, and confirmed soon after."""
    with shop.client(SETTINGS) as client:
        client.activate(KEY)
        shop.go_offline()
        shop.clock.move(hours=hours)
        statuses: list[LicenseStatus] = []
        with client.start(on_status=statuses.append):
            _eventually(lambda: statuses)
            assert client.require().product == "Notes"
            shop.come_back()
            back_at = shop.clock()

            def is_confirmed() -> bool:
                shop.clock.move(minutes=5)
                return statuses[-1].checked_at is not None and statuses[-1].checked_at > back_at

            _eventually(is_confirmed)
        assert {status.state for status in statuses} <= {LicenseState.VALID, LicenseState.GRACE}


def test_fttx_barcode_to_pc_server_155(shop: LicenseService) -> None:
    """Weeks without a network, then it is back: the license is confirmed without its key."""
    with shop.client(SETTINGS) as client:
        client.activate(KEY)
        shop.go_offline()
        shop.clock.move(days=30)
        with pytest.raises(ServiceUnavailableError):
            client.require()
        assert client.status().state is LicenseState.UNCONFIRMED
        shop.come_back()
        shop.clock.move(minutes=1)
        assert client.require().source is Source.SERVER


@pytest.mark.parametrize("how", [Misbehaviour.LOGIN_PAGE, Misbehaviour.GARBAGE, Misbehaviour.REDIRECT])
def test_opentoonz_opentoonz_3437(shop: LicenseService, how: Misbehaviour) -> None:
    """A hotel's page in place of an update check's answer: no crash, and a sentence with the next step."""
    with shop.client(SETTINGS) as client:
        client.activate(KEY)
        shop.misbehave(how)
        check = client.check_for_update(force=True)
        assert not check
        assert isinstance(check.error, ServiceUnavailableError)
        is_login = check.error.outage is Outage.LOGIN_PAGE
        assert is_login is (how is not Misbehaviour.GARBAGE)
        assert ("log in" in explain(check, "en")) is is_login
        assert client.require().product == "Notes"


# --- clocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [timedelta(days=4), timedelta(days=-4), timedelta(days=400)])
def test_signalapp_signal_desktop_5521(shop: LicenseService, behind: timedelta) -> None:
    """A clock that only an administrator may set is days wrong: the app works, offline as well."""
    shop._endpoints.licenses[KEY].expires = date(2031, 12, 31)
    shop.publish("2.0", slug="notes")
    with shop.client(SETTINGS, clock=lambda: shop.clock() - behind) as client:
        assert client.activate(KEY).source is Source.SERVER
        assert client.status().state is LicenseState.VALID
        assert client.check_for_update(force=True)
        with shop.offline():
            shop.clock.move(hours=20)
            assert client.require().source is Source.CACHE


def test_mangoautomation_ma_core_public_620(shop: LicenseService, tmp_path: Path) -> None:
    """A computer without a battery starts in 1970, and its clock jumps when the network is there."""
    real, shown = shop.clock, [shop.clock()]
    with shop.client(SETTINGS, storage=tmp_path, clock=lambda: shown[0]) as client:
        client.activate(KEY)
        shop.go_offline()
        shown[0] = real() - timedelta(days=365 * 50)
        with pytest.raises(ServiceUnavailableError) as caught:
            client.verify()
        assert caught.value.outage is Outage.CLOCK
        assert "clock" in explain(caught.value, "en")
        shown[0] = real() + timedelta(hours=1)
        assert client.verify().source is Source.CACHE
        shop.come_back()
        shown[0] = real() + timedelta(days=365 * 50)
        assert client.verify().source is Source.SERVER
        shown[0] = real() + timedelta(hours=2)
        assert client.verify().source is Source.SERVER
        with shop.offline():
            assert client.verify().source is Source.CACHE


# --- file systems --------------------------------------------------------------------------------

PLACES = ["Área de Trabalho", "TIDAL GUI", "用户 ü 'q' %TEMP% $HOME", "a.b..c"]


@pytest.mark.parametrize("place", PLACES)
def test_xemu_project_xemu_2257(shop: LicenseService, tmp_path: Path, place: str) -> None:
    """The app and its data lie in folders with spaces, accents, other scripts and signs of shells."""
    home = tmp_path / place
    shop.publish("2.0", slug="notes")
    with shop.client(SETTINGS, storage=home / "state") as client:
        client.activate(KEY)
        update = client.check_for_update().update
        assert update is not None
        assert client.download(update, home / "downloads").path.is_file()
    installation = Installation(home / "app")
    for version in ("1.0", "1.1"):
        installation.apply(downloaded(tmp_path, app(version), version))
    assert installation.current is not None
    assert installation.current.version == "1.1"
    assert installation.roll_back() is not None


@pytest.mark.skipif(sys.platform == "win32", reason="locks of POSIX")
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EIO])
def test_tox_dev_filelock_6(
    shop: LicenseService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A home on a share without locks: the app works, and remembers; an update is refused with the reason."""
    import fcntl  # noqa: PLC0415 - not on Windows

    def refuse(*_: object) -> None:
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(fcntl, "lockf", refuse)
    for is_new in (True, False):
        with shop.client(SETTINGS, storage=tmp_path / "state") as client:
            assert (client.activate(KEY) if is_new else client.require()).product == "Notes"
    assert shop.count("verify") == 1
    installation = Installation(tmp_path / "app")
    words = "no locks here" if number == errno.EIO else "cannot be locked here"
    with pytest.raises(OSError, match=words):
        installation.apply(downloaded(tmp_path, app("1.0"), "1.0"))
    assert installation.current is None


# --- proxies -------------------------------------------------------------------------------------


@contextmanager
def _proxy() -> Iterator[tuple[str, list[str]]]:
    """Answer each request in the service's place; yield the address, and what was asked."""
    heads: list[str] = []
    body = json.dumps({"valid": True, "product": "Notes", "expiry": None, "lifetime": True}).encode()

    def serve() -> None:
        with suppress(OSError):
            while True:
                line, _ = listener.accept()
                with line:
                    heads.append(line.recv(65536).decode("latin-1"))
                    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
                    line.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode() + body)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", heads
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.mark.filterwarnings("ignore:base_url is http")
@pytest.mark.parametrize(
    ("setting", "sent"),
    [
        ("{place}", None),
        ("http://{place}", None),
        ("http://{place}/", None),
        ("http://me:p%40ss%23w%2Frd@{place}", "me:p@ss#w/rd"),
        ("http://me%40corp.example:secret@{place}", "me@corp.example:secret"),
        ("http://me@corp.example:secret@{place}", "me@corp.example:secret"),
        ("http://me:sec#ret@{place}", None),
        ("http://me:sec/ret@{place}", None),
        ("http://me:sec[ret@{place}", "me:sec[ret"),
    ],
)
def test_encode_httpx_806(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, sent: str | None
) -> None:
    """Settings as people write them: without a scheme, with signs in the password. They work or are named."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with _proxy() as (place, heads):
        monkeypatch.setenv("http_proxy", setting.format(place=place))
        with LicenseClient("http://licenses.example", product="Notes", storage=tmp_path) as client:
            if any(sign in setting for sign in ("#ret", "/ret")):
                with pytest.raises(ServiceUnavailableError) as caught:
                    client.activate(KEY)
                assert caught.value.outage is Outage.PROXY
                assert "sec" not in caught.value.message
                assert not heads
                return
            assert client.activate(KEY).product == "Notes"
    [head] = heads
    assert head.startswith("POST http://licenses.example/")
    given = [line.partition(" Basic ")[2] for line in head.splitlines() if "authorization" in line.lower()]
    assert [b64decode(argument).decode() for argument in given] == ([] if sent is None else [sent])
