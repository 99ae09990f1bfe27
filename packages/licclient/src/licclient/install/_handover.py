"""Hand an update over to a framework within the app, by the address of our feed for it (D-390)."""

import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

from licclient._core.kinds import InstallationKind
from licclient._core.lazy import lazy
from licclient._core.model import UpdateFeed

if TYPE_CHECKING:
    from urllib import parse

    from licclient._core.model import Settings
else:
    parse = lazy("urllib.parse")

BY_FEED: Final = frozenset({InstallationKind.SPARKLE, InstallationKind.WINSPARKLE})
"""Frameworks that read a feed of the service by themselves, and show windows of their own."""


def make_feed(
    settings: "Settings",
    key: str,
    slug: str,
    installed: str,
    version: str,
    *,
    domain: str,
    platform: str | None,
    kind: InstallationKind | None,
) -> UpdateFeed:
    """Return the feed that offers what an update check of this installation does.

    A person requests it, so it has the newest version (D-230). Without a platform the file for all is meant:
    the service takes a missing parameter for macOS.
    """
    fields = {"platform": platform or "", "current_version": installed, "domain": domain, "manual": "1"}
    if kind:
        fields["kind"] = kind.value
    if settings.channels:
        fields["channels"] = ",".join(settings.channels)
    query = parse.urlencode(fields, quote_via=parse.quote)
    url = f"{settings.server}/feeds/{slug}/appcast.xml?{query}"
    return UpdateFeed(version, url, {"Authorization": _authorize(key)})


def _authorize(key: str) -> str:
    """Return the header for a license key; one that was sold elsewhere may have any letters."""
    if re.fullmatch(r"[!-~]+", key):
        return f"Bearer {key}"
    return "Basic " + b64encode(f"license:{key}".encode()).decode()


class WinSparkle:
    """Hands an update over to WinSparkle 0.7 or later, whose window opens; for `Updates(hand_over=…)`.

    Args:
        library: `WinSparkle.dll` as the app has loaded it, by `ctypes.CDLL`, and set it up: the key for
            signatures, the callback that ends the app, and `win_sparkle_init`.
    """

    def __init__(self, library: Any) -> None:
        self._library = library

    def __call__(self, feed: UpdateFeed) -> None:
        """Give WinSparkle the license and the address, and have it check."""
        for name, value in feed.headers.items():
            self._library.win_sparkle_set_http_header(name.encode(), value.encode())
        self._library.win_sparkle_set_appcast_url(feed.url.encode())
        self._library.win_sparkle_check_update_with_ui()


class Sparkle:
    """Hands an update over to Sparkle 2, whose window opens; for `Updates(hand_over=…)`. Not tried on macOS.

    The address of the feed is that of the app's `Info.plist`.

    Args:
        updater: The app's `SPUUpdater`, of `pyobjc`; it is called on the thread of `install_update`, which
            has to be the main one.
    """

    def __init__(self, updater: Any) -> None:
        self._updater = updater

    def __call__(self, feed: UpdateFeed) -> None:
        """Give Sparkle the license, and have it check."""
        self._updater.setHttpHeaders_(dict(feed.headers))
        self._updater.checkForUpdates()
