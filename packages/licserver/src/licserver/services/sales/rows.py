"""Rows of the database about sales, as the facts and licenses of `shops`, and the other way round."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import date
from typing import Any, Final

from licserver.database.repositories.sales import (
    EarlierOrder,
    FactRow,
    SoldLicense,
    StoredEvent,
    SubscriptionRow,
)
from licserver.domain.records import IssuedLicense, LicenseTerms
from licserver.shops import earlier
from licserver.shops.changes import TERMS, Applied
from licserver.shops.contract import DesiredLicense, Issued, Rules, Terms
from licserver.shops.facts import (
    Contact,
    Dispute,
    Fact,
    Refund,
    dump_fact,
    key_of,
    links_of,
    load_fact,
)
from licserver.shops.units import EARLIER

_DATES: Final = {"expires_on", "support_until"}
_STORED_NAMES: Final = {"desired_reason": "revoked", "revoked_reason": "reason"}
"""Fields of `Applied` that are stored under another name."""
_EARLIER_FIELDS: Final = (
    "paid_through",
    "end_reported_at",
    "ended_at",
    "purchased_at",
    "change_reported_at",
    "cancels_at",
    "period",
)


def load_content(event: StoredEvent) -> list[Fact]:
    """Return the facts of a delivery."""
    content = json.loads(event.content or "[]")
    if isinstance(content, list):  # of before facts were stored
        return earlier.read_events(event.content or "[]")
    emails = content.get("emails", {})
    return [load_fact(fact, emails.get(str(place))) for place, fact in enumerate(content["facts"])]


def load_objects(event: StoredEvent) -> list[str]:
    """Return the objects of a delivery whose contract is to be looked at again, as `kind:id`."""
    content = json.loads(event.content or "{}")
    return content.get("objects", []) if isinstance(content, dict) else []


def load_note(event: StoredEvent) -> str:
    """Return what of a delivery was not read, in a sentence; empty if all was."""
    content = json.loads(event.content or "{}")
    return str(content.get("note", "")) if isinstance(content, dict) else ""


def dump_content(facts: Sequence[Fact], objects: Sequence[str] = (), note: str = "") -> str:
    """Return the facts of a delivery, or objects whose contract is to be looked at, as they are stored."""
    emails = {
        str(place): fact.email
        for place, fact in enumerate(facts)
        if isinstance(fact, Contact) and fact.email is not None
    }
    content = {"facts": [*map(dump_fact, facts)], **({"emails": emails} if emails else {})}
    content |= {"objects": objects} if objects else {}
    content |= {"note": note} if note else {}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def make_fact_row(fact: Fact) -> FactRow:
    """Return a fact as it is stored; the address of a customer has a column of its own."""
    email = fact.email if isinstance(fact, Contact) else None
    return FactRow(*key_of(fact), fact.reported_at, dump_fact(fact), email)


def load_fact_row(row: FactRow) -> Fact:
    """Return a stored fact."""
    return load_fact(row.content, row.customer_email)


def split_objects(objects: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the ids of orders and of subscriptions among objects."""
    ids: dict[str, set[str]] = {"order": set(), "subscription": set()}
    for object_ in objects:
        kind, _, id_ = object_.partition(":")
        ids[kind].add(id_)
    return ids["order"], ids["subscription"]


def join_objects(orders: Iterable[str], subscriptions: Iterable[str]) -> set[str]:
    """Return orders and subscriptions as `kind:id`."""
    return {*(f"order:{id_}" for id_ in orders), *(f"subscription:{id_}" for id_ in subscriptions)}


