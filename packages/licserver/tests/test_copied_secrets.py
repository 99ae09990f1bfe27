"""`secret copy`: one command brings the secrets to all machines, and loses none of theirs."""

import json
import os
import sys
from types import SimpleNamespace

import pytest

from licserver.security.secrets_file import export_secrets
from licserver.settings import Settings

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-in for ssh runs a shell")

SSH = """
[ "$1" != away ] || { echo "ssh: connect to host away port 22: Connection refused" >&2; exit 255; }
LICSERVER_DATA_DIR={folder}/$1 exec sh -c "$2"
"""


@pytest.fixture
def machines(cli, tmp_path, capsys):
    """This machine, and others by the names of their data folders; a script stands for ssh."""
    (tmp_path / "ssh").write_text(SSH.replace("{folder}", str(tmp_path)))
    cli("product", "add", "app", "--name", "App")

    def copy(*hosts: str, expect: int = 0) -> str:
        options = ("--ssh", f"sh {tmp_path}/ssh", "--command", f"{sys.executable} -m licserver")
        return cli("secret", "copy", *hosts, *options, expect=expect)

    def run_on(host: str, *command: str, **more: object) -> str:
        return cli(*command, "--data-dir", str(tmp_path / host), **more)

    def receive(host: str, expect: int = 0) -> str:
        """Run what `copy` runs there, in this process."""
        sent = export_secrets(Settings(data_dir=cli.folder))
        return run_on(host, "secret", "receive", stdin=sent, expect=expect)

    def secrets_of(host: str) -> object:
        return json.loads((tmp_path / host / "secrets.json").read_text())

    return SimpleNamespace(
        here=cli.folder.name, copy=copy, run_on=run_on, receive=receive, secrets_of=secrets_of
    )


@pytest.mark.slow
def test_one_command_brings_new_secrets_to_all_machines(cli, machines, tmp_path):
    """A new machine gets all of them, and each later change; what is printed and noted has none."""
    machines.copy("two")
    cli("secret", "rotate")
    cli("signing-key", "add")
    printed = machines.copy("two", "three")
    assert printed.splitlines() == ["two: has the secrets", "three: has the secrets"]
    here = machines.secrets_of(machines.here)
    for host in ("two", "three"):
        assert machines.secrets_of(host) == here
        assert (tmp_path / host / "secrets.json").stat().st_mode & 0o777 == 0o600
    lines = json.loads(cli("audit", "--json"))
    noted = [line["object"] for line in lines if line["action"] == "secret.copy"]
    assert noted == ["three", "two", "two"]
    for secret in here["link_secrets"] + here["signing_keys"]:
        assert secret["secret"] not in printed + json.dumps(lines)


@pytest.mark.slow
def test_a_machine_that_cannot_be_reached_is_named_and_the_others_served(machines):
    """So is one that refuses them; and the command fails."""
    machines.run_on("other", "product", "add", "app", "--name", "App")
    error = machines.copy("away", "other", "two", expect=1)
    assert "not all machines have the secrets: away, other" in error
    assert machines.secrets_of("two") == machines.secrets_of(machines.here)
    assert machines.secrets_of("other") != machines.secrets_of(machines.here)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (["secret", "rotate"], "has a newer link secret"),
        (["signing-key", "add"], "has the signing key"),
    ],
)
def test_what_only_the_other_machine_has_is_not_lost(machines, change, reason):
    """Somebody has rotated there: its secrets stay, and the message says what to do."""
    machines.receive("two")
    machines.run_on("two", *change)
    before = machines.secrets_of("two")
    error = machines.receive("two", expect=2)
    assert reason in error
    assert "copy the secrets from here instead" in error
    assert machines.secrets_of("two") == before


def test_secrets_of_another_database_are_refused(machines):
    """They would make every key unreadable."""
    machines.run_on("two", "product", "add", "app", "--name", "App")
    before = machines.secrets_of("two")
    assert "these are the secrets of another database" in machines.receive("two", expect=2)
    assert machines.secrets_of("two") == before
