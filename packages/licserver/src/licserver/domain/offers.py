"""The choice of the offered release: channels (D-227), rollouts, and public feeds. Pure."""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from itertools import chain, pairwise, zip_longest
from math import nextafter
from typing import Final, NamedTuple

from licserver.domain.channel_offers import (
    ChannelOffers,
    find_last,
    latest_by_kind,
    list_candidates,
    list_covered,
    list_offers,
    merge_candidates,
    published_on,
)
from licserver.domain.decisions import (
    Offer,
    UpdateRefusal,
    UpdateVerdict,
    evaluate_update,
    find_fix,
    is_expired,
    is_support_over,
)
from licserver.domain.records import (
    STABLE,
    AfterSupport,
    FileKind,
    LicenseSnapshot,
    Product,
    Release,
    Rollout,
)
from licserver.domain.versions import is_below, parse_version, version_of
from licserver.errors import InvalidInputError

# --- channels ---------------------------------------------------------------------------------

MAX_CHANNELS: Final = 16  # that an app or a license may name
_NAME: Final = re.compile(r"[a-z0-9._-]{1,40}")
_NO_CHANNELS: Final[frozenset[str]] = frozenset()
_MAX_OFFERED: Final = 256  # sets of channels with platform and kind; customers can request very many
_KINDS: Final = frozenset(FileKind)


def is_channel(text: str) -> bool:
    """Return whether `text` can name a channel."""
    return _NAME.fullmatch(text) is not None


def parse_channels(text: str) -> tuple[str, ...]:
    """Parse the channels that an app names, separated by commas; skip invalid names."""
    return tuple(name for name in text.split(",")[:MAX_CHANNELS] if is_channel(name))


def is_file_kind(text: str) -> bool:
    """Return whether `text` names a kind of published files."""
    return text in _KINDS


def latest_by_channel(releases: Sequence[Release]) -> dict[str, dict[tuple[str, FileKind], Release]]:
    """Return the offered releases by channel, then by platform and kind."""
    names = dict.fromkeys([STABLE, *(release.channel for release in releases)])
    return {name: latest_by_kind(releases, name) for name in names}


def latest_of_channels(
    releases: Sequence[Release], channels: Collection[str], platform: str = "", kind: str = ""
) -> Release | None:
    """Return the highest release that the channels or `stable` offer to a platform."""
    return next(iter(find_candidates(releases, channels, platform, kind)), None)


def list_offered(product: Product, releases: Sequence[Release]) -> list[Release]:
    """Return all releases that some license may be offered, each once."""
    offered = {
        release.id: release for files in latest_by_channel(releases).values() for release in files.values()
    }
    fixes = [release for release in releases if release.security is not None and release.withdrawn_at is None]
    offered |= {release.id: release for release in fixes}
    if product.has_support_policy and product.after_support is AfterSupport.COVERED:
        sets = ({getattr(release, name) for release in releases} for name in ("channel", "platform", "kind"))
        for channel, platform, kind in itertools.product(*map(sorted, sets)):
            for covered in list_covered(releases, channel, platform, kind):
                offered |= {release.id: release for release in covered.candidates}
    return list(offered.values())


class OfferedProduct:
    """A product with its releases. What a channel offers to a platform and kind is computed once."""

    def __init__(self, product: Product, releases: Sequence[Release]) -> None:
        self.product, self.releases = product, releases
        self.channels = frozenset(release.channel for release in releases)
        self.platforms = frozenset({"", *(release.platform for release in releases)})
        self.kinds = frozenset(release.kind for release in releases)
        self._of_channels = dict[tuple[str, str, str], ChannelOffers]()
        self._offered = dict[tuple[frozenset[str], str, str], Product]()

    def find_offers(self, channels: Collection[str], platform: str, kind: str = "") -> Product:
        """Return the product with what it offers in `stable` and other channels for a platform and a kind.

        Without a `kind` each version counts (D-187).
        """
        # What no release has makes no difference, and callers may invent as much as they like.
        of_releases = self.channels.intersection(channels) if channels else _NO_CHANNELS
        key = of_releases, platform if platform in self.platforms else "", kind
        product = self._offered.get(key)
        if product is None:
            if len(self._offered) >= _MAX_OFFERED:
                self._offered.clear()
            of_channels = [self.of_channel(name, *key[1:]) for name in {STABLE, *of_releases}]
            candidates, covered, fixes = zip(*of_channels, strict=True)
            product = self._offered[key] = self.product._replace(
                candidates=merge_candidates(candidates), covered=covered, fixes=tuple(chain(*fixes))
            )
        return product

    def of_channel(self, channel: str, platform: str, kind: str = "") -> ChannelOffers:
        """Return what a channel offers to a platform; of 2,000 releases that takes a tenth of a second."""
        key = channel, platform, kind
        if key not in self._of_channels:
            is_covered = self.product.after_support is AfterSupport.COVERED
            self._of_channels[key] = list_offers(self.releases, *key, is_covered=is_covered)
        return self._of_channels[key]