def find_earlier(
    facts: Sequence[Fact], orders: Iterable[EarlierOrder], subscriptions: Iterable[SubscriptionRow]
) -> list[Fact]:
    """Return what was known before facts were stored, but for what the shop has reported since."""
    earlier_facts = [fact for order in orders for fact in earlier.read_order(*order)]
    for row in subscriptions:
        values = row._asdict()
        id_ = values.pop("subscription_id")
        earlier_facts += earlier.read_subscription(id_, **{name: values[name] for name in _EARLIER_FIELDS})
    keys = {key_of(fact) for fact in facts}
    reported = {
        (type(fact), link) for fact in facts if isinstance(fact, Refund | Dispute) for link in links_of(fact)
    }
    return [
        fact
        for fact in earlier_facts
        if key_of(fact) not in keys and not any((type(fact), link) in reported for link in links_of(fact))
    ]


def find_earlier_revocation(order: EarlierOrder, rules: Rules) -> str | None:
    """Return why the licenses of an order were to be revoked before facts were stored."""
    return earlier.find_revocation(order.refund, order.dispute, is_any=rules.revokes_partial_refunds)


def read_issued(sold: SoldLicense | None, license_: IssuedLicense, applied: Applied | None) -> Issued:
    """Return a license that a source has issued, or a person for its subscription."""
    subscription_id, in_use = license_.subscription_id, license_.slots_used
    revoked_reason = None if license_.revoked_at is None else license_.revoked_reason
    if sold is None:
        by_hand = Issued(license_.id, license_.product_slug, subscription_id=subscription_id)
        return by_hand._replace(in_use=in_use, revoked_reason=revoked_reason)
    item = None if applied is None else applied.item
    return Issued(
        license_.id,
        license_.product_slug,
        key=sold.thing,
        number=sold.number if sold.place is None else sold.place,
        item=item or (sold.item if sold.thing is None else None),
        order_id=sold.order_id or None,
        line_id=sold.line_id,
        subscription_id=subscription_id,
        in_use=in_use,
        revoked_reason=revoked_reason,
    )


def find_object(desired: DesiredLicense) -> str:
    """Return the object of the shop that a license belongs to."""
    return (
        f"subscription:{desired.subscription_id}" if desired.order_id is None else f"order:{desired.order_id}"
    )


def find_stored(desired: DesiredLicense, sold: SoldLicense) -> dict[str, Any]:
    """Return what has to be stored of what a license was sold for."""
    values = dict[str, Any]()
    if desired.key and not (desired.key.startswith(EARLIER) or earlier.has_earlier_line(desired.key)):
        object_ = sold.object or find_object(desired)
        values = {"thing": desired.key, "place": desired.number, "object": object_}
    return {name: value for name, value in values.items() if value != getattr(sold, name)}


def make_sold_row(license_: IssuedLicense, desired: DesiredLicense) -> dict[str, Any]:
    """Return what is stored of a license that was issued."""
    is_known = not earlier.has_earlier_line(desired.key or "")
    return {
        "order_id": desired.order_id or "",
        "item": desired.key if is_known else desired.item,
        "number": desired.number if is_known else None,  # after those of before
        "thing": desired.key if is_known else None,
        "place": desired.number if is_known else None,
        "object": find_object(desired) if is_known else None,
        "license_id": license_.id,
        "applied": dump_applied(Applied(item=desired.item, terms=read_terms(license_))),
    }


def read_terms(terms: LicenseTerms | Terms) -> dict[str, Any]:
    """Return the terms that a mapping decides, by name."""
    return {name: getattr(terms, name) for name in TERMS}


def dump_applied(applied: Applied) -> str:
    """Return what a source has set last, as JSON."""
    values = {
        _STORED_NAMES.get(field.name, field.name): value
        for field in fields(applied)
        if (value := getattr(applied, field.name))
    }
    return json.dumps(values, default=date.isoformat, sort_keys=True)


def load_applied(stored: str) -> Applied:
    """Return what a source has set last."""
    values = json.loads(stored)
    for terms in (values.get("terms", {}), values.get("kept", {})):
        for name in _DATES & terms.keys():
            terms[name] = None if terms[name] is None else date.fromisoformat(terms[name])
    for name, stored_name in _STORED_NAMES.items():
        if stored_name in values:
            values[name] = values.pop(stored_name)
    return Applied(**values)
