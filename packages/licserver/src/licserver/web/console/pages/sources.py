"""Sources of sales: shops, what is mapped, and what they have delivered. Owners change, support repeats."""

from typing import Final

from licserver.database.repositories.sales import STATES
from licserver.errors import InvalidInputError
from licserver.services.sources import missing_variables
from licserver.sources.kinds import SourceKind
from licserver.web.console.pages import Page, PageContext, Redirect, with_query

KINDS: Final = {
    SourceKind.STRIPE: "Stripe",
    SourceKind.PADDLE: "Paddle Billing",
    SourceKind.LEMONSQUEEZY: "Lemon Squeezy",
    SourceKind.WOOCOMMERCE: "WooCommerce",
    SourceKind.STANDARD: "Own shop (Standard Webhooks)",
}
STYLES: Final = {"waiting": "warn", "done": "good", "ignored": "", "dead": "bad"}
_SHOWN: Final = 50


def show_all(context: PageContext) -> Page:
    """Show all sources, and the form for a new one."""
    services = context.services.sources
    sources = [
        (one, missing_variables(one), len(services.list_events(one.name, "dead", limit=_SHOWN).items))
        for one in services.list_all()
    ]
    form = {name: context.from_form(name) for name in ("name", "kind", "secret_env", "test", "refund")}
    return Page("sources.html", {"sources": sources, "kinds": KINDS, "form": form})


def add(context: PageContext) -> Redirect:
    """Add a source with the usual tolerance and grace; the command line can choose others."""
    try:
        kind = SourceKind(context.from_form("kind"))
    except ValueError:
        raise InvalidInputError("choose the shop's system") from None
    source = context.services.sources.add(
        context.from_form("name"),
        kind,
        context.from_form("secret_env"),
        is_test=bool(context.from_form("test")),
        revokes_partial_refunds=bool(context.from_form("refund")),
    )
    return Redirect(f"/console/sources/{source.name}", "source-added")


def show(context: PageContext) -> Page:
    """Show a source, and what is mapped."""
    services, name = context.services.sources, context.parts["name"]
    source = services.get(name)
    fields = ("external_id", "product", "slots", "expires_in", "support", "lifetime", "plan")
    values = {
        "source": source,
        "kind": KINDS[source.kind],
        "missing": missing_variables(source),
        "mappings": services.list_mappings(name),
        "products": context.services.products.list_all(),
        "form": {field: context.from_form(field) for field in fields},
    }
    return Page("source.html", values)


def map_product(context: PageContext) -> Redirect:
    """Map a product of the shop."""
    slots = context.from_form("slots").lower()
    if slots != "unlimited" and not (slots.isascii() and slots.isdecimal() and len(slots) < 10):  # noqa: PLR2004 - fits 32 bits
        raise InvalidInputError("slots must be a whole number, or unlimited")
    name = context.parts["name"]
    context.services.sources.map(
        name,
        context.from_form("external_id"),
        context.from_form("product") or None,
        slots=None if slots == "unlimited" else int(slots),
        expires_in=context.from_form("expires_in") or None,
        support=context.from_form("support") or None,
        lifetime=bool(context.from_form("lifetime")),
        plan=context.from_form("plan") or None,
    )
    return Redirect(f"/console/sources/{name}", "source-mapped")


def unmap(context: PageContext) -> Redirect:
    """Remove a mapping."""
    name = context.parts["name"]
    context.services.sources.unmap(name, context.from_form("external_id"))
    return Redirect(f"/console/sources/{name}", "source-unmapped")


def show_events(context: PageContext) -> Page:
    """Show what a source has delivered, the latest first."""
    name, state = context.parts["name"], context.from_query("state")
    found = context.services.sources.list_events(
        name, state or None, context.from_query("after") or None, _SHOWN
    )
    path = f"/console/sources/{name}/events"
    values = {
        "name": name,
        "events": found.items,
        "state": state,
        "states": STATES,
        "styles": STYLES,
        "further": found.cursor and with_query(path, {"state": state, "after": found.cursor}),
    }
    return Page("source_events.html", values)


def replay(context: PageContext) -> Redirect:
    """Process a delivery again."""
    event_id = context.from_form("event")
    if not (event_id.isascii() and event_id.isdecimal() and len(event_id) < 19):  # noqa: PLR2004 - fits 64 bits
        raise InvalidInputError("there is no such delivery")
    context.services.sources.replay(int(event_id))
    return Redirect(f"/console/sources/{context.parts['name']}/events", "source-replayed")
