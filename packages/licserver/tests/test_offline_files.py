"""License files for machines without a network: what is issued, what takes a slot, and what holds it."""

import json
import threading
from base64 import b32encode, urlsafe_b64decode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256

import pytest

from harness.engines import both_engines
from harness.manifests import oracle
from licserver.domain.decisions import Valid, mask_key
from licserver.domain.offline_files import NO_ADDRESS
from licserver.errors import HeldOfflineError, InvalidInputError, NotFoundError
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.protocol.offline_files import BEGIN, END
from licserver.security.secrets_file import format_signing_key, new_secrets
from licserver.services.installation import Services
from licserver.services.offline_files import RefusedFileError

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
ID = "00112233445566778899aabbccddeeff"


def code(content):
    """Return the request with this content."""
    return "REQ-" + b32encode(content + sha256(content).digest()[:3]).decode().rstrip("=")


def request(domain=ID, slug="app", version="1.2"):
    """Return the request of a machine."""
    return code(b"\2" + domain.encode() + b"\0" + f"{slug}\0{version}".encode())


def content(text):
    """Return what a file says."""
    payload = text.replace("\n", "").removeprefix(BEGIN).removesuffix(END).split(".")[1]
    return json.loads(urlsafe_b64decode(payload + "=="))


@pytest.fixture
def signing_key():
    """The key of the installation."""
    return PrivateKey(b"\1" * 32)


@pytest.fixture
def world(make_world, signing_key):
    """A vendor who signs, and whose customers have a page."""
    keys = [format_signing_key(SigningKey(signing_key, NOON))]
    return make_world(secrets=json.dumps(new_secrets() | {"signing_keys": keys}), account=True)


# --- issuing ----------------------------------------------------------------------------------


@both_engines
def test_a_file_is_signed_and_takes_a_slot(world, signing_key):
    """A foreign library verifies it; it names app, machine and license, and has no key in it."""
    from joserfc import jws  # noqa: PLC0415 - the oracle

    terms = {
        "expires_on": date(2027, 1, 31),
        "support_until": date(2026, 12, 31),
        "overrides": {"export": True},
    }
    key = world.key(slots=1, **terms)
    issued = world.services.offline_files.issue(key, request(), 30)
    compact = "".join(issued.text.splitlines()[1:-1])
    with pytest.warns(match="EdDSA"):
        verified = jws.deserialize_compact(compact, oracle(signing_key), algorithms=["EdDSA"])
    assert verified.headers() == {"alg": "EdDSA", "kid": signing_key.public.id, "typ": "license-file+json"}
    fields = content(issued.text)
    assert (fields["license"], fields["domain"], fields["entitlements"]) == (
        mask_key(key),
        ID,
        {"export": True},
    )
    (held,) = world.services.licenses.list_activations(key).items
    assert (*held.environment, held.app_version) == (ID, NO_ADDRESS, "1.2")
    assert held.offline_until == issued.ends_at == NOON + timedelta(days=30)
    entry = world.services.audit.list_page().items[0]
    assert (entry.action, entry.details["domain"]) == ("license.file", ID)


@pytest.mark.parametrize("policy", ["strict", "domain", "either"])
def test_slots_count_as_for_a_verify(world, activate, policy):
    """A known machine takes none, another one does, and a full license is refused, by each policy."""
    world.product("pro", policy)
    key, files = world.key("pro", slots=2), world.services.offline_files
    for _ in range(2):
        files.issue(key, request("one", "pro"))
    files.issue(key, request("two", "pro"), 10)
    with pytest.raises(RefusedFileError, match="all slots"):
        files.issue(key, request("three", "pro"))
    assert world.held(key) == [("one", NO_ADDRESS), ("two", NO_ADDRESS)]
    assert isinstance(activate(key, "three", "192.0.2.3"), Valid) is False
    files.issue(key, request("two", "pro"), 1)  # the longer file still holds the slot
    assert {
        activation.offline_until - NOON for activation in world.services.licenses.list_activations(key).items
    } == {
        timedelta(days=365),
        timedelta(days=10),
    }


