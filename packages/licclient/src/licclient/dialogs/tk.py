"""Ready dialogs for Tk: one asks for a license key, one offers an update and downloads it.

::

    from licclient.dialogs.tk import ask_for_key, offer_update

    license_ = ask_for_key(client, root)                          # None: closed without one
    file = offer_update(client, update, downloads_folder, root)   # None: not now

Call these on the thread of Tk's main loop, which goes on while a dialog is open; the service is called on
other threads. Importing this needs `tkinter`, which some systems keep in a package of its own (`python3-tk`).
"""

import tkinter as tk
from os import PathLike
from tkinter import ttk
from typing import TYPE_CHECKING

from licclient._core.arguments import check_flag
from licclient._core.model import License
from licclient._core.storage import read_folder
from licclient._core.update_model import Downloaded
from licclient.dialogs._driver import KEY_LETTERS, begin_activation, begin_offer, check_client
from licclient.dialogs._states import Action, Typed, View
from licclient.dialogs._tk_window import ChoiceList, TkDialog, bind_letter, check_parent, text_colours

if TYPE_CHECKING:
    from licclient._client import LicenseClient
    from licclient._core.update_model import Update
    from licclient.errors import LicclientError

__all__ = ["ActivationDialog", "UpdateDialog", "ask_for_key", "offer_update"]


def ask_for_key(
    client: "LicenseClient",
    parent: tk.Misc,
    *,
    problem: "LicclientError | None" = None,
    language: str | None = None,
    dark: bool | None = None,
    trial: bool = False,
) -> "License | None":
    """Ask a person for a license key, until the service accepts one or the dialog is closed.

    Args:
        client: Verifies the key, and remembers it when it is good.
        parent: The window in front of which the dialog stands; it takes no input meanwhile.
        problem: Why the app asks, such as what `require` handed to `otherwise`; shown at first.
        language: As for `explain`; None for the language of the system.
        dark: Dark or light, whatever the app's ttk theme; None to follow that theme, or the window's colour
            if it is one of the plain themes that Tk brings.
        trial: Whether a button starts the trial of this computer; needs a client with `slug`.

    Returns:
        The license; None when the dialog was closed without one.

    Raises:
        TypeError: `client` is no `LicenseClient`, or `parent` is no window of Tk.
        RuntimeError: This is not the thread of Tk's main loop.
        ValueError: `trial`, and the client was made without `slug`.
    """
    return ActivationDialog(client, parent, problem=problem, language=language, dark=dark, trial=trial).run()


def offer_update(
    client: "LicenseClient",
    update: "Update",
    to: str | PathLike[str],
    parent: tk.Misc,
    *,
    asked: bool = False,
    language: str | None = None,
    dark: bool | None = None,
) -> "Downloaded | None":
    """Offer an update, and download it if the person wants it.

    Args:
        client: Downloads and verifies it.
        update: `update` of `check_for_update`, or that of `on_update`.
        to: The folder for the file.
        parent: As for `ask_for_key`.
        asked: Whether the person asked for updates: then also a version is offered that was skipped (D-87).
        language: As for `ask_for_key`.
        dark: As for `ask_for_key`.

    Returns:
        The file, verified if `is_verified` is true; None when the person does not want it now, or skipped
        this version.

    Raises:
        ValueError: The client was made without `slug` or `version`.
        TypeError, RuntimeError: As for `ask_for_key`.
    """
    check_client(client)
    check_parent(parent)
    if not check_flag("asked", asked) and client.is_skipped(update):
        return None
    return UpdateDialog(client, update, to, parent, language=language, dark=dark).run()


