"""Sources of sales: shops, mappings and deliveries. Owners change sources, support repeats deliveries."""

from typing import Any, Final

from licserver.database.repositories.sales import ASK, FOLLOW
from licserver.errors import InvalidInputError
from licserver.services.sales.deliveries import find_key
from licserver.services.sources import FILTERS, describe_odd_secrets, missing_variables
from licserver.shops import ROWS, ShopKind
from licserver.web.console.formatting import choose, parse_number, parse_seats
from licserver.web.console.pages import Actions, HtmlPage, PageContext, Redirect, act, list_plans

KINDS: Final = {kind: row.name for kind, row in ROWS.items()}
_NOTHING: Final = "-"  # of a product's select; no product has this slug
STYLES: Final = {"waiting": "warn", "done": "good", "ignored": "", "dead": "bad"}
_SHOWN: Final = 50
_MAX_DIGITS: Final = 18  # fits 64 bits


def show_all(context: PageContext) -> HtmlPage:
    """Show all sources, and the form for a new source."""
    services = context.services.sources
    sources = [
        (
            source,
            missing_variables(source),
            len(services.list_events(source.name, "dead", limit=_SHOWN).items),
        )
        for source in services.list_all()
    ]
    form = context.typed("name", "kind", "secret_env", "test", "refund", "ask")
    problems = context.services.sale_problems.count_open(_SHOWN)
    return HtmlPage("sources.html", sources=sources, kinds=KINDS, form=form, problems=problems)


def add(context: PageContext) -> Redirect:
    """Add a source with the usual tolerance and grace; the command line can choose others."""
    source = context.services.sources.add(
        context.from_form("name"),
        choose(ShopKind, context.from_form("kind"), "choose the shop's system"),
        context.from_form("secret_env"),
        is_test=bool(context.from_form("test")),
        revokes_partial_refunds=bool(context.from_form("refund")),
        changes=ASK if context.from_form("ask") else FOLLOW,
    )
    return Redirect(f"/console/sources/{source.name}", "source-added")


def show(context: PageContext) -> HtmlPage:
    """Show a source and its mappings."""
    services, name = context.services.sources, context.parts["name"]
    source = services.get(name)
    fields = (
        "external_id",
        "product",
        "slots",
        "expires_in",
        "support",
        "lifetime",
        "plan",
        "seats",
        "quantity",
    )
    return HtmlPage(
        "source.html",
        source=source,
        kind=KINDS[source.kind],
        missing=missing_variables(source),
        odd=describe_odd_secrets(source),
        has_key=bool(find_key(source, context.services.settings)),
        mappings=services.list_mappings(name),
        products=(products := context.services.products.list_all()),
        without_support={product.slug for product in products if not product.has_support_policy},
        plans=list_plans(context.services, products),
        form=context.typed(*fields),
    )


def _parse_quantity(text: str) -> int | None:
    return parse_number(text, "the quantity must be a whole number, or empty") if text else None


def parse_mapping(context: PageContext) -> dict[str, Any]:
    """Parse the terms of a mapping, by the names of `SourceService.map`."""
    slots, problem = context.from_form("slots").lower(), "slots must be a whole number, or unlimited"
    return {
        "slots": None if slots == "unlimited" else parse_number(slots, problem),
        "expires_in": context.from_form("expires_in") or None,
        "support": context.from_form("support") or None,
        "lifetime": bool(context.from_form("lifetime")),
        "plan": context.from_form("plan") or None,
        "floating_seats": parse_seats(context.from_form("seats")),
        "quantity": _parse_quantity(context.from_form("quantity")),
    }


def parse_mapped_product(context: PageContext) -> str | None:
    """Parse the product of a mapping; return None if nothing is to be issued."""
    slug = context.from_form("product")
    if not slug:
        raise InvalidInputError("choose a product, or that nothing is issued")
    return None if slug == _NOTHING else slug


def _map_product(context: PageContext) -> None:
    external_id, slug = context.from_form("external_id"), parse_mapped_product(context)
    context.services.sources.map(context.parts["name"], external_id, slug, **parse_mapping(context))


MAPPING_ACTIONS: Final[Actions] = {
    "map": act("source-mapped", _map_product),
    "unmap": act(
        "source-unmapped", lambda c: c.services.sources.unmap(c.parts["name"], c.from_form("external_id"))
    ),
}


def show_events(context: PageContext) -> HtmlPage:
    """Show the deliveries of a source, the latest first."""
    name, state = context.parts["name"], context.from_query("state")
    page = context.services.sources.list_events(name, state or None, context.after, _SHOWN)
    return HtmlPage(
        "source_events.html",
        name=name,
        events=page.items,
        state=state,
        states=FILTERS,
        styles=STYLES,
        further=context.further(page.cursor, state=state),
    )


def _replay(context: PageContext) -> None:
    event_id = parse_number(context.from_form("event"), "there is no such delivery", _MAX_DIGITS)
    context.services.sources.replay(event_id)


EVENT_ACTIONS: Final[Actions] = {"replay": act("source-replayed", _replay)}
