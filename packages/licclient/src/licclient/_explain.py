"""What to show a person: any error, reason or state of this package, in their language."""

import locale
import os
import sys
from typing import TYPE_CHECKING

from licclient._model import Reason
from licclient.errors import (
    DownloadCancelledError,
    InvalidRequestError,
    LicclientError,
    LicenseRefusedError,
    MistypedKeyError,
    NotActivatedError,
    UntrustedResponseError,
    UnusableArchiveError,
)

if TYPE_CHECKING:
    from licclient._flows.updates import UpdateCheck
    from licclient._status import LicenseStatus


def explain(
    what: "LicclientError | OSError | Reason | LicenseStatus | UpdateCheck", language: str | None = None
) -> str:
    """Say in a person's language what an error, a reason or a status means.

    The server's own words stay where they are: `LicenseRefusedError.message`.

    Args:
        what: What `verify`, `activate`, `require`, `download` or `apply` raised, an `OSError` of the last two
            included; a reason; a status; or `last_update_check`.
        language: `en`, `de`, `fr`, `es`, `ja` or `zh`, also with a region (`de-AT`); None for the language of
            the system. English stands in for others.

    Raises:
        TypeError: `what` is none of these.
    """
    from licclient._explain import system_languages  # noqa: PLC0415 - most starts have nothing to say
    from licclient._flows.updates import UpdateCheck  # noqa: PLC0415 - as above
    from licclient._status import LicenseStatus  # noqa: PLC0415 - as below
    from licclient._texts import pick_language, text_of  # noqa: PLC0415 - as above

    tongue = pick_language(system_languages() if language is None else [language])
    match what:
        case LicenseStatus():
            return _status(what, tongue)
        case UpdateCheck():
            return text_of("update.none", tongue) if what.error is None else explain(what.error, tongue)
        case LicenseRefusedError(reason=Reason.OTHER):
            return what.message  # a sentence that this version does not know says more than "refused"
        case LicenseRefusedError(reason=reason) | (Reason() as reason):
            return text_of(f"reason.{reason.value}", tongue)
        case MistypedKeyError():
            return text_of(f"flaw.{what.flaw.value}", tongue, what.detail)
        case LicclientError():
            return text_of(f"error.{_kind(what)}", tongue)
        case OSError():
            return text_of("error.disk", tongue, what.strerror or "").rstrip()
        case _:
            raise TypeError(f"{type(what).__name__} is nothing that licclient says")


def _kind(error: LicclientError) -> str:
    match error:
        case NotActivatedError():
            return "not_activated"
        case InvalidRequestError():
            return "invalid_request"
        case UntrustedResponseError():
            return "untrusted"
        case UnusableArchiveError():
            return "unusable_archive"
        case DownloadCancelledError():
            return "cancelled"
        case _:
            return "unavailable"


def _status(status: "LicenseStatus", tongue: str) -> str:
    from licclient._status import LicenseState  # noqa: PLC0415 - as above
    from licclient._texts import text_of  # noqa: PLC0415 - as above

    match status.state:
        case LicenseState.VALID:
            return text_of("state.valid", tongue)
        case LicenseState.GRACE:
            until = status.grace_ends_at
            return text_of("state.grace", tongue, f"{until.astimezone():%Y-%m-%d %H:%M}" if until else "…")
        case LicenseState.NOT_ACTIVATED:
            return text_of("error.not_activated", tongue)
        case LicenseState.UNCONFIRMED:
            return text_of("error.unavailable", tongue)
        case LicenseState.REFUSED:
            if status.reason in (None, Reason.OTHER) and status.message:
                return status.message
            return text_of(f"reason.{(status.reason or Reason.OTHER).value}", tongue)


_VARIABLES = ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")


def system_languages() -> list[str]:
    """Return the person's languages, best first; may be empty."""
    told = [tag for name in _VARIABLES for tag in os.environ.get(name, "").split(":") if tag]
    if not told and sys.platform == "win32":
        # The number of the language that Windows itself speaks; only there is it asked.
        import ctypes  # noqa: PLC0415 - this one platform

        number = ctypes.windll.kernel32.GetUserDefaultUILanguage()
        told = [tag] if (tag := locale.windows_locale.get(number)) else []
    return told
