"""Mail to customers: what was sent, what was given up and why, and previews of the texts."""

from collections.abc import Mapping
from typing import Final

from licserver.database.repositories.queue import JobState
from licserver.services.mail import TEMPLATES
from licserver.web.console.formatting import parse_number, read_number
from licserver.web.console.pages import Page, PageContext, Show, act

_SHOWN: Final = 50
_MAX_DIGITS: Final = 15


def show(context: PageContext) -> Page:
    """Show mails, the latest first, and one text with made-up values."""
    mail, chosen = context.services.mail, context.from_query("text")
    is_failed = context.from_query("failed") == "1"
    last = read_number(context.from_query("before"), _MAX_DIGITS)
    found = mail.list_jobs(JobState.DEAD if is_failed else None, last, _SHOWN)
    values = {
        "is_on": mail.is_on,
        "mails": found,
        "is_failed": is_failed,
        "more": found[-1].id if len(found) == _SHOWN else None,
        "texts": TEMPLATES,
        "chosen": chosen,
        "preview": None,
        "address": context.from_form("address"),
    }
    if chosen:
        message = mail.preview(chosen)
        text = message.get_body(("plain",))
        values["preview"] = {"subject": message["Subject"], "text": text.get_content() if text else ""}
    return Page("mail.html", values)


def _retry(context: PageContext) -> None:
    context.services.mail.retry(parse_number(context.from_form("mail"), "choose a mail", _MAX_DIGITS))


ACTIONS: Final[Mapping[str, Show]] = {
    "retry": act("mail-repeated", _retry),
    "test": act("mail-tested", lambda c: c.services.mail.send_test(c.from_form("address"))),
}
