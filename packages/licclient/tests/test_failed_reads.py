"""A read that fails is no missing file (D-52): each read of each operation fails, and nothing is lost.

Derived: an operation is run once to count its reads; then each of them fails once, and each file fails for as
long as the operation lasts.
"""

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from stage.archives import app, downloaded
from stage.faults import ERRORS, Files

from licclient import ClientSettings, LicclientError, LicenseClient, LicenseState, Quota, Trust
from licclient._base_client import BaseClient
from licclient._offline.client import LicenseFileInstaller
from licclient._seats.client import Seats
from licclient._uses.client import Uses
from licclient.errors import (
    InstallationError,
    NotActivatedError,
    ServiceUnavailableError,
    StateUnreadableError,
)
from licclient.install import Installation
from licclient.testing import LicenseService

SETTINGS = ClientSettings(
    "https://licenses.example.com",
    product="Notes",
    slug="notes",
    version="1.0",
    trust=Trust(public_keys=(), release_keys=()),
)


@dataclass
class Customer:
    """A customer of an app, with the state of some days of use, before one operation.

    Attributes:
        home: The folder below which all files lie.
        key: The license key.
    """

    service: LicenseService
    home: Path
    key: str

    def client(self) -> LicenseClient:
        """Return a client as in a new process."""
        return self.service.client(SETTINGS, storage=self.home / "state")

    def view(self) -> dict[str, Any]:
        """Return where the customer is, without a network."""
        with self.service.offline(), self.client() as client:
            update = client.check_for_update().update
            known = {
                "state": client.status().state,
                "hint": client.status().key_hint,
                "update": None if update is None else update.version,
                "skipped": update is not None and client.is_skipped(update),
                "request": client.license_file.request(),
            }
            with suppress(LicclientError):
                known["source"] = client.require().source
        return known


def _use(customer: Customer) -> None:
    with customer.client() as client:
        client.activate(customer.key)
        client.uses.consume("exports")
        update = client.check_for_update(force=True).update
        client.skip_update(update)
        client.download(update, customer.home / "downloads")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A customer's files and the service behind them; the license has one slot."""
    home = tmp_path_factory.mktemp("home")
    with LicenseService() as service:
        exports = {"exports": Quota(100_000, "month")}
        key = service.issue("Notes", slug="notes", slots=1, seats=1000, entitlements=exports)
        service.publish("2.0", slug="notes")
        service.offer_trials("Notes", slug="notes")
        customer = Customer(service, home, key)
        _use(customer)
        yield customer


@pytest.fixture
def customer(prepared, tmp_path):
    """The customer, with files of this test."""
    home = tmp_path / "home"

    def again() -> Customer:
        if home.exists():
            shutil.rmtree(home)
        shutil.copytree(prepared.home, home)
        return Customer(prepared.service, home, prepared.key)

    return again


def _with_client(act: Callable[[LicenseClient, Customer], object]) -> Callable[[Customer], object]:
    def run(customer: Customer) -> object:
        with customer.client() as client:
            return act(client, customer)

    return run


def _skip(client: LicenseClient) -> None:
    if (update := client.check_for_update(force=True).update) is not None:
        client.skip_update(update)


def _download(client: LicenseClient, customer: Customer) -> object:
    update = client.check_for_update().update
    return None if update is None else client.download(update, customer.home / "downloads")


def _install(client: LicenseClient) -> None:
    update = client.check_for_update().update
    if update is not None:
        with suppress(InstallationError):  # tests run from a place that nothing replaces
            client.install_update(update)


def _is_skipped(client: LicenseClient) -> bool:
    update = client.check_for_update().update
    return update is not None and client.is_skipped(update)


def _seat(client: LicenseClient) -> None:
    with client.seats.take():
        pass


def _install_file(client: LicenseClient, customer: Customer) -> object:
    file = customer.service.issue_file(customer.key, client.license_file.request())
    return client.license_file.install(file)


