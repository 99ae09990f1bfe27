"""A vendor with an empty Debian and `docs/deploy.md`: what stands there is run as it stands there.

`nox -s deploy` boots the machine (`harness/machine.py`); the plain test run has none, and skips these tests.
"""

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from harness.machine import ROOT, Machine, booted, debian, tell, wheelhouse, why_not

if "LICENSING_MACHINE" not in os.environ:
    pytest.skip("a Debian under systemd is booted by nox -s deploy", allow_module_level=True)

NAME = "licenses.example.com"
NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "9999", "{head}"


def upgrade():
    op.add_column("products", sa.Column("later", sa.Text()))
"""
PIP = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/srv/wheels", "PIP_NO_CACHE_DIR": "1"}
ASKED = ("systemctl", "show", "--property=Result,NRestarts,ActiveState", "licserver")


def shell_blocks(heading: str) -> list[str]:
    """The blocks for a shell below one heading of `docs/deploy.md`."""
    page = (ROOT / "docs" / "deploy.md").read_text()
    (section,) = re.findall(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    return re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def tree() -> Path:
    """A small Debian."""
    reason = why_not()
    assert reason is None, f"no machine can be booted here: {reason}"
    return debian(Path(os.environ["LICENSING_MACHINE"]))


@pytest.fixture(scope="module")
def wheels() -> Path:
    """What licserver needs."""
    return wheelhouse(Path(os.environ["LICENSING_MACHINE"]))


def build(source: Path, version: str, folder: Path) -> Path:
    """Build a licserver that says it is another version; returns the folder of its wheel."""
    (room,) = source.rglob("licserver/__init__.py")
    room.write_text(re.sub(r'__version__ = ".*"', f'__version__ = "{version}"', room.read_text()))
    tell("uv", "build", "--quiet", "--wheel", room.parents[2], "-o", folder)
    shutil.rmtree(source)  # its tests have keys, and the search for written ones would find them
    return folder


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the present licserver, and of a next one with one more step of the schema."""
    base = tmp_path_factory.mktemp("versions")
    found = {}
    for version in ("1.0.0", "1.0.1"):
        source = base / f"source-{version}"
        source.mkdir()
        tell("cp", "-r", ROOT / "packages" / "licserver", source)
        if version == "1.0.1":
            (steps,) = source.rglob("migrations/versions")
            (steps / "9999_next.py").write_text(NEXT.format(head=max(steps.glob("[0-9]*.py")).name[:4]))
        found[version] = build(source, version, base / version)
    return found


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Who certifies the machine's name."""
    return trustme.CA()


def install(machine: Machine, wheels: Path, version: Path, settings: str | None = None) -> None:
    """Do what the page says under "A machine with systemd", as it stands there; sell a key."""
    machine.bring(wheels, "/srv/wheels")
    machine.bring(version, "/srv/wheels")
    machine.write("/etc/hosts", f"127.0.0.1 localhost {NAME}\n")
    packages, *others = shell_blocks("A machine with systemd")
    machine.sh(packages, **PIP)
    if settings is not None:
        machine.write("/etc/licserver/licserver.env", settings)
    for block in others:
        machine.sh(block)
    machine.write("/root/key", machine.sh("lics license issue photo-lab --slots 3"))
    machine.bring(ROOT / "tests" / "harness", "/srv/harness")


@pytest.fixture(scope="module")
def machine(tree: Path, wheels: Path, versions: dict[str, Path], authority: trustme.CA) -> Iterator[Machine]:
    """A vendor's machine, with https."""
    with booted(tree) as machine:
        install(machine, wheels, versions["1.0.0"])
        certificate = authority.issue_cert(NAME)
        live = f"/etc/letsencrypt/live/{NAME}"
        chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        machine.write(f"{live}/fullchain.pem", chain.decode())
        machine.write(f"{live}/privkey.pem", certificate.private_key_pem.bytes().decode())
        machine.write("/usr/local/share/ca-certificates/tests.crt", authority.cert_pem.bytes().decode())
        machine.sh("update-ca-certificates")
        machine.sh("cp deploy/nginx.conf /etc/nginx/sites-enabled/licserver.conf")
        errors = machine.run("nginx", "-t").stderr
        assert "[warn]" not in errors, errors
        machine.sh("systemctl reload nginx")
        yield machine


