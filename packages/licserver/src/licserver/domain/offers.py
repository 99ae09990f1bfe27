"""What is offered to whom: by channels (D-227), rollouts, and public feeds. Pure."""

import re
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from math import nextafter
from typing import Final, NamedTuple

from packaging.version import Version

from licserver.domain.decisions import (
    Offer,
    UpdateRefusal,
    UpdateVerdict,
    latest,
    latest_by_platform,
    parse_version,
)
from licserver.domain.records import STABLE, LicenseSnapshot, Product, Release, Rollout
from licserver.errors import InvalidInputError

# --- channels ---------------------------------------------------------------------------------

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


# --- staged rollout ---------------------------------------------------------------------------

_SPAN: Final = re.compile(r"([1-9][0-9]{0,3})([dh])")
_STEP: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?)%(?:@(.+))?")
_UNITS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1)}
_BUCKET_BYTES: Final = 6  # a float holds them exactly, so that no bucket is 1.0
_LAST: Final = nextafter(1.0, 0.0)  # below a share of 1 only


class Step(NamedTuple):
    """From `after` on, counted from the start, a version reaches this share of all installations."""

    after: timedelta
    share: float


class Installation(NamedTuple):
    """Who checks for updates: its domain, the installed version, and whether a person asked for the check.

    The domain is empty where none was named; whom a rollout reaches last (D-221).
    """

    domain: str
    version: str
    is_manual: bool = False


@lru_cache(maxsize=256)
def parse_plan(text: str) -> timedelta | tuple[Step, ...]:
    """Parse the plan of a rollout: how long an even growth takes (`7d`), or steps (`10%,50%@2d,100%@5d`).

    Raises:
        InvalidInputError: It is neither.
    """
    if (span := _parse_span(text)) is not None:
        return span
    steps = []
    for part in text.split(","):
        found = _STEP.fullmatch(part.strip())
        after = timedelta() if found is None or found[2] is None else _parse_span(found[2])
        if found is None or after is None:
            raise InvalidInputError(
                f"{text!r} is no rollout: write 7d or 36h for even growth, or steps like 10%,50%@2d,100%@5d"
            )
        steps.append(Step(after, float(found[1]) / 100))
    is_rising = all(one.after < other.after and one.share < other.share for one, other in pairwise(steps))
    if not is_rising or steps[0].share == 0 or steps[-1].share > 1:
        raise InvalidInputError("the steps of a rollout must rise, in time and from above 0% to at most 100%")
    return tuple(steps)


def _parse_span(text: str) -> timedelta | None:
    found = _SPAN.fullmatch(text)
    return None if found is None else int(found[1]) * _UNITS[found[2]]


class Reach(NamedTuple):
    """To whom a new version is offered: the plan of its rollout, and below which versions it is important."""

    rollout: str | None = None
    critical_below: str | None = None

    def check(self, version: str) -> None:
        """Raise `InvalidInputError` unless this version can have it."""
        if self.rollout is not None:
            parse_plan(self.rollout)
        limit = self.critical_below
        if limit is not None and (parse_version(limit) is None or is_below(version, limit)):
            raise InvalidInputError(
                f"{version} cannot be critical below {limit!r}: give a version by PEP 440 that is not higher"
            )

    def begin(
        self, version: str, releases: Sequence[Release], now: datetime
    ) -> tuple[Rollout | None, str | None]:
        """Return rollout and limit of a new file; of a further one of its version, those of the others.

        A limit also holds for later versions: a customer who skips the one that mended a fault needs the next
        as much.
        """
        limit = self.critical_below
        for one in releases:
            if one.version == version:
                if self != TO_ALL:
                    raise InvalidInputError(
                        f"{version} has a file already: leave rollout and critical-below out, "
                        "which are the same for all its files"
                    )
                return one.rollout, one.critical_below
            is_earlier = one.withdrawn_at is None and is_below(one.version, version)
            if is_earlier and (limit is None or is_below(limit, one.critical_below)):
                limit = one.critical_below
        return None if self.rollout is None else Rollout(self.rollout, now), limit


TO_ALL: Final = Reach()


def current_share(rollout: Rollout, now: datetime) -> float:
    """Return the share of all installations that a rollout reaches, from 0 to 1."""
    passed, plan = (rollout.paused_at or now) - rollout.started_at, parse_plan(rollout.plan)
    if isinstance(plan, timedelta):
        return min(max(passed / plan, 0.0), 1.0)
    return max((step.share for step in plan if step.after <= passed), default=0.0)


def bucket(slug: str, version: str, domain: str) -> float:
    """Return a number from 0 to below 1: a rollout reaches the installations whose number is below its share.

    The version is part of it, so that not the same customers are always the first (D-230).
    """
    if not domain:
        return _LAST
    digest = sha256(f"{slug}\n{version}\n{domain}".encode()).digest()
    return int.from_bytes(digest[:_BUCKET_BYTES]) / 256.0**_BUCKET_BYTES


