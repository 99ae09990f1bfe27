"""`secret copy`: one command brings the secrets to all machines, and loses none of theirs."""

import json
import os
import sys

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-in for ssh runs a shell")

SSH = """
import os, subprocess, sys
host, command = sys.argv[1:]
if host == "away":
    sys.exit("ssh: connect to host away port 22: Connection refused")
there = {**os.environ, "LICSERVER_DATA_DIR": os.path.join(FOLDER, host)}
sys.exit(subprocess.call(command, shell=True, env=there))
"""


@pytest.fixture
def copy(program, tmp_path):
    """Copy the secrets of a machine (a data folder) to others; a script stands for ssh."""
    ssh = tmp_path / "ssh.py"
    ssh.write_text(SSH.replace("FOLDER", repr(str(tmp_path))))

    def run(*hosts: str, check: bool = True):
        python = sys.executable
        options = ("--ssh", f"{python} {ssh}", "--command", f"{python} -m licserver")
        return program.run("secret", "copy", *hosts, *options, check=check)

    return run


@pytest.fixture
def run_on(program, tmp_path):
    """Run a command on another machine."""

    def run(host: str, *arguments: str):
        return program.run(*arguments, "--data-dir", str(tmp_path / host))

    return run


def secrets_of(folder):
    """Read a machine's secrets."""
    return json.loads((folder / "secrets.json").read_text())


def test_one_command_brings_new_secrets_to_all_machines(program, copy, tmp_path):
    """A new machine gets all of them, and each later change; what is printed and noted has none."""
    program.run("product", "add", "app", "--name", "App")
    copy("two", "three")
    program.run("secret", "rotate")
    program.run("signing-key", "add")
    done = copy("two", "three")
    assert done.stdout.splitlines() == ["two: has the secrets", "three: has the secrets"]
    here = secrets_of(program.folder)
    for host in ("two", "three"):
        assert secrets_of(tmp_path / host) == here
        assert (tmp_path / host / "secrets.json").stat().st_mode & 0o777 == 0o600
    lines = json.loads(program.run("audit", "--json").stdout)
    noted = [one["object"] for one in lines if one["action"] == "secret.copy"]
    assert noted == ["three", "two", "three", "two"]
    for one in here["link_secrets"] + here["signing_keys"]:
        assert one["secret"] not in done.stdout + done.stderr + json.dumps(lines)


def test_a_machine_that_cannot_be_reached_is_named_and_the_others_served(program, copy, tmp_path):
    """And the command fails."""
    program.run("secret", "rotate")
    done = copy("away", "two", check=False)
    assert done.returncode == 1
    assert "away: ssh: connect to host away port 22: Connection refused" in done.stdout
    assert secrets_of(tmp_path / "two") == secrets_of(program.folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (["secret", "rotate"], "has a newer link secret"),
        (["signing-key", "add"], "has the signing key"),
    ],
)
def test_what_only_the_other_machine_has_is_not_lost(program, copy, run_on, tmp_path, change, reason):
    """Somebody has rotated there: its secrets stay, and the message says what to do."""
    program.run("product", "add", "app", "--name", "App")
    copy("two")
    run_on("two", *change)
    before = secrets_of(tmp_path / "two")
    done = copy("two", check=False)
    assert done.returncode == 1
    assert reason in done.stdout
    assert "copy the secrets from here instead" in done.stdout
    assert secrets_of(tmp_path / "two") == before


def test_secrets_of_another_database_are_refused(program, copy, run_on, tmp_path):
    """They would make every key unreadable."""
    program.run("product", "add", "app", "--name", "App")
    run_on("two", "product", "add", "app", "--name", "App")
    before = secrets_of(tmp_path / "two")
    assert "these are the secrets of another database" in copy("two", check=False).stdout
    assert secrets_of(tmp_path / "two") == before
