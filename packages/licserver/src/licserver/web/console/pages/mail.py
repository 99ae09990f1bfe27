"""Mail to customers: what was sent, what was given up and why, and previews of the texts."""

from collections.abc import Callable, Mapping
from typing import Final

from licserver.database.repositories.queue import JobState
from licserver.errors import InvalidInputError
from licserver.services.mail import TEMPLATES
from licserver.web.console.pages import Page, PageContext, Redirect, Reply

HOME: Final = "/console/mail"
_SHOWN: Final = 50
_MAX_DIGITS: Final = 15


def show(context: PageContext) -> Page:
    """Show mails, the latest first, and one text with made-up values."""
    mail, before, chosen = context.services.mail, context.from_query("before"), context.from_query("text")
    is_failed = context.from_query("failed") == "1"
    last = int(before) if before.isdecimal() and len(before) <= _MAX_DIGITS else None
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


def _retry(context: PageContext) -> Redirect:
    number = context.from_form("mail")
    if not (number.isdecimal() and len(number) <= _MAX_DIGITS):
        raise InvalidInputError("choose a mail")
    context.services.mail.retry(int(number))
    return Redirect(HOME, "mail-repeated")


def _test(context: PageContext) -> Redirect:
    context.services.mail.send_test(context.from_form("address").strip())
    return Redirect(HOME, "mail-tested")


ACTIONS: Final[Mapping[str, Callable[[PageContext], Reply]]] = {"retry": _retry, "test": _test}
