"""Gate features of a Python desktop app on a license key, and find and download its updates.

This is the one public door: every other module is private. Importing it opens no file, no socket and
no thread, and loads no HTTP library; that happens when a call is really needed.
"""

from licclient._client import AsyncLicenseClient, LicenseClient
from licclient._download import Downloaded
from licclient._errors import (
    DownloadCancelled,
    InvalidRequest,
    LicclientError,
    LicenseRefused,
    ServiceUnavailable,
    UntrustedAnswer,
)
from licclient._model import License, Reason, Source, Update

__version__ = "0.1.0"

__all__ = [
    "AsyncLicenseClient",
    "DownloadCancelled",
    "Downloaded",
    "InvalidRequest",
    "LicclientError",
    "License",
    "LicenseClient",
    "LicenseRefused",
    "Reason",
    "ServiceUnavailable",
    "Source",
    "UntrustedAnswer",
    "Update",
    "__version__",
]
