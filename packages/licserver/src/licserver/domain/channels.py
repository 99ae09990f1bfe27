"""What is offered to apps and licenses that name more channels than `stable` (D-227). Pure."""

import re
from collections.abc import Collection, Sequence
from typing import Final

from packaging.version import Version

from licserver.domain.decisions import latest, latest_by_platform
from licserver.domain.records import STABLE, Release

MAX_CHANNELS: Final = 16  # that an app or a license may name
_NAME: Final = re.compile(r"[a-z0-9._-]{1,40}")


def is_channel(text: str) -> bool:
    """Return whether `text` can name a channel."""
    return _NAME.fullmatch(text) is not None


def parse_channels(text: str) -> tuple[str, ...]:
    """Parse the channels that an app names, separated by commas; what is no name counts as none."""
    return tuple(name for name in text.split(",")[:MAX_CHANNELS] if is_channel(name))


def latest_by_channel(releases: Sequence[Release]) -> dict[str, dict[str, Release]]:
    """Return what each channel offers, by platform as `latest_by_platform` does."""
    names = dict.fromkeys([STABLE, *(one.channel for one in releases)])
    return {name: latest_by_platform(releases, name) for name in names}


def latest_of_channels(
    releases: Sequence[Release], channels: Collection[str], platform: str = ""
) -> Release | None:
    """Return the highest version that a platform is offered in any of the channels, and in `stable`."""
    found = [latest(releases, platform, channel) for channel in {STABLE, *channels}]
    return max(filter(None, found), key=lambda one: Version(one.version), default=None)


def offer_to(releases: Sequence[Release], channels: Collection[str]) -> dict[str, Release]:
    """Return what a license with these channels is offered, as `latest_by_platform` does."""
    platforms = {"", *(one.platform for one in releases)}
    chosen = {name: latest_of_channels(releases, channels, name) for name in platforms}
    return {name: one for name, one in chosen.items() if one is not None and one.platform == name}
