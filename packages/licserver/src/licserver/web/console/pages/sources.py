"""Sources of sales: shops, what is mapped, and what they have delivered. Owners change, support repeats."""

from typing import Final

from licserver.database.repositories.sales import STATES
from licserver.services.sources import describe_odd_secrets, missing_variables
from licserver.sources import SourceKind
from licserver.web.console.formatting import choose, parse_number, parse_seats
from licserver.web.console.pages import Actions, Page, PageContext, Redirect, act

KINDS: Final = {
    SourceKind.STRIPE: "Stripe",
    SourceKind.PADDLE: "Paddle Billing",
    SourceKind.LEMONSQUEEZY: "Lemon Squeezy",
    SourceKind.WOOCOMMERCE: "WooCommerce",
    SourceKind.STANDARD: "Own shop (Standard Webhooks)",
}
STYLES: Final = {"waiting": "warn", "done": "good", "ignored": "", "dead": "bad"}
_SHOWN: Final = 50
_MAX_DIGITS: Final = 18  # fits 64 bits


def show_all(context: PageContext) -> Page:
    """Show all sources, and the form for a new one."""
    services = context.services.sources
    sources = [
        (one, missing_variables(one), len(services.list_events(one.name, "dead", limit=_SHOWN).items))
        for one in services.list_all()
    ]
    form = context.typed("name", "kind", "secret_env", "test", "refund")
    return Page("sources.html", sources=sources, kinds=KINDS, form=form)


def add(context: PageContext) -> Redirect:
    """Add a source with the usual tolerance and grace; the command line can choose others."""
    source = context.services.sources.add(
        context.from_form("name"),
        choose(SourceKind, context.from_form("kind"), "choose the shop's system"),
        context.from_form("secret_env"),
        is_test=bool(context.from_form("test")),
        revokes_partial_refunds=bool(context.from_form("refund")),
    )
    return Redirect(f"/console/sources/{source.name}", "source-added")


def show(context: PageContext) -> Page:
    """Show a source, and what is mapped."""
    services, name = context.services.sources, context.parts["name"]
    source = services.get(name)
    fields = ("external_id", "product", "slots", "expires_in", "support", "lifetime", "plan", "seats")
    return Page(
        "source.html",
        source=source,
        kind=KINDS[source.kind],
        missing=missing_variables(source),
        odd=describe_odd_secrets(source),
        mappings=services.list_mappings(name),
        products=context.services.products.list_all(),
        form=context.typed(*fields),
    )


def _map_product(context: PageContext) -> None:
    slots, problem = context.from_form("slots").lower(), "slots must be a whole number, or unlimited"
    context.services.sources.map(
        context.parts["name"],
        context.from_form("external_id"),
        context.from_form("product") or None,
        slots=None if slots == "unlimited" else parse_number(slots, problem),
        expires_in=context.from_form("expires_in") or None,
        support=context.from_form("support") or None,
        lifetime=bool(context.from_form("lifetime")),
        plan=context.from_form("plan") or None,
        floating_seats=parse_seats(context.from_form("seats")),
    )


MAPPING_ACTIONS: Final[Actions] = {
    "map": act("source-mapped", _map_product),
    "unmap": act(
        "source-unmapped", lambda c: c.services.sources.unmap(c.parts["name"], c.from_form("external_id"))
    ),
}


def show_events(context: PageContext) -> Page:
    """Show what a source has delivered, the latest first."""
    name, state = context.parts["name"], context.from_query("state")
    found = context.services.sources.list_events(name, state or None, context.after, _SHOWN)
    return Page(
        "source_events.html",
        name=name,
        events=found.items,
        state=state,
        states=STATES,
        styles=STYLES,
        further=context.further(found.cursor, state=state),
    )


def _replay(context: PageContext) -> None:
    event_id = parse_number(context.from_form("event"), "there is no such delivery", _MAX_DIGITS)
    context.services.sources.replay(event_id)


EVENT_ACTIONS: Final[Actions] = {"replay": act("source-replayed", _replay)}
