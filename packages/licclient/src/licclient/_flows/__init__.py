"""What a client does, as generators that two runners drive (see `runners`); loaded by their first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from licclient._flows import activation, consumption, context, downloads, runners, updates, verification

__all__ = ["activation", "consumption", "context", "downloads", "runners", "updates", "verification"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
