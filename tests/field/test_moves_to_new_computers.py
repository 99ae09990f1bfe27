"""A new or reinstalled computer, and no slot is free: complaints about other systems, with both packages."""

import queue
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import keyring
import keyring.backend
import pytest

from harness.shop import SLUG, Open
from harness.world import MovableClock, World
from licclient import LicenseClient, Reason, Source, explain
from licclient._core import installation
from licclient.dialogs import Action, View, drive_activation
from licclient.errors import LicenseRefusedError, MoveError, MoveObstacle


def refuse(client: LicenseClient, key: str) -> None:
    """Enter a key that is in use on all of its computers."""
    with pytest.raises(LicenseRefusedError) as refused:
        client.activate(key)
    assert refused.value.reason is Reason.ENVIRONMENT


class Reader:
    """A window that a test reads, and which runs what it is given on the test's thread."""

    def __init__(self) -> None:
        self.view = View("", "", "", "", "")
        self.calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    def draw(self, view: View) -> None:
        """Take what is shown."""
        self.view = view

    def leave(self) -> None:
        """Close."""

    def wait_until(self, holds: Callable[[], object]) -> None:
        """Run what was delivered until something holds."""
        while not holds():
            self.calls.get(timeout=20)()


def test_snipaste_feedback_3766_3449_and_3517(shop: World, open_client: Open) -> None:
    """The system is installed anew, nothing was deactivated before: the earlier entry is in the list."""
    key = shop.new_key(SLUG, slots=1)
    open_client(label="Workstation").activate(key)
    anew = open_client()
    refuse(anew, key)
    (earlier,) = anew.computers.list(key).computers
    assert (earlier.name, earlier.is_this, earlier.is_movable) == ("Workstation", False, True)
    assert anew.computers.move_here(earlier, key).source is Source.SERVER
    assert anew.require().source is Source.CACHE


def test_iamsrikanthnani_pluely_280_and_284(shop: World, open_client: Open) -> None:
    """A new MacBook: two clicks in the dialog, and no mail to support; what was freed is free."""
    key = shop.new_key(SLUG, slots=1)
    old, new = open_client(label="Old MacBook"), open_client(label="New MacBook")
    old.activate(key)
    window = Reader()
    driver = drive_activation(new, window, window.calls.put, language="en")
    driver.show_in_turn(lambda: None)
    driver.type_text(key)
    driver.press(Action.GO)
    window.wait_until(lambda: window.view.choices)
    driver.choose(0)
    driver.press(Action.GO)
    window.wait_until(lambda: driver.license is not None)
    assert window.view.message.startswith("The license was moved here from Old MacBook.")
    driver.press(Action.CLOSE)
    new.deactivate()
    assert old.verify(key, force=True).source is Source.SERVER
    assert old.computers.list(key).moves_left >= 1, "going back uses nothing up"


def test_rxhanson_rectanglepro_community_806_and_multitouch_265(
    shop: World, open_client: Open, clock: MovableClock
) -> None:
    """The computer is gone for good: a person chooses it, by its name and the day it was seen."""
    key = shop.new_key(SLUG, slots=3)
    for label in ("Dead iMac", "Work", "Home"):
        open_client(label=label).activate(key)
        clock.forward(days=3)
    new = open_client(label="New")
    refuse(new, key)
    listed = new.computers.list(key)
    assert [computer.name for computer in listed.computers] == ["Home", "Work", "Dead iMac"]
    new.computers.move_here(listed.computers[-1], key)
    assert {computer.name for computer in new.computers.list().computers} == {"Home", "Work", "New"}


