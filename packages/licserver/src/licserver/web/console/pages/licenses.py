"""Licenses: found, shown, issued; what can be done to one is in `changes`."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from licserver.database.repositories.licenses import IssuedLicense
from licserver.domain.decisions import has_key_shape
from licserver.domain.records import LicenseState, LicenseTerms
from licserver.errors import WrongUse
from licserver.security.redaction import holds_key
from licserver.services import MAX_PAGE, AuditFilter, LicenseFilter
from licserver.services import Page as Some
from licserver.web.console.forms import is_touched, read_day, read_slots
from licserver.web.console.page_context import Csv, Page, PageContext, Redirect, in_pages
from licserver.web.console.pages.audit import draw_entry
from licserver.web.console.status_labels import describe, describe_updates

_SHOWN: Final = 50
SEARCHED: Final = ("q", "product", "state", "from", "until")
"""Fields of the search."""

_STATES: Final = [(state.value, state.value) for state in LicenseState]

CELLS: Final = (
    *("id", "product", "product name", "state", "customer e-mail", "note", "issued at", "last day"),
    *("lifetime", "slots", "slots used", "subscription", "support until", "revoked at", "revoked because"),
)


def search(visit: PageContext) -> Page:
    """Show the licenses that are searched for, or all, the latest first."""
    asked = _asked(visit)
    found = visit.services.licenses.search(_filter(visit), visit.asked("after") or None, _SHOWN)
    further = (
        None if found.cursor is None else _address("/console/licenses", {**asked, "after": found.cursor})
    )
    return Page(
        "licenses.html",
        {
            "licenses": [draw_row(one, visit) for one in found.items],
            "search": {name: visit.asked(name) for name in SEARCHED},
            "searched": bool(asked),
            "products": visit.services.products.list_all(),
            "states": _STATES,
            "further": further,
            "export": _address("/console/licenses.csv", asked),
        },
    )


def find(visit: PageContext) -> Redirect:
    """Lead to the license of a whole key, and with everything else to the list (D-94).

    Raises:
        Unknown: when there is no such license.
        WrongUse: for a piece of a key, which would stand in the address.
    """
    typed = {name: value for name in SEARCHED if (value := visit.given(name))}
    key = typed.get("q", "").upper()
    if has_key_shape(key):
        return Redirect(f"/console/licenses/{visit.services.licenses.get(key).id.hex()}")
    if any(map(holds_key, typed.values())):
        raise WrongUse("search for a license key alone, and for the whole of it")
    return Redirect(_address("/console/licenses", typed))


def export(visit: PageContext) -> Csv:
    """Give what is searched for as a file: without the keys, which are `licserver export`'s to give."""
    which = _filter(visit)

    def read(cursor: str | None) -> Some[IssuedLicense]:
        return visit.services.licenses.search(which, cursor, MAX_PAGE)

    return Csv("licenses", CELLS, ([write_cells(one, visit) for one in some] for some in in_pages(read)))


def show(visit: PageContext) -> Page:
    """Show a license."""
    return draw(visit)


def draw(visit: PageContext, key: str | None = None) -> Page:
    """Draw a license's page, perhaps with its key."""
    services, reference = visit.services, visit.parts["id"]
    license_ = services.licenses.get(reference)
    held = services.licenses.list_activations(reference, visit.asked("after") or None, _SHOWN)
    here = f"/console/licenses/{license_.id.hex()}"
    about = AuditFilter(object=("license", license_.id.hex()))
    terms = _held_terms(license_)
    return Page(
        "license.html",
        {
            "license": {**draw_row(license_, visit), **_terms(license_, visit)},
            "activations": held.items,
            "further": None if held.cursor is None else _address(here, {"after": held.cursor}),
            "history": [draw_entry(entry) for entry in services.audit.list_page(about, limit=20).items],
            "key": key,
            "was": terms,
            "form": {
                name: visit.form[name] if is_touched(visit.form, name) else value
                for name, value in terms.items()
            },
            "open": "change" if visit.problem and "slots" in visit.form else "",
            "here": here,
        },
    )


def export_activations(visit: PageContext) -> Csv:
    """Give a license's activations as a file."""
    reference = visit.parts["id"]
    pages = in_pages(lambda cursor: visit.services.licenses.list_activations(reference, cursor, MAX_PAGE))
    rows = ([(*one.environment, one.activated_at, one.last_seen_at) for one in some] for some in pages)
    return Csv("activations", ("domain", "ip", "first seen", "last seen"), rows)


def ask_terms(visit: PageContext) -> Page:
    """Show the form for a new license."""
    form = {name: visit.form.get(name, "") for name in ("product", "slots", "expires", "email", "note")}
    form = {**form, "slots": form["slots"] or "1", "product": form["product"] or visit.asked("product")}
    return Page("issue.html", {"products": visit.services.products.list_all(), "form": form})


def issue(visit: PageContext) -> Redirect:
    """Issue a license."""
    terms = LicenseTerms(
        slots=read_slots(visit.given("slots") or "1"),
        expires_on=read_day(visit.given("expires")),
        customer_email=visit.given("email"),
        note=visit.given("note"),
    )
    issued, _ = visit.services.licenses.issue(visit.given("product"), terms)
    return Redirect(f"/console/licenses/{issued.id.hex()}", "issued")


def draw_row(license_: IssuedLicense, visit: PageContext) -> dict[str, Any]:
    """What lists show of a license."""
    return {
        "id": license_.id.hex(),
        "short": license_.id.hex()[:8],
        "product_name": license_.product_name,
        "email": license_.customer_email,
        "note": license_.note,
        "state": describe(license_, visit.now),
        "slots": license_.slots,
        "slots_used": license_.slots_used,
        "issued_at": license_.issued_at,
    }


def _terms(license_: IssuedLicense, visit: PageContext) -> dict[str, Any]:
    product = visit.services.products.get(license_.product_slug)
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
        "updates": describe_updates(license_, product, visit.now),
    }


def _held_terms(license_: IssuedLicense) -> dict[str, str]:
    """What is agreed, as the fields of the form hold it."""
    return {
        "slots": "unlimited" if license_.slots is None else str(license_.slots),
        "expires": "" if license_.expires_on is None else license_.expires_on.isoformat(),
        "support": "" if license_.support_until is None else license_.support_until.isoformat(),
        "email": license_.customer_email or "",
        "note": license_.note or "",
    }


def write_cells(license_: IssuedLicense, visit: PageContext) -> tuple[Any, ...]:
    """What files hold of a license, in the order of `CELLS`."""
    return (
        license_.id.hex(),
        license_.product_slug,
        license_.product_name,
        describe(license_, visit.now).label,
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


def _filter(visit: PageContext) -> LicenseFilter:
    state = visit.asked("state")
    return LicenseFilter(
        query=visit.asked("q") or None,
        product=visit.asked("product") or None,
        state=LicenseState(state) if state in set(LicenseState) else None,
        expires_from=read_day(visit.asked("from")),
        expires_until=read_day(visit.asked("until")),
    )


def _asked(visit: PageContext) -> dict[str, str]:
    """What of the address narrows the search."""
    return {name: value for name in SEARCHED if (value := visit.asked(name))}


def _address(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
