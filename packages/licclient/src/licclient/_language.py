"""Asks the operating system which language the person reads; an edge, because it reads the environment."""

import locale
import os
import sys

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
