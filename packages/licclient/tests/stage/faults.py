"""An injected file layer: counts the reads below a folder, and lets chosen ones fail."""

import builtins
import errno
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

ERRORS = {name: getattr(errno, name) for name in ("EACCES", "EIO", "EMFILE", "ESTALE")}
"""What a virus scanner, a disk, a busy app and a network share answer to a read."""

Fails = Callable[[int, str], bool]
"""Decides, by the number of a read and the name of its file, whether it fails."""

_LOOKS = ("lstat", "stat", "scandir", "listdir", "access")
_WRITES = os.O_WRONLY | os.O_CREAT


class Files:
    """The files below a folder, as a program sees them that uses `os` and `open`.

    A read is a look at a file, opening it to read, or reading what is open.

    Attributes:
        reads: The names of the files that were read, in order.
    """

    def __init__(self, monkeypatch: Any, folder: Path) -> None:
        self._folder = str(folder)
        self._open: dict[int, str] = {}
        self._fails: Fails = lambda *_: False
        self._number = errno.EACCES
        self.reads: list[str] = []
        for name in _LOOKS:
            monkeypatch.setattr(os, name, self._look(getattr(os, name)))
        monkeypatch.setattr(os, "open", self._open_descriptor(os.open))
        opened = self._open_file(io.open)
        monkeypatch.setattr(builtins, "open", opened)
        monkeypatch.setattr(io, "open", opened)

    def fail(self, fails: Fails, error: str) -> None:
        """Let these reads fail from now on, counted from 0."""
        self._fails, self._number, self.reads = fails, ERRORS[error], []

    def heal(self) -> None:
        """Let every read succeed from now on."""
        self._fails = lambda *_: False

    def _read(self, name: str) -> None:
        self.reads.append(name)
        if self._fails(len(self.reads) - 1, name):
            raise OSError(self._number, os.strerror(self._number), name)

    def _name(self, path: Any) -> str | None:
        try:
            text = os.fsdecode(path).replace("/", os.sep) if not isinstance(path, int) else ""
        except TypeError:
            return None
        # A test looks at thousands of files: no `Path` of each.
        if text != self._folder and not text.startswith(self._folder + os.sep):
            return None
        return None if text.endswith((".lock", ".draft")) else text

    def _look(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def look(path: Any = ".", *args: Any, **options: Any) -> Any:
            if (name := self._name(path)) is not None:
                self._read(name)
            return real(path, *args, **options)

        return look

    def _open_descriptor(self, real: Callable[..., int]) -> Callable[..., int]:
        def open_descriptor(path: Any, flags: int, *args: Any, **options: Any) -> int:
            name = self._name(path)
            if name is None or flags & _WRITES:
                return real(path, flags, *args, **options)
            self._read(name)
            descriptor = real(path, flags, *args, **options)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                self._open[descriptor] = name
            return descriptor

        return open_descriptor

    def _open_file(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def open_file(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            name = self._open.pop(file, None) if isinstance(file, int) else self._name(file)
            has_opener = "opener" in options  # it comes by `os.open`, which counts
            if name is not None and not has_opener and not set(mode) & set("wxa"):
                self._read(name)
            opened = real(file, mode, *args, **options)
            if has_opener:
                self._open.pop(opened.fileno(), None)
            return opened

        return open_file
