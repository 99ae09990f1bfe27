"""Exceptions, sorted by what an application can do about them.

LicclientError
├── NotActivatedError        no key has been entered on this computer      → ask for one
├── LicenseRefusedError      the server refused the key                    → block the feature, show why
├── InvalidRequestError      the request was malformed (422)               → a bug or a wrong setting
│   └── MistypedKeyError     what was typed cannot be a key; no request    → show what is wrong with it
├── ServiceUnavailableError  no trustworthy response, and no grace period  → try later
├── UntrustedResponseError   a response or file is not what was promised   → treat as an attack
├── UnusableArchiveError     a verified file that must not be unpacked     → keep this version, tell support
└── DownloadCancelledError   the application cancelled                     → nothing; a later try resumes

Pure modules return these as values; the clients raise them. None of them ever contains a license key.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from licclient._model import Reason

if TYPE_CHECKING:
    from licclient._typed_key import KeyFlaw

__all__ = [
    "DownloadCancelledError",
    "InvalidRequestError",
    "LicclientError",
    "LicenseRefusedError",
    "MistypedKeyError",
    "NotActivatedError",
    "ServiceUnavailableError",
    "UntrustedResponseError",
    "UnusableArchiveError",
]


class LicclientError(Exception):
    """Base of all errors about licenses, the service or its responses.

    Attributes:
        message: What happened, in English or in the server's words; `explain` translates.
    """

    # `args` stay those of the constructor (`BaseException.__new__` sets them), so every error can be pickled.
    def __init__(self, message: str = "") -> None:
        self.message = message

    def __str__(self) -> str:
        return self.message


class NotActivatedError(LicclientError):
    """No key was given, and none has been activated on this computer."""

    def __init__(self) -> None:
        from licclient._texts import text_of  # noqa: PLC0415 - most starts show no message

        super().__init__(text_of("error.not_activated", "en"))


class LicenseRefusedError(LicclientError):
    """The server refused the key (spec 7); `message` holds the server's words.

    Attributes:
        reason: Why, to branch on.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.args = (reason, message)
        self.reason = reason


class InvalidRequestError(LicclientError):
    """The request was malformed (spec 4.1, D-11). It does not mean that the key is good or bad.

    Attributes:
        errors: Field name → what is wrong with it.
    """

    def __init__(self, errors: Mapping[str, Sequence[str]]) -> None:
        self.errors: dict[str, list[str]] = {name: list(problems) for name, problems in errors.items()}
        problems = [problem for found in self.errors.values() for problem in found]
        super().__init__(" ".join(problems) or "The service rejected the request as malformed.")


class MistypedKeyError(InvalidRequestError):
    """What was typed cannot be a license key; no request was made (D-57).

    Attributes:
        flaw: What is wrong, to branch on.
        detail: Which characters are wrong, or how many are missing or too many.
        errors: The same in English, as of any invalid request.
    """

    def __init__(self, flaw: "KeyFlaw", detail: str = "") -> None:
        from licclient._texts import text_of  # noqa: PLC0415 - as above

        super().__init__({"license_key": [text_of(f"flaw.{flaw.value}", "en", detail)]})
        self.args = (flaw, detail)
        self.flaw = flaw
        self.detail = detail


class ServiceUnavailableError(LicclientError):
    """No trustworthy response came (D-40), and neither cache nor grace period holds (D-42).

    Attributes:
        retry_after: Seconds after which the service asked to retry; None when it did not say.
    """

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UntrustedResponseError(LicclientError):
    """No pinned key signed this response (D-62) or this version (D-67), or the file is a different one."""


class UnusableArchiveError(LicclientError):
    """What the vendor published is not a zip that may be unpacked; `message` has the reason (D-80)."""


class DownloadCancelledError(LicclientError):
    """The application set `cancel`. What was received is kept for the next try."""
