"""Webhooks that are sent: endpoints, and deliveries with what was answered."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from licserver.errors import InvalidInputError
from licserver.protocol.webhooks import EventType
from licserver.web.console.pages import Page, PageContext, Redirect, Reply, ask, is_confirmed

HOME: Final = "/console/webhooks"
_SHOWN: Final = 50


def show(context: PageContext) -> Page:
    """Show endpoints, deliveries, and the form for a new endpoint."""
    return _page(context, None)


def _page(context: PageContext, secret: str | None) -> Page:
    endpoints, before = context.services.webhooks.list_endpoints(), context.from_query("before")
    chosen = context.from_query("endpoint") or None
    last = int(before) if before.isdecimal() and len(before) < 16 else None  # noqa: PLR2004 - a number
    found = context.services.webhooks.list_deliveries(chosen, last, _SHOWN)
    values = {
        "endpoints": endpoints,
        "addresses": {one.id: one.url for one in endpoints},
        "deliveries": found,
        "chosen": chosen,
        "more": found[-1].id if len(found) == _SHOWN else None,
        "types": list(EventType),
        "secret": secret,
        "form": {"url": context.from_form("url")},
    }
    return Page("webhooks.html", values)


def _add(context: PageContext) -> Page:
    """Add an endpoint; the page shows its secret this once."""
    wanted = [one for one in EventType if context.form.get(one)]
    _, secret = context.services.webhooks.add(context.from_form("url"), wanted)
    return _page(context._replace(form={}), secret)


def _rotate(context: PageContext) -> Page:
    return _page(context, context.services.webhooks.rotate(context.from_form("endpoint")))


def _disable(context: PageContext) -> Redirect:
    context.services.webhooks.disable(context.from_form("endpoint"))
    return Redirect(HOME, "webhook-disabled")


def _enable(context: PageContext) -> Redirect:
    context.services.webhooks.enable(context.from_form("endpoint"))
    return Redirect(HOME, "webhook-enabled")


def _remove(context: PageContext) -> Reply:
    endpoint = context.services.webhooks.get(context.from_form("endpoint"))
    if not is_confirmed(context):
        effects = ["Nothing more is sent to it.", "The list of its deliveries is deleted."]
        return ask(context, f"Remove {endpoint.url}?", effects, f"{HOME}/remove", "Remove")
    context.services.webhooks.remove(endpoint.id)
    return Redirect(HOME, "webhook-removed")


def _test(context: PageContext) -> Redirect:
    context.services.webhooks.send_test(context.from_form("endpoint"))
    return Redirect(HOME, "webhook-tested")


def _redeliver(context: PageContext) -> Redirect:
    if since := context.from_form("since"):
        try:
            parsed = datetime.fromisoformat(since)
        except ValueError:
            raise InvalidInputError("choose a day and a time") from None
        context.services.webhooks.redeliver_since(parsed.replace(tzinfo=parsed.tzinfo or UTC))
        return Redirect(HOME, "webhook-repeated")
    number = context.from_form("delivery")
    if not (number.isdecimal() and len(number) < 16):  # noqa: PLR2004 - a number
        raise InvalidInputError("choose a delivery, or a day and a time")
    context.services.webhooks.redeliver(int(number))
    return Redirect(HOME, "webhook-repeated")


ACTIONS: Final[Mapping[str, Callable[[PageContext], Reply]]] = {
    "add": _add,
    "rotate": _rotate,
    "disable": _disable,
    "enable": _enable,
    "remove": _remove,
    "test": _test,
    "redeliver": _redeliver,
}
