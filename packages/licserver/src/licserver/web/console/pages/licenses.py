"""Licenses: search, one license, and issuing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from licserver.domain.key_parts import find_reference, parse_key_part
from licserver.domain.records import Environment, IssuedLicense, LicenseState
from licserver.errors import InvalidInputError
from licserver.security.redaction import contains_key
from licserver.services import MAX_PAGE, AuditFilter, LicenseFilter
from licserver.web.console.formatting import (
    FIELDS,
    describe,
    describe_updates,
    format_terms,
    is_touched,
    license_name,
    parse_changes,
    parse_day,
    parse_terms,
)
from licserver.web.console.pages import Csv, Page, PageContext, Redirect, Reply, in_pages, with_query
from licserver.web.console.pages.audit import describe_entry

_SHOWN: Final = 50
_SEARCHED: Final = ("q", "product", "state", "from", "until")
"""Names of the search's fields."""

_COLUMNS: Final[Mapping[str, Callable[[IssuedLicense, datetime], Any]]] = {
    "id": lambda one, _: one.id.hex(),
    "license key": lambda one, _: license_name(one),
    "product": lambda one, _: one.product_slug,
    "product name": lambda one, _: one.product_name,
    "state": lambda one, now: describe(one, now).label,
    "customer e-mail": lambda one, _: one.customer_email,
    "note": lambda one, _: one.note,
    "issued at": lambda one, _: one.issued_at,
    "last day": lambda one, _: one.expires_on,
    "lifetime": lambda one, _: one.lifetime,
    "slots": lambda one, _: "unlimited" if one.slots is None else one.slots,
    "slots used": lambda one, _: one.slots_used,
    "subscription": lambda one, _: one.subscription_id,
    "support until": lambda one, _: one.support_until,
    "revoked at": lambda one, _: one.revoked_at,
    "revoked reason": lambda one, _: one.revoked_reason,
}
"""Of the CSV file."""


def search(context: PageContext) -> Page:
    """Show the licenses that match the search, the latest first."""
    fields = {name: context.from_query(name) for name in _SEARCHED}
    found = context.services.licenses.search(_filter(context), context.from_query("after") or None, _SHOWN)
    return Page(
        "licenses.html",
        {
            "licenses": found.items,
            "search": fields,
            "searched": any(fields.values()),
            "products": context.services.products.list_all(),
            "states": [state.value for state in LicenseState],
            "further": found.cursor and with_query("/console/licenses", {**fields, "after": found.cursor}),
            "export": with_query("/console/licenses.csv", fields),
        },
    )


def find(context: PageContext) -> Redirect:
    """Redirect to the license of a pasted key or link, or to the list of all that match.

    Of what was typed of a key, no more than a masked key shows is put into an address.
    """
    typed = {name: context.from_form(name) for name in _SEARCHED}
    if (found := context.services.licenses.find_pasted(typed["q"])) is not None:
        return Redirect(f"/console/licenses/{found.id.hex()}")
    part = parse_key_part(find_reference(typed["q"]) or typed["q"])
    similar = [] if part is None else context.services.licenses.find_similar(part)
    if len(similar) == 1:
        return Redirect(f"/console/licenses/{similar[0].id.hex()}", "similar")
    if part is not None and similar:
        return Redirect(with_query("/console/licenses", {**typed, "q": part.masked}), "similar")
    if any(map(contains_key, typed.values())):
        raise InvalidInputError("no license has this key, nor one that looks like it")
    return Redirect(with_query("/console/licenses", typed))


def export(context: PageContext) -> Csv:
    """Export what matches the search, without keys: `licserver export` has them."""
    which = _filter(context)
    pages = in_pages(lambda cursor: context.services.licenses.search(which, cursor, MAX_PAGE))
    return licenses_csv("licenses", context, pages)


def licenses_csv(name: str, context: PageContext, pages: Iterator[Sequence[IssuedLicense]]) -> Csv:
    """Return licenses as a CSV file."""
    rows = ([tuple(get(one, context.now) for get in _COLUMNS.values()) for one in some] for some in pages)
    return Csv(name, tuple(_COLUMNS), rows)


def _filter(context: PageContext) -> LicenseFilter:
    state = context.from_query("state")
    return LicenseFilter(
        query=context.from_query("q") or None,
        product=context.from_query("product") or None,
        state=LicenseState(state) if state in set(LicenseState) else None,
        expires_from=parse_day(context.from_query("from")),
        expires_until=parse_day(context.from_query("until")),
    )


