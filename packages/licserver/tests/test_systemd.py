"""The notifications to a supervisor. `nox -s deploy` runs our units under a real systemd."""

import socket
import sys
import urllib.request

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "abstract"), [pytest.param("1", False, marks=pytest.mark.slow), ("2", True)]
)
def test_systemd_is_notified_once_the_server_answers(program, tmp_path, workers, abstract):
    """READY=1 comes when the first process answers, and from nobody else; nobody can answer before."""
    name = f"\0{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name)
        systemd.settimeout(30)
        waits = {"NOTIFY_SOCKET": name.replace("\0", "@")}
        with program.start(
            "serve", "--port", "0", "--workers", workers, env={**program.environ, **waits}
        ) as process:
            assert systemd.recv(100) == b"READY=1"
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            assert urllib.request.urlopen(f"{address}/readyz", timeout=20).status == 200  # noqa: S310 - ours
            process.terminate()
            assert process.wait(30) == 0
        systemd.settimeout(0)
        with pytest.raises(BlockingIOError):
            systemd.recv(100)


@pytest.mark.slow
def test_a_server_that_cannot_serve_does_not_notify_systemd(program, tmp_path):
    """A wrong setting ends the program without a word to systemd, so that `systemctl start` fails."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        wrong = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "LICSERVER_TRUSTED_PROXIES": "nonsense"}
        done = program.run("serve", "--workers", "2", env={**program.environ, **wrong}, check=False)
        assert done.returncode != 0
        systemd.settimeout(0)
        with pytest.raises(BlockingIOError):
            systemd.recv(100)
