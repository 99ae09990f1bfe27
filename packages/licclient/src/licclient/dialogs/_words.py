"""Pure: what a dialog says about a problem, and the links that help."""

from licclient._explain import explain
from licclient._model import Reason
from licclient._texts import text_of
from licclient.dialogs._view import Link, Urls, cut_short
from licclient.errors import (
    DownloadCancelledError,
    LicclientError,
    LicenseRefusedError,
    MistypedKeyError,
    NotActivatedError,
    ServiceUnavailableError,
)


def say_problem(problem: BaseException, language: str) -> str:
    """Return what went wrong; an unexpected exception is not quoted: it may contain anything."""
    match problem:
        case LicclientError() | OSError():
            return cut_short(explain(problem, language))
        case _:
            return text_of("problem.unexpected", language)


def links_for(problem: BaseException | None, urls: Urls, language: str) -> tuple[Link, ...]:
    """Return the links that help with a problem, most helpful first; only those that the app has."""
    codes: tuple[str, ...]
    match problem:
        case None | ServiceUnavailableError() | DownloadCancelledError() | OSError():
            codes = ()
        case NotActivatedError() | MistypedKeyError():
            codes = ("link.buy", "link.lost")
        case LicenseRefusedError(reason=Reason.NOT_FOUND | Reason.INVALID_FORMAT):
            codes = ("link.lost", "link.buy")
        case LicenseRefusedError(reason=Reason.ENVIRONMENT):
            codes = ("link.manage", "link.buy")
        case LicenseRefusedError():
            codes = ("link.buy", "link.support")
        case _:
            codes = ("link.support",)
    pages = {
        "link.buy": urls.buy,
        "link.lost": urls.support,
        "link.manage": urls.manage,
        "link.support": urls.support,
    }
    return tuple(Link(text_of(code, language), url) for code in codes if (url := pages[code]))
