"""Webhooks that are sent: endpoints, and deliveries with what was answered."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from licserver.errors import InvalidInputError
from licserver.protocol.webhooks import EventType
from licserver.web.console.formatting import parse_number, read_number
from licserver.web.console.pages import Page, PageContext, Reply, Show, act, ask, is_confirmed

_SHOWN: Final = 50
_MAX_DIGITS: Final = 15


def show(context: PageContext) -> Page:
    """Show endpoints, deliveries, and the form for a new endpoint."""
    return _page(context, None)


def _page(context: PageContext, secret: str | None) -> Page:
    endpoints, chosen = context.services.webhooks.list_endpoints(), context.from_query("endpoint") or None
    last = read_number(context.from_query("before"), _MAX_DIGITS)
    found = context.services.webhooks.list_deliveries(chosen, last, _SHOWN)
    values = {
        "endpoints": endpoints,
        "addresses": {one.id: one.url for one in endpoints},
        "deliveries": found,
        "chosen": chosen,
        "more": found[-1].id if len(found) == _SHOWN else None,
        "types": list(EventType),
        "secret": secret,
        "form": context.typed("url"),
    }
    return Page("webhooks.html", values)


def _add(context: PageContext) -> Page:
    """Add an endpoint; the page shows its secret this once."""
    wanted = [one for one in EventType if context.form.get(one)]
    _, secret = context.services.webhooks.add(context.from_form("url"), wanted)
    return _page(context._replace(form={}), secret)


def _rotate(context: PageContext) -> Page:
    return _page(context, context.services.webhooks.rotate(context.from_form("endpoint")))


def _remove(context: PageContext) -> Reply:
    endpoint = context.services.webhooks.get(context.from_form("endpoint"))
    if not is_confirmed(context):
        effects = ["Nothing more is sent to it.", "The list of its deliveries is deleted."]
        return ask(context, f"Remove {endpoint.url}?", effects, "Remove")
    context.services.webhooks.remove(endpoint.id)
    return context.back("webhook-removed")


def _redeliver(context: PageContext) -> None:
    if since := context.from_form("since"):
        try:
            parsed = datetime.fromisoformat(since)
        except ValueError:
            raise InvalidInputError("choose a day and a time") from None
        context.services.webhooks.redeliver_since(parsed.replace(tzinfo=parsed.tzinfo or UTC))
        return
    problem = "choose a delivery, or a day and a time"
    context.services.webhooks.redeliver(parse_number(context.from_form("delivery"), problem, _MAX_DIGITS))


ACTIONS: Final[Mapping[str, Show]] = {
    "add": _add,
    "rotate": _rotate,
    "disable": act("webhook-disabled", lambda c: c.services.webhooks.disable(c.from_form("endpoint"))),
    "enable": act("webhook-enabled", lambda c: c.services.webhooks.enable(c.from_form("endpoint"))),
    "remove": _remove,
    "test": act("webhook-tested", lambda c: c.services.webhooks.send_test(c.from_form("endpoint"))),
    "redeliver": act("webhook-repeated", _redeliver),
}
