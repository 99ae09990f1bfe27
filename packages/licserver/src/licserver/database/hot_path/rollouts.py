"""What update checks offer while rollouts are under way, read once after each change."""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection

from licserver.database.hot_path.driver import KeptConnection
from licserver.database.repositories.products import read_release, releases_of
from licserver.domain.records import Product, Release
from licserver.domain.rollout import candidates


class _Known(NamedTuple):
    """A product's releases after so many changes, and what was offered of them by channels and platform."""

    changes: int
    releases: list[Release]
    channels: frozenset[str]
    platforms: frozenset[str]
    offered: dict[tuple[frozenset[str], str], tuple[Release, ...]]


class StagedReleases:
    """Knows of each product the releases since its last change."""

    def __init__(self, reader: KeptConnection) -> None:
        self._reader = reader
        self._known: dict[int, _Known] = {}

    def find(self, product: Product, channels: Collection[str], platform: str, changes: int) -> Product:
        """Add what is offered to installations that the rollout of a product's latest release leaves out.

        `changes` is the number of the product's changes; while it is the same, nothing is read again.
        """
        known = self._known.get(product.id)
        if known is None or known.changes != changes:
            known = self._known[product.id] = self._load(product.id, changes)
        # What no release has makes no difference, and callers may invent as much as they like.
        key = known.channels.intersection(channels), platform if platform in known.platforms else ""
        if key not in known.offered:
            known.offered[key] = candidates(known.releases, *key)
        first, *others = known.offered[key] or (product.latest,)
        return product._replace(latest=first, others=tuple(others))

    def _load(self, product_id: int, changes: int) -> _Known:
        def load(connection: Connection) -> list[Release]:
            return [read_release(row) for row in connection.execute(releases_of(product_id))]

        releases = self._reader.run(load)
        channels, platforms = ({getattr(one, name) for one in releases} for name in ("channel", "platform"))
        return _Known(changes, releases, frozenset(channels), frozenset(platforms), {})
