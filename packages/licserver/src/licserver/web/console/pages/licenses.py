"""Licenses: search, one license, and issuing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode

from licserver.domain.decisions import is_license_key
from licserver.domain.records import Environment, IssuedLicense, LicenseState
from licserver.errors import InvalidInputError
from licserver.security.redaction import contains_key
from licserver.services import MAX_PAGE, AuditFilter, LicenseFilter
from licserver.services import Page as Some
from licserver.web.console.forms import is_touched, parse_day
from licserver.web.console.license_fields import (
    CSV_HEADER,
    FIELDS,
    csv_row,
    format_terms,
    parse_changes,
    parse_terms,
)
from licserver.web.console.messages import describe, describe_updates
from licserver.web.console.page_context import Csv, Page, PageContext, Redirect, Reply, in_pages
from licserver.web.console.pages.audit import describe_entry

_SHOWN: Final = 50
SEARCHED: Final = ("q", "product", "state", "from", "until")
"""Names of the search's fields."""

_STATES: Final = [(state.value, state.value) for state in LicenseState]


def search(context: PageContext) -> Page:
    """Show the licenses that match the search, the latest first."""
    fields = _search_fields(context)
    found = context.services.licenses.search(_filter(context), context.from_query("after") or None, _SHOWN)
    further = (
        None if found.cursor is None else _address("/console/licenses", {**fields, "after": found.cursor})
    )
    return Page(
        "licenses.html",
        {
            "licenses": [summarize(one, context) for one in found.items],
            "search": {name: context.from_query(name) for name in SEARCHED},
            "searched": bool(fields),
            "products": context.services.products.list_all(),
            "states": _STATES,
            "further": further,
            "export": _address("/console/licenses.csv", fields),
        },
    )


def find(context: PageContext) -> Redirect:
    """Redirect to the license of a whole key, or to the list of all that match (D-94).

    Raises:
        NotFoundError: when there is no such license.
        InvalidInputError: for a part of a key, which would be in the address.
    """
    typed = {name: value for name in SEARCHED if (value := context.from_form(name))}
    key = typed.get("q", "").upper()
    if is_license_key(key):
        return Redirect(f"/console/licenses/{context.services.licenses.get(key).id.hex()}")
    if any(map(contains_key, typed.values())):
        raise InvalidInputError("to find a license key, search for the whole key and nothing else")
    return Redirect(_address("/console/licenses", typed))


def export(context: PageContext) -> Csv:
    """Export what matches the search, without keys: `licserver export` has them."""
    which = _filter(context)

    def read(cursor: str | None) -> Some[IssuedLicense]:
        return context.services.licenses.search(which, cursor, MAX_PAGE)

    return licenses_csv("licenses", context, in_pages(read))


def show(context: PageContext) -> Page:
    """Show a license."""
    return license_page(context)


def license_page(context: PageContext, key: str | None = None) -> Page:
    """Return a license's page, perhaps with its key."""
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
            "product": product,
            "state": describe(license_, context.now),
            "updates": describe_updates(license_, product, context.now),
            "activations": held.items,
            "further": None if held.cursor is None else _address(here, {"after": held.cursor}),
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


def summarize(license_: IssuedLicense, context: PageContext) -> dict[str, Any]:
    """Return what lists show of a license."""
    return {
        "id": license_.id.hex(),
        "short": license_.id.hex()[:8],
        "product_name": license_.product_name,
        "email": license_.customer_email,
        "note": license_.note,
        "state": describe(license_, context.now),
        "slots": license_.slots,
        "slots_used": license_.slots_used,
        "issued_at": license_.issued_at,
    }


def licenses_csv(name: str, context: PageContext, pages: Iterator[Sequence[IssuedLicense]]) -> Csv:
    """Return licenses as a CSV file."""
    return Csv(name, CSV_HEADER, ([csv_row(one, context.now) for one in some] for some in pages))


def _filter(context: PageContext) -> LicenseFilter:
    state = context.from_query("state")
    return LicenseFilter(
        query=context.from_query("q") or None,
        product=context.from_query("product") or None,
        state=LicenseState(state) if state in set(LicenseState) else None,
        expires_from=parse_day(context.from_query("from")),
        expires_until=parse_day(context.from_query("until")),
    )


def _search_fields(context: PageContext) -> dict[str, str]:
    """Return the fields of the search that are not empty."""
    return {name: value for name in SEARCHED if (value := context.from_query(name))}


def _address(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


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
    """Change the terms that the form sends and that were edited in it.

    Raises:
        ConflictError: when another user has changed one of them in the meantime.
    """
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
    return license_page(context, key=context.services.licenses.reveal(context.parts["id"]))


ACTIONS: Final[Mapping[str, Callable[[PageContext], Reply]]] = MappingProxyType(
    {
        "free": free,
        "revoke": revoke,
        "reinstate": reinstate,
        "change": change,
        "allow": allow,
        "disallow": disallow,
        "reveal": reveal,
    }
)
