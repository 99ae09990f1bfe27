"""A third computer, two slots: the license moves in the windows and back, against the real server."""

from collections.abc import Callable
from typing import Any

import pytest

from harness.hands import TkHands
from harness.screen import Screen
from harness.shop import SLUG, Open
from harness.world import MovableClock, World
from licclient import LicenseClient, Pages
from licclient.dialogs import Action
from licclient.errors import LicenseRefusedError

pytestmark = pytest.mark.window

PAGES = Pages(buy="https://photo-lab.example/buy", manage="https://licenses.example.com/account")


@pytest.fixture
def take(hands: Any, screen: Screen, photograph: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """Take a picture of Tk's window."""
    return lambda title, name: (
        photograph(screen.wait_for(title), name) if isinstance(hands, TkHands) else None
    )


def _open(hands: Any, client: LicenseClient, problem: LicenseRefusedError | None = None) -> None:
    hands.open(hands.kit.ActivationDialog(client, hands.parent, problem=problem, language="en"))


def _move(hands: Any, index: int) -> None:
    """Choose a computer, and press the button."""
    hands.choose(index)
    hands.click(Action.GO)
    hands.until(lambda: hands.message().startswith("✓"))


def _leave(hands: Any) -> None:
    hands.enter()
    hands.until(lambda: not hands.is_open())


def test_a_license_is_moved_and_taken_back(
    hands: Any,
    shop: World,
    open_client: Open,
    clock: MovableClock,
    take: Callable[[str, str], None],
) -> None:
    """Two clicks here, a sentence there, two clicks back; the vendor's audit log has both moves."""
    key = shop.new_key(SLUG, slots=2)
    macbook = open_client(label="Anna's MacBook", product="Photo Lab", pages=PAGES)
    macbook.activate(key)
    clock.forward(days=4)
    open_client(product="Photo Lab").activate(key)
    clock.forward(days=1)

    laptop = open_client(label="Anna's laptop", product="Photo Lab", pages=PAGES)
    _open(hands, laptop)
    hands.paste(key)
    hands.enter()
    hands.until(hands.choices)
    nameless, first = hands.choices()
    assert nameless.startswith("Computer ")
    assert nameless.endswith(" · last seen Nov 24, 2026")
    assert first == "Anna's MacBook · last seen Nov 20, 2026"
    assert hands.links() == ["Manage your computers", "Buy a license"]
    hands.choose(1)
    take("All computers are in use", "full-license-tk-en")
    _move(hands, 1)
    assert hands.message().startswith("✓\u00a0The license was moved here from Anna's MacBook.")
    _leave(hands)
    assert laptop.require().product == "Photo Lab"

    with pytest.raises(LicenseRefusedError) as refused:
        macbook.verify(force=True)
    _open(hands, macbook, refused.value)
    hands.until(hands.choices)
    assert hands.heading() == "The license was moved"
    hands.until(lambda: hands.choices()[0].startswith("Anna's laptop"))
    take("The license was moved", "moved-license-tk-en")
    _move(hands, 0)
    _leave(hands)
    assert macbook.require().product == "Photo Lab"
    assert macbook.computers.list().moved_to is None
    actions = [entry.action for entry in shop.services.audit.list_page().items]
    assert actions.count("license.move") == 2