def list_downloads(
    offered: OfferedProduct, license_: LicenseSnapshot, channels: Collection[str], now: datetime
) -> dict[tuple[str, FileKind], Release]:
    """Return what a page of customers offers to a license with these channels, by platform and kind.

    The page knows no installed version, and no rollout holds anything back. Once something is over, it offers
    no security release of a higher major version than the license has covered, which would be an upgrade;
    a version that was withdrawn since was covered, too.
    """
    downloads = dict[tuple[str, FileKind], Release]()
    end = _find_first_end(offered.product, license_, now)
    for platform, kind in itertools.product(
        sorted(offered.platforms), filter(offered.kinds.__contains__, FileKind)
    ):
        product = offered.find_offers(channels, platform, kind)
        if end is not None and product.fixes:
            before = [of._replace(withdrawn_at=None) for of in offered.releases if published_on(of) <= end]
            newest = latest_of_channels(before, channels, platform)
            newest_major = -1 if newest is None else version_of(newest).major
            fixes = [fix for fix in product.fixes if version_of(fix).major <= newest_major]
            highest = max((version_of(fix) for fix in fixes), default=None)
            fixes = [fix for fix in fixes if version_of(fix) == highest]  # "0" would take those of 0.x
            product = product._replace(fixes=tuple(fixes))
        verdict = evaluate_update(license_, product, now, installed=_NOTHING_INSTALLED)
        offer = apply_rollout(verdict, Installation("", _NOTHING_INSTALLED, is_manual=True), now)
        if isinstance(offer, Offer) and offer.downloadable and offer.release.platform == platform:
            downloads[platform, kind] = offer.release
    return downloads


def find_download(
    downloads: Mapping[tuple[str, FileKind], Release], platform: str, kind: str
) -> Release | None:
    """Return the file of a platform, or else the default; without a kind of the first that there is."""
    for name, each in itertools.product((platform, ""), FileKind):
        if kind in ("", each) and (release := downloads.get((name, each))) is not None:
            return release
    return None


def _find_first_end(product: Product, license_: LicenseSnapshot, now: datetime) -> date | None:
    """Return the last day of a license's support or term, the earlier if both are over; None if none is."""
    ends = [license_.support_until] if is_support_over(product, license_, now) else []
    if is_expired(license_, now):
        ended_at = license_.subscription_ended_at
        ends += [license_.expires_on, None if ended_at is None else ended_at.astimezone(UTC).date()]
    return min((end for end in ends if end is not None), default=None)


# --- staged rollout ---------------------------------------------------------------------------

_NOTHING_INSTALLED: Final = "0"  # below every release
_SPAN: Final = re.compile(r"([1-9][0-9]{0,3})([dh])")
_STEP: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?)%(?:@(.+))?")
_UNITS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1)}
_BUCKET_BYTES: Final = 6  # a float holds them exactly, so that no bucket is 1.0
_LAST: Final = nextafter(1.0, 0.0)  # below a share of 1 only


class Step(NamedTuple):
    """A step of a rollout: from `after` the start, a version reaches this share of all installations."""

    after: timedelta
    share: float


class Installation(NamedTuple):
    """The client of an update check: its domain, the installed version, and whether a person requested it.

    The domain is empty if the client sends none; a rollout reaches such clients last (D-221).
    """

    domain: str
    version: str
    is_manual: bool = False


