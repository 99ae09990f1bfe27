"""An app that was installed again finds its id in the keyring, and no other computer does (D-326)."""

import shutil
import threading
from time import monotonic

import pytest
from stage.keyrings import Broken, Keyring

from licclient import LicenseClient, Source
from licclient._core import activations, installation
from licclient.errors import LicenseRefusedError, StateUnreadableError
from licclient.testing import LicenseService

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
MACHINE = "4f8a1c0e"


@pytest.fixture
def computer(monkeypatch, tmp_path):
    """Change the computer that the app runs on: its id, and the home of the user."""

    def change(machine_id: object, user: str = "anna") -> None:
        def read():
            if isinstance(machine_id, Exception):
                raise machine_id
            return machine_id

        monkeypatch.setattr(installation, "read_machine_id", read)
        for name in ("HOME", "USERPROFILE"):
            monkeypatch.setenv(name, str(tmp_path / user))

    change(MACHINE)
    return change


@pytest.fixture
def app(computer, license_service: LicenseService, tmp_path):
    """Make a client of a license of a single slot, which keeps its state in a folder."""
    key = license_service.issue("Notes", slots=1)

    def install(folder: str = "state", **options: object) -> LicenseClient:
        return license_service.client(product="Notes", storage=tmp_path / folder, **options)

    install.key, install.folder = key, tmp_path / "state"
    return install


def _domains(service):
    return [request.fields["domain"] for request in service.requests if request.kind == "verify"]


def test_an_app_that_was_installed_again_takes_no_second_slot(app, use_keyring, license_service):
    """Its state is gone, its keyring is there: the same id, and the license's only slot is still its own."""
    use_keyring(Keyring())
    app().activate(app.key)
    shutil.rmtree(app.folder)
    assert app().activate(app.key).source is Source.SERVER
    first, again = _domains(license_service)
    assert first == again
    assert app().require().source is Source.CACHE


async def test_the_asynchronous_client_is_known_again(app, use_keyring, license_service):
    """As the synchronous one."""
    use_keyring(Keyring())
    app().activate(app.key)
    shutil.rmtree(app.folder)
    async with license_service.async_client(product="Notes", storage=app.folder) as client:
        await client.activate(app.key)
    assert len(set(_domains(license_service))) == 1


def test_another_folder_is_another_installation(app, use_keyring):
    """As before: of a portable app, for example, which is there twice."""
    use_keyring(Keyring())
    app().activate(app.key)
    with pytest.raises(LicenseRefusedError):
        app("other").activate(app.key)


def test_all_products_of_a_vendor_are_known_again(service, computer, use_keyring, monkeypatch, tmp_path):
    """In the platform's folder they share one id, and so they do in the keyring."""
    use_keyring(Keyring())
    monkeypatch.setattr("platformdirs.user_state_path", lambda *_, **__: tmp_path / "platform")
    for product in ("Notes", "Paint"):
        service.grants(product=product)
        LicenseClient(service.url, product=product).activate(KEY)
        shutil.rmtree(tmp_path / "platform")
    assert len({request.json["domain"] for request in service.requests}) == 1


@pytest.mark.parametrize(
    ("machine_id", "user"), [("other", "anna"), (MACHINE, "bea"), (None, "anna"), ("", "anna")]
)
def test_a_keyring_that_came_from_elsewhere_counts_for_nothing(app, computer, use_keyring, machine_id, user):
    """One that roams, or was restored from a backup on another computer or for another user: a new id."""
    use_keyring(Keyring())
    app().activate(app.key)
    shutil.rmtree(app.folder)
    computer(machine_id, user)
    with pytest.raises(LicenseRefusedError):
        app().activate(app.key)


@pytest.mark.parametrize("backend", [Broken, None])
def test_without_a_keyring_that_works_it_is_a_new_installation(app, use_keyring, license_service, backend):
    """And nothing fails."""
    if backend is not None:
        use_keyring(backend())
    app().activate(app.key)
    shutil.rmtree(app.folder)
    with pytest.raises(LicenseRefusedError):
        app().activate(app.key)
    assert len(set(_domains(license_service))) == 2


