"""`licserver demo`: a store to play with that leaves nothing behind."""

import json
import re
import signal
import socket
from contextlib import suppress

import aiohttp
import pytest

from harness.console import Browser
from licserver.cli.demo import _DemoKeys, _introduction


@pytest.fixture
def temporary(tmp_path):
    """The folder in which the demo makes its own."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


@pytest.fixture
def demo(program, temporary):
    """Start the demo with these variables; gives the process and what it printed."""

    def start(*arguments: str, **variables: str):
        environ = {name: value for name, value in program.environ.items() if name != "LICSERVER_DATA_DIR"}
        return program.start(
            "demo", *(arguments or ("--port", "0")), env={**environ, "TMPDIR": str(temporary), **variables}
        )

    return start


def introduction(process):
    """What the demo prints until it answers, and its address."""
    lines = []
    for line in process.stdout:
        if line.startswith("listening on "):
            return "".join(lines), line.removeprefix("listening on ").strip()
        lines.append(line)
    raise AssertionError("".join(lines) + process.stderr.read())


@pytest.mark.slow
def test_a_demo_ends_with_ctrl_c(demo, temporary):
    """SIGINT removes the demo's folder, as SIGTERM does, with exit code 0."""
    with demo() as process:
        introduction(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_a_demo_that_is_ended_while_it_starts_leaves_nothing_behind(demo, temporary):
    """SIGTERM before the server listens for it cleans up too."""
    with demo() as process:
        while not list(temporary.iterdir()):
            assert process.poll() is None
        process.terminate()
        assert process.wait(20) == 0
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_a_demo_serves_its_keys_and_leaves_nothing_behind(demo, temporary, tmp_path):
    """It prints commands (`tests/test_demo.py` runs them), uses no setting, and removes its folder."""
    own = {
        "LICSERVER_DATA_DIR": str(tmp_path / "own"),
        "LICSERVER_DATABASE_URL": "postgresql://nowhere/x",
        "LICSERVER_BASE_URL": "https://real.example",
        "LICSERVER_SECRETS": "rubbish",
        "LICSERVER_BODY_TIMEOUT": "soon",
        "LICSERVER_IPV6_PREFIX": "999",
    }
    with demo(**own) as process:
        text, address = introduction(process)
        assert address.startswith("http://127.0.0.1:")
        assert "real.example" not in text
        assert text.count(f"--server {address} ") == 5
        assert [path.name[:15] for path in temporary.iterdir()] == ["licserver-demo-"]
        assert len(set(re.findall(r"CP(?:-[A-Z0-9]{6}){5}", text))) == 3
        process.terminate()
        assert process.wait(20) == 0
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "own").exists()


@pytest.mark.slow
def test_without_a_port_the_demo_takes_another_one_where_its_own_is_taken(demo):
    """Whoever asks for a port gets that one or an error."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # somebody else has it, which is as good
            taken.bind(("127.0.0.1", 8080))
            taken.listen()
        with demo("--json") as process:
            assert not json.loads(process.stdout.readline())["listening"].endswith(":8080")
        with demo("--port", "8080") as process:
            assert process.wait(20) != 0


@pytest.mark.slow
def test_a_demo_without_the_client_says_how_to_get_it(monkeypatch):
    """Installed alone, the server has no `licclient` beside it."""
    keys = _DemoKeys("CP-A", "CP-B", "CP-C")
    monkeypatch.setattr("shutil.which", lambda name, **_: f"/venv/bin/{name}")
    assert "pip install" not in _introduction("http://127.0.0.1:1", "pw", keys)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert "in this folder, after `pip install licclient`:" in _introduction("http://127.0.0.1:1", "pw", keys)


@pytest.mark.slow
async def test_the_demo_has_a_console_with_some_weeks_of_life(demo):
    """`/` leads to it, the printed user signs in, and there is something to find."""
    with demo("--port", "0", "--json") as process:
        document = json.loads(process.stdout.readline())
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            browser = Browser(session, document["listening"])
            await browser.get("/")
            assert browser.path.startswith("/console/sign-in")
            await browser.sign_in(document["user"], document["password"])
            assert (browser.path, "Verify calls" in browser.text) == ("/console", True)
            key = {"key": document["active"]}
            assert "Demo Notes" in await browser.post(
                f"{document['account'].removeprefix(document['listening'])}/sign-in", csrf="", **key
            )
            assert "anna.brown@example.com" in await browser.get("/console/licenses?q=anna.brown")