OPERATIONS = {
    "verify": _with_client(lambda client, _: client.verify()),
    "verify again": _with_client(lambda client, _: client.verify(force=True)),
    "verify a key": _with_client(lambda client, customer: client.verify(customer.key, force=True)),
    "require": _with_client(lambda client, _: client.require()),
    "activate": _with_client(lambda client, customer: client.activate(customer.key)),
    "status": _with_client(lambda client, _: client.status()),
    "check": _with_client(lambda client, _: client.check_for_update()),
    "check now": _with_client(lambda client, _: client.check_for_update(force=True)),
    "skip": _with_client(lambda client, _: _skip(client)),
    "download": _with_client(_download),
    "receipt": _with_client(lambda client, _: client.installation_receipt()),
    "plan": _with_client(lambda client, _: client.plan_update()),
    "install": _with_client(lambda client, _: _install(client)),
    "consume": _with_client(lambda client, _: client.uses.consume("exports")),
    "request a file": _with_client(lambda client, _: client.license_file.request()),
    "diagnose": _with_client(lambda client, _: client.diagnose()),
    "is skipped": _with_client(lambda client, _: _is_skipped(client)),
    "install a file": _with_client(_install_file),
    "seat": _with_client(lambda client, _: _seat(client)),
    "trial": _with_client(lambda client, _: client.start_trial()),
    "confirm": _with_client(lambda client, _: client.confirm_version()),
}
LEAVING = {
    "reset": _with_client(lambda client, _: client.reset()),
    "forget": _with_client(lambda client, _: client.forget_key()),
    "deactivate": _with_client(lambda client, _: client.deactivate()),
}
"""After these there is no key."""


FEATURES = {"uses": Uses, "seats": Seats, "license_file": LicenseFileInstaller}
READS_NOTHING = {"close", "licensed", "settings", "state_folder", "stop"}
"""Public names that read no file; `start` reads what these operations read, on its thread."""


def test_no_operation_is_missing(customer, monkeypatch):
    """Each public method is among the operations: one that is new must be added."""
    places = [(LicenseClient, name) for name in vars(LicenseClient) | vars(BaseClient)]
    places = [(kind, name) for kind, name in places if name not in READS_NOTHING | FEATURES.keys()]
    places += [(kind, name) for kind in FEATURES.values() for name in vars(kind)]
    places = [(kind, name) for kind, name in places if not name.startswith("_")]
    called = set()

    def watched(kind, name):
        method = getattr(kind, name)
        return lambda *given, **options: called.add((kind, name)) or method(*given, **options)

    for kind, name in places:
        monkeypatch.setattr(kind, name, watched(kind, name))
    for act in (OPERATIONS | LEAVING).values():
        act(customer())
    assert called == {*places} - {(LicenseClient, "start")}


SAMPLE = 7
"""Of the reads of an operation, each how many-th fails in the default selection; one of the errors."""


def _cases(names: Iterable[str]) -> list[Any]:
    """Return the operation, the error, and each how many-th read fails; the full product is slow."""
    errors = list(ERRORS)
    sample = [pytest.param(name, errors[at % len(errors)], SAMPLE, id=name) for at, name in enumerate(names)]
    full = [pytest.param(name, error, 1, marks=pytest.mark.slow) for name in names for error in errors]
    return sample + full


@pytest.fixture
def files(monkeypatch, tmp_path):
    """The injected file layer, without the pauses between two reads."""
    monkeypatch.setattr("licclient._core.storage.sleep", lambda _: None)
    return Files(monkeypatch, tmp_path / "home")


def _count(files: Files, run: Callable[[], object]) -> list[str]:
    files.fail(lambda *_: False, "EACCES")
    run()
    return list(files.reads)


