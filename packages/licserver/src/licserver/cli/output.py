"""Print text to a terminal. No command prints otherwise: names and messages may come from strangers."""

import codecs
import io
from typing import IO, Any

import click

from licserver.domain.characters import escape_controls


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text whose control characters are escaped."""
    click.echo(escape_controls(text), err=err, nl=nl)


class TerminalFile(io.RawIOBase):
    """A file of UTF-8 text on a terminal, whose control characters are escaped."""

    def __init__(self, terminal: IO[bytes]) -> None:
        super().__init__()
        self._terminal = terminal
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        """Return whether it can be written to."""
        return True

    def write(self, content: Any) -> int:
        """Write a piece of the text."""
        text = self._decoder.decode(bytes(content))
        self._terminal.write(escape_controls(text).encode())
        return len(content)