@lru_cache(maxsize=256)
def parse_plan(text: str) -> timedelta | tuple[Step, ...]:
    """Parse the plan of a rollout: the time of an even growth (`7d`), or steps (`10%,50%@2d,100%@5d`).

    Raises:
        InvalidInputError: It is neither.
    """
    if (span := _parse_span(text)) is not None:
        return span
    steps = []
    for part in text.split(","):
        match = _STEP.fullmatch(part.strip())
        after = timedelta() if match is None or match[2] is None else _parse_span(match[2])
        if match is None or after is None:
            raise InvalidInputError(
                f"{text!r} is not a valid rollout: write 7d or 36h for even growth, "
                "or steps like 10%,50%@2d,100%@5d"
            )
        steps.append(Step(after, float(match[1]) / 100))
    is_rising = all(
        step.after < next_step.after and step.share < next_step.share for step, next_step in pairwise(steps)
    )
    if not is_rising or steps[0].share == 0 or steps[-1].share > 1:
        raise InvalidInputError("the steps of a rollout must rise, in time and from above 0% to at most 100%")
    return tuple(steps)


def _parse_span(text: str) -> timedelta | None:
    match = _SPAN.fullmatch(text)
    return None if match is None else int(match[1]) * _UNITS[match[2]]


class RolloutOptions(NamedTuple):
    """The options of a new version: the plan of its rollout, and the version below which it is critical."""

    rollout: str | None = None
    critical_below: str | None = None

    def check(self, version: str) -> None:
        """Raise `InvalidInputError` unless `version` can have these options."""
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
        """Return rollout and limit of a new file; a further file of a version takes over those of the first.

        A limit also holds for later versions: an installation that skipped the critical version needs the
        next version as much.
        """
        limit = self.critical_below
        for release in releases:
            if release.version == version:
                if self != TO_ALL:
                    raise InvalidInputError(
                        f"{version} has a file already: leave rollout and critical-below out, "
                        "which are the same for all its files"
                    )
                return release.rollout, release.critical_below
            is_earlier = release.withdrawn_at is None and is_below(release.version, version)
            if is_earlier and (limit is None or is_below(limit, release.critical_below)):
                limit = release.critical_below
        return None if self.rollout is None else Rollout(self.rollout, now), limit


TO_ALL: Final = RolloutOptions()


def current_share(rollout: Rollout, now: datetime) -> float:
    """Return the share of all installations that a rollout reaches, from 0 to 1."""
    passed, plan = (rollout.paused_at or now) - rollout.started_at, parse_plan(rollout.plan)
    if isinstance(plan, timedelta):
        return min(max(passed / plan, 0.0), 1.0)
    return max((step.share for step in plan if step.after <= passed), default=0.0)


def bucket(slug: str, version: str, domain: str) -> float:
    """Return a number from 0 to below 1: a rollout reaches the installations whose number is below its share.

    The version is hashed, too: otherwise the same customers would always be the first (D-230).
    """
    if not domain:
        return _LAST
    digest = sha256(f"{slug}\n{version}\n{domain}".encode()).digest()
    return int.from_bytes(digest[:_BUCKET_BYTES]) / 256.0**_BUCKET_BYTES


def find_candidates(
    releases: Sequence[Release], channels: Collection[str] = (), platform: str = "", kind: str = ""
) -> tuple[Release, ...]:
    """Return the releases for a platform, each for the installations that its predecessors do not reach."""
    return merge_candidates(list_candidates(releases, name, platform, kind) for name in {STABLE, *channels})


def apply_rollout(verdict: UpdateVerdict, installation: Installation, now: datetime) -> UpdateVerdict:
    """Replace an offer that does not reach an installation; mark critical releases (D-231).

    A security release reaches each installation that is below it (D-331).
    """
    if not isinstance(verdict, Offer) or is_for_all(verdict):
        return verdict
    reached = _find_reached(verdict, installation, now)
    fix = verdict.fix
    if fix is None or (reached is not None and not is_below(reached.release.version, fix.version)):
        return reached or UpdateRefusal.NO_VERSIONS
    newer = verdict.latest_version or verdict.release.version
    return verdict._replace(
        release=fix,
        is_critical=is_below(installation.version, fix.critical_below),
        latest_version=newer if is_below(fix.version, newer) else None,
    )


def is_for_all(offer: Offer) -> bool:
    """Return whether `apply_rollout` leaves an offer as it is, whatever the installation."""
    return offer.fix is None and offer.release.rollout is None and offer.release.critical_below is None


