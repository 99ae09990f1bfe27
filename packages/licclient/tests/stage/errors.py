"""Every error of the package, with each of its values that a person's sentence depends on."""

from datetime import UTC, datetime
from typing import Final

from licclient import LicclientError, Outage, Reason
from licclient.errors import (
    DeactivationError,
    DownloadCancelledError,
    FileFlaw,
    InstallationError,
    InstallObstacle,
    InvalidRequestError,
    KeyFlaw,
    LicenseFileError,
    LicenseRefusedError,
    MistypedKeyError,
    MoveError,
    MoveObstacle,
    NoSeatError,
    NotActivatedError,
    NotEntitledError,
    QuotaExceededError,
    ServiceUnavailableError,
    StateUnreadableError,
    UntrustedResponseError,
    UnusableArchiveError,
)

NOON: Final = datetime(2026, 12, 1, 12, tzinfo=UTC)

ERRORS: Final[list[LicclientError]] = [
    *(MistypedKeyError(flaw, "3") for flaw in KeyFlaw),
    *(
        LicenseRefusedError(reason, words, is_trial=is_trial)
        for reason in Reason
        for words in ("", "In the server's words.")
        for is_trial in (False, True)
    ),
    NotActivatedError(),
    NotEntitledError("export"),
    QuotaExceededError("exports", NOON),
    *(DeactivationError("No.", at) for at in (None, NOON)),
    *(LicenseFileError(flaw, "No.") for flaw in FileFlaw),
    *(NoSeatError("No.", seats, at) for seats in (None, 0, 5) for at in (None, NOON)),
    *(
        InstallationError(obstacle, "Snap", command, 5)
        for obstacle in InstallObstacle
        for command in (None, "x")
    ),
    *(MoveError(obstacle, "No.", at) for obstacle in MoveObstacle for at in (None, NOON)),
    InvalidRequestError({}),
    *(ServiceUnavailableError(outage=outage) for outage in Outage),
    StateUnreadableError("Permission denied", "/home/me/licclient/a.state"),
    *(UntrustedResponseError(is_clock_wrong=wrong) for wrong in (False, True)),
    UnusableArchiveError(),
    DownloadCancelledError(),
]


def kinds(base: type[LicclientError] = LicclientError) -> set[type[LicclientError]]:
    """Return every class of error that is defined."""
    return {found for kind in base.__subclasses__() for found in {kind, *kinds(kind)}}
