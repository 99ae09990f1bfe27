"""What update checks need of the database, in batches: licenses, products and their latest releases."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import CTE, Connection, Integer, LargeBinary, Select, Text, and_, case, column, select

from licserver.database.hot_path.driver import BatchedQuery, KeptConnection, Row
from licserver.database.hot_path.license_rows import LICENSE_COLUMNS, POLICIES, read_license
from licserver.database.hot_path.rollouts import StagedReleases
from licserver.database.repositories.products import read_release
from licserver.database.tables.licenses import (
    channel_releases,
    latest_releases,
    licenses,
    manifests,
    products,
    releases,
)
from licserver.domain.channels import choose_release
from licserver.domain.records import STABLE, LicenseSnapshot, Product, Release


def _updates(requested: CTE) -> Select[Any]:
    """Each license, and the product of the slug beside it.

    A platform's own latest release comes before the default. A request without a platform finds none: in
    `latest_releases` no platform is empty.
    """
    named, own = products.alias("named"), latest_releases
    has_own = own.c.release_id.is_not(None)
    return (
        select(
            requested.c.n,
            *LICENSE_COLUMNS,
            licenses.c.channels,
            named.c.id,
            named.c.name,
            named.c.policy,
            named.c.has_support_policy,
            named.c.minimum_version,
            case((has_own, own.c.release_id), else_=named.c.latest_release_id),
            case((has_own, own.c.manifest_id), else_=named.c.latest_manifest_id),
            named.c.release_changes,
        )
        .select_from(requested)
        .join(licenses, licenses.c.id == requested.c.id)
        .join(products, products.c.id == licenses.c.product_id)
        .outerjoin(named, named.c.slug == requested.c.slug)
        .outerjoin(own, and_(own.c.product_id == named.c.id, own.c.platform == requested.c.platform))
    )


def _channels(requested: CTE) -> Select[Any]:
    """What the channels of a product offer; there are none without a release in them."""
    own = channel_releases.c
    return (
        select(requested.c.n, own.channel, own.platform, own.release_id, own.manifest_id)
        .select_from(requested)
        .join(channel_releases, own.product_id == requested.c.product_id)
    )


UPDATES: Final = BatchedQuery(
    [column("id", LargeBinary), column("slug", Text), column("platform", Text)], _updates
)
CHANNELS: Final = BatchedQuery([column("product_id", Integer)], _channels)
_CHANNELS_OF_LICENSE: Final = 1 + len(LICENSE_COLUMNS)


class UpdateQuery(NamedTuple):
    """An update check; None stands for a text that is not a license key, and no platform is empty."""

    license_id: bytes | None
    slug: str
    platform: str = ""
    channels: tuple[str, ...] = ()


# Ids of a product's latest release and of its manifest, and how often the product's releases were changed.
_LatestIds = tuple[int, int | None, int]


class UpdateReader:
    """Loads licenses and products for update checks; keeps the releases that it has loaded.

    Args:
        read: Runs a batched query.
        reader: The connection for other statements.
    """

    def __init__(
        self, read: Callable[[Callable[[Connection], list[Row]]], list[Row]], reader: KeptConnection
    ) -> None:
        self._read, self._reader = read, reader
        self._releases: dict[_LatestIds, Release] = {}
        self._staged = StagedReleases(reader)

    def find(self, queries: Sequence[UpdateQuery]) -> list[tuple[LicenseSnapshot | None, Product | None]]:
        """Load licenses and products, in the order of the queries; a product only with a license."""
        found: list[tuple[LicenseSnapshot | None, Product | None]] = [(None, None)] * len(queries)
        numbered = [(at, query) for at, query in enumerate(queries) if query.license_id is not None]
        if not numbered:
            return found

        def load(connection: Connection) -> list[Row]:
            return UPDATES.rows(connection, [(one.license_id, one.slug, one.platform) for _, one in numbered])

        rows = self._read(load)
        latest = self._load_releases({row[-3:] for row in rows if row[-3] is not None})
        with_channels = []
        for row in rows:
            at, query = numbered[row[0]]
            product = _read_product(row, query.slug, latest)
            found[at] = (read_license(row), product)
            if product is not None and (query.channels or row[_CHANNELS_OF_LICENSE]):
                allowed = (*query.channels, *row[_CHANNELS_OF_LICENSE].split("\n"))
                with_channels.append((at, product, allowed, query.platform, row[-1]))
            elif product is not None and product.latest is not None and product.latest.rollout is not None:
                found[at] = (found[at][0], self._staged.find(product, (), query.platform, row[-1]))
        if with_channels:
            products_of_channels = self._choose([one[1:] for one in with_channels])
            for (at, *_), product in zip(with_channels, products_of_channels, strict=True):
                found[at] = (found[at][0], product)
        return found

    def _choose(self, wanted: Sequence[tuple[Product, tuple[str, ...], str, int]]) -> list[Product]:
        """Return products whose latest release is the one for channels and a platform (D-227)."""

        def load(connection: Connection) -> list[Row]:
            return CHANNELS.rows(connection, [(product.id,) for product, *_ in wanted])

        rows = self._read(load)
        latest = self._load_releases({(*row[-2:], wanted[row[0]][-1]) for row in rows})
        offered: list[dict[str, dict[str, Release]]] = [
            {STABLE: {} if product.latest is None else {"": product.latest}} for product, *_ in wanted
        ]
        for number, channel, platform, *ids in rows:
            release = latest[ids[0], ids[1], wanted[number][-1]]
            offered[number].setdefault(channel, {})[platform] = release
        chosen = []
        for (product, channels, platform, changes), files in zip(wanted, offered, strict=True):
            found = product._replace(latest=choose_release(files, channels, platform))
            if found.latest is not None and found.latest.rollout is not None:
                found = self._staged.find(found, channels, platform, changes)
            chosen.append(found)
        return chosen

    def _load_releases(self, wanted: set[_LatestIds]) -> dict[_LatestIds, Release]:
        """Load the latest releases, each once: what changes in a release is counted for its product.

        A withdrawn release is no product's latest any more, and a renewed manifest has another id.
        """
        for ids in wanted - self._releases.keys():
            self._releases[ids] = self._reader.run(partial(_load_release, ids))
        return self._releases


def _load_release(ids: _LatestIds, connection: Connection) -> Release:
    release_id, manifest_id, _ = ids
    query = select(releases, manifests.c.document.label("manifest")).where(releases.c.id == release_id)
    row = connection.execute(query.outerjoin(manifests, manifests.c.id == manifest_id)).one()
    return read_release(row)


def _read_product(row: Row, slug: str, latest: dict[_LatestIds, Release]) -> Product | None:
    """Read the product from the end of a row of `UPDATES`."""
    product_id, name, policy, has_support_policy, minimum_version, release_id, *_ = row[-8:]
    if product_id is None:
        return None
    return Product(
        id=product_id,
        slug=slug,
        name=name,
        policy=POLICIES[policy],
        has_support_policy=bool(has_support_policy),
        latest=None if release_id is None else latest[row[-3:]],
        minimum_version=minimum_version,
    )
