"""A database as the program of schema 0033 left it: orders that it has served, then upgraded."""

import json
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from alembic import command

from harness.engines import write_private
from harness.sales import EXTERNAL
from harness.world import World
from licserver.database import migrate
from licserver.database.engine import Database, connect
from licserver.domain.records import Actor, ActorKind, EnvironmentPolicy, LicenseTerms

SCHEMA: Final = "0033"


class EarlierSale(NamedTuple):
    """A license that was issued for a position, which was known by an id of its product alone."""

    order: str
    item: str
    product: str = "app"
    expires_on: date | None = None
    subscription: str | None = None
    revoked: str | None = None


class WaitingDelivery(NamedTuple):
    """A delivery that waits for a person since its position was not mapped."""

    order: str
    items: Sequence[tuple[Sequence[str], int]]
    at: str = "2026-11-01T12:00:00Z"


class EarlierSource(NamedTuple):
    """A source, named after its kind, with what it had sold.

    Args:
        kind: Of the shop.
        sales: Licenses of orders.
        waiting: Deliveries that are dead.
        mapped: The id in the shop → the slug of the product.
        expires_in: Of all mappings.
        subscriptions: Rows of `sale_subscriptions`.
        orders: Order → how much was refunded (1 a part, 2 all), and how far a dispute was (1 open, 2 won,
            3 lost).
    """

    kind: str
    sales: Sequence[EarlierSale]
    waiting: Sequence[WaitingDelivery] = ()
    mapped: Mapping[str, str] | None = None
    expires_in: str | None = None
    subscriptions: Sequence[Mapping[str, Any]] = ()
    orders: Mapping[str, tuple[int, int]] = {}


def write_earlier(world: World, source: EarlierSource) -> None:
    """Give a world, which is closed by this, the database that schema 0033 had of a source, upgraded."""
    for slug in ("app", "other"):
        world.services.products.add(slug, slug.title(), EnvironmentPolicy.DOMAIN)
    ids = [_issue(world, source.kind, sale) for sale in source.sales]
    file, earlier = world.folder / "data" / "licserver.sqlite3", world.folder / "earlier.sqlite3"
    world.close()
    write_private(earlier, _empty())
    with closing(sqlite3.connect(earlier)) as link:
        _copy(file, link)
        _write_source(link, source, ids, world.clock())
        link.commit()
    _migrate(earlier, migrate.upgrade)
    file.write_bytes(earlier.read_bytes())


@cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "empty.sqlite3")
        file.touch()
        _migrate(file, lambda database: migrate.migrate(database, lambda to: command.upgrade(to, SCHEMA)))
        return file.read_bytes()


def _migrate(file: Path, act: Callable[[Database], Any]) -> None:
    database = connect(f"sqlite+pysqlite:///{file}")
    try:
        act(database)
    finally:
        database.close()


def _issue(world: World, kind: str, sale: EarlierSale) -> bytes:
    terms = LicenseTerms(
        slots=2,
        expires_on=sale.expires_on,
        subscription_id=sale.subscription,
        customer_email="ann@example.com",
        note=f"Order {sale.order} ({kind})",
    )
    system = world.services.acting_as(Actor(ActorKind.SYSTEM, f"source {kind}"))
    id_ = system.licenses.issue(sale.product, terms)[0].id
    if sale.revoked is not None:
        system.licenses.revoke(id_.hex(), sale.revoked)
    return id_


def _copy(file: Path, link: sqlite3.Connection) -> None:
    """Copy the rows of all tables, without columns that schema 0033 did not have."""
    link.execute("ATTACH ? AS new", [str(file)])
    for (table,) in link.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall():
        schemas = [
            {row[1] for row in link.execute(f"PRAGMA {branch}.table_info({table})")}
            for branch in ("main", "new")
        ]
        shared = ", ".join(sorted(schemas[0] & schemas[1]))
        if shared and table != "alembic_version":
            is_old = "WHERE name <> 'oldest_program'" if table == "facts" else ""
            link.execute(
                f"INSERT OR REPLACE INTO main.{table} ({shared}) SELECT {shared} FROM new.{table} {is_old}"  # noqa: S608
            )
    link.commit()
    link.execute("DETACH new")


def _write_source(
    link: sqlite3.Connection, source: EarlierSource, ids: Sequence[bytes], now: datetime
) -> None:
    kind, at = source.kind, now.strftime("%Y-%m-%d %H:%M:%S.%f")
    products = dict(link.execute("SELECT slug, id FROM products").fetchall())
    secret = {"secret_env": f"{kind.upper()}_SECRET", "is_test": 0, "tolerance": 300, "grace_days": 7}
    _insert(link, "sale_sources", name=kind, kind=kind, **secret, revokes_partial_refunds=0, created_at=at)
    for external_id, slug in (source.mapped or {EXTERNAL[kind]: "app"}).items():
        of = {"source": kind, "external_id": external_id, "product_id": products[slug]}
        _insert(link, "sale_mappings", **of, slots=2, lifetime=0, expires_in=source.expires_in)
    for order, subscription in {sale.order: sale.subscription for sale in source.sales}.items():
        of = {"source": kind, "order_id": order, "subscription_id": subscription}
        refund, dispute = source.orders.get(order, (0, 0))
        _insert(link, "sale_orders", **of, refund=refund, dispute=dispute)
    numbers = Counter[tuple[str, str]]()
    for sale, id_ in zip(source.sales, ids, strict=True):
        position = {"source": kind, "order_id": sale.order, "item": sale.item}
        _insert(link, "sale_licenses", **position, number=numbers[sale.order, sale.item], license_id=id_)
        numbers[sale.order, sale.item] += 1
    for row in source.subscriptions:
        _insert(link, "sale_subscriptions", source=kind, **row)
    for number, delivery in enumerate(source.waiting):
        event = {"kind": "purchased", "occurred_at": delivery.at, "order_id": delivery.order}
        content = json.dumps([{**event, "items": delivery.items}])
        state = {"state": "dead", "reason": "not mapped", "received_at": at, "finished_at": at}
        about = {"source": kind, "delivery": f"earlier-{number}", "type": "order.updated (processing)"}
        _insert(link, "sale_events", **about, content=content, **state)


def _insert(link: sqlite3.Connection, table: str, **row: Any) -> None:
    names, places = ", ".join(row), ", ".join("?" * len(row))
    link.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", list(row.values()))  # noqa: S608 - our own names
