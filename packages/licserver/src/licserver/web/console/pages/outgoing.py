"""Outgoing mail and webhooks, with the state of each delivery."""

from typing import Final

from licserver.database.repositories.queue import JobState
from licserver.domain.languages import LANGUAGES
from licserver.protocol.webhooks import EventType
from licserver.services.mail import FOR_VENDOR, TEMPLATES
from licserver.services.webhooks import parse_instant
from licserver.web.console.formatting import parse_number
from licserver.web.console.pages import Actions, HtmlPage, PageContext, Reply, act

_SHOWN: Final = 50
_MAX_DIGITS: Final = 15


def show_mail(context: PageContext) -> HtmlPage:
    """Show mails, the latest first, and a preview of a text with made-up values."""
    mail, chosen, preview = context.services.mail, context.from_query("text"), None
    is_failed = context.from_query("failed") == "1"
    page = mail.list_jobs(JobState.DEAD if is_failed else None, context.after, _SHOWN)
    if chosen:
        message = mail.preview(chosen, context.from_query("language") or None)
        text = message.get_body(("plain",))
        preview = {"subject": message["Subject"], "text": text.get_content() if text else ""}
    return HtmlPage(
        "mail.html",
        is_on=mail.is_on,
        mails=page.items,
        is_failed=is_failed,
        further=context.further(page.cursor, failed="1" if is_failed else None),
        texts=TEMPLATES,
        chosen=chosen,
        languages=() if chosen in FOR_VENDOR else LANGUAGES,
        language=context.from_query("language") or context.services.settings.mail_language,
        preview=preview,
        address=context.from_form("address"),
    )


def _retry(context: PageContext) -> None:
    context.services.mail.retry(parse_number(context.from_form("mail"), "choose a mail", _MAX_DIGITS))


MAIL_ACTIONS: Final[Actions] = {
    "retry": act("mail-repeated", _retry),
    "test": act("mail-tested", lambda c: c.services.mail.send_test(c.from_form("address"))),
}


def show_webhooks(context: PageContext, secret: str | None = None) -> HtmlPage:
    """Show endpoints, deliveries, the form for a new endpoint, and once a new secret."""
    endpoints, chosen = context.services.webhooks.list_endpoints(), context.from_query("endpoint") or None
    page = context.services.webhooks.list_deliveries(chosen, context.after, _SHOWN)
    return HtmlPage(
        "webhooks.html",
        endpoints=endpoints,
        addresses={endpoint.id: endpoint.url for endpoint in endpoints},
        deliveries=page.items,
        chosen=chosen,
        further=context.further(page.cursor, endpoint=chosen),
        types=list(EventType),
        secret=secret,
        form=context.typed("url"),
    )


def _add(context: PageContext) -> HtmlPage:
    types = [type_ for type_ in EventType if context.form.get(type_)]
    _, secret = context.services.webhooks.add(context.from_form("url"), types)
    return show_webhooks(context._replace(form={}), secret)


def _remove(context: PageContext) -> Reply:
    endpoint = context.services.webhooks.get(context.from_form("endpoint"))
    effects = ["Nothing more is sent to it.", "The list of its deliveries is deleted."]
    if question := context.ask(f"Remove {endpoint.url}?", effects, "Remove"):
        return question
    context.services.webhooks.remove(endpoint.id)
    return context.back("webhook-removed")


def _redeliver(context: PageContext) -> None:
    if since := context.from_form("since"):
        context.services.webhooks.redeliver_since(parse_instant(since))
        return
    problem = "choose a delivery, or a day and a time"
    context.services.webhooks.redeliver(parse_number(context.from_form("delivery"), problem, _MAX_DIGITS))


WEBHOOK_ACTIONS: Final[Actions] = {
    "add": _add,
    "rotate": lambda c: show_webhooks(c, c.services.webhooks.rotate(c.from_form("endpoint"))),
    "disable": act("webhook-disabled", lambda c: c.services.webhooks.disable(c.from_form("endpoint"))),
    "enable": act("webhook-enabled", lambda c: c.services.webhooks.enable(c.from_form("endpoint"))),
    "remove": _remove,
    "test": act("webhook-tested", lambda c: c.services.webhooks.send_test(c.from_form("endpoint"))),
    "redeliver": act("webhook-repeated", _redeliver),
}
