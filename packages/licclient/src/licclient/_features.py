"""The only table of features, each loaded by its first use: an answer from the cache needs few."""

from typing import TYPE_CHECKING, Any, Final

from licclient._core.lazy import load_module

if TYPE_CHECKING:
    from licclient import _status as status
    from licclient._activation import flow as activation
    from licclient._core import runners, session
    from licclient._offline import flow as offline
    from licclient._seats import seat as seats
    from licclient._trials import flow as trials
    from licclient._updates import check as updates
    from licclient._updates import download as downloads
    from licclient._uses import flow as uses
    from licclient._verification import flow as verification
    from licclient._verification import require

_MODULES: Final = {
    "activation": "_activation.flow",
    "downloads": "_updates.download",
    "offline": "_offline.flow",
    "require": "_verification.require",
    "runners": "_core.runners",
    "seats": "_seats.seat",
    "session": "_core.session",
    "status": "_status",
    "trials": "_trials.flow",
    "updates": "_updates.check",
    "uses": "_uses.flow",
    "verification": "_verification.flow",
}

__all__ = [
    "activation",
    "downloads",
    "offline",
    "require",
    "runners",
    "seats",
    "session",
    "status",
    "trials",
    "updates",
    "uses",
    "verification",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = globals()[name] = load_module(f"licclient.{_MODULES[name]}")
    return module
