"""Gate features of a Python desktop app on a license key, and find and download its updates.

Public modules have no underscore: this one, `errors`, `deliver`, `dialogs.tk`, `dialogs.qt`, `install` and
`testing`. Importing this one opens no file, no socket and no thread, and loads no HTTP library.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from licclient._client import LicenseClient
from licclient._clock import Clock
from licclient._model import Entitlements, EntitlementValue, FileFlaw, License, Quota, Reason, Source, Update
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
    UntrustedResponseError,
    UnusableArchiveError,
)

if TYPE_CHECKING:
    from licclient._async_client import AsyncLicenseClient
    from licclient._explain import explain
    from licclient._flows.downloads import Cancel, Progress
    from licclient._flows.updates import UpdateCheck
    from licclient._part_file import Downloaded
    from licclient._records import Document
    from licclient._seat import AsyncSeat, OnLost, Seat
    from licclient._settings import ClientSettings
    from licclient._status import LicenseState, LicenseStatus
    from licclient._storage import Storage
    from licclient._typed_key import KeyFlaw
    from licclient._worker import AsyncWorker, Deliver, OnStatus, OnUpdate, Worker

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
    "Progress",
    "Quota",
    "QuotaExceededError",
    "Reason",
    "Seat",
    "ServiceUnavailableError",
    "Source",
    "Storage",
    "UntrustedResponseError",
    "UnusableArchiveError",
    "Update",
    "UpdateCheck",
    "Worker",
    "__version__",
    "explain",
]


# Not needed by a start that is answered from the cache, so loaded when they are asked for.
_LATER = {
    "_async_client": ("AsyncLicenseClient",),
    "_explain": ("explain",),
    "_flows.downloads": ("Cancel", "Progress"),
    "_flows.updates": ("UpdateCheck",),
    "_part_file": ("Downloaded",),
    "_records": ("Document",),
    "_seat": ("AsyncSeat", "OnLost", "Seat"),
    "_settings": ("ClientSettings",),
    "_status": ("LicenseState", "LicenseStatus"),
    "_storage": ("Storage",),
    "_typed_key": ("KeyFlaw",),
    "_worker": ("AsyncWorker", "Deliver", "OnStatus", "OnUpdate", "Worker"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(f"licclient.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
