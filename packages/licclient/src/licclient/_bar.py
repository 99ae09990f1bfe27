"""How a download gets on, in one line of a terminal; nothing at all anywhere else."""

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TextIO

from licclient._texts import amount, span

_BAR_CELLS: Final = 24
_BACK: Final = "\r"


@contextmanager
def progress_bar(stream: TextIO, *, shown: bool) -> Generator[Callable[[int, int, float], None] | None]:
    """Show a bar while the block runs, and take it away at its end.

    Args:
        stream: Where to draw: the standard error, so that the standard output can be piped on.
        shown: Whether a bar is wanted; it is drawn on a terminal only.

    Yields:
        What to hand over as `progress`; None where no bar is drawn.
    """
    if not (shown and stream.isatty() and os.environ.get("TERM") != "dumb"):
        yield None
        return

    def draw(done: int, total: int, speed: float) -> None:
        line = bar_line(done, total, speed)[: shutil.get_terminal_size().columns - 1]
        stream.write(f"{_BACK}{line}\x1b[K")
        stream.flush()

    try:
        yield draw
    finally:
        stream.write(f"{_BACK}\x1b[K")
        stream.flush()


def bar_line(done: int, total: int, speed: float) -> str:
    """Write the line: how far in percent and as a bar, how much, how fast, and how much longer."""
    part = done / total if total else 1.0
    full = int(part * _BAR_CELLS)
    bar = "#" * full + "." * (_BAR_CELLS - full)
    words = f"{part:4.0%} [{bar}] {amount(done)} of {amount(total)}"
    if speed <= 0:
        return words
    return f"{words}, {amount(speed)}/s, {span((total - done) / speed) or 'days'} left"
