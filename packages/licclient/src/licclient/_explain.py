"""`explain`: any error, reason or status of this package in a person's language, or in the system's."""

import locale
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from licclient._core.arguments import check_text
from licclient._core.lazy import lazy

if TYPE_CHECKING:
    from licclient import _sentences
    from licclient._computers.protocol import ComputerList
    from licclient._core import texts
    from licclient._core.model import Reason
    from licclient._core.status import LicenseStatus
    from licclient._core.update_model import UpdateCheck
    from licclient.errors import LicclientError
    from licclient.install._plan import InstallationReceipt, UpdatePlan

    Explainable = (
        LicclientError
        | OSError
        | Reason
        | LicenseStatus
        | UpdateCheck
        | ComputerList
        | UpdatePlan
        | InstallationReceipt
    )
else:
    _sentences = lazy("licclient._sentences")
    texts = lazy("licclient._core.texts")


def explain(
    what: "Explainable",
    language: str | None = None,
) -> str:
    """Return a sentence in a person's language: what an error, a reason or a status means, and what to do.

    The server's own message is in `LicenseRefusedError.message`.

    Args:
        what: What `verify`, `activate`, `require`, `download` or `apply` raised, an `OSError` of the last two
            included; a reason; a status; an update check; or what `client.computers.list`
            or `client.plan_update` returned.
        language: `en`, `de`, `fr`, `es`, `ja` or `zh`, also with a region (`de-AT`); None for the language of
            the system. English stands in for others.

    Raises:
        TypeError: `what` has another type.
    """
    check_text("language", language, 'a string such as "de", or None')
    tag = texts.pick_tag(system_languages() if language is None else [language])
    return _sentences.sentence_of(what, tag)


_VARIABLES = ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
_MAC_SETTINGS = "Library/Preferences/.GlobalPreferences.plist"


def system_languages() -> list[str]:
    """Return the person's languages, best first; may be empty."""
    tags = [tag for name in _VARIABLES for tag in os.environ.get(name, "").split(":") if tag]
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
