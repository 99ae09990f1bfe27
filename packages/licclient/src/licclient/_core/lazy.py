"""Modules that are loaded by their first use: a start that is answered from the cache needs few."""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Final

PROGRAM_GONE: Final = (
    "The files of this program were removed or replaced while it was running. Start the program again."
)

_Mark = tuple[int, int] | None


def _mark(path: str) -> _Mark:
    """Return what identifies a file; None for a file that does not exist."""
    try:
        info = os.stat(path)  # noqa: PTH116 - pathlib is loaded later, if at all
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns


def _find_part() -> str:
    """Return a file that goes with the others of this program: of PyInstaller's bundle, or this module's."""
    folder: str | None = getattr(sys, "_MEIPASS", None)
    return __file__ if folder is None else f"{folder}{os.sep}base_library.zip"


_PART: Final = _find_part()
_FOUND: Final = _mark(_PART)


class LazyModule(ModuleType):
    """A module that is imported by the first access to one of its attributes.

    Each access looks the attribute up again, so that a test can replace it in the module itself.
    """

    def __getattr__(self, name: str) -> object:
        module = self.__dict__.get("__module__")
        if module is None:  # once: a program that ends imports nothing any more
            module = self.__dict__["__module__"] = load_module(self.__name__)
        return getattr(module, name)


def lazy(name: str) -> ModuleType:
    """Return a module that its first use loads.

    Type checkers, contracts and freezers follow the import below `TYPE_CHECKING` beside it.
    """
    return LazyModule(name)


def load_module(name: str) -> ModuleType:
    """Import a module; raise `StateUnreadableError` if the app has used up its file descriptors.

    Also if the files of the program are not those any more with which it was started: a cleaner has emptied
    the folder that a frozen app was unpacked to, or the package was upgraded.
    """
    try:
        return import_module(name)
    except (OSError, ImportError) as problem:
        reason = _reason(problem)
        if reason is None:
            raise
        # Always loaded, and above this module: it imports this one.
        error = sys.modules["licclient.errors"].StateUnreadableError
        raise error(reason, getattr(problem, "filename", None)) from None


def _reason(problem: OSError | ImportError) -> str | None:
    """Return the system's words for a failed read; None for a module that is missing or broken."""
    if isinstance(problem, OSError):
        return problem.strerror or type(problem).__name__
    # What the linker reports has no number: the cause is known only by another try.
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as cause:
        return cause.strerror
    return PROGRAM_GONE if _FOUND not in (None, _mark(_PART)) else None
