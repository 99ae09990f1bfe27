"""When activations were last seen: noted in batches, beside the hot paths."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, exists, or_, update

from licserver.database.engine import Database
from licserver.database.tables import activations
from licserver.domain.records import Environment, EnvironmentPolicy


class Seen(NamedTuple):
    """An activation was used.

    Args:
        license_id: The license's.
        environment: Where; what is not activated is passed over.
        at: When; its day decides whether there is anything to note.
        policy: Which half of the environment has to be the activation's (D-03).
    """

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
    # Domain and address may be known from different activations (D-03): each of them was seen.
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
    """Note that activations were seen, at most once a day each; all in one transaction.

    From then on an activation is found by its domain: that index holds what was noted, so that
    taking a slot does not pay for it.

    Args:
        database: The vendor's.
        batch: In any order; may name an activation more than once, or one that is gone.

    Raises:
        StoreUnavailableError: when the database fails; then nothing was noted.
    """
    if not batch:
        return
    latest = {one[:2] + one[3:]: one.at for one in sorted(batch, key=lambda one: one.at)}
    with database.writing() as connection:
        for policy, note in _NOTES.items():
            rows = [
                {"of": license_id, **_halves(policy, environment), "seen_at": at, "since": _morning(at)}
                # in one order, so that nobody waits in a ring
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
