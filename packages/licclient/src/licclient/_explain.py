"""Any error, reason or status of this package as a sentence for a person, in their language."""

import locale
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from licclient._model import FileFlaw, Reason
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
    from licclient._flows.updates import UpdateCheck
    from licclient._status import LicenseStatus

_FILE_TEXTS = {
    FileFlaw.UNTRUSTED: "error.untrusted",
    FileFlaw.OTHER_PRODUCT: "reason.other_product",
    FileFlaw.REVOKED: "reason.revoked",
}


def explain(
    what: "LicclientError | OSError | Reason | LicenseStatus | UpdateCheck", language: str | None = None
) -> str:
    """Return a sentence in a person's language: what an error, a reason or a status means, and what to do.

    The server's own message is in `LicenseRefusedError.message`.

    Args:
        what: What `verify`, `activate`, `require`, `download` or `apply` raised, an `OSError` of the last two
            included; a reason; a status; or `last_update_check`.
        language: `en`, `de`, `fr`, `es`, `ja` or `zh`, also with a region (`de-AT`); None for the language of
            the system. English stands in for others.

    Raises:
        TypeError: `what` is none of these.
    """
    from licclient._flows.updates import UpdateCheck  # noqa: PLC0415 - rarely needed
    from licclient._status import LicenseStatus  # noqa: PLC0415 - as above
    from licclient._texts import pick_tag, text_of  # noqa: PLC0415 - as above

    tag = pick_tag(system_languages() if language is None else [language])
    match what:
        case LicenseStatus():
            return _status(what, tag)
        case UpdateCheck():
            match what.error:
                case None:
                    code = "required" if what.is_update_required else "ahead" if what.is_ahead else "none"
                    return text_of(f"update.{code}", tag)
                case ServiceUnavailableError() as error if _code(error) == "error.unavailable":
                    return text_of("update.unavailable", tag)
                case error:
                    return explain(error, tag)
        case LicenseRefusedError(reason=Reason.OTHER):
            return what.message  # more than "refused", if this version does not know it
        case LicenseRefusedError(reason=reason) | (Reason() as reason):
            return text_of(f"reason.{reason.value}", tag)
        case MistypedKeyError():
            return text_of(f"flaw.{what.flaw.value}", tag, what.detail)
        case LicclientError():
            return text_of(_code(what), tag, *_details(what, tag))
        case OSError():
            return text_of("error.disk", tag, what.strerror or "").rstrip()
        case _:
            raise TypeError(f"{type(what).__name__} is not an error, reason or status of licclient")


_TEXTS = {
    NotActivatedError: "error.not_activated",
    NotEntitledError: "error.not_entitled",
    QuotaExceededError: "error.quota_exceeded",
    InvalidRequestError: "error.invalid_request",
    UntrustedResponseError: "error.untrusted",
    UnusableArchiveError: "error.unusable_archive",
    DownloadCancelledError: "error.cancelled",
}


def _code(error: LicclientError) -> str:
    from licclient._flows.verification import NO_KEY  # noqa: PLC0415 - rarely needed

    match error:
        case ServiceUnavailableError(message=message) if message == NO_KEY:
            return "error.keyring"
        case LicenseFileError(flaw=flaw):
            return _FILE_TEXTS.get(flaw, f"file.{flaw.value}")
        case DeactivationError():
            return "error.not_movable" if error.retry_at is None else "error.moved_often"
        case NoSeatError(seats=None):
            return "error.seat_lost"
        case NoSeatError(seats=seats):
            return "error.seats_in_use" if seats else "error.no_seats"
        case _:
            return next(
                (code for kind, code in _TEXTS.items() if isinstance(error, kind)), "error.unavailable"
            )


def _details(error: LicclientError, tag: str) -> list[str]:
    from licclient._texts import format_date  # noqa: PLC0415 - as above

    if isinstance(error, DeactivationError) and error.retry_at is not None:
        return [format_date(error.retry_at.astimezone().date(), tag)]
    if isinstance(error, NoSeatError) and error.seats:
        at = error.retry_at
        return [str(error.seats), "–" if at is None else f"{at.astimezone():%H:%M}"]
    if isinstance(error, QuotaExceededError):
        return [format_date(error.resets_at.astimezone().date(), tag)]
    return []


def _status(status: "LicenseStatus", tag: str) -> str:
    from licclient._status import LicenseState  # noqa: PLC0415 - as above
    from licclient._texts import format_date, text_of  # noqa: PLC0415 - as above

    match status.state:
        case LicenseState.GRACE if status.grace_ends_at is not None:
            local = status.grace_ends_at.astimezone()
            return text_of("state.grace", tag, f"{format_date(local.date(), tag)} {local:%H:%M}")
        case LicenseState.VALID | LicenseState.GRACE:
            return text_of("state.valid", tag)
        case LicenseState.NOT_ACTIVATED:
            return text_of("error.not_activated", tag)
        case LicenseState.UNCONFIRMED:
            return text_of("state.unconfirmed", tag)
        case LicenseState.REFUSED:
            if status.reason in (None, Reason.OTHER) and status.message:
                return status.message
            return text_of(f"reason.{(status.reason or Reason.OTHER).value}", tag)


_VARIABLES = ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
_MAC_SETTINGS = "Library/Preferences/.GlobalPreferences.plist"


def system_languages() -> list[str]:
    """Return the person's languages, best first; may be empty."""
    tags = [one for name in _VARIABLES for one in os.environ.get(name, "").split(":") if one]
    if not tags and sys.platform == "win32":
        # The language of Windows itself, as a number.
        import ctypes  # noqa: PLC0415 - this one platform

        number = ctypes.windll.kernel32.GetUserDefaultUILanguage()
        tags = [tag] if (tag := locale.windows_locale.get(number)) else []
    elif not tags and sys.platform == "darwin":
        # An app that was not started in a terminal has no such variables.
        import plistlib  # noqa: PLC0415 - this one platform

        with suppress(Exception), Path.home().joinpath(_MAC_SETTINGS).open("rb") as file:
            tags = [tag for tag in plistlib.load(file)["AppleLanguages"] if isinstance(tag, str)]
    return tags
