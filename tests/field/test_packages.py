"""The installed packages in projects of others, who name and run them in ways of their own."""

import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from licserver.services.self_check import check_base_url

DEPLOY = Path(__file__).parents[2] / "packages" / "licserver" / "src" / "licserver" / "deploy_files"
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
UNPRIVILEGED = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if IS_ROOT else []
needs_modes = pytest.mark.skipif(
    sys.platform == "win32" or (IS_ROOT and shutil.which("setpriv") is None),
    reason="needs modes of Unix; for root they count only under setpriv, of util-linux",
)
PLUGINS = [entry for entry in entry_points(group="pytest11") if entry.value.startswith("lic")]


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.value)
def test_a_plugin_that_a_conftest_names_as_well(plugin: EntryPoint) -> None:
    """It is found by itself, and `pytest_plugins` or `-p` names its module, and it is there once."""
    manager = pytest.PytestPluginManager()
    manager.load_setuptools_entrypoints("pytest11", name=plugin.name)
    manager.import_plugin(plugin.value)
    assert plugin.load() in manager.get_plugins()
    first = pytest.PytestPluginManager()
    first.import_plugin(plugin.value, consider_entry_points=True)  # `-p` comes before what is found
    first.load_setuptools_entrypoints("pytest11", name=plugin.name)
    assert plugin.load() in first.get_plugins()


def test_each_plugin_was_found() -> None:
    """The test above has cases."""
    assert {plugin.value for plugin in PLUGINS} == {"licclient.pytest_plugin", "licserver.pytest_plugin"}


@pytest.mark.slow
@needs_modes
def test_a_database_that_belongs_to_another_user(tmp_path: Path) -> None:
    """A new image runs as another user: the message names the file, and not only what SQLite thinks of it."""
    folder = str(tmp_path / "data")
    command = [sys.executable, "-m", "licserver"]
    subprocess.run([*command, "product", "add", "notes", "--name", "Notes", "--data-dir", folder], check=True)
    file = Path(folder, "licserver.sqlite3")
    reasons = {0o400: "attempt to write a readonly database", 0o000: "unable to open database file"}
    for mode, reason in reasons.items():
        file.chmod(mode)
        issue = [*UNPRIVILEGED, *command, "license", "issue", "notes", "--data-dir", folder]
        done = subprocess.run(issue, capture_output=True, text=True, check=False)
        hint = f"see that this user may read and write {file} and its folder"
        assert (done.returncode, done.stderr) == (1, f"licserver: the database failed: {reason}; {hint}\n")


@contextmanager
def _serving(body: bytes, date: str = "") -> Iterator[int]:
    """Answer each GET with this body and date; give the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def date_time_string(self, timestamp: float | None = None) -> str:
            return date or super().date_time_string(timestamp)

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


OK = b'{"status": "ok"}'
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("date", "at"),
    [
        ("Sun Nov 29 12:00:00 2026", NOON),
        ("Sun, 29 Nov 2026 12:00:00 -0000", NOON),
        ("Sunday, 29-Nov-26 12:00:00 GMT", NOON),
        ("Fri, 27 Nov 99999999999999999999 23:59:59 GMT", None),
        ("Fri, 27 Nov 2026 23:59:59 +99999999999999999999", None),
        ("soon", None),
    ],
)
def test_dates_of_servers_in_each_form(date: str, at: datetime | None) -> None:
    """A form that HTTP allows names no zone (RFC 9110 5.6.7), and others are no dates at all."""
    with _serving(OK, date) as port:
        assert check_base_url(f"http://127.0.0.1:{port}") == ("", at)


def test_a_body_that_is_too_deep_to_read() -> None:
    """It is something other than licserver, and no traceback."""
    with _serving(b"[" * 100_000) as port:
        assert "other than licserver" in check_base_url(f"http://127.0.0.1:{port}").problem


def test_the_containers_health_check_uses_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """`http_proxy` is for the shops that the server asks; the check asks the container itself."""
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", "")
    found = re.search(r'^HEALTHCHECK .* CMD \["python", "-c", +"(.*)"\]$', text, re.MULTILINE)
    assert found is not None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with _serving(OK) as port:
        exec(found[1].replace("8080", str(port)), {})  # noqa: S102 - ours