@pytest.mark.sampled(3, "error")
@pytest.mark.parametrize(("name", "error", "step"), _cases(OPERATIONS | LEAVING))
def test_a_read_that_fails_once_is_repeated(customer, files, name, error, step):
    """Whatever the read: the operation ends as without the failure, and nothing is lost."""
    act = (OPERATIONS | LEAVING)[name]
    expected_view = _after(act, customer())
    reads = _count(files, partial(act, customer()))
    assert reads
    for number in range(len(name) % step, len(reads), step):
        case = customer()
        files.fail(lambda read, _, number=number: read == number, error)
        act(case)
        files.heal()
        assert case.view() == expected_view, (number, reads[number])


def _problem(act: Callable[[], object]) -> StateUnreadableError | OSError | None:
    """Return what an operation raises for a file that it cannot read."""
    try:
        act()
    except (StateUnreadableError, OSError) as problem:
        return problem
    return None


def _after(act: Callable[[Customer], object], case: Customer) -> dict[str, Any]:
    act(case)
    return case.view()


@pytest.mark.sampled(4, "error")
@pytest.mark.parametrize(("name", "error", "step"), _cases(OPERATIONS | LEAVING))
def test_a_file_that_cannot_be_read_stays_as_it_is(customer, files, name, error, step):
    """While it cannot be read the operation raises our error, or does without; then all is as before."""
    act = (OPERATIONS | LEAVING)[name]
    before = customer().view()
    done = _after(act, customer())
    reads = _count(files, partial(act, customer()))
    for unreadable in sorted(set(reads))[len(name) % min(step, 3) :: min(step, 3)]:
        case = customer()
        files.fail(lambda _, read, unreadable=unreadable: read == unreadable, error)
        problem = _problem(lambda case=case: act(case))
        files.heal()
        assert not list((case.home / "downloads").glob(".*.lock")), unreadable
        if isinstance(problem, StateUnreadableError):
            assert problem.path == unreadable
            assert case.key not in str(problem)
        elif problem is not None:
            assert name == "download"
            assert problem.filename == unreadable
        view = case.view()
        if name == "trial" and view["state"] is LicenseState.UNCONFIRMED:
            # The key is another one, and the first answer about it could not be stored: the next one is.
            with case.client() as client:
                client.verify()
            view = case.view()
        assert view in (before, done), unreadable
        if name in OPERATIONS:
            assert view["state"] is LicenseState.VALID
        with suppress(NotActivatedError):  # of what was left already
            act(case)
        assert case.view() == done


def test_an_unreadable_installation_takes_no_second_slot(customer, files):
    """With one slot, the customer would be refused for ever: the copy of the id serves, or nothing does."""
    case = customer()
    files.fail(lambda _, name: "installation" in name, "EACCES")
    with case.client() as client, pytest.raises(StateUnreadableError):
        client.verify(force=True)
    files.fail(lambda _, name: "installation-" in name, "EACCES")
    with case.client() as client:
        assert client.verify(force=True).product == "Notes"
    assert (
        len({request.fields["domain"] for request in case.service.requests if request.kind == "verify"}) == 1
    )


@pytest.mark.parametrize("kind", ["installation", "installation_copy"])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"\0" * 90)])
def test_the_id_survives_the_loss_of_either_of_its_files(customer, kind, damage):
    """Also one after the other: each verify writes what is missing."""
    case = customer()
    request = case.client().license_file.request()
    [path] = (case.home / "state").glob(f"{kind}-*.state")
    good = path.read_bytes()
    damage(path)
    with case.client() as client:
        client.verify(force=True)
        assert client.license_file.request() == request
    assert path.read_bytes() == good


def test_what_memory_knows_is_used(customer, files):
    """A running app goes on when another process has written a file that cannot be read now."""
    case = customer()
    with case.client() as running, case.client() as other:
        running.verify()
        case.service.clock.move(hours=1)
        other.verify(force=True)
        files.fail(lambda _, name: "signed-" in name or "license-" in name, "EMFILE")
        with case.service.offline():
            assert running.verify().product == "Notes"


