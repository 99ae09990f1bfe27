"""The columns of a license that verdicts need, and how a row of them is read."""

from datetime import date
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, literal_column

from licserver.database.hot_path.driver import Row
from licserver.database.tables.licenses import licenses, products
from licserver.domain.records import EnvironmentMatch, EnvironmentPolicy, LicenseSnapshot

LICENSE_COLUMNS: Final[list[ColumnElement[Any]]] = [
    licenses.c.id,
    licenses.c.product_id,
    licenses.c.product_name,
    products.c.policy,
    licenses.c.expires_on,
    licenses.c.lifetime,
    licenses.c.revoked_at,
    licenses.c.slots,
    licenses.c.allowed,
    licenses.c.subscription_ended_at,
    licenses.c.support_until,
    products.c.accepts_imported_keys,
    licenses.c.trial,
    # Not as two columns, which each row would carry.
    and_(products.c.has_support_policy, products.c.after_support == literal_column("'covered'")),
]

POLICIES: Final = {policy.value: policy for policy in EnvironmentPolicy}
_NO_MATCH: Final = EnvironmentMatch()


def read_license(
    row: Row, slots_used: int = 0, activated: EnvironmentMatch = _NO_MATCH, seen_on: date | None = None
) -> LicenseSnapshot:
    """Read the license from a row that begins with a number and `LICENSE_COLUMNS`."""
    license_id, product_id, product_name, policy, expires_on, lifetime = row[1:7]
    revoked_at, slots, allowed, subscription_ended_at, support_until, accepts_imported_keys, trial = row[7:14]
    has_updates_until = row[14]
    return LicenseSnapshot(
        license_id,
        product_id,
        product_name,
        POLICIES[policy],
        expires_on,
        bool(lifetime),
        revoked_at,
        slots,
        slots_used,
        tuple(allowed.split("\n")) if allowed else (),
        activated,
        subscription_ended_at,
        support_until,
        seen_on,
        bool(accepts_imported_keys),
        trial=bool(trial),
        has_updates_until=bool(has_updates_until),
    )
