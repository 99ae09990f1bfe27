"""Offers of a product's releases by channel (D-23, D-227): latest, covered versions, fixes. Pure.

From several channels an installation is offered `merge_candidates` of what each offers. So there are as many
results to compute as channels and platforms, however many sets of channels customers request.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date
from itertools import chain, groupby
from typing import Final, NamedTuple, TypeAlias

from packaging.version import Version

from licserver.domain.records import STABLE, CoveredReleases, FileKind, Release
from licserver.domain.versions import is_below, parse_published, parse_version, version_of

_Precedence: TypeAlias = tuple[int, str]  # of a version's files the highest is offered: by kind and platform
_Versioned: TypeAlias = tuple[Version, _Precedence, Release]  # sorted by the first two

_KINDS: Final = {kind: -index for index, kind in enumerate(FileKind)}  # of the first the highest


def latest(
    releases: Iterable[Release], platform: str = "", channel: str = STABLE, kind: str = ""
) -> Release | None:
    """Return the release that a channel offers: the highest stable release, else the highest (D-23).

    A platform's own file takes precedence over the default file of the same version and kind. A channel other
    than `stable` offers its highest release, pre-release or not (D-227).
    """
    return next(iter(list_candidates(releases, channel, platform, kind)), None)


def latest_by_platform(
    releases: Sequence[Release], channel: str = STABLE, kind: str = ""
) -> dict[str, Release]:
    """Return the release that apps of a kind are offered, by platform; the empty one is the default.

    A missing platform is offered the default (D-187).
    """
    platforms = dict.fromkeys(["", *(release.platform for release in releases)])
    chosen = {platform: latest(releases, platform, channel, kind) for platform in platforms}
    return {
        name: release for name, release in chosen.items() if release is not None and release.platform == name
    }


def latest_by_kind(releases: Sequence[Release], channel: str = STABLE) -> dict[tuple[str, FileKind], Release]:
    """Return the offered release by platform and kind, for apps that name theirs."""
    by_kind = {
        kind: latest_by_platform(releases, channel, kind)
        for kind in dict.fromkeys(release.kind for release in releases)
    }
    return {
        (platform, kind): release for kind, chosen in by_kind.items() for platform, release in chosen.items()
    }


# --- the offers of a channel ------------------------------------------------------------------


class ChannelOffers(NamedTuple):
    """A channel's offer to a platform and kind now and on earlier days, and its security releases."""

    candidates: tuple[Release, ...]
    covered: tuple[CoveredReleases, ...]
    fixes: tuple[Release, ...]


def list_offers(
    releases: Sequence[Release], channel: str, platform: str, kind: str = "", *, is_covered: bool
) -> ChannelOffers:
    """Return what a channel offers to a platform; of earlier days only if the product covers them (D-330).

    With a `kind` only files of this kind count; without one each version has one file.
    """
    return ChannelOffers(
        list_candidates(releases, channel, platform, kind),
        list_covered(releases, channel, platform, kind) if is_covered else (),
        list_fixes(releases, channel, platform, kind),
    )


def list_candidates(
    releases: Iterable[Release], channel: str = STABLE, platform: str = "", kind: str = ""
) -> tuple[Release, ...]:
    """Return what a channel offers to a platform, the highest first, up to a release without a rollout.

    Each is for the installations that those before it do not reach.
    """
    offered = _Ordered(channel)
    offered.add(_list_readable(releases, channel, platform, kind))
    return offered.choose()


def list_covered(
    releases: Iterable[Release], channel: str = STABLE, platform: str = "", kind: str = ""
) -> tuple[CoveredReleases, ...]:
    """Return what a channel offers to licenses whose support ended, by the day of the end."""
    covered: list[CoveredReleases] = []
    offered, candidates = _Ordered(channel), tuple[Release, ...]()
    readable = sorted(_list_readable(releases, channel, platform, kind), key=_day_of)
    for day, published in groupby(readable, _day_of):
        offered.add(published)
        if (newer := offered.choose()) != candidates:
            covered.append(CoveredReleases(day, newer))
        candidates = newer
    return tuple(covered)


class _Ordered:
    """A channel's releases for a platform in the order of their versions, as they are published.

    The order is kept, because a list for each day that is sorted anew took seconds for 1,000 days.
    """

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._finals, self._others = list[_Versioned](), list[_Versioned]()

    def add(self, published: Iterable[_Versioned]) -> None:
        """Add what was published on a day."""
        for item in published:
            insort(self._finals if _is_final(item, self._channel) else self._others, item, key=_order)

    def choose(self) -> tuple[Release, ...]:
        """Return the candidates; pre-releases in `stable` are those below all of its stable versions."""
        below = len(self._others)
        if self._finals:
            below = bisect_left(self._others, self._finals[0][0], key=_version)
        chosen: list[Release] = []
        last: Version | None = None
        for version, _, release in chain(reversed(self._finals), reversed(self._others[:below])):
            if version == last:
                continue  # another file of this version
            chosen.append(release)
            if release.rollout is None:
                break
            last = version
        return tuple(chosen)


def _order(item: _Versioned) -> tuple[Version, _Precedence]:
    return item[:2]


def _version(item: _Versioned) -> Version:
    return item[0]


def _day_of(item: _Versioned) -> date:
    return published_on(item[2])


def find_last(covered: Sequence[CoveredReleases], until: date) -> tuple[Release, ...]:
    """Return the candidates of the last day until `until`; none before the first."""
    count = bisect_right(covered, until, key=lambda releases: releases.since)
    return covered[count - 1].candidates if count else ()


