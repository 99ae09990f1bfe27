"""The dialogs of licclient for Kivy: one asks for a license key, one offers an update and downloads it.

An example of a third toolkit, made with `licclient.dialogs` alone. Both are views above the app's own
widgets, and return at once: `on_close` is called at the end, with the license or the file, or with None.
"""

from collections.abc import Callable
from os import PathLike
from typing import Any, Final

from kivy.clock import Clock
from kivy.core.window import Window as AppWindow
from kivy.metrics import dp
from kivy.uix.behaviors import ButtonBehavior
from kivy.uix.boxlayout import BoxLayout
from kivy.uix.button import Button as KivyButton
from kivy.uix.label import Label
from kivy.uix.modalview import ModalView
from kivy.uix.progressbar import ProgressBar
from kivy.uix.scrollview import ScrollView
from kivy.uix.textinput import TextInput
from kivy.uix.togglebutton import ToggleButton
from kivy.utils import get_color_from_hex

from licclient import Downloaded, License, LicenseClient, Update
from licclient.dialogs import (
    Action,
    Choice,
    Driver,
    Link,
    Tone,
    View,
    colour_of,
    drive_activation,
    drive_update,
    split_mnemonic,
)

ENTER, ESCAPE = 13, 27
LINK_COLOUR: Final = "#8ab8ff"
MARKS: Final = {Tone.PLAIN: "", Tone.GOOD: "", Tone.BAD: "! "}  # Kivy's font has not those of `marked`
MOST_CHOICES: Final = 6  # are shown at once
ORDER: Final = (Action.SKIP, Action.LEAVE, Action.GO)  # the default button is the last one


def deliver(call: Callable[[], object]) -> None:
    """Run a function on Kivy's thread, whichever thread calls this."""
    Clock.schedule_once(lambda _: call())


def ask_for_key(
    client: LicenseClient,
    on_close: Callable[[License | None], object],
    *,
    problem: BaseException | None = None,
    language: str | None = None,
    trial: bool = False,
) -> "KivyDialog":
    """Ask a person for a license key, until the service accepts one or the dialog is closed."""
    dialog = KivyDialog(TextInput(multiline=False, write_tab=False, size_hint_y=None, height=dp(40)))
    driver = drive_activation(client, dialog, deliver, problem=problem, language=language, trial=trial)
    dialog.show(driver, lambda: on_close(driver.license))
    return dialog


def offer_update(
    client: LicenseClient,
    update: Update,
    to: str | PathLike[str],
    on_close: Callable[[Downloaded | None], object],
    *,
    asked: bool = False,
    language: str | None = None,
) -> "KivyDialog | None":
    """Offer an update, and download it if the person wants it; None for a version that was skipped."""
    if not asked and client.is_skipped(update):
        on_close(None)
        return None
    dialog = KivyDialog(TextInput(readonly=True, size_hint_y=None, height=dp(180)))
    driver = drive_update(client, dialog, deliver, update, to, language=language)
    dialog.show(driver, lambda: on_close(driver.file))
    return dialog


