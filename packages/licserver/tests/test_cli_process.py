"""The command line as a process: pipes, interrupts, a running server that sees every change."""

import json
import os
import signal
import socket
import subprocess
import time
from datetime import UTC, datetime

import pytest

from harness.fetching import fetch, verify
from licserver.domain.decisions import is_license_key

FULL = "/dev/full"


@pytest.fixture(autouse=True)
def _product(cli):
    """A product in the data folder that the processes use: `cli` and `program` share it."""
    cli("product", "add", "app", "--name", "App")


@pytest.mark.slow
def test_a_reader_who_has_enough_ends_the_listing_quietly(cli, program):
    """`license list | head`: no traceback, no error at exit."""
    cli("license", "issue", "app", "--count", "1000")
    with program.start("license", "list") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ID")
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (1, "")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists(FULL), reason="there is no /dev/full here")  # noqa: PTH110
def test_an_output_that_is_full_is_reported_in_one_line(cli, program):
    """A full disk is an error on standard error, with exit code 1; keys that were issued are stored."""
    errors = []
    for command in (["product", "list"], ["license", "issue", "app", "--count", "3"]):
        with open(FULL, "w") as full:  # noqa: PTH123
            done = subprocess.run(
                [*program.command, *command],
                env=program.environ,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                timeout=30,
            )
        assert done.returncode == 1
        errors.append(done.stderr)
    assert errors[0] == "licserver: No space left on device\n"
    assert "`licserver license list` shows all that are issued" in errors[1]
    assert len(json.loads(cli("license", "list", "--json"))) == 3


@pytest.mark.slow
def test_no_standard_input_is_reported(program):
    """`license show -` with standard input closed is wrong use."""
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" <&-', "sh", *program.command, "license", "show", "-"],
        env=program.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 2
    assert "standard input" in done.stderr


@pytest.mark.slow
def test_a_restore_that_is_stopped_leaves_no_secrets_behind(program, tmp_path):
    """SIGTERM, as systemd and containers send it, ends it as Ctrl-C does."""
    held = tmp_path / "vendor.backup"
    program.run("backup", str(held))
    anew = tmp_path / "anew"
    command = ["restore", "-", "--data-dir", str(anew)]
    with program.start(*command, stdin=subprocess.PIPE) as process:
        process.stdin.buffer.write(held.read_bytes()[:-2000])
        process.stdin.buffer.flush()
        while not list(tmp_path.glob("anew/.restore-*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
        _, printed = process.communicate(timeout=60)
    assert (process.returncode, printed.strip()) == (130, "licserver: interrupted")
    assert list(anew.iterdir()) == []


@pytest.mark.slow
def test_every_key_printed_before_ctrl_c_is_in_the_books(cli, program):
    """Interrupted in the middle of a million, the printed keys are stored, and the exit code is 130."""
    with program.start("license", "issue", "app", "--count", "1000000") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        rest, err = process.stdout.read(), process.stderr.read()
        assert process.wait(60) == 130
    assert "all keys printed above are issued and valid" in err
    assert "Traceback" not in err
    keys = [first, *rest.rpartition("\n")[0].split()]  # the last line may have been cut
    assert all(map(is_license_key, keys))
    listed = json.loads(cli("license", "list", "--json"))
    assert len(keys) <= len(listed) < 1_000_000
    for key in (first, keys[-1]):
        cli("license", "show", key, "--json")


@pytest.mark.slow  # 20,000 keys: the least that has a progress bar
def test_a_long_issue_shows_its_progress_beside_the_keys(program):
    """Keys go to standard output and the bar to standard error."""
    done = program.run("license", "issue", "app", "--count", "20001")
    assert len(done.stdout.split()) == 20001
    assert "issued 20001 keys" in done.stderr


def check(address: str, key: str) -> tuple[int, dict[str, object]]:
    """Call update-check."""
    query = f"license_key={key}&slug=app&current_version=1&domain=a"
    status, answer = fetch(f"{address}/api/v1/update-check?{query}")
    return status, json.loads(answer)


@pytest.mark.slow
def test_a_running_server_sees_every_change_at_its_next_request(cli, program, tmp_path):
    """Each command works beside the server, and the next response reflects it."""
    file = tmp_path / "app.zip"
    file.write_bytes(b"zip")
    with program.serve() as (_, address):
        key = cli("license", "issue", "app", "--subscription", "s-1").strip()
        assert check(address, key)[1]["error"] == "no_versions"
        cli("release", "publish", "app", "1.0", str(file))
        assert check(address, key)[1]["version"] == "1.0"
        cli("product", "rename", "app", "--name", "App II", "--yes")
        assert check(address, key)[1]["name"] == "App II"
        cli("release", "withdraw", "app", "1.0")
        assert check(address, key)[1]["error"] == "no_versions"
        assert verify(address, key)[1]["product"] == "App"
        assert verify(address, key, "b.example")[0] == 403
        cli("license", "allow", key, "*.example")
        assert verify(address, key, "b.example")[0] == 200
        assert cli("license", "deactivate", key, "a.example") == "freed 1 slot\n"
        assert verify(address, key, "b.other")[0] == 200
        cli("license", "revoke", "-", stdin=key + "\n")
        assert verify(address, key)[1]["reason"] == "License has been revoked."
        cli("license", "reinstate", key)
        assert verify(address, key)[0] == 200
        at = datetime.now(UTC).isoformat()
        cli("subscription", "end", "s-1", "--at", at)
        assert verify(address, key)[1]["reason"] == "License expired."


@pytest.fixture
def quiet(monkeypatch):
    """Keep `serve` from configuring this process's logging."""
    for command in ("serve", "demo"):
        monkeypatch.setattr(f"licserver.cli.{command}.set_up_logging", lambda *_: None)


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_a_port_in_use_is_reported(cli, quiet, command):
    """One line that names the address, exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        err = cli(command, "--port", str(port), expect=1)
    assert err.startswith(
        f"licserver: cannot listen on 127.0.0.1 port {port}: Address already in use; another"
    )
    assert err.count("\n") == 1


def test_a_host_that_cannot_be_used_is_reported(cli, quiet):
    """A name that does not resolve is an error, and a malformed one wrong use, in one line each."""
    err = cli("serve", "--host", "nowhere.invalid", "--port", "0", expect=1)
    assert err.startswith("licserver: cannot listen on nowhere.invalid port 0: ")
    assert err.count("\n") == 1
    for host in ("a..b", "a" * 300, "\udcff"):
        (line,) = cli("serve", "--host", host, "--port", "0", expect=2).splitlines()
        assert line.startswith("licserver: --host: ")
