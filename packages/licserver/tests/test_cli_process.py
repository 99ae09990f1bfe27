"""The command line as a process: pipes, interrupts, a running server that sees every change."""

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from datetime import UTC, datetime

import pytest

from licserver.domain.decisions import has_key_shape

FULL = "/dev/full"


def test_a_reader_who_has_enough_ends_the_listing_quietly(program):
    """`license list | head`: no traceback, no complaint at exit."""
    program.run("product", "add", "app", "--name", "App")
    program.run("license", "issue", "app", "--count", "2000")
    with program.start("license", "list") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ID")
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (1, "")


@pytest.mark.skipif(not os.path.exists(FULL), reason="there is no /dev/full here")  # noqa: PTH110
def test_an_output_that_is_full_is_told_in_one_line(program):
    """A disk that takes no more is a failure, told on standard error."""
    program.run("product", "add", "app", "--name", "App")
    with open(FULL, "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [*program.command, "product", "list"],
            env=program.environ,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=30,
        )
    assert (done.returncode, done.stderr) == (1, "licserver: No space left on device\n")


def test_no_standard_input_is_told(program):
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


def test_every_key_printed_before_ctrl_c_is_in_the_books(program):
    """Interrupted in the middle of a million, the keys on paper are good, and the exit code is 130."""
    program.run("product", "add", "app", "--name", "App")
    with program.start("license", "issue", "app", "--count", "1000000") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        rest, err = process.stdout.read(), process.stderr.read()
        assert process.wait(60) == 130
    assert "every key printed above is issued and valid" in err
    assert "Traceback" not in err
    keys = [first, *rest.rpartition("\n")[0].split()]  # the last line may have been cut
    assert all(map(has_key_shape, keys))
    listed = json.loads(program.run("license", "list", "--json").stdout)
    assert len(keys) <= len(listed) < 1_000_000
    for key in (first, keys[-1]):
        assert program.run("license", "show", key, "--json").returncode == 0


def test_a_long_issue_shows_its_progress_beside_the_keys(program):
    """Keys go to standard output and the bar to standard error."""
    program.run("product", "add", "app", "--name", "App")
    done = program.run("license", "issue", "app", "--count", "20001")
    assert len(done.stdout.split()) == 20001
    assert "issued 20001 keys" in done.stderr


def verify(address: str, key: str, domain: str = "a.example") -> tuple[int, dict[str, object]]:
    """Call verify."""
    body = json.dumps({"license_key": key, "domain": domain, "ip": "::1"}).encode()
    request = urllib.request.Request(f"{address}/api/v1/licenses/verify", body)  # noqa: S310 - our own server
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the same
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def check(address: str, key: str) -> tuple[int, dict[str, object]]:
    """Call update-check."""
    query = f"license_key={key}&slug=app&current_version=1&domain=a"
    try:
        with urllib.request.urlopen(f"{address}/api/v1/update-check?{query}", timeout=30) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def test_a_running_server_sees_every_change_at_its_next_request(program, tmp_path):
    """Each command works beside the server, and the very next answer knows of it."""
    program.run("product", "add", "app", "--name", "App")
    file = tmp_path / "app.zip"
    file.write_bytes(b"zip")
    with program.serve() as (_, address):
        key = program.run("license", "issue", "app", "--subscription", "s-1").stdout.strip()
        assert check(address, key)[1]["error"] == "no_versions"
        program.run("release", "publish", "app", "1.0", str(file))
        assert check(address, key)[1]["version"] == "1.0"
        program.run("product", "rename", "app", "--name", "App II")
        assert check(address, key)[1]["name"] == "App II"
        program.run("release", "withdraw", "app", "1.0")
        assert check(address, key)[1]["error"] == "no_versions"
        assert verify(address, key)[1]["product"] == "App"
        assert verify(address, key, "b.example")[0] == 403
        program.run("license", "allow", key, "*.example")
        assert verify(address, key, "b.example")[0] == 200
        assert program.run("license", "deactivate", key, "a.example").stdout == "freed 1 slot\n"
        assert verify(address, key, "b.other")[0] == 200
        program.run("license", "revoke", "-", input=key + "\n")
        assert verify(address, key)[1]["reason"] == "License has been revoked."
        program.run("license", "reinstate", key)
        assert verify(address, key)[0] == 200
        at = datetime.now(UTC).isoformat()
        program.run("subscription", "end", "s-1", "--at", at)
        assert verify(address, key)[1]["reason"] == "License expired."


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_a_port_in_use_is_told(program, command):
    """One line that names the address, exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = program.run(command, "--port", str(port), check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"licserver: cannot listen on 127.0.0.1 port {port}: Address already in use"
    )
    assert done.stderr.count("\n") == 1


def test_a_host_that_there_is_not_is_told(program):
    """A name that leads nowhere is a failure in one line."""
    done = program.run("serve", "--host", "nowhere.invalid", "--port", "0", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("licserver: cannot listen on nowhere.invalid port 0: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("host", ["a..b", "a" * 300, "\udcff"])
def test_a_host_that_can_be_no_name_is_wrong_use(program, host):
    """One line, as for an address that cannot be had."""
    done = program.run("serve", "--host", host, "--port", "0", check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("licserver: --host: ")


@pytest.mark.skipif(not os.path.exists(FULL), reason="there is no /dev/full here")  # noqa: PTH110
def test_keys_that_could_not_be_printed_are_not_lost(program):
    """They are in the books and nobody has seen them: it is said where they are."""
    program.run("product", "add", "app", "--name", "App")
    with open(FULL, "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [*program.command, "license", "issue", "app", "--count", "3"],
            env=program.environ,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=30,
        )
    assert done.returncode == 1
    assert "`licserver license list` has all that are issued" in done.stderr
    assert len(json.loads(program.run("license", "list", "--json").stdout)) == 3