def test_a_locked_keyring_gives_no_id(app, use_keyring):
    """The new id takes the place of the earlier one once a key is stored beside it."""
    backend = use_keyring(Keyring())
    app().activate(app.key)
    ids = _ids(backend)
    shutil.rmtree(app.folder)
    backend.lock()
    new = app()
    with pytest.raises(LicenseRefusedError):
        new.activate(app.key)
    backend.unlock()
    (held,) = new.computers.list(app.key).computers
    new.computers.move_here(held, app.key)
    assert ids != _ids(backend)
    shutil.rmtree(app.folder)
    assert app().activate(app.key)


def _ids(backend):
    return [
        text.partition(" ")[0] for (_, account), text in backend.kept.items() if "installation" in account
    ]


def test_a_keyring_that_hangs_is_not_waited_for(app, use_keyring, monkeypatch):
    """Neither on a thread, nor in the event loop of windows, where half a second is the most."""
    monkeypatch.setattr(installation, "KEYRING_SECONDS", 0.05)
    monkeypatch.setattr(activations, "KEYRING_SECONDS", 0.05)
    backend = use_keyring(Keyring())
    answered = backend.stand_open()
    began = monotonic()
    app().activate(app.key)
    assert monotonic() - began < 5
    monkeypatch.setattr(installation, "KEYRING_SECONDS", 20)
    monkeypatch.setattr(installation, "QUICK_SECONDS", 0.05)
    monkeypatch.setattr(installation, "is_in_window_loop", lambda: True)
    began = monotonic()
    assert app("other").state_folder is not None
    with pytest.raises(LicenseRefusedError):
        app("other").verify(app.key)
    assert monotonic() - began < 5
    answered.set()


@pytest.mark.parametrize(
    "text", ["", " ", "x", f"{'0' * 32}", f"{'0' * 32} ", f"{'0' * 32} é", "a b c", f"{'0' * 99} x", "../x y"]
)
def test_a_text_that_is_no_id_counts_for_nothing(app, use_keyring, text):
    """Whatever another program left there."""
    backend = use_keyring(Keyring())
    app().activate(app.key)
    for account in list(backend.kept):
        backend.kept[account] = text
    assert installation.fetch_id("installation-x") is None
    shutil.rmtree(app.folder)
    with pytest.raises(LicenseRefusedError):
        app().activate(app.key)


def test_an_id_belongs_to_its_vendor(app, use_keyring):
    """That of another service's account proves nothing."""
    backend = use_keyring(Keyring())
    app().activate(app.key)
    ((service, _), text), *_ = [item for item in backend.kept.items() if "installation" in item[0][1]]
    backend.kept[service, "installation-other"] = text
    assert installation.fetch_id("installation-other") is None


def test_what_is_not_kept(app, computer, use_keyring, license_service):
    """An id that the app passes, one of its own storage, and one that no id of the computer is bound to."""
    backend = use_keyring(Keyring())
    license_service.client(product="Notes").activate(license_service.issue("Notes"))
    app("own", domain="farm-7").activate(license_service.issue("Notes"))
    for machine_id in (None, StateUnreadableError("Too many open files")):
        computer(machine_id)
        app(f"{machine_id}"[:4]).activate(license_service.issue("Notes"))
    assert _ids(backend) == []
    assert backend.licenses != []


def test_the_keyring_is_asked_for_an_id_only_when_there_is_none(app, use_keyring):
    """Each question to a locked one may open a window (D-118)."""
    backend = use_keyring(Keyring())
    app().activate(app.key)
    backend.woken = 0
    assert app().verify().source is Source.CACHE
    assert app().status().state == "valid"
    assert backend.woken == 0
    (app.folder / "licclient.lock").unlink(missing_ok=True)
    for path in app.folder.glob("installation-*"):
        path.unlink()
    assert app().verify().source is Source.CACHE
    assert backend.woken == 0, "the copy beside it is enough"


def test_an_id_that_is_there_is_not_written_again(app, use_keyring, monkeypatch):
    """A system may ask a person about each change of an entry."""
    backend = use_keyring(Keyring())
    app().activate(app.key)
    written = []
    monkeypatch.setattr(backend, "set_password", lambda *entry: written.append(entry))
    app().activate(app.key)
    assert written == []


def test_two_starts_at_once_get_one_id(app, use_keyring, license_service):
    """Whichever asks the keyring first."""
    use_keyring(Keyring())
    app().activate(app.key)
    shutil.rmtree(app.folder)
    clients = [app() for _ in range(4)]
    threads = [threading.Thread(target=client.verify, args=(app.key,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(_domains(license_service))) == 1