def verify(machine: Machine, address: str = f"https://{NAME}") -> str:
    """Verify the key that was sold; returns status and answer."""
    return machine.sh(
        'printf \'{"license_key":"%s","domain":"a.example","ip":"192.0.2.1"}\' $(cat key) | '
        "curl -sS -d @- -H 'Content-Type: application/json' -w '%{http_code}' "
        f"{address}/api/v1/licenses/verify"
    )


def count_answers_during(machine: Machine, address: str, seconds: float, script: str) -> dict[str, int]:
    """Run lines of a shell while four callers ask without end; returns how often which answer came."""
    outputs: list[str] = []

    def ask() -> None:
        outputs.append(machine.sh(f"python3 /srv/harness/asker.py {address} $(cat key) {seconds}"))

    thread = threading.Thread(target=ask)
    thread.start()
    machine.sh(f"sleep 1.5; {script}")
    thread.join()
    counts: dict[str, int] = json.loads(outputs[0])
    return counts


def workers(machine: Machine) -> set[str]:
    """The processes that answer."""
    control = machine.sh("systemctl show --value -p ControlGroup licserver").strip()
    (first,) = machine.sh("systemctl show --value -p MainPID licserver").split()
    return set(machine.sh(f"cat /sys/fs/cgroup{control}/cgroup.procs").split()) - {first}


def test_from_an_empty_machine_to_https(machine: Machine) -> None:
    """After the page's commands a customer is answered over https, and `check --reach` finds all well."""
    assert verify(machine).endswith("200")
    checked = machine.run("lics", "check", "--reach")
    assert "FAIL" not in checked.stdout
    for path, status in {"/console": "404", "/admin/api/v1/licenses": "404", "/readyz": "200"}.items():
        command = f"curl -s -o /dev/null -w '%{{http_code}}' https://{NAME}{path}"
        assert machine.sh(command) == status, path
    assert machine.sh("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8081/console/sign-in") == "200"
    assert "licserver_verifies_total" in machine.sh("curl -s http://127.0.0.1:9464/metrics")


@pytest.mark.parametrize("unit", ["licserver", "licserver-backup"])
def test_little_is_left_to_an_intruder(machine: Machine, unit: str) -> None:
    """The running system gives each service at most 1.5 points of exposure."""
    machine.run("systemd-analyze", "security", "--threshold=15", "--no-pager", unit)


def test_a_reload_and_a_killed_worker_cost_nothing(machine: Machine) -> None:
    """`systemctl reload` replaces all workers under load, through nginx as well, and no request fails."""
    before = workers(machine)
    assert len(before) == 2
    counts = count_answers_during(machine, f"https://{NAME}", 8, "systemctl reload licserver")
    assert set(counts) == {"200"}, counts
    after = workers(machine)
    assert len(after) == 2
    assert not before & after
    machine.sh(f"kill -9 {min(after)}; sleep 3")
    assert len(workers(machine)) == 2
    assert verify(machine).endswith("200")
    assert "NRestarts=0" in machine.run(*ASKED).stdout


def test_a_stop_under_load_loses_no_answer(machine: Machine) -> None:
    """Who is connected is answered; who comes later is refused at once; it takes seconds, and ends well."""
    counts = count_answers_during(machine, "http://127.0.0.1:8080", 6, "timeout 15 systemctl stop licserver")
    assert counts.pop("200") > 100
    assert set(counts) <= {"ConnectionRefusedError"}, counts
    assert "Result=success" in machine.run(*ASKED).stdout
    machine.sh("systemctl start licserver")
    assert verify(machine, "http://127.0.0.1:8080").endswith("200")  # started means: it answers


