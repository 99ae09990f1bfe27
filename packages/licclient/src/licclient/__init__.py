"""Gate features of a Python desktop app on a license key, and find and download its updates.

This is the one public door: every other module is private. Importing it opens no file, no socket and
no thread, and loads no HTTP library; that happens when a call is really needed.
"""

from typing import TYPE_CHECKING

from licclient._client import AsyncLicenseClient, LicenseClient
from licclient._errors import (
    InvalidRequest,
    LicclientError,
    LicenseRefused,
    MistypedKey,
    NotActivated,
    ServiceUnavailable,
    UntrustedAnswer,
)
from licclient._explain import explain
from licclient._model import License, Reason, Source, Update
from licclient._typed_key import KeyFlaw

if TYPE_CHECKING:
    from licclient._status import LicenseState, LicenseStatus

__version__ = "0.1.0"

__all__ = [
    "AsyncLicenseClient",
    "InvalidRequest",
    "KeyFlaw",
    "LicclientError",
    "License",
    "LicenseClient",
    "LicenseRefused",
    "LicenseState",
    "LicenseStatus",
    "MistypedKey",
    "NotActivated",
    "Reason",
    "ServiceUnavailable",
    "Source",
    "UntrustedAnswer",
    "Update",
    "__version__",
    "explain",
]


def __getattr__(name: str) -> object:
    """Load what only a settings page needs when it is asked for."""
    if name in ("LicenseState", "LicenseStatus"):
        from licclient import _status  # noqa: PLC0415 - every start loads this file

        return getattr(_status, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
