"""Modules that are loaded by their first use: a start that is answered from the cache needs few."""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Final

PROGRAM_GONE: Final = "The temporary files of this program were removed. Start the program again."


def _find_library() -> str | None:
    """Return a file that PyInstaller has unpacked with this app; None for any other app."""
    folder: str | None = getattr(sys, "_MEIPASS", None)
    path = f"{folder}{os.sep}base_library.zip"
    return path if folder is not None and os.access(path, os.F_OK) else None


_LIBRARY: Final = _find_library()


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

    Also if the folder that a frozen app was unpacked to is emptied: cleaners do so after some days.
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
    return PROGRAM_GONE if _LIBRARY is not None and not os.access(_LIBRARY, os.F_OK) else None
