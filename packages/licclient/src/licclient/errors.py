"""Exceptions, sorted by what an application can do about them.

LicclientError
├── NotActivatedError        no key has been entered on this computer      → ask for one
├── LicenseRefusedError      the server refused the key                    → block the feature, show why
├── NotEntitledError         the license does not include a feature        → offer the upgrade
├── QuotaExceededError       all that the license includes for now is used  → show when it is available again
├── InvalidRequestError      the request was malformed (422)               → a bug or a wrong setting
│   └── MistypedKeyError     the typed text cannot be a key; no request    → show the flaw
├── ServiceUnavailableError  no trustworthy response, and no grace period  → try later
├── DeactivationError        the slot of this computer stays taken         → show when, or refer to support
├── LicenseFileError         a license file cannot be used here            → show why, request another
├── NoSeatError              no floating seat                              → show when, or refer to support
├── MoveError                the license was not moved to this computer    → show when, or refer to support
├── StateUnreadableError     the stored state cannot be read now           → try again; show the path
├── UntrustedResponseError   a response or file is not what was promised   → treat as an attack
├── InstallationError        the update was not installed                 → show why, and what to do instead
├── UnusableArchiveError     a verified file that must not be unpacked     → keep this version, inform support
└── DownloadCancelledError   the application cancelled                     → nothing; a later try resumes

Pure modules return these as values; the clients raise them. None of them ever contains a license key.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from licclient._core.lazy import PROGRAM_GONE, lazy, load_module
from licclient._core.model import FileFlaw, InstallObstacle, KeyFlaw, MoveObstacle, Outage, Reason

if TYPE_CHECKING:
    from licclient._core import texts
else:
    texts = lazy("licclient._core.texts")

__all__ = [
    "DeactivationError",
    "DownloadCancelledError",
    "FileFlaw",
    "InstallObstacle",
    "InstallationError",
    "InvalidRequestError",
    "KeyFlaw",
    "LicclientError",
    "LicenseFileError",
    "LicenseRefusedError",
    "MistypedKeyError",
    "MoveError",
    "MoveObstacle",
    "NoSeatError",
    "NotActivatedError",
    "NotEntitledError",
    "QuotaExceededError",
    "ServiceUnavailableError",
    "StateUnreadableError",
    "UntrustedResponseError",
    "UnusableArchiveError",
]


class LicclientError(Exception):
    """Base of all errors about licenses, the service or its responses.

    Attributes:
        message: What happened, in English or in the server's words; `explain` translates.
        http_status: Status of the response that it is about; None without one.
        request_id: The id of that request in the server's log (`X-Request-ID`), or None.
    """

    http_status: int | None = None
    request_id: str | None = None
    _texts: ClassVar[str | None] = None
    """The module with the sentences of a feature's error."""

    # `args` stay those of the constructor (`BaseException.__new__` sets them), so every error can be pickled.
    def __init__(self, message: str = "") -> None:
        self.message = message

    def __str__(self) -> str:
        return self.message


class NotActivatedError(LicclientError):
    """No key was given, and none has been activated on this computer."""

    def __init__(self) -> None:
        super().__init__(texts.text_of("error.not_activated", "en"))


class LicenseRefusedError(LicclientError):
    """The server refused the key (spec 7); `message` holds the server's words.

    Attributes:
        reason: Why, to branch on.
        is_trial: Whether the license was a trial, as far as this computer knows.
    """

    def __init__(self, reason: Reason, message: str, *, is_trial: bool = False) -> None:
        super().__init__(message)
        self.args = (reason, message)
        self.reason = reason
        self.is_trial = is_trial


class NotEntitledError(LicclientError):
    """The license is valid, and does not include a feature.

    Attributes:
        entitlement: The name of the feature.
    """

    def __init__(self, entitlement: str) -> None:
        super().__init__(texts.text_of("error.not_entitled", "en"))
        self.args = (entitlement,)
        self.entitlement = entitlement


class QuotaExceededError(LicclientError):
    """A use exceeds the rest of a metered entitlement; nothing was counted.

    Attributes:
        entitlement: Its name.
        resets_at: When the next period begins, aware, UTC.
    """

    _texts = "licclient._uses.texts"

    def __init__(self, entitlement: str, resets_at: datetime) -> None:
        self.entitlement = entitlement
        self.resets_at = resets_at
        super().__init__(load_module(str(self._texts)).sentence_of(self, "en"))
        self.args = (entitlement, resets_at)


class InvalidRequestError(LicclientError):
    """The request was malformed. It does not mean that the key is good or bad.

    Attributes:
        errors: Field name → its flaw.
    """

    def __init__(self, errors: Mapping[str, Sequence[str]]) -> None:
        self.errors: dict[str, list[str]] = {name: list(problems) for name, problems in errors.items()}
        problems = [problem for texts in self.errors.values() for problem in texts]
        super().__init__(" ".join(problems) or "The service rejected the request as malformed.")