def test_waydabber_betterdisplay_4158_4352_and_5298(
    shop: World, open_client: Open, clock: MovableClock
) -> None:
    """More computers than slots do not put each other out unseen: a sentence says where the license is."""
    key = shop.new_key(SLUG, slots=1)
    clients = [open_client(label=f"Mac {number}") for number in range(1, 6)]
    clients[0].activate(key)
    for client in clients[1:4]:
        client.computers.move_here(client.computers.list(key).computers[0], key)
        clock.forward(hours=1)
    with pytest.raises(LicenseRefusedError):
        clients[0].verify(force=True)
    assert explain(clients[0].computers.list(), "en").startswith(
        "This license was moved to Mac 2 on Nov 20, 2026."
    )
    listed = clients[4].computers.list(key)
    assert listed.moves_left == 0
    with pytest.raises(MoveError) as refused:
        clients[4].computers.move_here(listed.computers[0], key)
    assert refused.value.obstacle is MoveObstacle.TOO_MANY_MOVES
    assert refused.value.retry_at == listed.retry_at
    assert explain(refused.value, "en").endswith("It can be moved again on Dec 20, 2026.")


@pytest.fixture
def roaming(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str, str], None]]:
    """Return what changes the computer and its user; each user's keyring follows to every computer."""
    before, rings = keyring.get_keyring(), defaultdict[str, Ring](Ring)

    def change(machine_id: str, user: str) -> None:
        keyring.set_keyring(rings[user])
        monkeypatch.setattr(installation, "read_machine_id", lambda: machine_id)
        for name in ("HOME", "USERPROFILE"):
            monkeypatch.setenv(name, str(tmp_path / user))

    yield change
    keyring.set_keyring(before)


class Ring(keyring.backend.KeyringBackend):
    """A keyring that works."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        """Look it up."""
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep it."""
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        """Forget it."""
        del self.kept[service, username]


def test_rclone_ui_231_and_mtotschnig_myexpenses_569(
    shop: World, open_client: Open, roaming: Callable[[str, str], None], tmp_path: Path
) -> None:
    """The app is removed with its state and installed again, five times: it has one slot, by its keyring."""
    roaming("desktop", "anna")
    key, state = shop.new_key(SLUG, slots=1), tmp_path / "app"
    for _ in range(5):
        client = open_client(storage=state)
        assert client.activate(key).source is Source.SERVER
        client.close()
        shutil.rmtree(state)
    roaming("laptop", "anna")
    refuse(open_client(storage=state), key)


def test_tableplus_1361_and_3581(
    shop: World, open_client: Open, roaming: Callable[[str, str], None], tmp_path: Path
) -> None:
    """Two users of one computer, each with a license: neither puts the other out, also after a reinstall."""
    keys = {user: shop.new_key(SLUG, slots=1) for user in ("private", "work")}
    for _ in range(2):
        for user, key in keys.items():
            roaming("macbook", user)
            shutil.rmtree(tmp_path / user, ignore_errors=True)
            open_client(storage=tmp_path / user).activate(key)
    for user in keys:
        roaming("macbook", user)
        assert open_client(storage=tmp_path / user).verify(force=True).source is Source.SERVER


def test_sublimehq_sublime_text_2104(
    shop: World, open_client: Open, roaming: Callable[[str, str], None], tmp_path: Path
) -> None:
    """One home for several machines: the key is entered once, and all of them are one installation."""
    key = shop.new_key(SLUG, slots=1)
    for machine in ("login-1", "login-2", "login-3"):
        roaming(machine, "anna")
        client = open_client(storage=tmp_path / "home")
        if machine == "login-1":
            client.activate(key)
        assert client.verify(force=True).source is Source.SERVER
        client.close()


def test_waydabber_betterdisplay_4692_and_windowtop_167(
    shop: World, open_client: Open, roaming: Callable[[str, str], None], tmp_path: Path
) -> None:
    """The system's id changes at each start, or with its firmware: the state is there, and that is enough."""
    key = shop.new_key(SLUG, slots=1)
    for start in range(4):
        roaming(f"id-{start}", "anna")
        client = open_client(storage=tmp_path / "app")
        client.activate(key)
        assert client.verify(force=True).source is Source.SERVER
        client.close()