def merge_candidates(of_channels: Iterable[tuple[Release, ...]]) -> tuple[Release, ...]:
    """Return the candidates of several channels together: the highest first, up to one without a rollout."""
    lists = [candidates for candidates in of_channels if candidates]
    if len(lists) <= 1:
        return lists[0] if lists else ()
    merged: list[Release] = []
    for release in sorted(chain.from_iterable(lists), key=version_of, reverse=True):
        merged.append(release)
        if release.rollout is None:
            break
    return tuple(merged)


def list_fixes(
    releases: Iterable[Release], channel: str = STABLE, platform: str = "", kind: str = ""
) -> tuple[Release, ...]:
    """Return the security releases that a channel offers to a platform: the highest of each major version.

    A pre-release beside stable versions is left out: clients with a stable version ignore it (D-47), and it
    would take the place of the update that they accept.
    """
    readable = sorted(_list_readable(releases, channel, platform, kind), key=_order)
    finals = [item for item in readable if _is_final(item, channel)]
    fixes = [item for item in finals or readable if item[2].security is not None]
    return tuple({version.major: release for version, _, release in fixes}.values())


def _list_readable(
    releases: Iterable[Release], channel: str, platform: str, kind: str
) -> Iterator[_Versioned]:
    for release in releases:
        if (
            release.withdrawn_at is None
            and release.channel == channel
            and release.platform in ("", platform)
            and kind in ("", release.kind)
            and (version := parse_published(release.version)) is not None
        ):
            yield version, (_KINDS[release.kind], release.platform), release


def _is_final(item: _Versioned, channel: str) -> bool:
    return channel == STABLE and not item[0].is_prerelease


def published_on(release: Release) -> date:
    """Return the day on which a release was published, in UTC, as support periods are."""
    return release.published_at.astimezone(UTC).date()


def needs_release(version: str, release: Release, releases: Iterable[Release]) -> bool:
    """Return whether an installed version is below a release, and lacks the fix if that is one (D-331).

    The fix of its own major version is one as well; an installed version that cannot be parsed lacks none.
    """
    if not is_below(version, release.version):
        return False
    installed = Version(version)
    fixes = [version_of(fix) for fix in releases if fix.security is not None and fix.withdrawn_at is None]
    own = [fix for fix in fixes if fix.major == installed.major]
    return release.security is None or not own or installed < max(own)


def is_only_fix(release: Release, releases: Iterable[Release]) -> bool:
    """Return whether a security release is the highest of its major version in its channel (D-331)."""
    if release.security is None or release.withdrawn_at is not None:
        return False
    others = (other for other in releases if other.version != release.version and other.security is not None)
    version = parse_published(release.version)
    return not any(
        version is not None and fix.major == version.major and fix > version
        for fix, _, _ in _list_readable(others, release.channel, release.platform, _kind_of(release))
    )


def _kind_of(release: Release) -> str:
    """Return the kind of the apps that a release is for: apps in folders name none."""
    return "" if release.kind is FileKind.FOLDER else release.kind


# --- words for people -------------------------------------------------------------------------


def describe_audience(release: Release, releases: Sequence[Release]) -> str | None:
    """Describe in a sentence which installations are offered a release; None for all.

    Clients with a stable version ignore a pre-release. Apps of a kind that a stable version lacks stay at the
    version before, which nobody notices.
    """
    if release.channel != STABLE:
        return (
            f"{release.version} is in the channel {release.channel}: apps and licenses with this channel "
            "are offered it, unless there is a higher version for them."
        )
    version = parse_version(release.version)
    if version is None or not version.is_prerelease:
        return _describe_missing_kinds(release, releases)
    begin, where = f"{release.version} is a pre-release:", ""
    if release.platform:
        where = f" on {release.platform}"
    offered = latest(releases, release.platform, kind=_kind_of(release))
    if offered is None or offered.version != release.version:
        reason = f", because {offered.version} is offered instead" if offered else ""
        return f"{begin} no installation{where} is offered it{reason}."
    if not release.platform:
        chosen = latest_by_platform(releases, kind=_kind_of(release))
        other_platforms = sorted(
            name for name, offered_release in chosen.items() if offered_release.version != release.version
        )
        where = f", except on {', '.join(other_platforms)}," if other_platforms else ""
    return (
        f"{begin} installations of a pre-release{where} are offered it until a stable version is published."
    )


def _is_awaited(kind: FileKind, platform: str, release: Release) -> bool:
    """Return whether apps of a kind stay behind; those in folders if a platform gets another file alone."""
    if kind is not FileKind.FOLDER:
        return True
    return release.kind is not FileKind.FOLDER and (not platform or release.platform in ("", platform))


def describe_lower_version(release: Release, releases: Sequence[Release]) -> str | None:
    """Return a sentence if a version is below one that is offered in its place; None for all others.

    A fix of a vulnerability is for apps of its major version (D-331).
    """
    if release.security is not None or release.channel != STABLE:
        return None
    offered = list_candidates(releases, release.channel, release.platform, release.kind)
    if not offered or not is_below(release.version, offered[-1].version):
        return None
    return (
        f"No app is offered {release.version}, as {offered[0].version} is higher: check the number, and"
        " withdraw the version if it is wrong."
    )


def _describe_missing_kinds(release: Release, releases: Sequence[Release]) -> str | None:
    missing = [
        f"{kind}{f' for {platform}' if platform else ''} ({offered.version})"
        for (platform, kind), offered in latest_by_kind(releases).items()
        if is_below(offered.version, release.version) and _is_awaited(kind, platform, release)
    ]
    if not missing:
        return None
    return (
        f"Apps of these kinds are offered an earlier version until {release.version} has a file for them: "
        f"{', '.join(sorted(missing))}."
    )