def test_a_machine_that_was_online_keeps_its_slot(world, activate):
    """Where only the domain counts, its file is noted at the activation that it has."""
    world.product("pro", "domain")
    key = world.key("pro", slots=1)
    activate(key, "one", "192.0.2.1")
    world.services.offline_files.issue(key, request("one", "pro"))
    (held,) = world.services.licenses.list_activations(key).items
    assert (held.environment.ip, held.offline_until) == ("192.0.2.1", NOON + timedelta(days=365))


def test_an_allowed_machine_takes_no_slot(world):
    """As with a verify, what the owner allows is not counted."""
    world.product("pro", "domain")
    key = world.key("pro", slots=0)
    world.services.licenses.allow(key, "one.example")
    world.services.offline_files.issue(key, request("One.example", "pro"))
    assert world.held(key) == []


@pytest.mark.parametrize(
    ("prepare", "request_fields", "message"),
    [
        (lambda world, key: world.services.licenses.revoke(key), {}, "revoked"),
        (lambda world, _: world.clock.forward(days=3), {}, "expired"),
        (lambda *_: None, {"slug": "other"}, "the app 'other'"),
        (lambda *_: None, {"domain": " "}, "domain that is required"),
        (lambda *_: None, {"domain": "a\nb"}, "control characters"),
    ],
)
def test_what_is_refused_changes_nothing(world, prepare, request_fields, message):
    """A license that is over, and a request that is not for it."""
    key = world.key(expires_on=date(2026, 6, 16))
    prepare(world, key)
    with pytest.raises(InvalidInputError, match=message):
        world.services.offline_files.issue(key, request(**request_fields))
    assert world.held(key) == []


def test_days_and_signing_key_are_needed(world, make_world):
    """The message says what is possible, and which command to run."""
    for days in (0, 3651):
        with pytest.raises(InvalidInputError, match="1 to 3650 days"):
            world.services.offline_files.issue(world.key(), request(), days)
    plain = make_world()
    with pytest.raises(InvalidInputError, match="signing-key add"):
        plain.services.offline_files.issue(plain.key(), request())
    assert not plain.services.offline_files.can_customers_issue()


@both_engines
def test_racers_get_exactly_the_slots(world, activate):
    """Files for new machines, and verifies of others, race for five slots: five are taken."""
    key, start = world.key(slots=5), threading.Barrier(12)

    def issue(number):
        start.wait()
        try:
            world.services.offline_files.issue(key, request(f"pc-{number % 10}"))
        except RefusedFileError:
            return 0
        return 1

    with ThreadPoolExecutor(12) as threads:
        assert sum(threads.map(issue, range(12))) >= 5
    assert len(world.held(key)) == 5
    assert not isinstance(activate(key, "late", "192.0.2.9"), Valid)


# --- what holds a slot ------------------------------------------------------------------------


@both_engines
def test_neither_customer_nor_sweep_frees_a_machine_with_a_file(world):
    """A file cannot be taken back, so its slot is held until it ends; support may free it."""
    key = world.key(slots=1)
    world.services.offline_files.issue(key, request(), 100)
    license_ = world.services.licenses.get(key)
    with pytest.raises(HeldOfflineError, match="2026-09-23") as held:
        world.services.moves.deactivate(license_, ID)
    assert held.value.retry_at == NOON + timedelta(days=100)
    settings = world.settings.model_copy(update={"activation_days": 30})
    sweeper = Services(replace(world.services.context, settings=settings)).retention
    sweeper.sweep()
    for days, kept in ((60, 1), (60, 1), (20, 0)):  # the file ends on the hundredth day, then come 30
        world.clock.forward(days=days)
        sweeper.sweep()
        assert len(world.held(key)) == kept
    with pytest.raises(NotFoundError):
        world.services.licenses.deactivate(key, ID)


def test_a_file_that_has_ended_holds_nothing(world):
    """Then the customer frees the slot as always."""
    key = world.key(slots=1)
    world.services.offline_files.issue(key, request(), 10)
    world.clock.forward(days=10)
    assert world.services.moves.deactivate(world.services.licenses.get(key), ID) == 1


def test_an_export_keeps_the_end(world):
    """Another installation that imports it holds the slot as well."""
    key = world.key()
    world.services.offline_files.issue(key, request(), 10)
    (row,) = world.services.transfer.export()
    assert row.activations[0].offline_until == NOON + timedelta(days=10)


# --- command line, console, account page ------------------------------------------------------