def test_a_dead_service_comes_back(machine: Machine) -> None:
    """The first process is killed, and with it all others; systemd starts it anew within seconds."""
    machine.sh("systemctl kill --signal=KILL --kill-whom=main licserver; sleep 1")
    machine.sh("timeout 60 sh -c 'until systemctl is-active --quiet licserver; do sleep 0.2; done'")
    assert verify(machine).endswith("200")
    assert "NRestarts=1" in machine.run(*ASKED).stdout


def test_a_wrong_setting_is_reported_by_systemctl(machine: Machine) -> None:
    """`systemctl restart` fails where the server cannot start; the journal says why."""
    machine.sh(
        "cp -a /etc/licserver/licserver.env kept; echo LICSERVER_BASE_ULR=x >>/etc/licserver/licserver.env"
    )
    done = machine.run("systemctl", "restart", "licserver", check=False)
    machine.sh("cp -a kept /etc/licserver/licserver.env")
    assert done.returncode != 0
    assert "did you mean LICSERVER_BASE_URL" in machine.sh("journalctl -u licserver --since -1min")
    machine.sh("systemctl restart licserver")
    assert verify(machine).endswith("200")


def test_the_timers_do_their_work(machine: Machine) -> None:
    """What the timer starts backs up under all restrictions, and the backup can be restored."""
    for block in shell_blocks("Backups"):
        if "licserver-backup.timer" in block:
            machine.sh(block)
    timers = machine.run("systemctl", "list-timers", "--no-legend").stdout
    assert "licserver-backup.timer" in timers
    machine.sh("systemctl start licserver-backup.service")
    machine.sh(
        "cp /var/backups/licserver/licserver-$(date -u +%u).backup today.backup\n"
        "/opt/licserver/bin/licserver restore today.backup --data-dir /tmp/try\n"
        "/opt/licserver/bin/licserver check --data-dir /tmp/try"
    )
    listed = machine.sh("/opt/licserver/bin/licserver license list --data-dir /tmp/try --json")
    assert len(json.loads(listed)) >= 1
    assert machine.sh("stat -c %U:%a /var/backups/licserver/*") == "licserver:600\n"


def test_a_reboot_brings_everything_back(machine: Machine) -> None:
    """After a reboot nothing has failed, and customers are answered without a hand being moved."""
    machine.reboot()
    assert verify(machine).endswith("200")


def test_the_machine_has_written_no_key(machine: Machine) -> None:
    """Neither the journal nor any log has the key of all these requests."""
    found = machine.sh(
        "key=$(cat key); journalctl >all; cat /var/log/nginx/* >>all; grep -c licenses/verify all\n"
        'if grep -q "$key" all || grep -q "$(echo "$key" | cut -d- -f3)" all; then echo FOUND; fi'
    )
    assert int(found) > 0


def test_an_upgrade_to_a_later_schema_and_back(tree: Path, wheels: Path, versions: dict[str, Path]) -> None:
    """The page's upgrade: the present licserver's database goes on in a next one, and back."""
    block, _ = shell_blocks("Upgrades")  # the second is for several machines
    first, rest = block.split("\n", 1)
    assert first.startswith("lics backup")
    settings = f"LICSERVER_BASE_URL=https://{NAME}\nLICSERVER_TRUSTED_PROXIES=127.0.0.1,::1\n"
    here = "http://127.0.0.1:8080"
    with booted(tree) as machine:
        install(machine, wheels, versions["1.0.0"], settings)
        assert verify(machine, here).endswith("200")
        rest = rest.replace(" --reach", "")  # nothing speaks https here
        machine.bring(versions["1.0.1"], "/srv/wheels")
        assert "schema 9999" in machine.sh(f"{first}\n{rest}", **PIP)
        assert "1.0.1" in machine.sh("lics --version")
        assert verify(machine, here).endswith("200")

        machine.sh("lics product add later --name Later")
        machine.sh(
            "systemctl stop licserver; /opt/licserver/bin/pip install licserver==1.0.0\n"
            "lics restore --force /var/lib/licserver/before.backup; systemctl start licserver",
            **PIP,
        )
        assert "later" not in machine.sh("lics product list")
        assert verify(machine, here).endswith("200")