def _find_reached(offer: Offer, installation: Installation, now: datetime) -> Offer | None:
    """Return the offer of the first candidate that reaches an installation."""
    release = offer.release
    if release.rollout is None and release.critical_below is None:
        return offer
    candidates = offer.product.candidates
    is_critical = is_below(installation.version, candidates[0].critical_below)
    for candidate, following in zip_longest(candidates, candidates[1:]):
        is_next_critical = following is not None and is_below(installation.version, following.critical_below)
        # If the next version is critical as well, it is offered at once, and this version by its share.
        is_needed = is_critical and not is_next_critical
        if is_needed or _reaches(candidate, offer.product.slug, installation, now):
            return offer._replace(release=candidate, is_critical=is_critical)
        is_critical = is_next_critical
    return None


def _reaches(release: Release, slug: str, installation: Installation, now: datetime) -> bool:
    """Return whether a release is offered: by its share, at a check by a person, or if it is installed.

    No older release than the installed may be offered: clients with pinned release keys refuse it (D-68).
    """
    rollout, installed = release.rollout, installation.version
    return (
        rollout is None
        or installation.is_manual
        or bucket(slug, release.version, installation.domain) < current_share(rollout, now)
        or (parse_version(installed) is not None and not is_below(installed, release.version))
    )


# --- feeds ------------------------------------------------------------------------------------

NO_LICENSE: Final = b""
"""The id in links of public feeds, in place of a license's id; no license has it."""


def public_feed_license(product_id: int) -> LicenseSnapshot:
    """Return the placeholder for the license in a public feed."""
    return LicenseSnapshot(NO_LICENSE, product_id, "")


def evaluate_public_feed(
    offered: OfferedProduct, channels: Collection[str], platform: str, installed: str = "", kind: str = ""
) -> UpdateVerdict:
    """Decide the offer of a public feed; `apply_rollout` decides to which installations."""
    product = offered.find_offers(channels, platform, kind)
    if product.latest is None:
        return UpdateRefusal.NO_VERSIONS
    license_ = public_feed_license(product.id)
    fix = find_fix(product, license_, installed)
    return Offer(product, product.latest, license_, downloadable=True, fix=fix)


class ListedRelease(NamedTuple):
    """A release in a list from which the app chooses.

    `is_on_request`: only for apps that name its channel. With a `span`, the app itself chooses its time
    within that span from the start of the rollout.
    """

    release: Release
    is_on_request: bool = False
    span: timedelta | None = None


def list_releases(
    offer: Offer,
    offered: OfferedProduct,
    channels: Collection[str],
    platform: str,
    installation: Installation,
    now: datetime,
    kind: str = "",
) -> list[ListedRelease]:
    """List the releases for an installation: the offered release, and higher releases of other channels.

    `offer` is the verdict for the license, before any rollout. `channels` are the requested channels.
    """
    listed = _list_reached(offer, offer.product.candidates, installation, now)
    listed_ids = {listed_release.release.id for listed_release in listed}
    platform = platform if platform in offered.platforms else ""
    for name in sorted(offered.channels - {STABLE, *channels}):
        of_channels = [offered.of_channel(each, platform, kind) for each in {STABLE, *channels, name}]
        candidates = merge_candidates(_list_covered_by(offer, offers) for offers in of_channels)
        of_channel = tuple(
            release for release in candidates if release.channel == name and release.id not in listed_ids
        )
        reached = _list_reached(offer._replace(fix=None), of_channel, installation, now)
        listed += [listed_release._replace(is_on_request=True) for listed_release in reached]
    return listed


def _list_covered_by(offer: Offer, offers: ChannelOffers) -> tuple[Release, ...]:
    """Return the candidates of a channel that the license of an offer covers."""
    until = offer.covered_until
    return offers.candidates if until is None else find_last(offers.covered, until)


def _list_reached(
    offer: Offer, offered: tuple[Release, ...], installation: Installation, now: datetime
) -> list[ListedRelease]:
    """List the releases that reach an installation; without a domain, by even growth."""
    if not offered:
        return []
    if installation.domain or installation.is_manual:
        product = offer.product._replace(candidates=offered)
        verdict = apply_rollout(offer._replace(product=product, release=offered[0]), installation, now)
        return [ListedRelease(verdict.release)] if isinstance(verdict, Offer) else []
    listed: list[ListedRelease] = []
    for release in offered:
        rollout = None if release.security is not None else release.rollout  # D-331
        if rollout is None or current_share(rollout, now) == 1:
            return [*listed, ListedRelease(release)]
        plan = parse_plan(rollout.plan)
        if isinstance(plan, timedelta) and rollout.paused_at is None:
            listed.append(ListedRelease(release, span=plan))
    return listed
