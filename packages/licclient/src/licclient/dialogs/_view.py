"""Pure: what a window shows, its events, and the commands of a dialog.

One shape for both dialogs and both toolkits: a heading, a line below it, a body with its label (the field for
a key, or the changelog), a message, links that help with it, a bar, and up to three buttons.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from licclient._explain import explain
from licclient._model import Reason
from licclient._texts import text_of
from licclient.errors import (
    DownloadCancelledError,
    LicclientError,
    LicenseRefusedError,
    MistypedKeyError,
    NotActivatedError,
    ServiceUnavailableError,
)


class Tone(StrEnum):
    """The kind of a message; shown by more than its colour."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"


class Action(StrEnum):
    """What a person can do beside typing. Each button has a place of its own in the window."""

    GO = "go"
    """The button that Enter presses."""

    LEAVE = "leave"
    """The button that Escape presses; Escape means the same where there is none."""

    SKIP = "skip"
    """The button that stands apart."""

    CLOSE = "close"
    """The window's own way to be closed."""


@dataclass(frozen=True, slots=True)
class Button:
    """A button; `&` in its text stands before the letter that presses it together with Alt."""

    text: str
    is_enabled: bool = True


@dataclass(frozen=True, slots=True)
class Link:
    """A link below the message; the text is plain."""

    text: str
    url: str


@dataclass(frozen=True, slots=True)
class Urls:
    """The app's own pages, as in `ClientSettings`; None where it has none."""

    buy: str | None = None
    support: str | None = None
    manage: str | None = None


NO_URLS: Final = Urls()


@dataclass(frozen=True, slots=True)
class Bar:
    """A progress bar, 0 to 1; None while the progress is unknown."""

    part: float | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What a window shows; all of it plain text, whatever characters are in it.

    Attributes:
        label: What the body is called; `&` as in a button.
        body: The key as typed, or the changelog; empty, a changelog is not shown.
        is_editable: Whether a person can type into the body.
        message: What is to be said now; may be empty.
        links: What helps with the message.
    """

    title: str
    heading: str
    intro: str
    label: str
    body: str = field(repr=False)
    is_editable: bool = False
    message: str = ""
    tone: Tone = Tone.PLAIN
    links: tuple[Link, ...] = ()
    bar: Bar | None = None
    go: Button | None = None
    leave: Button | None = None
    skip: Button | None = None

    def buttons(self) -> dict[Action, Button | None]:
        """Return what stands at the place of each button."""
        return {Action.GO: self.go, Action.LEAVE: self.leave, Action.SKIP: self.skip}


# --- events of a window ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Typed:
    """The field holds another text now."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pressed:
    """A button, its key, or the window's own way to be closed."""

    action: Action


# --- events of a thread ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far a download is: bytes, bytes in all, bytes a second."""

    done: int
    total: int
    speed: float


@dataclass(frozen=True, slots=True)
class Ended:
    """What was wanted has been done, or went wrong: `outcome` is what came of it, or the exception."""

    outcome: object


Event = Typed | Pressed | Progressed | Ended


# --- commands of a dialog -----------------------------------------------------------------


class Command(StrEnum):
    """What the driver does for a dialog; each but the last two ends in an `Ended`."""

    ACTIVATE = "activate"
    """Verify the key in the field, and remember it when it is good."""

    START_TRIAL = "start_trial"
    """Start the trial of this computer, and remember its key."""

    DOWNLOAD = "download"
    """Download the update; `Progressed` comes again and again."""

    SKIP = "skip"
    """Remember that this version is not wanted."""

    STOP = "stop"
    """Cancel the download, whose `Ended` is still to come."""

    CLOSE = "close"
    """Close the window, and cancel what is running."""


# --- how much of it is shown -------------------------------------------------------------------

MOST_LETTERS: Final = 100_000
"""How much of a changelog is shown."""

LONGEST_LINE: Final = 1_000
"""Letters after which a line is broken: toolkits need minutes to lay out one of a million."""

MOST_WORDS: Final = 500
"""How much of a name or a sentence of the server is shown: the window must fit the screen."""


def in_short_lines(text: str) -> str:
    """Cut a text so that a window shows it at once, however long it is and however long its lines are."""
    pieces = [
        line[at : at + LONGEST_LINE]
        for line in text[:MOST_LETTERS].split("\n")
        for at in range(0, len(line) or 1, LONGEST_LINE)
    ]
    return "\n".join(pieces) + ("\n…" if len(text) > MOST_LETTERS else "")


def cut_short(text: str) -> str:
    """Cut what stands in a label."""
    return text if len(text) <= MOST_WORDS else text[:MOST_WORDS] + "…"


# --- problems ---------------------------------------------------------------------------------


def say_problem(problem: BaseException, language: str) -> str:
    """Return what went wrong; an unexpected exception is not quoted: it may contain anything."""
    match problem:
        case LicclientError() | OSError():
            return cut_short(explain(problem, language))
        case _:
            return text_of("problem.unexpected", language)


def links_for(problem: BaseException | None, urls: Urls, language: str) -> tuple[Link, ...]:
    """Return the links that help with a problem, most helpful first; only those that the app has."""
    codes: tuple[str, ...]
    match problem:
        case None | ServiceUnavailableError() | DownloadCancelledError() | OSError():
            codes = ()
        case NotActivatedError() | MistypedKeyError():
            codes = ("link.buy", "link.lost")
        case LicenseRefusedError(reason=Reason.NOT_FOUND | Reason.INVALID_FORMAT):
            codes = ("link.lost", "link.buy")
        case LicenseRefusedError(reason=Reason.TRIAL_ENDED | Reason.TRIAL_NOT_OFFERED | Reason.TRIAL_LIMIT):
            codes = ("link.buy", "link.lost")
        case LicenseRefusedError(reason=Reason.ENVIRONMENT):
            codes = ("link.manage", "link.buy")
        case LicenseRefusedError():
            codes = ("link.buy", "link.support")
        case _:
            codes = ("link.support",)
    pages = {
        "link.buy": urls.buy,
        "link.lost": urls.support,
        "link.manage": urls.manage,
        "link.support": urls.support,
    }
    return tuple(Link(text_of(code, language), url) for code in codes if (url := pages[code]))


# --- how it looks -----------------------------------------------------------------------------

# On light and on dark ground; each has a contrast of at least 4.5 to white or to black.
_COLOURS: Final = {
    Tone.GOOD: ("#1b6e2d", "#7ddc8f"),
    Tone.BAD: ("#b3261e", "#ff9d94"),
}
_LINK_COLOURS: Final = ("#1a56c4", "#8ab8ff")
_MARKS: Final = {Tone.PLAIN: "", Tone.GOOD: "\u2713\u00a0", Tone.BAD: "\u26a0\u00a0"}


def colour_of(tone: Tone, *, on_dark: bool) -> str | None:
    """Return the colour of a message, as `#rrggbb`; None for the toolkit's own colour of text."""
    colours = _COLOURS.get(tone)
    return None if colours is None else colours[on_dark]


def link_colour(*, on_dark: bool) -> str:
    """Return the colour of a link, as `#rrggbb`."""
    return _LINK_COLOURS[on_dark]


def marked(view: View) -> str:
    """Return the message with a mark before it: what is wrong must be seen without seeing colours."""
    return f"{_MARKS[view.tone]}{view.message}" if view.message else ""


def split_mnemonic(text: str) -> tuple[str, int | None]:
    """Return a text without its `&`, and the index of the letter that this marks, for Tk."""
    at = text.find("&")
    return (text, None) if at < 0 else (text[:at] + text[at + 1 :], at)
