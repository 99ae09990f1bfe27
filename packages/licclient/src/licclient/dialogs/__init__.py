"""Ready dialogs for Tk and Qt (`licclient.dialogs.tk`, `.qt`), and what a third toolkit needs.

A window of another toolkit is a `Window`: `draw` shows a `View`, and `leave` closes it. `drive_activation`
and `drive_update` return its `Driver`, which decides what it shows, and calls the service on other threads.

Within: `_states` (with `_full_license`) decides and is pure, `_driver` carries out, `tk` and `qt` draw.
"""

from licclient.dialogs._driver import (
    Driver,
    Window,
    colour_of,
    drive_activation,
    drive_update,
    marked,
    split_mnemonic,
)
from licclient.dialogs._full_license import Choice
from licclient.dialogs._states import Action, Bar, Button, Link, Tone, View

__all__ = [
    "Action",
    "Bar",
    "Button",
    "Choice",
    "Driver",
    "Link",
    "Tone",
    "View",
    "Window",
    "colour_of",
    "drive_activation",
    "drive_update",
    "marked",
    "split_mnemonic",
]
