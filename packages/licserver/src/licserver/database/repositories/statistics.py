"""Written in batches beside the hot path: counts of a day, and when activations were last seen."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, exists, func, or_, select, update

from licserver.database.engine import Database
from licserver.database.repositories.base import Repository, insert_into
from licserver.database.tables import activations, licenses, products, releases, totals
from licserver.domain.records import Environment, EnvironmentPolicy


class CountKey(NamedTuple):
    """A verdict of ``verify``, an ``activation``, or the version of a product's ``update`` check."""

    name: str
    product: str
    label: str


class Total(NamedTuple):
    """How often something was counted on one day."""

    day: date
    counted: CountKey
    times: int


def add_counts(database: Database, day: date, counts: Mapping[CountKey, int]) -> None:
    """Add to a day's totals, all or none; several processes may add at the same time."""
    rows = [{"day": day, **counted._asdict(), "count": count} for counted, count in sorted(counts.items())]
    if not rows:
        return
    with database.writing() as connection:
        add = insert_into(connection, totals)
        connection.execute(
            add.on_conflict_do_update(
                index_elements=list(totals.primary_key.columns),
                set_={"count": totals.c.count + add.excluded.count},
            ),
            rows,
        )


def published_versions(database: Database, slugs: Collection[str]) -> dict[tuple[str, str | None], str]:
    """Load how the versions of some products are written, by slug and version key."""
    if not slugs:
        return {}
    of = select(products.c.slug, releases.c.version_key, releases.c.version).join(
        releases, releases.c.product_id == products.c.id
    )
    with database.reading() as connection:
        rows = connection.execute(of.where(products.c.slug.in_(list(slugs))))
        return {(row.slug, row.version_key): row.version for row in rows}


class StatisticsRepository(Repository):
    """Figures for the overview, each from daily counts or from the end of an index: never from a scan."""

    def load_totals(self, since: date) -> list[Total]:
        """Load the daily counts from a day on."""
        with self._reading() as connection:
            rows = connection.execute(select(totals).where(totals.c.day >= since).order_by(totals.c.day))
            return [Total(day, CountKey(*counted), times) for day, *counted, times in rows]

    def count_expiring(self, first: date, last: date) -> int:
        """Count the licenses whose last day is within some days, both included; revoked ones do not count."""
        meant = (
            licenses.c.expires_on.between(first, last),
            licenses.c.revoked_at.is_(None),
            licenses.c.lifetime.is_(False),
        )
        return self._scalar(select(func.count()).select_from(licenses).where(*meant)) or 0

    def has_licenses(self) -> bool:
        """Return whether any license was ever issued."""
        return self._first(select(licenses.c.id).limit(1)) is not None


_BATCH: Final = 500  # activations updated in one transaction; new activations wait for it


class Seen(NamedTuple):
    """An activation was used; the policy decides which half of the environment must be its own."""

    license_id: bytes
    environment: Environment
    at: datetime
    policy: EnvironmentPolicy = EnvironmentPolicy.STRICT


_DOMAIN: Final = activations.c.domain == bindparam("in_domain")
_IP: Final = activations.c.ip == bindparam("in_ip")
_others = activations.alias()
_IS_HELD: Final = exists().where(
    _others.c.license_id == bindparam("of"),
    _others.c.domain == bindparam("in_domain"),
    _others.c.ip == bindparam("in_ip"),
)
_SAME: Final = {
    # Domain and address may be known from different activations: each of them was seen.
    EnvironmentPolicy.STRICT: or_(and_(_DOMAIN, _IP), and_(or_(_DOMAIN, _IP), ~_IS_HELD)),
    EnvironmentPolicy.DOMAIN: _DOMAIN,
    EnvironmentPolicy.EITHER: or_(_DOMAIN, _IP),
}
_NOTES: Final = {
    policy: update(activations)
    .where(
        activations.c.license_id == bindparam("of"),
        same,
        or_(activations.c.last_seen_at.is_(None), activations.c.last_seen_at < bindparam("since")),
    )
    .values(last_seen_at=bindparam("seen_at"))
    for policy, same in _SAME.items()
}


def note_seen(database: Database, batch: Sequence[Seen]) -> None:
    """Store that activations were seen, at most once a day each, a few in a transaction.

    From then on an activation is found by its domain: that index holds what was noted, so that taking a slot
    does not pay for it.
    """
    for start in range(0, len(batch), _BATCH):
        _note_some_seen(database, batch[start : start + _BATCH])


def _note_some_seen(database: Database, batch: Sequence[Seen]) -> None:
    latest = {one[:2] + one[3:]: one.at for one in sorted(batch, key=lambda one: one.at)}
    with database.writing() as connection:
        for policy, note in _NOTES.items():
            rows = [
                {"of": license_id, **_halves(policy, environment), "seen_at": at, "since": _morning(at)}
                # in one order, so that no two of them deadlock
                for (license_id, environment, meant), at in sorted(latest.items())
                if meant is policy
            ]
            if rows:
                connection.execute(note, rows)


def _halves(policy: EnvironmentPolicy, environment: Environment) -> dict[str, str]:
    halves = {"in_domain": environment.domain}
    return halves if policy is EnvironmentPolicy.DOMAIN else {**halves, "in_ip": environment.ip}


def _morning(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)
