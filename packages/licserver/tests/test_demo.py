"""`licserver demo`: a store to play with that leaves nothing behind."""

import re
import signal

import pytest


@pytest.fixture
def temporary(tmp_path):
    """The folder in which the demo makes its own."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


@pytest.fixture
def demo(program, temporary):
    """Start the demo with these variables; gives the process and what it printed."""

    def start(**variables: str):
        environ = {name: value for name, value in program.environ.items() if name != "LICSERVER_DATA_DIR"}
        return program.start("demo", "--port", "0", env={**environ, "TMPDIR": str(temporary), **variables})

    return start


def introduction(process):
    """What the demo prints until it answers, and its address."""
    lines = []
    for line in process.stdout:
        if line.startswith("listening on "):
            return "".join(lines), line.removeprefix("listening on ").strip()
        lines.append(line)
    raise AssertionError("".join(lines) + process.stderr.read())


def test_a_demo_ends_with_ctrl_c(demo, temporary):
    """SIGINT removes the demo's folder, as SIGTERM does, with exit code 0."""
    with demo() as process:
        introduction(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert list(temporary.iterdir()) == []


def test_a_demo_that_is_ended_while_it_starts_leaves_nothing_behind(demo, temporary):
    """SIGTERM before the server listens for it cleans up too."""
    with demo() as process:
        while not list(temporary.iterdir()):
            assert process.poll() is None
        process.terminate()
        assert process.wait(20) == 0
    assert list(temporary.iterdir()) == []


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