def show(context: PageContext) -> Page:
    """Show a license."""
    return _license_page(context)


def _license_page(context: PageContext, key: str | None = None) -> Page:
    services, reference = context.services, context.parts["id"]
    license_ = services.licenses.get(reference)
    held = services.licenses.list_activations(reference, context.from_query("after") or None, _SHOWN)
    here = f"/console/licenses/{license_.id.hex()}"
    about = AuditFilter(object=("license", license_.id.hex()))
    product = services.products.get(license_.product_slug)
    shown = format_terms(license_)
    typed = {name: context.form[name] for name in shown if is_touched(context.form, name)}
    return Page(
        "license.html",
        {
            "license": license_,
            "id": license_.id.hex(),
            "name": license_name(license_),
            "product": product,
            "state": describe(license_, context.now),
            "updates": describe_updates(license_, product, context.now),
            "activations": held.items,
            "further": held.cursor and with_query(here, {"after": held.cursor}),
            "history": [describe_entry(entry) for entry in services.audit.list_page(about, limit=20).items],
            "key": key,
            "fields": FIELDS,
            "was": shown,
            "form": {**shown, **typed},
            "open": "change" if context.problem and "slots" in context.form else "",
            "here": here,
        },
    )


def export_activations(context: PageContext) -> Csv:
    """Export a license's activations."""
    reference = context.parts["id"]
    pages = in_pages(lambda cursor: context.services.licenses.list_activations(reference, cursor, MAX_PAGE))
    rows = ([(*one.environment, one.activated_at, one.last_seen_at) for one in some] for some in pages)
    return Csv("activations", ("domain", "ip", "first seen", "last seen"), rows)


def new(context: PageContext) -> Page:
    """Show the form for a new license."""
    fields = [field for field in FIELDS if field.in_issue]
    form = {field.name: context.form.get(field.name, "") for field in fields}
    values = {
        "products": context.services.products.list_all(),
        "chosen": context.form.get("product", "") or context.from_query("product"),
        "fields": fields,
        "form": {**form, "slots": form["slots"] or "1"},
    }
    return Page("issue.html", values)


def issue(context: PageContext) -> Redirect:
    """Issue a license."""
    terms = parse_terms(context.form)
    issued, _ = context.services.licenses.issue(context.from_form("product"), terms)
    return Redirect(f"/console/licenses/{issued.id.hex()}", "issued")


# --- actions on a license ---------------------------------------------------------------------


def _back(context: PageContext, done: str) -> Redirect:
    return Redirect(f"/console/licenses/{context.parts['id']}", done)


def free(context: PageContext) -> Redirect:
    """Free one slot."""
    context.services.licenses.free_slot(
        context.parts["id"], Environment(context.from_form("domain"), context.from_form("ip"))
    )
    return _back(context, "freed")


def revoke(context: PageContext) -> Redirect:
    """Revoke the license."""
    context.services.licenses.revoke(context.parts["id"], context.from_form("reason") or None)
    return _back(context, "revoked")


def reinstate(context: PageContext) -> Redirect:
    """Reinstate the license."""
    context.services.licenses.reinstate(context.parts["id"])
    return _back(context, "reinstated")


def change(context: PageContext) -> Redirect:
    """Change the terms that the form sends and that were edited in it."""
    changes, was = parse_changes(context.form)
    context.services.licenses.change(context.parts["id"], was=was, **changes)
    return _back(context, "changed")


def allow(context: PageContext) -> Redirect:
    """Add an entry to the allow-list."""
    context.services.licenses.allow(context.parts["id"], context.from_form("entry"))
    return _back(context, "allowed")


def disallow(context: PageContext) -> Redirect:
    """Remove an entry from the allow-list."""
    context.services.licenses.disallow(context.parts["id"], context.from_form("entry"))
    return _back(context, "disallowed")


def reveal(context: PageContext) -> Page:
    """Show the key once: reloading the page does not show it again."""
    return _license_page(context, key=context.services.licenses.reveal(context.parts["id"]))


ACTIONS: Final[Mapping[str, Callable[[PageContext], Reply]]] = {
    "free": free,
    "revoke": revoke,
    "reinstate": reinstate,
    "change": change,
    "allow": allow,
    "disallow": disallow,
    "reveal": reveal,
}