class ActivationDialog(TkDialog):
    """The window of `ask_for_key`, for apps that do not want to wait for it; arguments as there."""

    def __init__(
        self,
        client: "LicenseClient",
        parent: tk.Misc,
        *,
        problem: "LicclientError | None" = None,
        language: str | None = None,
        dark: bool | None = None,
        trial: bool = False,
    ) -> None:
        super().__init__(parent, client, begin_activation(client, problem, language, trial=trial), dark=dark)
        name = self._variable()
        # Read from the variable: the field learns of a change later.
        self._tk_objects["text"].trace_add(
            "write", lambda *_: self._driver.handle(Typed(str(self.getvar(name))))
        )
        self._field.focus_set()

    @property
    def license(self) -> "License | None":
        """The license; None before it is known."""
        return self._driver.license

    def run(self) -> "License | None":
        """Show the dialog, and wait until it is closed; nothing else of the app takes input meanwhile."""
        self._wait()
        return self.license

    def _make_body(self, frame: ttk.Frame) -> tk.Widget:
        text = self._tk_objects["text"] = tk.StringVar(self)
        self._field = ttk.Entry(
            frame, textvariable=text, width=KEY_LETTERS, font="TkFixedFont", style=self._style("TEntry")
        )
        bind_letter(self._field, "Control", "a", self._select_all)  # Tk's own on Linux goes to the beginning
        self._list = ChoiceList(frame, self._choose, self._palette)
        self._target = self._field
        return self._field

    def _draw_body(self, view: View) -> None:
        self._show_list(view)
        if self._field.get() != view.body:
            self.setvar(self._variable(), view.body)
            self._field.icursor("end")
        if view.is_editable and self._field.instate(["readonly"]):
            self._field.focus_set()
        self._field.state(["!readonly" if view.is_editable else "readonly"])

    def _choose(self, index: int) -> None:
        self._driver.choose(index)  # which is made after the list

    def _show_list(self, view: View) -> None:
        """Show the list in the place of the field, or the reverse."""
        before, self._target = self._target, self._list if view.choices else self._field
        if view.choices:
            self._list.draw(view.choices)
        if before is not self._target:
            self._target.grid(**before.grid_info())
            before.grid_remove()
            self.update_idletasks()  # Tk gives the focus to a widget once it is seen
            self._target.focus_set()

    def _variable(self) -> str:
        """Return the full name of the field's variable: a key's binding calls us from a procedure of Tk."""
        return f"::{self._field['textvariable']}"

    def _select_all(self, _: object) -> str:
        self._field.selection_range(0, "end")
        return "break"


class UpdateDialog(TkDialog):
    """The window of `offer_update`, for apps that do not want to wait for it; arguments as there.

    It also opens for a version that was skipped.
    """

    def __init__(
        self,
        client: "LicenseClient",
        update: "Update",
        to: str | PathLike[str],
        parent: tk.Misc,
        *,
        language: str | None = None,
        dark: bool | None = None,
    ) -> None:
        state = begin_offer(client, update, language)
        super().__init__(parent, client, state, read_folder("to", to), dark=dark)
        self._frame.rowconfigure(3, weight=1)
        self._buttons[Action.GO].focus_set()

    @property
    def file(self) -> "Downloaded | None":
        """The file, whole and verified; None before the download has ended."""
        return self._driver.file

    def run(self) -> "Downloaded | None":
        """Show the dialog, and wait until it is closed; nothing else of the app takes input meanwhile."""
        self._wait()
        return self.file

    def _make_body(self, frame: ttk.Frame) -> tk.Widget:
        self._box = ttk.Frame(frame, style=self._style("TFrame"))
        self._target = self._changelog = tk.Text(
            self._box, height=9, width=KEY_LETTERS, wrap="word", font="TkDefaultFont", padx=10, pady=8
        )
        if self._palette is not None:
            self._changelog.configure(text_colours(self._palette))
        bind_letter(self._changelog, "Control", "a", self._select_all)
        style = self._style("Vertical.TScrollbar")
        bar = ttk.Scrollbar(self._box, command=self._changelog.yview, style=style)
        # Tab skips widgets without text input; but users without a mouse need to scroll.
        self._changelog.configure(yscrollcommand=bar.set, state="disabled", takefocus=1)
        self._box.columnconfigure(0, weight=1)
        self._box.rowconfigure(0, weight=1)
        self._changelog.grid(row=0, column=0, sticky="nsew")
        bar.grid(row=0, column=1, sticky="ns")
        return self._box

    def _draw_body(self, view: View) -> None:
        if not view.body:
            self._label.grid_remove()
            self._box.grid_remove()
        elif self._changelog.get("1.0", "end-1c") != view.body:
            self._changelog.configure(state="normal")
            self._changelog.replace("1.0", "end", view.body)
            self._changelog.configure(state="disabled")

    def _select_all(self, _: object) -> str:
        self._changelog.tag_add("sel", "1.0", "end-1c")
        return "break"