class KivyDialog(ModalView):
    """A `licclient.dialogs.Window`: `draw` shows a view, `leave` closes it."""

    def __init__(self, body: TextInput) -> None:
        super().__init__(auto_dismiss=False, size_hint=(None, None), width=dp(520))
        self.driver: Driver | None = None
        self.body = body
        self._on_close: Callable[[], object] = lambda: None
        self.heading, self.intro, self.label, self.message = (_line() for _ in range(4))
        self.heading.bold = True
        self._body_height = body.height
        self.choices = BoxLayout(orientation="vertical", size_hint_y=None, height=0)
        self.scroll = ScrollView(size_hint_y=None, height=0)
        self.scroll.add_widget(self.choices)
        self.links, self.bar = _row(), ProgressBar(max=1, size_hint_y=None, height=dp(8))
        self.buttons = {action: KivyButton() for action in ORDER}
        rows = BoxLayout(orientation="vertical", padding=dp(16), spacing=dp(8), size_hint_y=None)
        rows.bind(minimum_height=rows.setter("height"), height=self.setter("height"))
        upper = (self.heading, self.intro, self.label, body, self.scroll)
        for widget in (*upper, self.message, self.links, self.bar):
            rows.add_widget(widget)
        place = _row(dp(44))
        for action, button in self.buttons.items():
            button.bind(on_release=lambda _, action=action: self.press(action))
            place.add_widget(button)
        rows.add_widget(place)
        self.add_widget(rows)

    def show(self, driver: Driver, on_close: Callable[[], object]) -> None:
        """Open when no other dialog is open; `on_close` is called at the end."""
        self.driver, self._on_close = driver, on_close
        self.body.bind(text=lambda _, text: driver.type_text(text))
        self.bind(on_pre_open=self._begin, on_dismiss=self._end)
        driver.show_in_turn(self.open)

    # --- a window of licclient ----------------------------------------------------------------

    def draw(self, view: View) -> None:
        """Show a view."""
        _write(self.heading, view.heading)
        _write(self.intro, view.intro)
        _write(self.label, split_mnemonic(view.label)[0] if view.body or not self.body.readonly else "")
        _write(self.message, MARKS[view.tone] + view.message)
        self.message.color = _colour(view.tone)
        if self.body.text != view.body:
            self.body.text = view.body
        if not self.body.multiline:  # the field for a key
            self.body.readonly = not view.is_editable
        self.bar.opacity = 0 if view.bar is None else 1
        self.bar.value = 0 if view.bar is None else view.bar.part or 0
        self._draw_choices(view.choices)
        self._draw_links(view.links)
        for action, button in view.buttons().items():
            shown = self.buttons[action]
            shown.opacity = 0 if button is None else 1
            shown.disabled = button is None or not button.is_enabled
            shown.text = "" if button is None else split_mnemonic(button.text)[0]

    def leave(self) -> None:
        """Close."""
        self.dismiss()

    # --- what comes in ------------------------------------------------------------------------

    def press(self, action: Action) -> None:
        """Take a click on a button, or its key."""
        if self.driver is not None:
            self.driver.press(action)

    def choose(self, index: int) -> None:
        """Choose an item of the list."""
        if self.driver is not None:
            self.driver.choose(index)

    def follow(self, url: str) -> None:
        """Open a link."""
        if self.driver is not None:
            self.driver.open_link(url)

    def _begin(self, *_: object) -> None:
        AppWindow.bind(on_key_down=self._take_key)
        self.body.focus = not self.body.readonly

    def _end(self, *_: object) -> None:
        AppWindow.unbind(on_key_down=self._take_key)
        if self.driver is not None:
            self.driver.end()  # also when the app dismissed us
        self._on_close()

    def _take_key(self, _: object, key: int, *__: object) -> bool:
        if key == ESCAPE:
            self.press(Action.LEAVE)
        elif key == ENTER and not self.buttons[Action.GO].disabled:
            self.press(Action.GO)
        return key in (ENTER, ESCAPE)

    def _draw_choices(self, choices: tuple[Choice, ...]) -> None:
        self.choices.clear_widgets()
        for index, choice in enumerate(choices):
            state = "down" if choice.is_chosen else "normal"
            shown = ToggleButton(text=choice.text, state=state, markup=False)
            shown.opacity = 1 if choice.is_enabled else 0.5  # a press is answered by a message that says why
            shown.bind(on_release=lambda _, index=index: self.choose(index))
            self.choices.add_widget(shown)
        self.choices.height = dp(36) * len(choices)
        self.scroll.height = dp(36) * min(len(choices), MOST_CHOICES)
        self.body.opacity, self.body.height = (0, 0) if choices else (1, self._body_height)

    def _draw_links(self, links: tuple[Link, ...]) -> None:
        self.links.clear_widgets()
        for link in links:
            shown = _LinkLabel(text=link.text, color=get_color_from_hex(LINK_COLOUR), underline=True)
            shown.bind(on_release=lambda _, url=link.url: self.follow(url))
            self.links.add_widget(shown)
        self.links.height = dp(24) if links else 0


class _LinkLabel(ButtonBehavior, Label):
    """A text that is pressed like a button."""


def _line() -> Label:
    """Return a label as wide as the dialog, and as high as its text; a product's name is no markup."""
    line = Label(size_hint_y=None, halign="left", markup=False)
    line.bind(width=lambda _, width: setattr(line, "text_size", (width, None)))
    line.bind(texture_size=lambda _, size: setattr(line, "height", size[1] if line.text else 0))
    return line


def _row(height: float = 0.0) -> BoxLayout:
    return BoxLayout(spacing=dp(8), size_hint_y=None, height=height)


def _write(line: Label, text: str) -> None:
    line.text = text
    line.height = line.height if text else 0


def _colour(tone: Tone) -> Any:
    """Return the colour of a message; Kivy's windows are dark."""
    return get_color_from_hex(colour_of(tone, on_dark=True) or "#ffffff")
