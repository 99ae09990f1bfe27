"""Staged rollout: which installations are offered a version that does not reach all of them yet. Pure."""

import re
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from math import nextafter
from typing import Final, NamedTuple

from licserver.domain.channels import latest_of_channels
from licserver.domain.decisions import Offer, UpdateRefusal, UpdateVerdict, parse_version
from licserver.domain.records import Release, Rollout
from licserver.errors import InvalidInputError

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
