"""What both Tk windows have in common: drawing a view, events, the turn among other dialogs, and a look.

The look is flat, light or dark, for apps without a native ttk theme or one of their own. It uses elements of
the theme "clam" under style names of its own; the app's windows stay as they are.
"""

import tkinter as tk
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tkinter import font as tkfont
from tkinter import ttk
from typing import TYPE_CHECKING, Any, Final

from licclient._core.arguments import check_flag
from licclient.dialogs._calls import caller_waits, post_to_tk
from licclient.dialogs._driver import (
    KEY_LETTERS,
    LINK_COLOURS,
    LIST_LINES,
    Driver,
    State,
    colour_of,
    marked,
    split_mnemonic,
    wrong_thread,
)
from licclient.dialogs._full_license import Choice
from licclient.dialogs._interrupts import LOOK_MILLISECONDS, interruptible
from licclient.dialogs._states import Action, Bar, Link, View

if TYPE_CHECKING:
    from licclient._client import LicenseClient

_GRAB_MILLISECONDS: Final = 100
"""How often a grab is tried again."""

_GAP: Final = 12
_WHOLE_BAR: Final = 100.0
_PREFIX: Final = "Licclient."


def check_parent(parent: object) -> None:
    """Raise `TypeError` for anything but a window, and `RuntimeError` on another thread than that of Tk."""
    if not isinstance(parent, tk.Misc):
        raise TypeError(
            f"parent must be a window of Tk, such as the app's tkinter.Tk(), not {type(parent).__name__}"
        )
    try:
        parent.tk.eval("")  # other calls of another thread wait for the main loop
    except RuntimeError as problem:
        raise wrong_thread("Tk", "to_tk(root)") from problem


