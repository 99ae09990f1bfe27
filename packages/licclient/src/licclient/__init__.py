"""Gate features of a Python desktop app on a license key, and find and download its updates.

Public modules have no underscore: this one, `errors`, `deliver`, `dialogs.tk`, `dialogs.qt`, `install` and
`testing`. Importing this one opens no file, no socket and no thread, and loads no HTTP library.
"""

from typing import TYPE_CHECKING

from licclient._client import LicenseClient
from licclient._core.clock import Clock
from licclient._core.lazy import load_module
from licclient._core.model import (
    Entitlements,
    EntitlementValue,
    FileFlaw,
    License,
    Outage,
    Quota,
    Reason,
    Source,
)
from licclient.errors import (
    DeactivationError,
    DownloadCancelledError,
    InvalidRequestError,
    LicclientError,
    LicenseFileError,
    LicenseRefusedError,
    MistypedKeyError,
    NoSeatError,
    NotActivatedError,
    NotEntitledError,
    QuotaExceededError,
    ServiceUnavailableError,
    StateUnreadableError,
    UntrustedResponseError,
    UnusableArchiveError,
)

if TYPE_CHECKING:
    from licclient._async_client import AsyncLicenseClient
    from licclient._core.records import Document
    from licclient._core.runners import Deliver
    from licclient._core.settings import ClientSettings, Pages, Trust, Updates
    from licclient._core.status import LicenseState, LicenseStatus
    from licclient._core.storage import Storage
    from licclient._core.typed_key import KeyFlaw
    from licclient._core.update_model import Update
    from licclient._explain import explain
    from licclient._seats.seat import AsyncSeat, OnLost, Seat
    from licclient._updates.check import UpdateCheck
    from licclient._updates.download import Cancel, Progress
    from licclient._updates.part_file import Downloaded
    from licclient._worker import AsyncWorker, OnStatus, OnUpdate, Worker

__version__ = "0.1.0"

__all__ = [
    "AsyncLicenseClient",
    "AsyncSeat",
    "AsyncWorker",
    "Cancel",
    "ClientSettings",
    "Clock",
    "DeactivationError",
    "Deliver",
    "Document",
    "DownloadCancelledError",
    "Downloaded",
    "EntitlementValue",
    "Entitlements",
    "FileFlaw",
    "InvalidRequestError",
    "KeyFlaw",
    "LicclientError",
    "License",
    "LicenseClient",
    "LicenseFileError",
    "LicenseRefusedError",
    "LicenseState",
    "LicenseStatus",
    "MistypedKeyError",
    "NoSeatError",
    "NotActivatedError",
    "NotEntitledError",
    "OnLost",
    "OnStatus",
    "OnUpdate",
    "Outage",
    "Pages",
    "Progress",
    "Quota",
    "QuotaExceededError",
    "Reason",
    "Seat",
    "ServiceUnavailableError",
    "Source",
    "StateUnreadableError",
    "Storage",
    "Trust",
    "UntrustedResponseError",
    "UnusableArchiveError",
    "Update",
    "UpdateCheck",
    "Updates",
    "Worker",
    "__version__",
    "explain",
]


# Not needed by a start that is answered from the cache, so loaded when they are asked for.
_LATER = {
    "_async_client": ("AsyncLicenseClient",),
    "_explain": ("explain",),
    "_updates.download": ("Cancel", "Progress"),
    "_updates.check": ("UpdateCheck",),
    "_updates.part_file": ("Downloaded",),
    "_core.records": ("Document",),
    "_core.runners": ("Deliver",),
    "_seats.seat": ("AsyncSeat", "OnLost", "Seat"),
    "_core.settings": ("ClientSettings", "Pages", "Trust", "Updates"),
    "_core.status": ("LicenseState", "LicenseStatus"),
    "_core.storage": ("Storage",),
    "_core.typed_key": ("KeyFlaw",),
    "_core.update_model": ("Update",),
    "_worker": ("AsyncWorker", "OnStatus", "OnUpdate", "Worker"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    for module, names in _LATER.items():
        if name in names:
            return getattr(load_module(f"licclient.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
