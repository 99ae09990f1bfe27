"""All columns with text, in which the database may name a person; a test compares them with the schema."""

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator, TypeEngine

Row = Mapping[str, Any]
Key = tuple[Any, ...]

PERSON: Final[Mapping[str, str]] = {
    "licenses": "revoked_reason allowed subscription_id customer_email note customer_language",
    "license_words": "word",
    "activations": "domain ip label app_version",
    "refusals": "domain ip",
    "moves": "domain ip",
    "slot_moves": "domain ip",
    "move_records": "domain label to_domain to_label",
    "seats": "domain label",
    "use_ids": "use_id",
    "audit": "object_id details",
    "jobs": "key payload last_error owner",
    "webhook_endpoints": "disabled_reason",
    "webhook_events": "body",
    "webhook_deliveries": "answer",
    "receipts": "key",
    # What shops send, and what they name; any further text of theirs counts as well.
    "sale_events": "delivery type content object reason",
    "sale_facts": "id content customer_email",
    "sale_links": "object id",
    "sale_licenses": "order_id item line_id thing object applied",
    "sale_problems": "object name message external_ids",
    "sale_orders": "order_id subscription_id",
    "sale_subscriptions": "subscription_id",
}
"""Table → columns with text that may hold a customer: names, addresses, computers, and what others wrote."""

OTHERS: Final[Mapping[str, str]] = {
    "licenses": "masked_key product_name plan overrides channels",
    "refusals": "reason",
    "uses": "name period",
    "use_ids": "name",
    # The vendor's own people, whom this is not about.
    "audit": "actor_kind actor_name action object_kind",
    "users": "name password_hash role",
    "tokens": "name scope",
    "failed_logins": "action subject",
    "jobs": "queue state",
    "webhook_endpoints": "id url types",
    "webhook_events": "id type",
    "webhook_deliveries": "endpoint_id event_id",
    "facts": "name",
    "totals": "name product label",
    "products": "slug name environment_policy minimum_version after_support",
    "plans": "name entitlements",
    "manifests": "document",
    "releases": "version version_key changelog file_name platform kind channel rollout critical_below "
    "requires tested requires_php details_url file_signatures security",
    "sale_sources": "name kind secret_env changes states renewal_field key_env url",
    "sale_mappings": "source external_id expires_in support plan",
    "sale_events": "source state",
    "sale_facts": "source kind",
    "sale_links": "source kind",
    "sale_licenses": "source",
    "sale_problems": "source kind answers answer",
    "sale_orders": "source",
    "sale_subscriptions": "source period",
}
"""Table → columns with text of the vendor, and of a fixed choice."""

ADDRESS: Final = "customer_email"
"""A column that holds an address and nothing else."""

_SHOPS: Final = "sale_"


def is_text(column: sa.Column[Any]) -> bool:
    """Return whether a column has text, or JSON."""
    return isinstance(_plain_type(column.type), sa.String)


def person_columns(table: sa.Table) -> list[sa.Column[Any]]:
    """Return the columns of a table that may hold a person."""
    named, others = PERSON.get(table.name, "").split(), OTHERS.get(table.name, "").split()
    is_shops = table.name.startswith(_SHOPS)  # a column that is added there counts at once
    return [
        column
        for column in table.columns
        if column.name in named or (is_shops and is_text(column) and column.name not in others)
    ]


def key_of(table: sa.Table, row: Row) -> Key:
    """Return the primary key of a row."""
    return tuple(row[column.key] for column in table.primary_key)


def _plain_type(type_: TypeEngine[Any]) -> TypeEngine[Any]:
    return type_.impl_instance if isinstance(type_, TypeDecorator) else type_
