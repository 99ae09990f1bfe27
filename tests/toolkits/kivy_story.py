"""A Kivy app whose dialogs are used by events of their widgets; prints what they showed, as JSON.

Run by `tests/test_other_toolkit.py`, in a process and on a screen of its own.
"""

import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from kivy.app import App
from kivy.clock import Clock
from kivy.core.window import Window as AppWindow
from kivy.uix.label import Label

from licclient import LicenseClient
from licclient.dialogs import Action
from licclient.errors import NotActivatedError
from licclient.testing import LicenseService, MemoryStorage
from toolkits.kivy_dialogs import ENTER, ESCAPE, KivyDialog, ask_for_key, offer_update

Story = Generator[Callable[[], object], None, None]
"""Yields what must be so before it goes on."""

SETTINGS = {"product": "Notes", "slug": "notes", "version": "1.0"}


class StoryApp(App):
    """Goes on with the story whenever what it waits for is so."""

    def __init__(self, story: Callable[["StoryApp"], Story], folder: Path) -> None:
        super().__init__()
        self.folder, self.results = folder, dict[str, Any]()
        self._story = story(self)
        self._condition: Callable[[], object] | None = lambda: True

    def build(self) -> Label:
        """Return the app's own widget."""
        return Label(text="Notes")

    def on_start(self) -> None:
        """Begin."""
        Clock.schedule_interval(self._go_on, 0.02)

    def _go_on(self, _: float) -> None:
        if self._condition is not None and self._condition():
            self._condition = next(self._story, None)
            if self._condition is None:
                self.stop()

    def picture(self, name: str) -> None:
        """Take a picture of the app's window."""
        AppWindow.screenshot(str(self.folder / f"{name}.png"))


def press(key: int) -> None:
    """Press a key."""
    AppWindow.dispatch("on_key_down", key, 0, None, [])


def activation(app: StoryApp) -> Story:
    """A trifle is typed, a revoked key, and a good one; the dialog is closed by its button."""
    with LicenseService() as service:
        client, closed = service.client(**SETTINGS), list[object]()
        dialog = ask_for_key(client, closed.append, problem=NotActivatedError(), language="en")
        yield lambda: dialog.parent is not None
        app.results["heading"] = dialog.heading.text
        dialog.body.text = "CP-AB"
        press(ENTER)
        yield lambda: dialog.message.text
        app.results["mistyped"] = dialog.message.text
        revoked = service.issue("Notes")
        service.revoke(revoked)
        yield from _try(dialog, revoked.lower())
        app.results["refused"] = dialog.message.text
        app.picture("refused")
        good = service.issue("Notes")
        yield from _try(dialog, good)
        app.results["thanks"] = dialog.message.text
        dialog.buttons[Action.GO].dispatch("on_release")
        yield lambda: closed
        app.results["closed"] = [type(window).__name__ for window in closed]
        app.results["is_over"] = dialog.driver is not None and dialog.driver.is_over
        app.results["requests"] = service.count("verify")


def _try(dialog: KivyDialog, key: str) -> Story:
    dialog.body.text = key
    press(ENTER)
    yield lambda: dialog.bar.opacity == 0 and dialog.message.text and not dialog.buttons[Action.GO].disabled


def update(app: StoryApp) -> Story:
    """An update is left for later, and then downloaded; two dialogs open one after the other."""
    with LicenseService() as service:
        service.issue("Notes", activated=True)
        service.publish("2.0", changelog="- Export\n- [b]Markup is text[/b]")
        client, closed = service.client(**SETTINGS), list[object]()
        found = client.check_for_update().update
        assert found is not None
        dialogs = [offer_update(client, found, app.folder, closed.append, language="en") for _ in range(2)]
        first, second = (dialog for dialog in dialogs if dialog is not None)
        yield lambda: first.parent is not None
        app.results["open"] = [dialog.parent is not None for dialog in (first, second)]
        app.results["changelog"] = first.body.text
        press(ESCAPE)
        yield lambda: closed and second.parent is not None
        press(ENTER)
        yield lambda: second.driver is not None and second.driver.file is not None
        app.picture("downloaded")
        press(ENTER)
        yield lambda: len(closed) == len(dialogs)
        app.results["closed"] = [type(window).__name__ for window in closed]


def full(app: StoryApp) -> Story:
    """All computers of a license are in use: it is moved here in two clicks."""
    with LicenseService() as service:
        key, closed = service.issue("Notes", slots=1), list[object]()
        service.client(storage=MemoryStorage(), label="Anna's MacBook", **SETTINGS).activate(key)
        dialog = ask_for_key(service.client(**SETTINGS), closed.append, language="en")
        yield lambda: dialog.parent is not None
        dialog.body.text = key
        press(ENTER)
        yield lambda: dialog.choices.children
        app.results["choices"] = [choice.text for choice in dialog.choices.children]
        app.picture("full")
        dialog.choices.children[0].dispatch("on_release")
        app.results["chosen"] = [choice.state for choice in dialog.choices.children]
        dialog.buttons[Action.GO].dispatch("on_release")
        yield lambda: dialog.bar.opacity == 0 and not dialog.choices.children
        app.results["thanks"] = dialog.message.text
        press(ENTER)
        yield lambda: closed
        app.results["closed"] = [type(window).__name__ for window in closed]


def closing(app: StoryApp) -> Story:
    """The client is closed on another thread than that of the windows, and takes the dialog along."""
    with LicenseService() as service:
        client, closed = service.client(**SETTINGS), list[object]()
        client_of_two: LicenseClient = client
        dialog = ask_for_key(client_of_two, closed.append, language="de")
        yield lambda: dialog.parent is not None
        app.results["heading"] = dialog.heading.text
        client.close()
        yield lambda: closed
        app.results["closed"] = closed


if __name__ == "__main__":
    stories = {"activation": activation, "update": update, "full": full, "closing": closing}
    app = StoryApp(stories[sys.argv[1]], Path(sys.argv[2]))
    app.run()
    sys.stdout.write(json.dumps(app.results))
