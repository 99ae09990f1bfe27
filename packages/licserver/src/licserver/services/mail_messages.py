"""Mail messages: text in the customer's language, and the same text as HTML."""

import html
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from licserver import libraries
from licserver.domain.languages import LANGUAGES
from licserver.domain.mail_addresses import InvalidAddressError, Sender, parse_address
from licserver.errors import BuryJobError

MAX_SUBJECT: Final = 150

_DATES: Final[Mapping[str, str]] = {
    "en": "{day} {month} {year}",
    "de": "{day:02}.{number:02}.{year}",
    "fr": "{day:02}/{number:02}/{year}",
    "es": "{day:02}/{number:02}/{year}",
    "ja": "{year}年{number}月{day}日",
    "zh": "{year}年{number}月{day}日",
}
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_INDENT: Final = "    "  # of a line with a license key, a code or a command


class Text(NamedTuple):
    """A rendered template.

    Args:
        subject: One line.
        body: Paragraphs of plain text.
        html: The same as HTML.
    """

    subject: str
    body: str
    html: str


# --- texts ------------------------------------------------------------------------------------


def format_day(day: date, language: str) -> str:
    """Format a day in a language."""
    pattern = _DATES.get(language)
    if pattern is None:
        return day.isoformat()
    return pattern.format(day=day.day, number=day.month, month=_MONTHS[day.month - 1], year=day.year)


class Templates:
    """The texts of mails by language: the vendor's templates, and those of the package.

    Args:
        own: The folder of the vendor's templates.
        language: For customers of unknown language, and of vendor's templates outside a language's folder.
    """

    def __init__(self, own: Path, language: str) -> None:
        self._own, self._language = own, language

    def render(self, template: str, language: str | None, values: Mapping[str, Any]) -> Text:
        """Render a template in the customer's language.

        The vendor's text in this language is used, else the vendor's text for all languages, else ours. The
        HTML is generated from the text, unless the vendor has an HTML file beside the text.

        Raises:
            BuryJobError: The template is faulty.
        """
        folder, name, language = self._find(template, language or self._language)
        subject, _, body = self._render(folder, language, f"{name}.txt", values).partition("\n")
        body = body.strip() + "\n"
        # A single line for any product's name: a line break would begin another header, also in =?…?=.
        line = " ".join(subject.removeprefix("Subject:").split()).replace("=?", "= ?")[:MAX_SUBJECT]
        if folder == self._own and (self._own / f"{name}.html").is_file():
            return Text(line, body, self._render(folder, language, f"{name}.html", values))
        return Text(line, body, format_html(body, language))

    def _find(self, template: str, language: str) -> tuple[Path | None, str, str]:
        """Return a text's folder (None for ours), its name without the ending, and its language."""
        for name, own_language in ((f"{language}/{template}", language), (template, self._language)):
            if (self._own / f"{name}.txt").is_file():
                return self._own, name, own_language
        ours = language if language in LANGUAGES else LANGUAGES[0]
        return None, f"{ours}/{template}", ours

    def _render(self, folder: Path | None, language: str, name: str, values: Mapping[str, Any]) -> str:
        jinja2 = libraries.jinja2
        try:
            return self._open(folder, language).get_template(name).render(values)
        except jinja2.UndefinedError as problem:  # its message has only the variable's name
            raise BuryJobError(f"the template {name} is faulty: {problem.message}") from None
        except (jinja2.TemplateError, UnicodeError, OSError) as problem:
            raise BuryJobError(f"the template {name} is faulty: {type(problem).__name__}") from None

    def _open(self, folder: Path | None, language: str) -> "libraries.jinja2.Environment":
        jinja2 = libraries.jinja2
        loader = (
            jinja2.PackageLoader("licserver.services", "mail_templates")
            if folder is None
            else jinja2.FileSystemLoader(folder)
        )
        environment: libraries.jinja2.Environment = libraries.jinja2_sandbox.SandboxedEnvironment(
            loader=loader,
            autoescape=lambda name: name is not None and name.endswith(".html"),
            undefined=jinja2.StrictUndefined,
            cache_size=0,  # so that a changed template is used for the next mail
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters["day"] = lambda day: format_day(day, language)
        return environment


def format_html(body: str, language: str) -> str:
    """Return plain text as HTML: paragraphs, and indented lines in a monospace font."""
    head = f'<!doctype html>\n<html lang="{html.escape(language)}"><body>\n'
    return f"{head}{''.join(_blocks(body))}</body></html>\n"


def _blocks(body: str) -> Iterator[str]:
    for kind, lines in groupby(body.splitlines(), _kind_of):
        text = "<br>\n".join(html.escape(line.strip()) for line in lines)
        if kind == "code":
            yield f'<p style="font-family: monospace; font-size: 1.2em">\n{text}</p>\n'
        elif kind == "text":
            yield f"<p>{text}</p>\n"


def _kind_of(line: str) -> str:
    if not line.strip():
        return ""
    return "code" if line.startswith(_INDENT) else "text"


# --- messages ---------------------------------------------------------------------------------


def build_message(sender: Sender, to: str, text: Text, at: datetime, digest: str) -> EmailMessage:
    """Build a message; its id is the job's `digest`, so that mail programs recognise duplicates.

    A non-ASCII local part is not encoded: it needs a server with SMTPUTF8.

    Raises:
        BuryJobError: The address or the subject cannot be sent.
    """
    message = EmailMessage()
    try:
        local, domain = parse_address(to)
        message["From"] = Address(sender.name, sender.local, sender.domain)
        message["To"] = Address(username=local, domain=domain)
        message["Subject"] = text.subject
    except (InvalidAddressError, ValueError, HeaderParseError):
        raise BuryJobError("the address or the subject cannot be sent") from None
    message["Date"] = format_datetime(at)
    message["Message-ID"] = f"<{digest}@{sender.domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text.body)
    message.add_alternative(text.html, subtype="html")
    return message
