"""Many rows at once, made by PostgreSQL itself: ten million licenses with their activations in minutes."""

from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection

from licserver.database.engine import Database

LONG_AGO: Final = datetime(2026, 1, 1, tzinfo=UTC)
_ID: Final = "substr(sha256(convert_to('license ' || n, 'UTF8')), 1, 16)"
_KEY: Final = f"{_ID} || {_ID} || {_ID} || {_ID} || '\\x000000'::bytea"  # 67 bytes, as an encrypted key has
_PIECE: Final = 500_000


def license_id(number: int) -> bytes:
    """Return the id of a license that `fill` has made."""
    import hashlib  # noqa: PLC0415 - only here

    return hashlib.sha256(f"license {number}".encode()).digest()[:16]


def domain(number: int) -> str:
    """Return the installation id of its activation."""
    import hashlib  # noqa: PLC0415 - only here
    import uuid  # noqa: PLC0415

    return str(uuid.UUID(hashlib.md5(str(number).encode()).hexdigest()))  # noqa: S324 - as PostgreSQL's md5


def fill(database: Database, count: int, product_id: int, first: int = 0) -> None:
    """Add licenses of a product, each with an activation; ids and domains are in random order."""
    for start in range(first, first + count, _PIECE):
        with database.long_transaction() as connection:
            _fill(connection, product_id, start, min(_PIECE, first + count - start))


def _fill(connection: Connection, product_id: int, start: int, count: int) -> None:
    numbers = f"generate_series({start}, {start + count - 1}) AS n"
    at = f"'{LONG_AGO.isoformat()}'"
    connection.exec_driver_sql(
        "INSERT INTO licenses (id, sealed_key, masked_key, product_id, product_name, issued_at, lifetime, "  # noqa: S608 - ours
        f"slots, expires_on) SELECT {_ID}, {_KEY}, 'CP-' "
        f"|| upper(substr(md5(n::text), 1, 2)) || '****-…-****', {product_id}, 'Photo Lab', "
        f"{at}::timestamptz + n * interval '1 second', mod(n, 2) = 0, 3, "
        f"CASE WHEN mod(n, 2) = 1 THEN date '2036-01-01' + mod(n, 365) END FROM {numbers}"
    )
    connection.exec_driver_sql(
        "INSERT INTO activations (license_id, domain, ip, activated_at, last_seen_at) "  # noqa: S608 - as above
        f"SELECT {_ID}, md5(n::text)::uuid::text, concat('10.', mod(n, 250), '.', mod(n / 250, 250), '.1'), "
        f"{at}, {at} FROM {numbers}"
    )
