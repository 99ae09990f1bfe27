"""Each click that a dialog offers, beside a server that hangs or is away: no window stands still for it."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, Final

import pytest

from harness.standstill import Standstill
from licclient import LicenseClient, Pages
from licclient.dialogs._states import Action
from licclient.errors import ServiceUnavailableError

pytestmark = [pytest.mark.window, pytest.mark.slow]

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"

MOST_SECONDS: Final = 0.1
"""For so long may a click keep the windows from moving (issue 33)."""

MOST_RUNS: Final = 3
"""A click that waits does so in each run; the machine's own stops are elsewhere each time."""

MOST_STEPS: Final = 2

Path = tuple[str, ...]


@pytest.fixture
def client(service, clock, tmp_path) -> Iterator[LicenseClient]:
    """An app's client; patient, so that nothing ends here but what is ended."""
    page = "https://shop.example/"
    pages = Pages(buy=f"{page}buy", support=f"{page}help", manage=f"{page}me")
    options = {"storage": tmp_path / "state", "clock": clock, "timeout": 60, "pages": pages}
    with LicenseClient(service.url, product="Notes", slug="notes", version="1.0", **options) as client:
        yield client


@pytest.fixture(params=["hanging", "away"])
def lose(request, service) -> Iterator[Callable[[], None]]:
    """Makes the server silent from then on."""
    is_over = threading.Event()

    def script(_):
        if request.param == "hanging":
            is_over.wait(60)
        return b""

    yield lambda: setattr(service, "script", script)
    is_over.set()


def _activated(client: LicenseClient, service: Any, clock: Any) -> ServiceUnavailableError:
    """Activate the app so long ago that nothing remembered holds; return why it has no license."""
    service.grants()
    client.activate(KEY)
    clock.move(days=9)
    service.goes_down()
    with pytest.raises(ServiceUnavailableError) as problem:
        client.verify()
    return problem.value


@pytest.mark.parametrize("dialog", ["key", "trial", "pending", "outage", "update"])
def test_no_click_of_a_dialog_waits(dialog, hands, client, service, clock, lose, tmp_path, monkeypatch):
    """Each path of the buttons, links and keys that the dialog has in each of its states."""
    monkeypatch.setattr("licclient.dialogs._driver.open_page", lambda _: bool(time.sleep(0.3)))  # waited for
    kit = hands.kit
    match dialog:
        case "key" | "trial":
            create = partial(kit.ActivationDialog, client, hands.parent, trial=dialog == "trial")
        case "pending" | "outage":
            problem = _activated(client, service, clock)
            if dialog == "pending":
                with pytest.raises(ServiceUnavailableError) as pending:
                    client.require(wait=0)
                problem = pending.value
            create = partial(kit.ActivationDialog, client, hands.parent, problem=problem)
        case _:
            service.offers()
            update = client.check_for_update(KEY).update
            create = partial(kit.UpdateDialog, client, update, tmp_path, hands.parent)
    lose()
    paths, longest, walked = [()], 0.0, 0
    for path in paths:  # grows
        steps, slowest = _walk_again(hands, create, path)
        paths += [(*path, step) for step in steps if len(path) < MOST_STEPS]
        walked, longest = walked + 1, max(longest, slowest)
        assert slowest <= MOST_SECONDS, path
    sys.stdout.write(f"{type(hands).__name__}, {dialog}: {walked} paths, at most {longest * 1000:.0f} ms\n")
    assert walked > 2 * MOST_STEPS


def _walk_again(hands: Any, create: Callable[..., Any], path: Path) -> tuple[list[str], float]:
    slowest = 0.0
    for _ in range(MOST_RUNS):
        steps, slowest = _walk(hands, create, path)
        if slowest <= MOST_SECONDS:
            break
    return steps, slowest


def _walk(hands: Any, create: Callable[..., Any], path: Path) -> tuple[list[str], float]:
    """Open a dialog and take the steps; return what can be done then and the longest pause of the windows."""
    pauses = []
    moments = []  # at which the windows could move
    hands.between = lambda: moments.append(time.monotonic())

    def timed(act: Callable[[], object]) -> None:
        moments[:] = [time.monotonic()]
        act()
        pauses.extend(pairwise([*moments, time.monotonic()]))

    with Standstill(0.01) as machine:
        hands.open(create(language="en"))
        for step in path:
            timed(lambda step=step: _take(hands, step))
            _watch(hands, timed)
        steps = _steps(hands, path) if hands.is_open() else []
        if hands.is_open():
            timed(hands.close_window)
        hands.until(lambda: not hands.is_open())
    return steps, max((end - began - machine.within(began, end) for began, end in pauses), default=0.0)


def _watch(hands: Any, timed: Callable[[Callable[[], object]], None]) -> None:
    """Let the window work for a moment, and time each turn."""
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        timed(hands.turn)
        time.sleep(0.005)


def _steps(hands: Any, path: Path) -> list[str]:
    """Return what the window offers; a key is typed once, a link is followed once."""
    view = hands.dialog._driver.state.view()
    pressed = [action.value for action, button in view.buttons().items() if button and button.is_enabled]
    links = [] if "link" in path or not view.links else ["link"]
    typed = ["type"] if view.is_editable and "type" not in path else []
    return [*pressed, "escape", "close", *links, *typed]


def _take(hands: Any, step: str) -> None:
    match step:
        case "escape":
            hands.escape()
        case "close":
            hands.close_window()
        case "type":
            hands.paste(KEY)
        case "link":
            hands.follow(hands.links()[0])
        case action:
            hands.click(Action(action))
