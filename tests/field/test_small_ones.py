"""Small things: closed pipes, clocks that a test has stopped, byte order marks, programs without a name."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from stage.archives import app, downloaded

from licclient import LicenseClient, LicenseState, Source
from licclient._cli import main
from licclient._core.responses import read_json_object
from licclient.errors import ServiceUnavailableError
from licclient.install import Installation
from licclient.testing import LicenseService

needs_unix = pytest.mark.skipif(sys.platform == "win32", reason="runs a shell of Unix")
KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"


# --- exit statuses into a pipe that nobody reads ---------------------------------------------------


def _piped(arguments: str, *, errors_too: bool = False) -> tuple[int, str]:
    """Return the exit status of the command line before a pipe whose reader has ended, and its errors."""
    both = "2>&1" if errors_too else ""
    script = f'set -o pipefail; "{sys.executable}" -m licclient {arguments} {both} | (exec <&-; sleep 0.2)'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.mark.sampled(2, "arguments", "status", "as_json")
@needs_unix
@pytest.mark.parametrize("as_json", ["", " --json"])
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("roll-back {folder}", 0),
        ("roll-back {empty}", 1),
        ("--server https://licenses.example.com verify", 2),
        ("--server http://127.0.0.1:9 --state-dir {folder} verify " + KEY, 3),
    ],
    ids=["yes", "no", "wrong use", "no answer"],
)
def test_exit_statuses_survive_a_closed_pipe(
    tmp_path: Path, arguments: str, status: int, as_json: str
) -> None:
    """As in `licclient … | true`: the status is the result's, and nothing is printed about the pipe."""
    installation = Installation(tmp_path / "app")
    installation.apply(downloaded(tmp_path, app("1.0"), "1.0"))
    installation.apply(downloaded(tmp_path, app("1.1"), "1.1"))
    (tmp_path / "empty").mkdir()
    places = {"folder": tmp_path / "app", "empty": tmp_path / "empty"}
    found, errors = _piped(arguments.format(**places) + as_json)
    assert found == status
    assert "BrokenPipe" not in errors
    assert "Traceback" not in errors


@pytest.mark.sampled(1)
@needs_unix
@pytest.mark.parametrize("arguments", ["--version", "--help", "verify"])
def test_a_closed_pipe_for_errors_too(arguments: str) -> None:
    """Help, version and wrong use: 0, 0 and 2."""
    assert _piped(arguments, errors_too=True)[0] == (2 if arguments == "verify" else 0)


@needs_unix
def test_a_full_disk_is_no_success(tmp_path: Path) -> None:
    """A result that could not be written is an error, unlike one that nobody wants."""
    command = f'"{sys.executable}" -m licclient --json roll-back "{tmp_path}" > /dev/full'
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["bash", "-c", command], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert os.strerror(errno.ENOSPC) in done.stderr


# --- a clock that a test has stopped ---------------------------------------------------------------


class FrozenDatetime(datetime):
    """As freezegun puts it in the place of the real one."""

    @classmethod
    def now(cls, tz: Any = None) -> "FrozenDatetime":
        """Return the frozen time."""
        return cls(2026, 1, 5, 12, tzinfo=tz)


@pytest.fixture
def freeze(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Stop all clocks, as freezegun does: where a module has the real function, it gets one that stands."""

    def stop() -> None:
        stopped: dict[int, Any] = {
            id(function): lambda: 100.0 for function in (time.monotonic, time.time, time.perf_counter)
        }
        stopped[id(datetime)] = FrozenDatetime
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in ("licclient", "time"):
                for attribute, value in list(vars(module).items()):
                    if id(value) in stopped:
                        monkeypatch.setattr(module, attribute, stopped[id(value)])

    return stop


def test_spulec_freezegun_384(freeze: Callable[[], None], tmp_path: Path) -> None:
    """With monotonic time stopped no wait hangs: an outage is retried, then raised."""
    from licclient import _async_client  # noqa: F401, PLC0415
    from licclient._core import happy_eyeballs, incoming, transport  # noqa: F401, PLC0415

    freeze()
    done = threading.Event()
    client = LicenseClient("http://127.0.0.1:9", timeout=1, storage=tmp_path / "state")

    def verify() -> None:
        with pytest.raises(ServiceUnavailableError):
            client.verify(KEY)
        done.set()

    threading.Thread(target=verify, daemon=True).start()
    assert done.wait(20)


@pytest.mark.slow
def test_spulec_freezegun_129(freeze: Callable[[], None], tmp_path: Path) -> None:
    """The date that a test has set is the one that the client goes by."""
    with LicenseService() as shop:
        key = shop.issue("Notes")
        client = LicenseClient("https://licenses.example.com", transport=shop.transport, storage=tmp_path)
        freeze()
        assert client.activate(key).checked_at == FrozenDatetime.now(UTC)
        with shop.offline():
            assert client.verify().source is Source.CACHE
        assert client.status().state is LicenseState.VALID
        client.close()


# --- a byte order mark -----------------------------------------------------------------------------


def test_a_byte_order_mark_before_json() -> None:
    """A file of the server's PHP was saved with one: each of its responses begins with it."""
    assert read_json_object(b"\xef\xbb\xbf" + json.dumps({"valid": True}).encode()) == {"valid": True}
    assert read_json_object(b"\xef\xbb\xbf\xef\xbb\xbf{}") == {}
    assert read_json_object("{}".encode("utf-16")) == {}


# --- a program without a name ----------------------------------------------------------------------


@pytest.mark.slow
def test_an_embedded_interpreter_has_no_argv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sys.argv` is empty, and `sys.executable` may be as well: updates are installed all the same."""
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "executable", "")
    installation = Installation(tmp_path / "app")
    for version in ("1.0", "1.1", "1.2"):
        installation.apply(downloaded(tmp_path, app(version), version))
    assert installation.current is not None
    with LicenseService() as shop:
        key = shop.issue("Notes")
        shop.publish("2.0")
        client = shop.client(slug="notes", version="1.0")
        assert client.check_for_update(key)
        assert "licclient doctor" in client.diagnose()
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert main([]) == 2
    assert main(None) == 2
    assert "usage: licclient" in capsys.readouterr().err
