"""What both Tk windows have in common: drawing a view, events, the turn among other dialogs."""

import queue
import tkinter as tk
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tkinter import font as tkfont
from tkinter import ttk
from typing import TYPE_CHECKING, Any, Final

from licclient.dialogs._driver import Driver, State
from licclient.dialogs._tk_style import DARK, PREFIX, apply_palette, choose_palette, is_dark
from licclient.dialogs._view import Action, Link, View, colour_of, link_colour, marked, split_mnemonic

if TYPE_CHECKING:
    from licclient._client import LicenseClient

KEY_LETTERS: Final = 40
"""Room for a key, and a little more."""

_LOOK_MILLISECONDS: Final = 50
_GAP: Final = 12
_WHOLE_BAR: Final = 100.0


class TkDialog(tk.Toplevel):
    """What both windows have in common; `_states` decides what they show and do."""

    _target: tk.Widget
    """What the label's letter gives the focus to."""

    def __init__(
        self,
        parent: tk.Misc,
        client: "LicenseClient",
        state: State,
        to: Path | None = None,
        *,
        dark: bool | None = None,
    ) -> None:
        super().__init__(parent)
        self.withdraw()
        self._parent = parent.winfo_toplevel()
        # Tk may be used by its own thread alone, so a timer looks for what other threads have put here.
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._mnemonics: dict[str, Callable[[], object]] = {}
        self._palette = choose_palette(parent, dark=dark)
        self._prefix = ""
        if self._palette is not None:
            apply_palette(self, self._palette)
            self._prefix = PREFIX
        self._build()
        self._driver = Driver(self, self._waiting.put, client, state, to)
        self.protocol("WM_DELETE_WINDOW", partial(self._press, Action.CLOSE))
        self.bind("<Return>", lambda _: self._enter())
        self.bind("<KP_Enter>", lambda _: self._enter())
        self.bind("<Escape>", lambda _: self._driver.pressed(Action.LEAVE))
        self.bind("<Destroy>", self._destroyed)
        self._next_look = self.after(_LOOK_MILLISECONDS, self._look)
        self._driver.show_in_turn(self._show)

    def _wait(self) -> None:
        try:
            if not self.winfo_viewable():  # another dialog may be open
                self.wait_visibility()
        except tk.TclError:  # destroyed before it was shown
            return
        # The app's own grab is released first: a window outside of a grab does not get the keyboard.
        before = self.tk.call("grab", "current", str(self))
        if before:
            self.tk.call("grab", "release", before)
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
        self._draw_links(view.links)
        self._draw_buttons(view)

    def leave(self) -> None:
        """Close the window."""
        self.destroy()

    # --- drawing ------------------------------------------------------------------------------

    def _build(self) -> None:
        style = self._style
        padding = (_GAP * 2, _GAP * 2, _GAP * 2, _GAP + 6)
        self._frame = frame = ttk.Frame(self, padding=padding, style=style("TFrame"))
        frame.pack(fill="both", expand=True)
        frame.columnconfigure(0, weight=1)
        self._fonts = {
            "bold": self._derive_font(1.3, weight="bold"),
            "link": self._derive_font(1.0, underline=True),
        }
        width = tkfont.nametofont("TkFixedFont", root=self).measure("0") * (KEY_LETTERS + 10)
        self._heading = ttk.Label(frame, font=self._fonts["bold"], wraplength=width, style=style("TLabel"))
        self._intro = ttk.Label(frame, wraplength=width, style=style("TLabel", "Muted."))
        self._label = ttk.Label(frame, style=style("TLabel"))
        body = self._make_body(frame)
        self._message = ttk.Label(frame, wraplength=width, style=style("TLabel"))
        bar_style = style("Horizontal.TProgressbar")
        self._bar = ttk.Progressbar(frame, maximum=_WHOLE_BAR, length=width, style=bar_style)
        self._links = ttk.Frame(frame, style=style("TFrame"))
        self._shown_links: tuple[Link, ...] = ()
        self._plain_colour = ttk.Style(self).lookup(style("TLabel"), "foreground") or "black"
        for row, widget in enumerate(
            [self._heading, self._intro, self._label, body, self._message, self._bar]
        ):
            widget.grid(row=row, sticky="nsew", pady=(0, _GAP // 2 if widget is self._label else _GAP))
        frame.bind("<Configure>", self._wrap)
        # Room for two lines, so that the window does not jump when a message comes; links and bar take turns.
        line = tkfont.nametofont("TkDefaultFont", root=self).metrics("linespace")
        frame.rowconfigure(4, minsize=2 * line + _GAP + 4)
        frame.rowconfigure(5, minsize=max(self._bar.winfo_reqheight(), line + 4) + _GAP)
        places = ttk.Frame(frame, style=style("TFrame"))
        places.grid(row=6, sticky="ew")
        places.columnconfigure(0, weight=1)
        self._buttons: dict[Action, ttk.Button] = {}
        # In the order of Tab: what stands apart comes first, what Enter presses last.
        for column, action in enumerate((Action.SKIP, Action.LEAVE, Action.GO)):
            kind = style("TButton", "Accent." if action is Action.GO else "")
            button = ttk.Button(places, command=partial(self._press, action), style=kind)
            button.grid(
                row=0, column=column, sticky="w" if column == 0 else "", padx=(_GAP if column else 0, 0)
            )
            self._buttons[action] = button

    def _wrap(self, event: "tk.Event[tk.Misc]") -> None:
        for label in (self._heading, self._intro, self._message):
            label["wraplength"] = max(event.width - 4 * _GAP, 1)

    def _style(self, name: str, kind: str = "") -> str:
        """Return a style's name: ours, or the theme's, which has no kinds."""
        return f"{kind}{self._prefix}{name}" if self._prefix else name

    def _derive_font(self, scale: float, **options: Any) -> tkfont.Font:
        font = tkfont.nametofont("TkDefaultFont", root=self).copy()
        font.configure(size=round(font.actual("size") * scale), **options)
        return font

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

    def _draw_links(self, links: tuple[Link, ...]) -> None:
        if links == self._shown_links:
            return
        self._shown_links = links
        for old in self._links.winfo_children():
            old.destroy()
        colour = link_colour(on_dark=self._is_dark())
        for link in links:
            label = ttk.Label(
                self._links, text=link.text, font=self._fonts["link"], foreground=colour, cursor="hand2"
            )
            label.configure(style=self._style("TLabel", "Link."), takefocus=1)
            label.pack(side="left", padx=(0, _GAP * 2))
            for event in ("<Button-1>", "<Return>", "<KP_Enter>", "<space>"):
                label.bind(event, partial(self._follow, link.url))
            # What has the keyboard must be seen.
            label.bind("<FocusIn>", lambda event: event.widget.configure(relief="solid"))
            label.bind("<FocusOut>", lambda event: event.widget.configure(relief="flat"))
        if links:
            self._links.grid(row=5, sticky="nw", pady=(0, _GAP))
        else:
            self._links.grid_remove()

    def _follow(self, url: str, _: object) -> str:
        self._driver.open_link(url)
        return "break"  # Enter would press the button that is marked for it

    def _draw_buttons(self, view: View) -> None:
        focused = self.focus_get()
        for action, shown in view.buttons().items():
            button = self._buttons[action]
            if shown is None:
                button.grid_remove()
                continue
            text, at = split_mnemonic(shown.text)
            underline = self._mnemonic(text, at, button.invoke) if shown.is_enabled else -1
            button.configure(text=text, underline=underline)
            button.state(["!disabled" if shown.is_enabled else "disabled"])
            button.configure(default="active" if action is Action.GO else "normal")
            button.grid()
        # The focus must not stay on a button that is gone.
        if focused in self._buttons.values():
            standing = [
                self._buttons[action]
                for action, shown in view.buttons().items()
                if shown and shown.is_enabled
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
        if self._palette is not None:
            return self._palette is DARK
        return is_dark(self, ttk.Style(self).lookup("TFrame", "background") or self["background"])

    def _show(self) -> None:
        above = self._parent
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
        self._fonts.clear()
