"""Ready dialogs for Tk: one asks for a license key, one offers an update and downloads it.

::

    from licclient.dialogs.tk import ask_for_key, offer_update

    license_ = ask_for_key(client, root)                          # None: closed without one
    file = offer_update(client, update, downloads_folder, root)   # None: not now

Call these on the thread of Tk's main loop, which goes on while a dialog is open; the service is called on
other threads. Importing this needs `tkinter`, which some systems keep in a package of its own (`python3-tk`).
"""

import queue
import tkinter as tk
from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path
from tkinter import font as tkfont
from tkinter import ttk
from typing import TYPE_CHECKING, Any, Final

from licclient._arguments import read_folder
from licclient.dialogs._activation import Activation
from licclient.dialogs._driver import Driver, State, begin_activation, begin_offer
from licclient.dialogs._update import Offer
from licclient.dialogs._view import Action, View, colour_of, marked, split_mnemonic

if TYPE_CHECKING:
    from licclient._client import LicenseClient
    from licclient._model import License, Update
    from licclient._part_file import Downloaded
    from licclient.errors import LicclientError

__all__ = ["ActivationDialog", "UpdateDialog", "ask_for_key", "offer_update"]

_LOOK_MILLISECONDS: Final = 50
_KEY_LETTERS: Final = 40
"""Room for a key, and a little more."""

_GAP: Final = 12
_WHOLE_BAR: Final = 100.0
_DARK: Final = 0x8000
"""Half of what a channel of Tk's colours has."""


def ask_for_key(
    client: "LicenseClient",
    parent: tk.Misc,
    *,
    problem: "LicclientError | None" = None,
    language: str | None = None,
) -> "License | None":
    """Ask a person for a license key, until the service says yes or the dialog is closed.

    Args:
        client: Verifies the key, and remembers it when it is good.
        parent: The window in front of which the dialog stands; it takes no input meanwhile.
        problem: Why the app asks, such as what `require` handed to `otherwise`; shown at first.
        language: As for `explain`; None for the language of the system.

    Returns:
        The license; None when the dialog was closed without one.
    """
    return ActivationDialog(client, parent, problem=problem, language=language).run()


def offer_update(
    client: "LicenseClient",
    update: "Update",
    to: str | PathLike[str],
    parent: tk.Misc,
    *,
    asked: bool = False,
    language: str | None = None,
) -> "Downloaded | None":
    """Offer an update, and download it if the person wants it.

    Args:
        client: Downloads and verifies it.
        update: From `check_for_update` or `on_update`.
        to: The folder for the file.
        parent: As for `ask_for_key`.
        asked: Whether the person asked for updates: then also a version is offered that was skipped (D-87).
        language: As for `ask_for_key`.

    Returns:
        The file, verified; None when the person does not want it now, or skipped this version.

    Raises:
        ValueError: The client was made without `slug` or `version`.
    """
    if not asked and client.is_skipped(update):
        return None
    return UpdateDialog(client, update, to, parent, language=language).run()


