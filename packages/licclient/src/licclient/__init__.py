"""Gate features of a Python desktop app on a license key, and find and download its updates.

This is the one public door: every other module is private. Importing it opens no file, no socket and
no thread, and loads no HTTP library; that happens when a call is really needed.
"""

from typing import TYPE_CHECKING

from licclient._client import AsyncLicenseClient, LicenseClient
from licclient._errors import (
    DownloadCancelled,
    InvalidRequest,
    LicclientError,
    LicenseRefused,
    MistypedKey,
    NotActivated,
    ServiceUnavailable,
    UntrustedAnswer,
    UnusableArchive,
)
from licclient._model import License, Reason, Source, Update

if TYPE_CHECKING:
    from licclient._download import Downloaded
    from licclient._explain import explain
    from licclient._installation import Installation, Installed
    from licclient._status import LicenseState, LicenseStatus
    from licclient._typed_key import KeyFlaw
    from licclient._update_steps import NoUpdate
    from licclient._worker import AsyncWorker, Worker

__version__ = "0.1.0"

__all__ = [
    "AsyncLicenseClient",
    "AsyncWorker",
    "DownloadCancelled",
    "Downloaded",
    "Installation",
    "Installed",
    "InvalidRequest",
    "KeyFlaw",
    "LicclientError",
    "License",
    "LicenseClient",
    "LicenseRefused",
    "LicenseState",
    "LicenseStatus",
    "MistypedKey",
    "NoUpdate",
    "NotActivated",
    "Reason",
    "ServiceUnavailable",
    "Source",
    "UntrustedAnswer",
    "UnusableArchive",
    "Update",
    "Worker",
    "__version__",
    "explain",
]


# Not needed by a start that is answered from the cache, so loaded when they are asked for.
_LATER = {
    "AsyncWorker": "_worker",
    "Downloaded": "_download",
    "Installation": "_installation",
    "Installed": "_installation",
    "KeyFlaw": "_typed_key",
    "LicenseState": "_status",
    "LicenseStatus": "_status",
    "NoUpdate": "_update_steps",
    "Worker": "_worker",
    "explain": "_explain",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - as the modules themselves

    return getattr(import_module(f"licclient.{_LATER[name]}"), name)
