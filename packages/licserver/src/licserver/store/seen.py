"""When activations were last seen: noted in batches, beside the hot paths."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import bindparam, or_, update

from licserver.model import Environment
from licserver.store.engine import Database
from licserver.store.tables import activations


class Seen(NamedTuple):
    """An activation was used.

    Args:
        license_id: The license's.
        environment: The activation's, to the letter: what is not activated is passed over.
        at: When; its day decides whether there is anything to note.
    """

    license_id: bytes
    environment: Environment
    at: datetime


_NOTE: Final = (
    update(activations)
    .where(
        activations.c.license_id == bindparam("of"),
        activations.c.domain == bindparam("in_domain"),
        activations.c.ip == bindparam("in_ip"),
        or_(activations.c.last_seen_at.is_(None), activations.c.last_seen_at < bindparam("since")),
    )
    .values(last_seen_at=bindparam("seen_at"))
)


def note_seen(database: Database, batch: Sequence[Seen]) -> None:
    """Note that activations were seen, at most once a day each; all in one transaction.

    From then on an activation is found by its domain: that index holds what was noted, so that
    taking a slot does not pay for it.

    Args:
        database: The vendor's.
        batch: In any order; may name an activation more than once, or one that is gone.

    Raises:
        StoreUnavailable: when the database fails; then nothing was noted.
    """
    latest = {(seen.license_id, *seen.environment): seen.at for seen in sorted(batch, key=lambda one: one.at)}
    rows = [
        {
            "of": license_id,
            "in_domain": domain,
            "in_ip": ip,
            "seen_at": at,
            "since": at.replace(hour=0, minute=0, second=0, microsecond=0),
        }
        for (license_id, domain, ip), at in sorted(latest.items())  # or two would wait for each other
    ]
    if rows:
        with database.writing() as connection:
            connection.execute(_NOTE, rows)