class _Dialog(tk.Toplevel):
    """What both windows are made of; what they show and do is decided in `_dialogs`."""

    _target: tk.Widget
    """What the label's letter gives the focus to."""

    def __init__(
        self,
        parent: tk.Misc,
        client: "LicenseClient",
        state: State,
        to: Path | None = None,
    ) -> None:
        super().__init__(parent)
        self.withdraw()
        # Tk may be touched by its own thread alone, so it looks whether something has come.
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._mnemonics: dict[str, Callable[[], object]] = {}
        self._build()
        self._driver: Driver[Any] = Driver[State](self, self._waiting.put, client, state, to)
        self.protocol("WM_DELETE_WINDOW", partial(self._press, Action.CLOSE))
        self.bind("<Return>", lambda _: self._enter())
        self.bind("<KP_Enter>", lambda _: self._enter())
        self.bind("<Escape>", lambda _: self._driver.pressed(Action.LEAVE))
        self.bind("<Destroy>", self._destroyed)
        self._place(parent)
        self._next_look = self.after(_LOOK_MILLISECONDS, self._look)

    def _wait(self) -> None:
        # Another dialog, if a worker's offer came while that was open. It lets go first: what is outside of a
        # grab is not told that it has the keyboard, and this window is to get both.
        before = self.tk.call("grab", "current", str(self))
        if before:
            self.tk.call("grab", "release", before)
        self.wait_visibility()
        self.grab_set()
        self.wait_window()
        if before and self.tk.call("winfo", "exists", before):
            self.tk.call("grab", "set", before)

    # --- what the driver asks for -------------------------------------------------------------

    def draw(self, view: View) -> None:
        """Show a view."""
        self.title(view.title)
        self._heading["text"] = view.heading
        self._intro["text"] = view.intro
        self._mnemonics.clear()
        label, at = split_mnemonic(view.label)
        self._label.configure(text=label, underline=self._mnemonic(label, at, self._target.focus_set))
        self._draw_body(view)
        colour = colour_of(view.tone, on_dark=self._is_dark())
        self._message.configure(text=marked(view), foreground=colour or self._plain_colour)
        self._draw_bar(view)
        self._draw_buttons(view)

    def leave(self) -> None:
        """Close the window."""
        self.destroy()

    # --- drawing ------------------------------------------------------------------------------

    def _build(self) -> None:
        self._frame = frame = ttk.Frame(self, padding=(_GAP * 2, _GAP * 2, _GAP * 2, _GAP + 4))
        frame.pack(fill="both", expand=True)
        frame.columnconfigure(0, weight=1)
        bold = tkfont.nametofont("TkDefaultFont", root=self).copy()
        bold.configure(weight="bold", size=round(bold.actual("size") * 1.3))
        self._bold: tkfont.Font | None = bold  # Tk forgets a font that nobody holds
        width = tkfont.nametofont("TkFixedFont", root=self).measure("0") * (_KEY_LETTERS + 10)
        self._heading = ttk.Label(frame, font=bold, wraplength=width)
        self._intro = ttk.Label(frame, wraplength=width)
        self._label = ttk.Label(frame)
        body = self._make_body(frame)
        self._message = ttk.Label(frame, wraplength=width)
        self._bar = ttk.Progressbar(frame, maximum=_WHOLE_BAR, length=width)
        self._plain_colour = ttk.Style(self).lookup("TLabel", "foreground") or "black"
        rows = [self._heading, self._intro, self._label, body, self._message, self._bar]
        for row, widget in enumerate(rows):
            widget.grid(row=row, sticky="nsew", pady=(0, 4 if widget is self._label else _GAP))
        # Room for two lines, so that the window does not jump when a message comes.
        line = tkfont.nametofont("TkDefaultFont", root=self).metrics("linespace")
        frame.rowconfigure(4, minsize=2 * line + _GAP)
        frame.rowconfigure(5, minsize=self._bar.winfo_reqheight() + _GAP)
        places = ttk.Frame(frame)
        places.grid(row=6, sticky="ew")
        places.columnconfigure(0, weight=1)
        self._buttons: dict[Action, ttk.Button] = {}
        # In the order of Tab: what stands apart comes first, what Enter presses last.
        for column, action in enumerate((Action.SKIP, Action.LEAVE, Action.GO)):
            button = ttk.Button(places, command=partial(self._press, action))
            button.grid(
                row=0, column=column, sticky="w" if column == 0 else "", padx=(_GAP if column else 0, 0)
            )
            self._buttons[action] = button

    def _make_body(self, frame: ttk.Frame) -> tk.Widget:
        raise NotImplementedError

    def _draw_body(self, view: View) -> None:
        raise NotImplementedError

    def _draw_bar(self, view: View) -> None:
        if view.bar is None:
            self._bar.stop()
            self._bar.grid_remove()
            return
        self._bar.grid()
        part = view.bar.part
        mode = "indeterminate" if part is None else "determinate"
        if str(self._bar["mode"]) != mode:
            self._bar.stop()
            self._bar["mode"] = mode
        if part is None:
            self._bar.start()
        else:
            self._bar["value"] = part * _WHOLE_BAR

    def _draw_buttons(self, view: View) -> None:
        focused = self.focus_get()
        for action, told in view.buttons().items():
            button = self._buttons[action]
            if told is None:
                button.grid_remove()
                continue
            text, at = split_mnemonic(told.text)
            underline = self._mnemonic(text, at, button.invoke) if told.is_enabled else -1
            button.configure(text=text, underline=underline)
            button.state(["!disabled" if told.is_enabled else "disabled"])
            button.configure(default="active" if action is Action.GO else "normal")
            button.grid()
        # Whoever uses the keyboard must not be left on a button that is gone.
        if focused in self._buttons.values():
            standing = [
                self._buttons[action] for action, told in view.buttons().items() if told and told.is_enabled
            ]
            if focused not in standing:
                (standing[0] if standing else self._target).focus_set()

    def _mnemonic(self, text: str, at: int | None, act: Callable[[], object]) -> int:
        """Bind a letter, and return which one is underlined; -1 for none, as on macOS, without such keys."""
        if at is None or self.tk.call("tk", "windowingsystem") == "aqua":
            return -1
        letter = text[at].lower()
        if letter not in self._mnemonics:
            self.bind(f"<Alt-{letter}>", lambda _: self._alt(letter))
        self._mnemonics[letter] = act
        return at

    def _is_dark(self) -> bool:
        ground = ttk.Style(self).lookup("TFrame", "background") or self["background"]
        red, green, blue = self.winfo_rgb(ground)
        return (red * 3 + green * 6 + blue) / 10 < _DARK

    def _place(self, parent: tk.Misc) -> None:
        above = parent.winfo_toplevel()
        self.update_idletasks()
        # A window that belongs to one that is not seen would not be seen either.
        if above.winfo_viewable():
            self.wm_transient(above)
            x = above.winfo_rootx() + (above.winfo_width() - self.winfo_reqwidth()) // 2
            y = above.winfo_rooty() + (above.winfo_height() - self.winfo_reqheight()) // 3
            self.geometry(f"+{max(x, 0)}+{max(y, 0)}")
        self.minsize(self.winfo_reqwidth(), self.winfo_reqheight())
        self.deiconify()

    # --- what comes in ------------------------------------------------------------------------

    def _press(self, action: Action) -> None:
        self._driver.pressed(action)

    def _alt(self, letter: str) -> str:
        act = self._mnemonics.get(letter)
        if act is not None:
            act()
        return "break"

    def _enter(self) -> None:
        """Press the button that has the focus; elsewhere Enter means the button that is marked for it."""
        focused = self.focus_get()
        pressed = [button for button in self._buttons.values() if button is focused]
        (pressed or [self._buttons[Action.GO]])[0].invoke()

    def _look(self) -> None:
        # Next time first: what is called may open another window, whose loop runs within this call.
        self._next_look = self.after(_LOOK_MILLISECONDS, self._look)
        while not self._waiting.empty() and not self._driver.is_over:
            self._waiting.get()()

    def _destroyed(self, event: "tk.Event[tk.Misc]") -> None:
        if event.widget is self:  # the event comes for each thing in the window as well
            self._driver.end()
            self.after_cancel(self._next_look)
            self._let_go()

    def _let_go(self) -> None:
        """Free now what asks Tk when it is freed: the garbage collector might do it on another thread."""
        self._bold = None


