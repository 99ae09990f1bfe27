"""State that cannot be read, for a moment or for good, is neither taken for missing nor written over."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stage.faults import Files

from licclient import LicenseClient, LicenseState, Source
from licclient.errors import StateUnreadableError
from licclient.testing import LicenseService

KEY = "CP-TEST00-TEST00-TEST00-TEST00-000001"
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
needs_modes = pytest.mark.skipif(
    sys.platform == "win32" or (IS_ROOT and shutil.which("setpriv") is None),
    reason="needs modes of Unix; for root they count only under setpriv, of util-linux",
)


@pytest.fixture
def shop() -> Iterator[LicenseService]:
    """A service with a license of one slot."""
    with LicenseService() as service:
        service.issue("Notes", key=KEY, slots=1)
        yield service


@pytest.fixture
def start(shop: LicenseService, tmp_path: Path) -> Callable[[], LicenseClient]:
    """Start the app: a new client on the same files."""
    return lambda: shop.client(storage=tmp_path / "state", product="Notes")


def _domains(shop: LicenseService) -> set[str]:
    return {request.fields["domain"] for request in shop.requests if request.kind == "verify"}


def test_v1k70rk4_hass_agent_net10_22(
    shop: LicenseService, start: Callable[[], LicenseClient], tmp_path: Path
) -> None:
    """An installer killed the app while it wrote: the file is empty, cut or gone, and the device the same."""
    start().activate(KEY)
    [installation] = (tmp_path / "state").glob("installation-*.state")
    good = installation.read_bytes()
    for damage in (b"", good[:20], bytes(len(good)), None):
        if damage is None:
            installation.unlink()
        else:
            installation.write_bytes(damage)
        assert start().verify(force=True).product == "Notes"
        assert installation.read_bytes() == good
    assert len(_domains(shop)) == 1


def test_v1k70rk4_hass_agent_net10_23(
    shop: LicenseService, start: Callable[[], LicenseClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virus scanner holds the file while the app starts: with one slot, a new id is refused for ever."""
    start().activate(KEY)
    files = Files(monkeypatch, tmp_path)
    for error in ("EACCES", "EIO", "EMFILE"):
        files.fail(lambda number, name: "installation" in name and number < 4, error)
        assert start().verify(force=True).product == "Notes"
    assert len(_domains(shop)) == 1


def test_amtoaer_bili_sync_71(
    start: Callable[[], LicenseClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file that is there and cannot be read is replaced by a new one, whatever the app does meanwhile."""
    start().activate(KEY)
    before = {path.name: path.read_bytes() for path in (tmp_path / "state").glob("*.state")}
    files = Files(monkeypatch, tmp_path)
    monkeypatch.setattr("licclient._core.storage.sleep", lambda _: None)
    files.fail(lambda _, name: name.endswith(".state"), "EIO")
    with start() as client:
        for act in (client.verify, client.require, lambda: client.activate(KEY), client.forget_key):
            with pytest.raises(StateUnreadableError):
                act()
        assert client.status().state is LicenseState.UNCONFIRMED
    files.heal()
    assert {path.name: path.read_bytes() for path in (tmp_path / "state").glob("*.state")} == before


def test_nathanbuchar_electron_settings_155(
    shop: LicenseService, start: Callable[[], LicenseClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read fails in an app that runs for days: it goes on with what it knows, and loses nothing later."""
    with start() as client:
        client.activate(KEY)
        shop.clock.move(hours=1)
        start().verify(force=True)  # another process has written
        files = Files(monkeypatch, tmp_path)
        files.fail(lambda _, name: "license-" in name, "EMFILE")
        with shop.offline():
            assert client.require().source is Source.CACHE
        files.heal()
        shop.clock.move(hours=23, minutes=30)
        with shop.offline():
            assert client.require().source is Source.CACHE, "since the other process asked"


PROGRAM = """
import json, os, resource, sys
from licclient import LicclientError, LicenseClient
from licclient.testing import LicenseService
import httpx
state, act = sys.argv[1], sys.argv[2]
held = []
if act == "no descriptors":
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with LicenseService() as shop:
    shop.issue("Notes", key=%r)
    # Patient: on a machine that stands still for ten seconds, the cache would answer in the shop's place.
    client = shop.client(storage=state or None, product="Notes", timeout=600)
    found = []
    def verify():
        try:
            found.append(client.verify(%r if act == "typed" else None, force=True).product)
        except LicclientError as problem:
            found.append([type(problem).__name__, problem.message])
    if act == "no descriptors":
        import filelock, licclient._core.status, licclient._core.signed_responses, secrets
        client._transport()
        while True:
            try:
                held.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        verify()
        for descriptor in held:
            os.close(descriptor)
    verify()
    domains = sorted({r.fields["domain"] for r in shop.requests if r.kind == "verify"})
print(json.dumps({"found": found, "domains": domains}))
"""


def _run(state: str, act: str, **variables: str) -> Any:
    """Run the program as a user for whom modes count; return what it printed."""
    setpriv = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if IS_ROOT else []
    done = subprocess.run(
        [*setpriv, sys.executable, "-c", PROGRAM % (KEY, KEY), state, act],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@needs_modes
def test_ever_co_ever_gauzy_desktop_timer_70(
    start: Callable[[], LicenseClient], shop: LicenseService, tmp_path: Path
) -> None:
    """An app has used up its file descriptors, for real: an error, and later the same id."""
    start().activate(KEY)
    result = _run(str(tmp_path / "state"), "no descriptors")
    first, second = result["found"]
    assert first[0] == "StateUnreadableError"
    assert os.strerror(errno.EMFILE) in first[1]
    assert second == "Notes"
    assert set(result["domains"]) == _domains(shop)


@pytest.mark.slow
@needs_modes
def test_openai_codex_34124(start: Callable[[], LicenseClient], tmp_path: Path) -> None:
    """The app was once run with sudo, and its files are of root: it names the file, and makes no new id."""
    start().activate(KEY)
    state = tmp_path / "state"
    before = {path: path.read_bytes() for path in state.glob("*.state")}
    for path in before:
        path.chmod(0)
    [[kind, message]] = _run(str(state), "activated")["found"]
    assert kind == "StateUnreadableError"
    assert os.strerror(errno.EACCES) in message
    assert str(state) in message
    for path in before:
        path.chmod(0o600)
    assert {path: path.read_bytes() for path in state.glob("*.state")} == before
    assert _run(str(state), "activated")["found"] == ["Notes"]


@pytest.mark.slow
@needs_modes
def test_activestate_appdirs_146(tmp_path: Path) -> None:
    """A service's user has a home folder that it cannot write to, or none: each start works."""
    home = tmp_path / "www"
    home.mkdir(mode=0o500)
    try:
        for variables in ({"HOME": str(home)}, {"HOME": "/nonexistent"}, {"XDG_STATE_HOME": str(home / "x")}):
            result = _run("", "typed", **{"XDG_STATE_HOME": "", **variables})
            assert result["found"] == ["Notes"], variables
    finally:
        home.chmod(0o700)
