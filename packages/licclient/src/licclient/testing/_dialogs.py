"""`answer_dialog`: a person in front of the ready dialogs, in either toolkit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from licclient._core.arguments import check_text, wrong_type
from licclient._core.texts import TABLES, text_of
from licclient.dialogs._driver import Driver, watchers
from licclient.dialogs._states import Action, Typed

_BUTTONS: Final = {
    text.replace("&", ""): code
    for code, text in TABLES["en"].items()
    if code.startswith("button.") and code != "button.cancel"  # that is there only while a file comes
}
"""The text code of each button, by its English text."""


@contextmanager
def answer_dialog(*buttons: str, key: str | None = None, computer: str | None = None) -> Iterator[list[str]]:
    """Answer the next dialog of `licclient.dialogs` that is shown within the block; for Tk and Qt.

    The window is the real one, and the answer comes from its event loop, so that the call that opened it
    returns in the block. Several dialogs are answered in the order of their `answer_dialog`.

    Args:
        *buttons: The buttons to press one after the other, by their English text whatever the language is:
            ``"Activate"``, ``"Start trial"``, ``"Not now"``, ``"Close"``; ``"Download"``, ``"Try again"``,
            ``"Later"`` (of a security update: ``"Remind me later"``), ``"Skip this version"``,
            ``"Continue"``; ``"Move the license here"``, ``"Enter another key"``. The last one must close it.
        key: What to type first.
        computer: How the entry begins that is chosen when the dialog lists computers, such as its name.

    Yields:
        The messages that the dialog has shown so far.

    Raises:
        AssertionError: At the end of the block: no dialog was shown, it has no such button, or it stayed
            open. It is closed then, and so is a dialog for which there is no answer.
        TypeError: A button, the key or the computer is no text.
        ValueError: No dialog has such a button.
    """
    for button in buttons:
        if not isinstance(button, str):
            raise wrong_type("buttons", "strings", button)
        if button not in _BUTTONS:
            raise ValueError(f"buttons: no dialog has a button {button[:40]!r}, but {', '.join(_BUTTONS)}")
    check_text("key", key)
    check_text("computer", computer)
    answer = _Answer(list(buttons), key, computer)
    if not _answers:
        watchers.append(_watch)
    _answers.append(answer)
    try:
        yield answer.messages
        answer.check()
    finally:
        _answers.remove(answer)
        if not _answers:
            watchers.remove(_watch)
        if answer.driver is not None:
            answer.driver.press(Action.CLOSE)


class _Answer:
    """What is to be done with one dialog; `problem` is why that could not be done."""

    def __init__(self, buttons: list[str], key: str | None, computer: str | None) -> None:
        self.buttons = buttons
        self.key = key
        self.computer = computer
        self.driver: Driver | None = None
        self.messages: list[str] = []
        self.problem: str | None = None

    def go_on(self, driver: Driver) -> None:
        """Do what comes next, unless the dialog is busy: then it changes again."""
        self.driver = driver
        if self.key is not None:
            key, self.key = self.key, None
            driver.handle(Typed(key))
        if self.computer is not None and (choices := driver.state.view().choices):
            computer, self.computer = self.computer, None
            texts = [choice.text for choice in choices]
            index = next((row for row, text in enumerate(texts) if text.startswith(computer)), None)
            if index is None:
                self.problem = f"the dialog lists no computer {computer!r}; its computers: {texts}"
                driver.press(Action.CLOSE)
                return
            driver.choose(index)
        view = driver.state.view()
        shown = {
            button.text: action for action, button in view.buttons().items() if button and button.is_enabled
        }
        if Action.GO not in shown.values():
            return
        if view.message and view.message not in self.messages[-1:]:
            self.messages.append(view.message)
        label = text_of(_BUTTONS[self.buttons[0]], driver.state.language) if self.buttons else None
        if label in shown:
            self.buttons.pop(0)
            driver.press(shown[label])
        else:
            missing = f"has no button {self.buttons[0]!r}" if self.buttons else "is still open"
            there = ", ".join(text.replace("&", "") for text in shown)
            self.problem = f"the dialog {missing}; its buttons: {there}; its message: {view.message!r}"
            driver.press(Action.CLOSE)

    def check(self) -> None:
        """Raise `AssertionError` unless the dialog was answered and is closed."""
        if self.driver is None:
            self.problem = "no dialog was shown within the block"
        elif not self.driver.is_over:
            self.problem = "the block ended before the dialog was closed: run the event loop within it"
        if self.problem is not None:
            raise AssertionError(self.problem)


_answers: Final[list[_Answer]] = []


def _watch(driver: Driver) -> None:
    if driver.is_over:
        return
    answer = next((candidate for candidate in _answers if candidate.driver in (driver, None)), None)
    if answer is not None:
        answer.go_on(driver)
    elif _answers:  # no test would close it
        _answers[-1].problem = f"another dialog was shown: {driver.state.view().heading!r}"
        driver.press(Action.CLOSE)