class ActivationDialog(_Dialog):
    """The window of `ask_for_key`, for apps that do not want to wait for it; arguments as there."""

    _driver: Driver[Activation]

    def __init__(
        self,
        client: "LicenseClient",
        parent: tk.Misc,
        *,
        problem: "LicclientError | None" = None,
        language: str | None = None,
    ) -> None:
        super().__init__(parent, client, begin_activation(client, problem, language))
        self._field.focus_set()

    @property
    def license(self) -> "License | None":
        """The license; None as long as there is none."""
        return self._driver.state.outcome

    def run(self) -> "License | None":
        """Show the dialog, and wait until it is closed; nothing else of the app takes input meanwhile."""
        self._wait()
        return self.license

    def _make_body(self, frame: ttk.Frame) -> tk.Widget:
        self._text: tk.StringVar | None = tk.StringVar(self)
        self._text.trace_add("write", lambda *_: self._driver.typed(self._field.get()))
        self._field = ttk.Entry(frame, textvariable=self._text, width=_KEY_LETTERS, font="TkFixedFont")
        self._target = self._field
        return self._field

    def _draw_body(self, view: View) -> None:
        if self._field.get() != view.body and self._text is not None:
            self._text.set(view.body)
            self._field.icursor("end")
        self._field.state(["!readonly" if view.is_editable else "readonly"])

    def _let_go(self) -> None:
        super()._let_go()
        self._text = None


class UpdateDialog(_Dialog):
    """The window of `offer_update`, for apps that do not want to wait for it; arguments as there.

    It also opens for a version that was skipped.
    """

    _driver: Driver[Offer]

    def __init__(
        self,
        client: "LicenseClient",
        update: "Update",
        to: str | PathLike[str],
        parent: tk.Misc,
        *,
        language: str | None = None,
    ) -> None:
        super().__init__(parent, client, begin_offer(client, update, language), read_folder("to", to))
        self._frame.rowconfigure(3, weight=1)
        self._buttons[Action.GO].focus_set()

    @property
    def file(self) -> "Downloaded | None":
        """The file, whole and verified; None as long as there is none."""
        return self._driver.state.outcome

    def run(self) -> "Downloaded | None":
        """Show the dialog, and wait until it is closed; nothing else of the app takes input meanwhile."""
        self._wait()
        return self.file

    def _make_body(self, frame: ttk.Frame) -> tk.Widget:
        self._box = ttk.Frame(frame)
        self._target = self._changelog = tk.Text(
            self._box, height=9, width=_KEY_LETTERS, wrap="word", font="TkDefaultFont", padx=8, pady=6
        )
        bar = ttk.Scrollbar(self._box, command=self._changelog.yview)
        # Tab passes over what takes no text; but whoever reads without a mouse wants to scroll.
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
