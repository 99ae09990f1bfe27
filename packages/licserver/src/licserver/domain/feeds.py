"""What feeds offer: to whoever asks without a license, where the vendor allows it, and as a list. Pure."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from licserver.domain.decisions import Offer, UpdateRefusal, UpdateVerdict
from licserver.domain.records import STABLE, LicenseSnapshot, Product, Release
from licserver.domain.rollout import Installation, apply_rollout, candidates, current_share, parse_plan

NO_LICENSE: Final = b""
"""Stands in links of public feeds where others have the id of a license; no license has it."""


def anyone(product_id: int) -> LicenseSnapshot:
    """Return what stands for the license of somebody who needs none."""
    return LicenseSnapshot(NO_LICENSE, product_id, "")


def offer_to_anyone(
    product: Product, releases: Sequence[Release], channels: Collection[str], platform: str
) -> UpdateVerdict:
    """Decide what a public feed offers; `rollout.apply_rollout` decides to which installations (D-213)."""
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

    Args:
        offer: As decided for the license, before any rollout.
        releases: All of the product.
        channels: Those that were named.
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
