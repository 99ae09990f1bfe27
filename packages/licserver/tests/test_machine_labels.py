"""What an app sends about its machine (D-195): stored with the activation, shown wherever that is."""

import io
import json
from datetime import timedelta

import pytest

from harness import engines
from licserver.database.repositories.statistics import Seen, note_seen
from licserver.domain.records import Environment, EnvironmentPolicy, Machine
from licserver.protocol.license_files import FORMATS, read_rows, write_head, write_row
from licserver.services.backup import write_backup
from licserver.services.installation import open_services
from licserver.services.restore import restore_backup
from licserver.settings import Settings
from licserver.web.statistics import STATISTICS

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps

HERE = Environment("a.example", "192.0.2.1")
ANNAS = Machine("Anna's <Mac>", "1.4.0")


def machines(services, key):
    """What is known of a license's machines, by domain."""
    held = services.licenses.list_activations(key).items
    return {
        activation.environment.domain: Machine(activation.label, activation.app_version)
        for activation in held
    }


@pytest.fixture
def activated(world, activate):
    """A key that takes slots on two machines behind one address; what notes a machine a day later."""
    key = world.key(slots=None)
    for domain in ("a.example", "b.example"):
        activate(key, domain, HERE.ip)

    def note(machine, policy=EnvironmentPolicy.STRICT):
        license_id = world.services.vault.license_id(key)
        tomorrow = world.clock() + timedelta(days=1)
        note_seen(world.services.database, [Seen(license_id, HERE, tomorrow, policy, machine)])
        return machines(world.services, key)

    return key, note


def test_a_label_is_refreshed_once_a_day(world, activated):
    """The first of a day counts; a machine that sends nothing, or a part of it, keeps the rest."""
    _, note = activated
    for machine, expected in (
        (None, Machine()),
        (ANNAS, ANNAS),
        (None, ANNAS),
        (Machine(None, "1.5.0"), Machine(ANNAS.label, "1.5.0")),
    ):
        assert note(machine)["a.example"] == expected
        assert note(Machine("another", "9"))["a.example"] == expected
        world.clock.forward(days=1)


@pytest.mark.parametrize("policy", EnvironmentPolicy)
def test_a_label_is_that_of_the_domain(activated, policy):
    """Two machines of an office share an address; the one does not get the other's name."""
    _, note = activated
    assert note(ANNAS, policy) == {"a.example": ANNAS, "b.example": Machine()}


async def test_a_known_machine_is_named_with_the_next_batch(world, site, caplog):
    """A verify of a known machine writes nothing itself; a later one without a label takes nothing away."""
    key = world.key()
    verify = {"license_key": key, "domain": "a.example", "ip": "::1"}
    labelled = {**verify, "label": ANNAS.label, "app_version": ANNAS.app_version}
    for days, body in enumerate((verify, labelled, verify)):
        world.clock.forward(days=days % 2)
        status, _, _ = await site.call("POST", "/api/v1/licenses/verify", json=body)
        assert status == 200
    assert machines(world.services, key)["a.example"] == Machine()
    await site.app[STATISTICS].flush()
    assert machines(world.services, key)["a.example"] == ANNAS
    assert "Anna" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_labels_are_exported_imported_and_backed_up(world, make_world, activated, form, tmp_path):
    """What is moved or restored has the labels of its machines; a file's label is tidied as a client's is."""
    key, note = activated
    before = note(ANNAS)
    text = write_head(form) + "".join(write_row(form, row) for row in world.services.transfer.export())
    other = make_world().services
    with other.transfer.start_import() as incoming:
        incoming.read(read_rows(form, io.StringIO(text.replace("1.4.0", f" Mac {key} "))))
        incoming.commit()
    imported = machines(other, key)
    assert imported["a.example"] == Machine(ANNAS.label, f"Mac {key[:5]}…{key[-4:]}")
    file = io.BytesIO()
    write_backup(world.services, file, world.clock())
    file.seek(0)
    settings = Settings(data_dir=tmp_path / "anew")
    restore_backup(file, settings)
    restored = open_services(settings, world.clock)
    assert machines(restored, key) == before
    restored.close()


async def test_labels_are_shown(world, api, alice, activated):
    """In the admin API, and escaped on the page of the license, of the customer, and in the file."""
    key, note = activated
    note(ANNAS)
    license_ = world.services.licenses.change(key, customer_email="anna@example.com")
    status, page = await api("GET", f"/licenses/{license_.id.hex()}/activations")
    named, nameless = page["items"]
    assert (status, named["label"], named["app_version"]) == (200, *ANNAS)
    assert nameless["label"] is nameless["app_version"] is None
    for path in (f"/console/licenses/{license_.id.hex()}", "/console/customers?email=anna@example.com"):
        text = await alice.get(path)
        assert "Anna&#39;s &lt;Mac&gt;</b>" in text
        assert "version 1.4.0" in text
    assert "Anna's <Mac>" in await alice.get(f"/console/licenses/{license_.id.hex()}/activations.csv")


@engines.sqlite_only
def test_labels_are_shown_on_the_command_line(cli, tmp_path):
    """`license show` has what is known of each machine, for people and for programs."""
    cli("product", "add", "app", "--name", "App")
    file = tmp_path / "in.jsonl"
    machine = {**HERE._asdict(), **ANNAS._asdict()}
    file.write_text(json.dumps({"product": "app", "slots": 1, "expires_on": None, "activations": [machine]}))
    key = cli("import", str(file)).strip()
    assert "Anna's <Mac>  1.4.0" in cli("license", "show", key)
    (shown,) = json.loads(cli("license", "show", key, "--json"))["activations"]
    assert {name: shown[name] for name in machine} == machine


@engines.sqlite_only
def test_labels_are_swept_with_their_activations(make_world, activate):
    """Of a machine that is not seen any more nothing stays."""
    world = make_world(activation_days=40)
    world.services.retention.sweep()
    key = world.key()
    activate(key, *HERE)
    world.clock.forward(days=1)
    note_seen(
        world.services.database,
        [Seen(world.services.vault.license_id(key), HERE, world.clock(), machine=ANNAS)],
    )
    world.clock.forward(days=41)
    world.services.retention.sweep()
    assert machines(world.services, key) == {}