def bind_letter(widget: tk.Misc, held: str, letter: str, act: Callable[["tk.Event[Any]"], object]) -> None:
    """Bind a letter with a modifier, also with Caps Lock on: Tk then calls it by its capital."""
    widget.bind(f"<{held}-{letter}>", act)
    widget.bind(f"<{held}-Lock-{letter.upper()}>", act)


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
        check_parent(parent)
        if dark is not None:
            check_flag("dark", dark)
        super().__init__(parent)
        self.withdraw()
        self._parent = parent.winfo_toplevel()
        self._mnemonics: dict[str, Callable[[], object]] = {}
        self._palette = _choose_palette(parent, dark=dark)
        if self._palette is not None:
            _apply_palette(self, self._palette)
        # Freed with the window: each asks Tk then, and the garbage collector might run on another thread.
        self._tk_objects: dict[str, Any] = {}
        self._build()
        self._driver = Driver(self, post_to_tk(self), client, state, to)
        self.protocol("WM_DELETE_WINDOW", partial(self._press, Action.CLOSE))
        self.bind("<Return>", self._enter)
        self.bind("<KP_Enter>", self._enter)
        self.bind("<Escape>", lambda _: self._press(Action.LEAVE))
        self.bind("<Destroy>", self._destroyed)
        self._driver.show_in_turn(self._show)

    def _wait(self) -> None:
        with caller_waits(), interruptible(self._repeat, self.destroy):
            self._wait_modally()

    def _repeat(self, look: Callable[[], bool]) -> None:
        """Call `look` every now and then until it returns False, or the window is gone."""

        def look_again() -> None:
            if look():
                look_later()

        command = self.register(look_again)  # which ends with the window: there is nothing to complain of

        def look_later() -> None:
            self.tk.call("after", LOOK_MILLISECONDS, "catch", command)

        look_later()

    def _wait_modally(self) -> None:
        try:
            if not self.winfo_viewable():  # another dialog may be open
                self.wait_visibility()
        except tk.TclError:  # destroyed before it was shown
            return
        # The app's own grab is released first: a window outside of a grab does not get the keyboard.
        before = self.tk.call("grab", "current", str(self))
        if before:
            self.tk.call("grab", "release", before)
        self._take_grab()
        self.wait_window()
        if before and self.tk.call("winfo", "exists", before):
            self.tk.call("grab", "set", before)

    def _take_grab(self) -> None:
        """Take the grab, as soon as no other app has it, such as for an open menu."""
        try:
            self.grab_set()
        except tk.TclError:
            if self.winfo_exists():
                self.after(_GRAB_MILLISECONDS, self._take_grab)

    # --- what the driver asks for -------------------------------------------------------------

    def draw(self, view: View) -> None:
        """Show a view."""
        self.title(view.title)
        self._heading["text"] = view.heading
        self._intro["text"] = view.intro
        self._mnemonics.clear()
        self._draw_body(view)
        label, at = split_mnemonic(view.label)
        self._label.configure(text=label, underline=self._mnemonic(label, at, self._target.focus_set))
        colour = colour_of(view.tone, on_dark=self._is_dark())
        self._message.configure(text=marked(view), foreground=colour or self._plain_colour)
        self._draw_bar(view.bar)
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
        default = tkfont.nametofont("TkDefaultFont", root=self)
        bold, link = default.copy(), default.copy()
        bold.configure(size=round(default.actual("size") * 1.3), weight="bold")
        link.configure(underline=True)
        self._tk_objects |= {"bold": bold, "link": link}
        width = tkfont.nametofont("TkFixedFont", root=self).measure("0") * (KEY_LETTERS + 10)
        self._heading = ttk.Label(frame, font=bold, wraplength=width, style=style("TLabel"))
        self._intro = ttk.Label(frame, wraplength=width, style=style("TLabel", "Muted."))
        self._label = ttk.Label(frame, style=style("TLabel"))
        body = self._make_body(frame)
        self._message = ttk.Label(frame, wraplength=width, style=style("TLabel"))
        bar_style = style("Horizontal.TProgressbar")
        self._bar = ttk.Progressbar(frame, maximum=_WHOLE_BAR, length=width, style=bar_style)
        self._links = ttk.Frame(frame, style=style("TFrame"))
        self._shown_links: tuple[Link, ...] = ()
        self._plain_colour = ttk.Style(self).lookup(style("TLabel"), "foreground") or "black"
        rows = [self._heading, self._intro, self._label, body, self._message, self._bar]
        for row, widget in enumerate(rows):
            widget.grid(row=row, sticky="nsew", pady=(0, _GAP // 2 if widget is self._label else _GAP))
        frame.bind("<Configure>", self._wrap)
        # Room for two lines, so that the window does not jump when a message comes; links and bar take turns.
        line = default.metrics("linespace")
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
            button.configure(default="active" if action is Action.GO else "normal")
            side = "w" if action is Action.SKIP else ""
            button.grid(row=0, column=column, sticky=side, padx=(_GAP if column else 0, 0))
            self._buttons[action] = button

    def _wrap(self, event: "tk.Event[tk.Misc]") -> None:
        for label in (self._heading, self._intro, self._message):
            label["wraplength"] = max(event.width - 4 * _GAP, 1)

    def _style(self, name: str, kind: str = "") -> str:
        """Return a style's name: ours, or the theme's, which has no kinds."""
        return name if self._palette is None else f"{kind}{_PREFIX}{name}"

    def _make_body(self, frame: ttk.Frame) -> tk.Widget:
        raise NotImplementedError

    def _draw_body(self, view: View) -> None:
        raise NotImplementedError

    def _draw_bar(self, bar: Bar | None) -> None:
        if bar is None:
            self._bar.stop()
            self._bar.grid_remove()
            return
        self._bar.grid()
        mode = "indeterminate" if bar.part is None else "determinate"
        if str(self._bar["mode"]) != mode:
            self._bar.stop()
            self._bar["mode"] = mode
        if bar.part is None:
            self._bar.start()
        else:
            self._bar["value"] = bar.part * _WHOLE_BAR

    def _draw_links(self, links: tuple[Link, ...]) -> None:
        if links == self._shown_links:
            return
        self._shown_links = links
        for old in self._links.winfo_children():
            old.destroy()
        font, style = self._tk_objects["link"], self._style("TLabel", "Link.")
        for link in links:
            label = ttk.Label(
                self._links, text=link.text, font=font, style=style, cursor="hand2", takefocus=1
            )
            label.configure(foreground=LINK_COLOURS[self._is_dark()])
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
        focused, standing = self.focus_get(), []
        for action, shown in view.buttons().items():
            button = self._buttons[action]
            if shown is None:
                button.grid_remove()
                continue
            text, at = split_mnemonic(shown.text)
            underline = self._mnemonic(text, at, button.invoke) if shown.is_enabled else -1
            button.configure(text=text, underline=underline)
            button.state(["!disabled" if shown.is_enabled else "disabled"])
            button.grid()
            if shown.is_enabled:
                standing.append(button)
        # The focus must not stay on a button that is gone.
        if focused in self._buttons.values() and focused not in standing:
            (standing[0] if standing else self._target).focus_set()

    def _mnemonic(self, text: str, at: int | None, act: Callable[[], object]) -> int:
        """Bind a letter, and return which one is underlined; -1 for none, as on macOS, without such keys."""
        if at is None or self.tk.call("tk", "windowingsystem") == "aqua":
            return -1
        letter = text[at].lower()
        if letter not in self._mnemonics:
            bind_letter(self, "Alt", letter, lambda _: self._alt(letter))
        self._mnemonics[letter] = act
        return at

    def _is_dark(self) -> bool:
        if self._palette is not None:
            return self._palette is _DARK
        return _is_dark_ground(self, ttk.Style(self).lookup("TFrame", "background") or self["background"])

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
        self._driver.press(action)  # which is made after the buttons

    def _alt(self, letter: str) -> str:
        if letter in self._mnemonics:
            self._mnemonics[letter]()
        return "break"

    def _enter(self, _: object) -> None:
        """Press the button that has the focus; elsewhere Enter means the button that is marked for it."""
        focused = self.focus_get()
        pressed = [button for button in self._buttons.values() if button is focused]
        (pressed or [self._buttons[Action.GO]])[0].invoke()

    def _destroyed(self, event: "tk.Event[tk.Misc]") -> None:
        if event.widget is self:  # the event comes for each thing in the window as well
            self._driver.end()
            self._tk_objects.clear()


class ChoiceList(tk.Listbox):
    """A list from which a person chooses one item, with the mouse or the keyboard."""

    def __init__(self, frame: ttk.Frame, choose: Callable[[int], object], palette: "_Palette | None") -> None:
        super().__init__(
            frame, font="TkDefaultFont", width=KEY_LETTERS, exportselection=False, selectmode="browse"
        )
        if palette is not None:
            self.configure(text_colours(palette))
            self.configure(borderwidth=_GAP // 2)
        disabled = ttk.Style(frame).lookup("TLabel", "foreground", ["disabled"]) or "gray50"
        self._disabled = disabled if palette is None else palette.muted
        self._choose = choose
        self._texts: list[str] = []
        self.bind("<<ListboxSelect>>", self._selected)
        self.bind("<Down>", self._down)

    def draw(self, choices: tuple[Choice, ...]) -> None:
        """Show the items."""
        texts = [choice.text for choice in choices]
        if texts != self._texts:
            self._texts = texts
            self.delete(0, "end")
            self.insert("end", *texts)
            self.configure(height=min(len(texts), LIST_LINES))
            self.activate(0)
        self.selection_clear(0, "end")
        for index, choice in enumerate(choices):
            self.itemconfigure(index, foreground="" if choice.is_enabled else self._disabled)
            if choice.is_chosen:
                self.selection_set(index)
                self.activate(index)

    def _selected(self, _: object) -> None:
        for index in self._list_selected():
            self._choose(index)

    def _list_selected(self) -> list[int]:
        untyped: Any = (
            self  # typeshed's method has no types, and type checkers differ in what they want for it
        )
        return [int(index) for index in untyped.curselection()]

    def _down(self, _: object) -> str | None:
        """Begin with the first item: Tk itself would take the second one."""
        if self._list_selected():
            return None
        self.activate(0)
        self._choose(0)
        return "break"


# --- the look ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Palette:
    """Colours as `#rrggbb`; `field` is the ground of what can be typed into or read."""

    ground: str
    field: str
    text: str
    muted: str
    border: str
    hover: str
    accent: str
    on_accent: str
    accent_hover: str


_LIGHT: Final = _Palette(
    *("#f7f8fa", "#ffffff", "#1c2128", "#57606a", "#c8ced6", "#eceff3"), *("#2260c9", "#ffffff", "#1a4fa8")
)
_DARK: Final = _Palette(
    *("#22262c", "#2b3037", "#e8eaed", "#a6aeb9", "#4a515c", "#353b44"), *("#78aaf7", "#10151d", "#9bc1fa")
)

_PLAIN_THEMES: Final = {"default", "classic", "alt", "clam"}
"""Those that Tk itself brings for Linux, and which look of the last century."""


def _is_dark_ground(widget: tk.Misc, colour: str) -> bool:
    """Return whether a colour that Tk knows is a dark ground."""
    red, green, blue = widget.winfo_rgb(colour)
    return (red * 3 + green * 6 + blue) / 10 < 0x8000  # noqa: PLR2004 - half of what Tk's channels have


def _choose_palette(parent: tk.Misc, *, dark: bool | None) -> _Palette | None:
    """Return the palette; None to follow the app's ttk theme.

    If `dark` is None, that theme is followed, or if it is a plain one, the colour of the app's window.
    """
    if dark is None and ttk.Style(parent).theme_use() not in _PLAIN_THEMES:
        return None
    if dark is None:
        dark = _is_dark_ground(parent, str(parent.winfo_toplevel()["background"]))
    return _DARK if dark else _LIGHT


def text_colours(palette: _Palette) -> dict[str, Any]:
    """Return the options of a `tk.Text`, which has no ttk style."""
    return {
        "background": palette.field,
        "foreground": palette.text,
        "relief": "flat",
        "borderwidth": 0,
        "highlightbackground": palette.border,
        "highlightcolor": palette.accent,
        "highlightthickness": 1,
        "selectbackground": palette.accent,
        "selectforeground": palette.on_accent,
    }


def _apply_palette(window: tk.Toplevel, palette: _Palette) -> None:
    """Define the styles, whose names begin with `_PREFIX`; those of a button with `Accent.` before it too."""
    style = ttk.Style(window)
    window.configure(background=palette.ground)
    _define_layouts(style)
    style.configure(f"{_PREFIX}TFrame", background=palette.ground)
    style.configure(f"{_PREFIX}TLabel", background=palette.ground, foreground=palette.text)
    style.configure(f"Muted.{_PREFIX}TLabel", foreground=palette.muted)
    style.configure(f"Link.{_PREFIX}TLabel", foreground=palette.accent)
    flat: dict[str, Any] = {"relief": "raised", "borderwidth": 1}
    for kind, back, front, hover, border in (
        ("", palette.field, palette.text, palette.hover, palette.border),
        ("Accent.", palette.accent, palette.on_accent, palette.accent_hover, palette.accent),
    ):
        colours = {"background": back, "foreground": front, "lightcolor": back, "darkcolor": back}
        name = f"{kind}{_PREFIX}TButton"
        style.configure(name, **flat, **colours, bordercolor=border, padding=(14, 6), anchor="center")
        rings = [("disabled", palette.ground), ("focus", palette.text), ("active", hover)]
        style.map(
            name,
            background=[("disabled", palette.ground), ("pressed", hover), ("active", hover)],
            lightcolor=rings,
            darkcolor=rings,
            bordercolor=[("disabled", palette.border), ("focus", palette.text)],
            foreground=[("disabled", palette.muted)],
        )
    colours = {"fieldbackground": palette.field, "lightcolor": palette.field, "darkcolor": palette.field}
    colours |= {"foreground": palette.text, "insertcolor": palette.text, "bordercolor": palette.border}
    colours |= {"selectbackground": palette.accent, "selectforeground": palette.on_accent}
    style.configure(f"{_PREFIX}TEntry", **flat, **colours, padding=7)
    ring, ground = [("focus", palette.accent)], [("readonly", palette.ground)]
    name = f"{_PREFIX}TEntry"
    style.map(name, bordercolor=ring, lightcolor=ring, darkcolor=ring, fieldbackground=ground)
    for name, colour in (
        ("Horizontal.TProgressbar", palette.accent),
        ("Vertical.TScrollbar", palette.border),
    ):
        colours = dict.fromkeys(("background", "lightcolor", "darkcolor"), colour)
        colours |= dict.fromkeys(("bordercolor", "troughcolor"), palette.hover)
        style.configure(f"{_PREFIX}{name}", **colours, thickness=6, width=10, gripcount=0)
        grounds = [("disabled", palette.hover), ("active", colour)]
        style.map(f"{_PREFIX}{name}", background=grounds, lightcolor=grounds, darkcolor=grounds)


def _define_layouts(style: ttk.Style) -> None:
    whole: Any = {"sticky": "nswe"}  # tkinter's types know no parts within parts
    bar, thumb = {"side": "left", "sticky": "ns"}, {"expand": "1", "sticky": "nswe"}
    label: Any = {**whole, "children": [("Button.label", whole)]}
    area: Any = {**whole, "children": [("Entry.textarea", whole)]}
    for name, outer, inner, options in (
        ("TButton", "Button.border", "Button.padding", label),
        ("TEntry", "Entry.field", "Entry.padding", area),
        ("Horizontal.TProgressbar", "Horizontal.Progressbar.trough", "Horizontal.Progressbar.pbar", bar),
        ("Vertical.TScrollbar", "Vertical.Scrollbar.trough", "Vertical.Scrollbar.thumb", thumb),
    ):
        own = [outer] if "padding" in inner else [outer, inner]
        for element in own:
            with suppress(tk.TclError):  # another dialog has made it
                style.element_create(f"{_PREFIX}{element}", "from", "clam")
        part = f"{_PREFIX}{inner}" if inner in own else inner
        frame: Any = {**whole, "children": [(part, options)]}
        style.layout(f"{_PREFIX}{name}", [(f"{_PREFIX}{outer}", frame)])