def candidates(
    releases: Sequence[Release], channels: Collection[str] = (), platform: str = ""
) -> tuple[Release, ...]:
    """Return what a platform is offered, each release to installations that those before do not reach."""
    found: list[Release] = []
    while (release := latest_of_channels(releases, channels, platform)) is not None:
        found.append(release)
        if release.rollout is None:
            break
        releases = [one for one in releases if is_below(one.version, release.version)]
    return tuple(found)


_parse = lru_cache(maxsize=256)(parse_version)  # customers have the same few versions


def is_below(version: str, limit: str | None) -> bool:
    """Return whether a version is lower than another one; False if it is not readable."""
    if limit is None:
        return False
    found, other = _parse(version), _parse(limit)
    return found is not None and other is not None and found < other


def apply_rollout(verdict: UpdateVerdict, installation: Installation, now: datetime) -> UpdateVerdict:
    """Replace an offer that does not reach an installation by one that does; mark important ones (D-231)."""
    if not isinstance(verdict, Offer):
        return verdict
    release = verdict.release
    if release.rollout is None and release.critical_below is None:
        return verdict
    offered = (release, *verdict.product.others)
    important = [is_below(installation.version, one.critical_below) for one in offered]
    for at, one in enumerate(offered):
        # Where the next version is important as well, that one is offered at once, and this one by its share.
        is_needed = important[at] and not any(important[at + 1 : at + 2])
        if is_needed or _reaches(one, verdict.product.slug, installation, now):
            return verdict._replace(release=one, is_critical=important[at])
    return UpdateRefusal.NO_VERSIONS


def _reaches(release: Release, slug: str, installation: Installation, now: datetime) -> bool:
    """Return whether a release is offered: by its share, to a person who asks, and to who has it already.

    Who has it must not be offered an older one: clients that pin release keys take that for an attack (D-68).
    """
    rollout, installed = release.rollout, installation.version
    return (
        rollout is None
        or installation.is_manual
        or bucket(slug, release.version, installation.domain) < current_share(rollout, now)
        or (_parse(installed) is not None and not is_below(installed, release.version))
    )


# --- feeds ------------------------------------------------------------------------------------

NO_LICENSE: Final = b""
"""Stands in links of public feeds where others have the id of a license; no license has it."""


def anyone(product_id: int) -> LicenseSnapshot:
    """Return what stands for the license of somebody who needs none."""
    return LicenseSnapshot(NO_LICENSE, product_id, "")


def offer_to_anyone(
    product: Product, releases: Sequence[Release], channels: Collection[str], platform: str
) -> UpdateVerdict:
    """Decide what a public feed offers; `apply_rollout` decides to which installations (D-213)."""
    offered = candidates(releases, channels, platform)
    if not offered:
        return UpdateRefusal.NO_VERSIONS
    product = product._replace(latest=offered[0], others=offered[1:])
    return Offer(product, offered[0], anyone(product.id), downloadable=True)


class Listed(NamedTuple):
    """A release in a list from which the app chooses.

    `is_on_request`: only for apps that name its channel. With a `span` the app itself decides when it is its
    turn, within that time from the start of the rollout.
    """

    release: Release
    is_on_request: bool = False
    span: timedelta | None = None


def list_releases(
    offer: Offer,
    releases: Sequence[Release],
    channels: Collection[str],
    platform: str,
    installation: Installation,
    now: datetime,
) -> list[Listed]:
    """Return what an installation may choose from: what is offered, and what other channels have above it.

    `offer` is as decided for the license, before any rollout; `releases` are all of the product. `channels`
    are those that were named.
    """
    listed = _list_reached(offer, (offer.release, *offer.product.others), installation, now)
    known = {one.release.id for one in listed}
    for name in sorted({one.channel for one in releases} - {STABLE, *channels}):
        offered = candidates(releases, (*channels, name), platform)
        of_channel = tuple(one for one in offered if one.channel == name and one.id not in known)
        reached = _list_reached(offer, of_channel, installation, now)
        listed += [one._replace(is_on_request=True) for one in reached]
    return listed


def _list_reached(
    offer: Offer, offered: tuple[Release, ...], installation: Installation, now: datetime
) -> list[Listed]:
    """Return which of the releases reach an installation; without a name, by even growth (D-221)."""
    if not offered:
        return []
    if installation.domain or installation.is_manual:
        product = offer.product._replace(latest=offered[0], others=offered[1:])
        verdict = apply_rollout(offer._replace(product=product, release=offered[0]), installation, now)
        return [Listed(verdict.release)] if isinstance(verdict, Offer) else []
    listed: list[Listed] = []
    for one in offered:
        if one.rollout is None or current_share(one.rollout, now) == 1:
            return [*listed, Listed(one)]
        plan = parse_plan(one.rollout.plan)
        if isinstance(plan, timedelta) and one.rollout.paused_at is None:
            listed.append(Listed(one, span=plan))
    return listed