class MistypedKeyError(InvalidRequestError):
    """The typed text cannot be a license key; no request was made.

    Attributes:
        flaw: What is wrong, to branch on.
        detail: Which characters are wrong, or how many are missing or too many.
        errors: The same in English, as of any invalid request.
    """

    def __init__(self, flaw: KeyFlaw, detail: str = "") -> None:
        super().__init__({"license_key": [texts.text_of(f"flaw.{flaw.value}", "en", detail)]})
        self.args = (flaw, detail)
        self.flaw = flaw
        self.detail = detail


class ServiceUnavailableError(LicclientError):
    """No trustworthy response came, and neither cache nor grace period holds.

    Attributes:
        retry_after: Seconds after which the service wants a retry, or None.
        outage: Why, to branch on.
    """

    def __init__(
        self, message: str = "", retry_after: float | None = None, outage: Outage = Outage.UNREACHABLE
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.outage = outage


class DeactivationError(LicclientError):
    """The service did not free the slot of this computer, and the key is still here.

    Attributes:
        retry_at: When it will, aware, UTC; None if only the vendor's support can free it.
    """

    def __init__(self, message: str, retry_at: datetime | None = None) -> None:
        super().__init__(message)
        self.args = (message, retry_at)
        self.retry_at = retry_at


class LicenseFileError(LicclientError):
    """A license file cannot be used, and was not installed.

    Attributes:
        flaw: Why, to branch on.
    """

    _texts = "licclient._offline.texts"

    def __init__(self, flaw: FileFlaw, message: str) -> None:
        super().__init__(message)
        self.args = (flaw, message)
        self.flaw = flaw


class NoSeatError(LicclientError):
    """There is no floating seat for this computer.

    Attributes:
        seats: How many the license has, all of them in use; 0 if the license or the service has none; None if
            the seat was taken back.
        retry_at: When the first of them is free if it is not renewed, aware, UTC; None if no time is known.
    """

    _texts = "licclient._seats.texts"

    def __init__(self, message: str, seats: int | None = None, retry_at: datetime | None = None) -> None:
        super().__init__(message)
        self.args = (message, seats, retry_at)
        self.seats = seats
        self.retry_at = retry_at


class MoveError(LicclientError):
    """The license was not moved to this computer, or the computers that use it are not listed.

    Attributes:
        obstacle: Why, to branch on.
        retry_at: When it can be moved, aware, UTC; None if only the vendor's support can move it, or no time
            is known.
    """

    _texts = "licclient._computers.texts"

    def __init__(self, obstacle: MoveObstacle, message: str, retry_at: datetime | None = None) -> None:
        super().__init__(message)
        self.args = (obstacle, message, retry_at)
        self.obstacle = obstacle
        self.retry_at = retry_at


class InstallationError(LicclientError):
    """An update was not installed; the version before goes on working.

    Attributes:
        obstacle: Why, to branch on.
        updater: The name of what updates this app instead; None if nothing else does.
        command: What a person types for that; None without a command.
        code: The exit code of the set-up; None if it was not started.
    """

    _texts = "licclient.install._texts"

    def __init__(
        self,
        obstacle: InstallObstacle,
        updater: str | None = None,
        command: str | None = None,
        code: int | None = None,
    ) -> None:
        self.obstacle, self.updater, self.command, self.code = obstacle, updater, command, code
        super().__init__(load_module(str(self._texts)).sentence_of(self, "en"))
        self.args = (obstacle, updater, command, code)


class StateUnreadableError(LicclientError):
    """A file of the state folder cannot be read; nothing was changed.

    Also when a module of this package cannot be loaded: the app has used up its file descriptors, or its
    files were removed or replaced since it was started.

    Attributes:
        reason: In the system's words, such as `Permission denied`.
        path: The file, if it is known; None for a storage without files.
    """

    def __init__(self, reason: str, path: str | None = None) -> None:
        where = reason if path is None else f"{reason}: {path}"
        message = (
            f"The license data of this app cannot be read ({where}). Nothing was changed."
            " Try again; if that does not help, check the folder's permissions."
        )
        super().__init__(reason if reason == PROGRAM_GONE else message)
        self.args = (reason, path)
        self.reason = reason
        self.path = path


class UntrustedResponseError(LicclientError):
    """No pinned key signed this response or this version, or the file is a different one.

    Attributes:
        is_clock_wrong: Whether it is only the time that does not fit: the clock of this computer is wrong.
    """

    def __init__(self, message: str = "", *, is_clock_wrong: bool = False) -> None:
        super().__init__(message)
        self.is_clock_wrong = is_clock_wrong


class UnusableArchiveError(LicclientError):
    """The published file is not a zip that may be unpacked; `message` has the reason."""


class DownloadCancelledError(LicclientError):
    """The application set `cancel`. What was received is kept for the next try."""
