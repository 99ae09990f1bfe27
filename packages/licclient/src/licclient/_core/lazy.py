"""Modules that are loaded by their first use: a start that is answered from the cache needs few."""

from importlib import import_module
from types import ModuleType


class LazyModule(ModuleType):
    """A module that is imported by the first access to one of its attributes.

    Each access looks the attribute up again, so that a test can replace it in the module itself.
    """

    def __getattr__(self, name: str) -> object:
        module = self.__dict__.get("__module__")
        if module is None:  # once: a program that ends imports nothing any more
            module = self.__dict__["__module__"] = import_module(self.__name__)
        return getattr(module, name)


def lazy(name: str) -> ModuleType:
    """Return a module that its first use loads.

    Type checkers, contracts and freezers follow the import below `TYPE_CHECKING` beside it.
    """
    return LazyModule(name)