# --- the app's own folder ------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path):
    """An app's own folder with two versions and one that was rolled back, and the zip of the next one."""

    def again() -> tuple[Installation, Any]:
        home = tmp_path / "home"
        shutil.rmtree(home, ignore_errors=True)
        installation = Installation(home)
        for version in ("1.0", "1.1", "1.2"):
            installation.apply(downloaded(tmp_path, app(version), version))
        installation.roll_back()
        installation.apply(downloaded(tmp_path, app("1.3"), "1.3"))
        return installation, downloaded(tmp_path, app("1.4"), "1.4")

    return again


INSTALL = {
    "apply": lambda installation, zipped: installation.apply(zipped),
    "roll back": lambda installation, _: installation.roll_back(),
    "current": lambda installation, _: installation.current,
    "previous": lambda installation, _: installation.previous,
}


def _versions(installation: Installation) -> list[str | None]:
    noted = (installation._folder / "rolled-back.txt").read_text().split()
    return [*(found and found.version for found in (installation.current, installation.previous)), *noted]


@pytest.mark.sampled(3, "name", "error", "lasts")
@pytest.mark.parametrize("lasts", [False, True])
@pytest.mark.parametrize(("name", "error", "step"), _cases(INSTALL))
def test_no_version_is_forgotten(installed, files, name, error, step, lasts):
    """An unreadable pointer or list of an installation: an error at most, and both stay as they were."""
    act = INSTALL[name]
    installation, zipped = installed()
    before = _versions(installation)
    assert before == ["1.3", "1.1", "1.2"]
    act(installation, zipped)
    done = _versions(installation)
    case = installed()
    reads = _count(files, lambda: act(*case))
    for number, path in [*enumerate(reads)][len(name) % step :: step]:
        installation, zipped = installed()
        files.fail(lambda read, name: name == path if lasts else read == number, error)  # noqa: B023
        problem = _problem(lambda case=(installation, zipped): act(*case))
        files.heal()
        if problem is not None:
            assert lasts or not path.endswith(".txt"), (number, path)
            assert problem.filename == path
        assert _versions(installation) in (before, done), path
        act(installation, zipped)
        if name != "roll back":
            assert _versions(installation) == done


def test_a_list_of_rolled_back_versions_that_cannot_be_read_offers_nothing_unasked(
    customer, files, tmp_path, monkeypatch
):
    """Else a version that does not work here would come back by itself."""
    case = customer()
    program = case.home / "app" / "versions" / f"1.0-{'0' * 16}" / "program"
    program.parent.mkdir(parents=True)
    (case.home / "app" / "rolled-back.txt").write_text("2.0\n")
    monkeypatch.setattr("sys.argv", [str(program)])
    with case.client() as client:
        assert not client.check_for_update()
        files.fail(lambda _, name: name.endswith("rolled-back.txt"), "EIO")
        assert isinstance(client.check_for_update().error, StateUnreadableError)


def test_a_folder_of_versions_of_another_program_is_not_read(customer, files, tmp_path, monkeypatch):
    """Python itself may lie in ~/.pyenv/versions/3.11.7, in a home that this user cannot read."""
    case = customer()
    monkeypatch.setattr("sys.argv", [str(case.home / ".pyenv" / "versions" / "3.11.7" / "bin" / "python")])
    files.fail(lambda _, name: name.endswith("rolled-back.txt"), "EACCES")
    with case.client() as client:
        assert client.check_for_update().error is None


def test_a_service_that_cannot_be_asked_either_is_not_blamed(customer, files):
    """Offline, the cause is the file: a customer who goes online would not get further."""
    case = customer()
    files.fail(lambda _, name: "signed-" in name or "license-" in name, "EIO")
    with case.client() as client:
        assert client.verify().product == "Notes"
        with case.service.offline(), pytest.raises(StateUnreadableError) as caught:
            case.client().verify()
    assert not isinstance(caught.value, ServiceUnavailableError)