async def test_the_customer_makes_a_file(world, open_browser):
    """It is downloaded; what is wrong is shown; and a computer that has one cannot be removed."""
    key = world.key(slots=1)
    browser = await open_browser()
    await browser.get("/account")
    await browser.post("/account/sign-in", csrf="", key=key)
    license_id = world.services.licenses.get(key).id.hex()
    await browser.post("/account/file", license=license_id, machine="REQ-NONSENSE")
    assert (browser.status, "not a request" in browser.alert) == (409, True)
    await browser.post("/account/file", license=license_id, machine=request())
    assert browser.headers["Content-Disposition"] == 'attachment; filename="app-2026-06-15.lic"'
    assert content(browser.text)["ends_at"] == "2027-06-15T12:00:00Z"
    await browser.get("/account")
    assert "license file until 15 Jun 2027" in browser.text
    await browser.post("/account/free", license=license_id, domain=ID, ip=NO_ADDRESS)
    assert (browser.status, "15 Jun 2027" in browser.alert) == (409, True)
    await browser.post("/account/file", license=license_id, machine=request("other"))
    assert "Remove one" in browser.alert
    world.services.licenses.revoke(key)
    await browser.post("/account/file", license=license_id, machine=request())
    assert "not valid" in browser.alert
    entries = [entry for entry in world.services.audit.list_page().items if entry.action == "license.file"]
    assert [entry.actor for entry in entries] == [("system", "customer")]


async def test_a_vendor_may_keep_customers_from_it(make_world, signing_key):
    """With no days there is no form."""
    keys = [format_signing_key(SigningKey(signing_key, NOON))]
    world = make_world(secrets=json.dumps(new_secrets() | {"signing_keys": keys}), account_file_days=0)
    assert not world.services.offline_files.can_customers_issue()


async def test_the_console_makes_a_file(world, alice):
    """The license's page has the form; a wrong request is shown again with the reason; the end is shown."""
    key = world.key()
    here = f"/console/licenses/{world.services.licenses.get(key).id.hex()}"
    await alice.get(here)
    for fields in ({"machine": "REQ-NO", "days": "30"}, {"machine": request(), "days": "many"}):
        await alice.post(f"{here}/file", **fields)
        assert (alice.status, bool(alice.alert)) == (422, True)
    assert f'value="{request()}"' in alice.text
    await alice.post(f"{here}/file", machine=request(), days="30")
    assert content(alice.text)["domain"] == ID
    assert alice.headers["Content-Disposition"] == 'attachment; filename="app-2026-06-15.lic"'
    assert "License file until 15 Jul 2026" in await alice.get(here)


async def test_a_program_makes_a_file(world, api):
    """The admin API returns it as text, and shows the end at the activation."""
    where = f"/licenses/{world.services.licenses.get(world.key()).id.hex()}"
    status, made = await api("POST", f"{where}/file", {"machine": request(), "days": 30})
    assert (status, made["name"], made["ends_at"]) == (200, "app-2026-06-15.lic", "2026-07-15T12:00:00Z")
    assert content(made["text"])["domain"] == made["domain"] == ID
    _, found = await api("GET", f"{where}/activations")
    assert found["items"][0]["offline_until"] == made["ends_at"]
    assert (await api("POST", f"{where}/file", {"machine": "REQ-NO"}))[0] == 422


def test_the_command_makes_a_file(cli, tmp_path):
    """The request is typed or in a file; the result is printed, or written to a new file."""
    cli("product", "add", "app", "--name", "App")
    key = cli("license", "issue", "app").strip()
    cli("license", "file", key, "--machine", request(), expect=2)  # there is no signing key yet
    cli("signing-key", "add")
    assert content(cli("license", "file", key, "--machine", request(), "--days", "30"))["domain"] == ID
    request_file, out = tmp_path / "pc.licreq", tmp_path / "pc.lic"
    request_file.write_text(request() + "\n")
    output = cli("license", "file", key, "--machine", str(request_file), "--out", str(out))
    assert output.startswith(f"wrote {out}, valid until ")
    assert content(out.read_text())["slug"] == "app"
    cli("license", "file", key, "--machine", str(request_file), "--out", str(out), expect=2)
    cli("license", "file", key, "--machine", str(tmp_path / "none"), expect=2)
    assert json.loads(cli("license", "show", key, "--json"))["activations"][0]["offline_until"]
