"""A flat look for Tk, light or dark, where the app has no native ttk theme, or one of its own.

It uses elements of the theme "clam" under style names of its own; the app's windows stay as they are.
"""

import tkinter as tk
from contextlib import suppress
from dataclasses import dataclass
from tkinter import ttk
from typing import Any, Final

PREFIX: Final = "Licclient."


@dataclass(frozen=True, slots=True)
class Palette:
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


LIGHT: Final = Palette(
    *("#f7f8fa", "#ffffff", "#1c2128", "#57606a", "#c8ced6", "#eceff3"), *("#2260c9", "#ffffff", "#1a4fa8")
)
DARK: Final = Palette(
    *("#22262c", "#2b3037", "#e8eaed", "#a6aeb9", "#4a515c", "#353b44"), *("#78aaf7", "#10151d", "#9bc1fa")
)

_PLAIN_THEMES: Final = {"default", "classic", "alt", "clam"}
"""Those that Tk itself brings for Linux, and which look of the last century."""

_ELEMENTS: Final = (
    *("Button.border", "Entry.field", "Horizontal.Progressbar.trough", "Horizontal.Progressbar.pbar"),
    *("Vertical.Scrollbar.trough", "Vertical.Scrollbar.thumb"),
)


def is_dark(widget: tk.Misc, colour: str) -> bool:
    """Return whether a colour that Tk knows is a dark ground."""
    red, green, blue = widget.winfo_rgb(colour)
    return (red * 3 + green * 6 + blue) / 10 < 0x8000  # noqa: PLR2004 - half of what Tk's channels have


def choose_palette(parent: tk.Misc, *, dark: bool | None) -> Palette | None:
    """Return the palette; None to follow the app's ttk theme.

    If `dark` is None, that theme is followed, or if it is a plain one, the colour of the app's window.
    """
    if dark is None and ttk.Style(parent).theme_use() not in _PLAIN_THEMES:
        return None
    if dark is None:
        dark = is_dark(parent, str(parent.winfo_toplevel()["background"]))
    return DARK if dark else LIGHT


def text_colours(palette: Palette) -> dict[str, Any]:
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


def apply_palette(window: tk.Toplevel, palette: Palette) -> None:
    """Define the styles, whose names begin with `PREFIX`; those of a button with `Accent.` before it too."""
    style = ttk.Style(window)
    window.configure(background=palette.ground)
    for element in _ELEMENTS:
        with suppress(tk.TclError):  # another dialog has made it
            style.element_create(f"{PREFIX}{element}", "from", "clam")
    inner: Any  # the types of tkinter do not know parts within parts
    inner = [("Button.padding", {"sticky": "nswe", "children": [("Button.label", {"sticky": "nswe"})]})]
    style.layout(f"{PREFIX}TButton", [(f"{PREFIX}Button.border", {"sticky": "nswe", "children": inner})])
    inner = [("Entry.padding", {"sticky": "nswe", "children": [("Entry.textarea", {"sticky": "nswe"})]})]
    style.layout(f"{PREFIX}TEntry", [(f"{PREFIX}Entry.field", {"sticky": "nswe", "children": inner})])
    for widget, inside, sides in (
        ("Horizontal.TProgressbar", "Horizontal.Progressbar.pbar", {"side": "left", "sticky": "ns"}),
        ("Vertical.TScrollbar", "Vertical.Scrollbar.thumb", {"expand": "1", "sticky": "nswe"}),
    ):
        inner = [(PREFIX + inside, sides)]
        trough = f"{PREFIX}{inside.rpartition('.')[0]}.trough"
        style.layout(f"{PREFIX}{widget}", [(trough, {"sticky": "nswe", "children": inner})])

    flat: dict[str, Any] = {"bordercolor": palette.border, "relief": "raised", "borderwidth": 1}
    ground = {"background": palette.ground, "foreground": palette.text}
    style.configure(f"{PREFIX}TFrame", background=palette.ground)
    style.configure(f"{PREFIX}TLabel", **ground)
    style.configure(f"Muted.{PREFIX}TLabel", foreground=palette.muted)
    style.configure(f"Link.{PREFIX}TLabel", foreground=palette.accent)
    for name, back, front, hover, border in (
        ("", palette.field, palette.text, palette.hover, palette.border),
        ("Accent.", palette.accent, palette.on_accent, palette.accent_hover, palette.accent),
    ):
        button = f"{name}{PREFIX}TButton"
        colours = {"background": back, "foreground": front, "lightcolor": back, "darkcolor": back}
        style.configure(
            button, **{**flat, **colours, "bordercolor": border}, padding=(14, 6), anchor="center"
        )
        grounds = [("disabled", palette.ground), ("pressed", hover), ("active", hover)]
        rings = [("disabled", palette.ground), ("focus", palette.text), ("active", hover)]
        style.map(
            button,
            background=grounds,
            lightcolor=rings,
            darkcolor=rings,
            bordercolor=[("disabled", palette.border), ("focus", palette.text)],
            foreground=[("disabled", palette.muted)],
        )
    colours = {"fieldbackground": palette.field, "foreground": palette.text, "insertcolor": palette.text}
    colours |= {"selectbackground": palette.accent, "selectforeground": palette.on_accent}
    colours |= {"lightcolor": palette.field, "darkcolor": palette.field}
    style.configure(f"{PREFIX}TEntry", **flat, **colours, padding=7)
    style.map(
        f"{PREFIX}TEntry",
        bordercolor=[("focus", palette.accent)],
        lightcolor=[("focus", palette.accent)],
        darkcolor=[("focus", palette.accent)],
        fieldbackground=[("readonly", palette.ground)],
    )
    for name, colour in (
        ("Horizontal.TProgressbar", palette.accent),
        ("Vertical.TScrollbar", palette.border),
    ):
        colours = {"background": colour, "lightcolor": colour, "darkcolor": colour}
        colours |= {"bordercolor": palette.hover, "troughcolor": palette.hover}
        style.configure(f"{PREFIX}{name}", **colours, thickness=6, width=10, gripcount=0)
        grounds = [("disabled", palette.hover), ("active", colour)]
        style.map(f"{PREFIX}{name}", background=grounds, lightcolor=grounds, darkcolor=grounds)
