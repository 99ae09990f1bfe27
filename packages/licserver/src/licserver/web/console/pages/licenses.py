"""Licenses: search, one license, and issuing."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode

from licserver.database.repositories.licenses import IssuedLicense
from licserver.domain.decisions import is_license_key
from licserver.domain.records import Environment, LicenseState, LicenseTerms
from licserver.errors import WrongUse
from licserver.security.redaction import contains_key
from licserver.services import MAX_PAGE, AuditFilter, LicenseFilter
from licserver.services import Page as Some
from licserver.web.console.forms import is_touched, parse_day, parse_slots
from licserver.web.console.messages import describe, describe_updates
from licserver.web.console.page_context import Csv, Page, PageContext, Redirect, Reply, in_pages
from licserver.web.console.pages.audit import describe_entry

_SHOWN: Final = 50
SEARCHED: Final = ("q", "product", "state", "from", "until")
"""Names of the search's fields."""

_STATES: Final = [(state.value, state.value) for state in LicenseState]

CELLS: Final = (
    *("id", "product", "product name", "state", "customer e-mail", "note", "issued at", "last day"),
    *("lifetime", "slots", "slots used", "subscription", "support until", "revoked at", "revoked reason"),
)


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
        Unknown: when there is no such license.
        WrongUse: for a part of a key, which would be in the address.
    """
    typed = {name: value for name in SEARCHED if (value := context.from_form(name))}
    key = typed.get("q", "").upper()
    if is_license_key(key):
        return Redirect(f"/console/licenses/{context.services.licenses.get(key).id.hex()}")
    if any(map(contains_key, typed.values())):
        raise WrongUse("to find a license key, search for the whole key and nothing else")
    return Redirect(_address("/console/licenses", typed))


def export(context: PageContext) -> Csv:
    """Export what matches the search, without keys: `licserver export` has them."""
    which = _filter(context)

    def read(cursor: str | None) -> Some[IssuedLicense]:
        return context.services.licenses.search(which, cursor, MAX_PAGE)

    return Csv("licenses", CELLS, ([csv_cells(one, context) for one in some] for some in in_pages(read)))


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
    terms = _form_values(license_)
    return Page(
        "license.html",
        {
            "license": {**summarize(license_, context), **_details(license_, context)},
            "activations": held.items,
            "further": None if held.cursor is None else _address(here, {"after": held.cursor}),
            "history": [describe_entry(entry) for entry in services.audit.list_page(about, limit=20).items],
            "key": key,
            "was": terms,
            "form": {
                name: context.form[name] if is_touched(context.form, name) else value
                for name, value in terms.items()
            },
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
    form = {name: context.form.get(name, "") for name in ("product", "slots", "expires", "email", "note")}
    form = {
        **form,
        "slots": form["slots"] or "1",
        "product": form["product"] or context.from_query("product"),
    }
    return Page("issue.html", {"products": context.services.products.list_all(), "form": form})


def issue(context: PageContext) -> Redirect:
    """Issue a license."""
    terms = LicenseTerms(
        slots=parse_slots(context.from_form("slots") or "1"),
        expires_on=parse_day(context.from_form("expires")),
        customer_email=context.from_form("email"),
        note=context.from_form("note"),
    )
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


def _details(license_: IssuedLicense, context: PageContext) -> dict[str, Any]:
    product = context.services.products.get(license_.product_slug)
    return {
        "product_slug": product.slug,
        "lifetime": license_.lifetime,
        "expires_on": license_.expires_on,
        "support_until": license_.support_until,
        "has_support_policy": product.has_support_policy,
        "subscription_id": license_.subscription_id,
        "subscription_ended_at": license_.subscription_ended_at,
        "revoked_at": license_.revoked_at,
        "allowed": license_.allowed,
        "updates": describe_updates(license_, product, context.now),
    }


def _form_values(license_: IssuedLicense) -> dict[str, str]:
    """Return the terms as the form's fields have them."""
    return {
        "slots": "unlimited" if license_.slots is None else str(license_.slots),
        "expires": "" if license_.expires_on is None else license_.expires_on.isoformat(),
        "support": "" if license_.support_until is None else license_.support_until.isoformat(),
        "email": license_.customer_email or "",
        "note": license_.note or "",
    }


def csv_cells(license_: IssuedLicense, context: PageContext) -> tuple[Any, ...]:
    """Return a license's cells of a CSV file, in the order of `CELLS`."""
    return (
        license_.id.hex(),
        license_.product_slug,
        license_.product_name,
        describe(license_, context.now).label,
        license_.customer_email,
        license_.note,
        license_.issued_at,
        license_.expires_on,
        license_.lifetime,
        "unlimited" if license_.slots is None else license_.slots,
        license_.slots_used,
        license_.subscription_id,
        license_.support_until,
        license_.revoked_at,
        license_.revoked_reason,
    )


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
        Conflict: when another user has changed one of them in the meantime.
    """
    touched = {name: term for name, term in _TERMS.items() if is_touched(context.form, name)}
    changes = {field: read(context.from_form(name)) for name, (field, read) in touched.items()}
    was = {
        field: read(context.from_form(f"was-{name}"))
        for name, (field, read) in touched.items()
        if f"was-{name}" in context.form
    }
    context.services.licenses.change(context.parts["id"], was=was, **changes)  # type: ignore[arg-type] # read by name
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


_TERMS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = MappingProxyType(
    {
        "slots": ("slots", parse_slots),
        "expires": ("expires_on", parse_day),
        "support": ("support_until", parse_day),
        "email": ("customer_email", str),
        "note": ("note", str),
    }
)
"""The form's fields: the license's field of each, and its parser."""

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
