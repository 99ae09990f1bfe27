"""The only table of features, each loaded by its first use: an answer from the cache needs few."""

from typing import TYPE_CHECKING, Any, Final

from licclient._core.lazy import load_module

if TYPE_CHECKING:
    from licclient import _status as status
    from licclient._activation import flow as activation
    from licclient._core import runners, session
    from licclient._offline import client as offline_client
    from licclient._offline import flow as offline
    from licclient._seats import client as seats_client
    from licclient._trials import flow as trials
    from licclient._updates import check as updates
    from licclient._updates import download as downloads
    from licclient._uses import client as uses_client
    from licclient._verification import flow as verification
    from licclient._verification import require

_MODULES: Final = {
    "activation": "_activation.flow",
    "downloads": "_updates.download",
    "offline": "_offline.flow",
    "offline_client": "_offline.client",
    "require": "_verification.require",
    "runners": "_core.runners",
    "seats_client": "_seats.client",
    "session": "_core.session",
    "status": "_status",
    "trials": "_trials.flow",
    "updates": "_updates.check",
    "uses_client": "_uses.client",
    "verification": "_verification.flow",
}

__all__ = [
    "activation",
    "downloads",
    "offline",
    "offline_client",
    "require",
    "runners",
    "seats_client",
    "session",
    "status",
    "trials",
    "updates",
    "uses_client",
    "verification",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = globals()[name] = load_module(f"licclient.{_MODULES[name]}")
    return module
