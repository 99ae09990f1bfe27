"""Values of the console as text, and typed text as values: statuses, numbers, times, forms. Pure."""

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, Final, Literal, NamedTuple, TypeVar

from licserver.domain.decisions import TERM_SENTENCES, Term, find_term, is_support_over, license_state
from licserver.domain.entitlements import format_grants, parse_grants
from licserver.domain.records import IssuedLicense, LicenseState, LicenseTerms, Product
from licserver.domain.text import describe_short_year, plural
from licserver.errors import InvalidInputError
from licserver.limits import MAX_CONSOLE_BODY_FIELDS
from licserver.protocol.public_api import decode_escapes
from licserver.services.release_files import FLAWS

T = TypeVar("T")

DONE: Final[Mapping[str, str]] = {
    "taken-back": "The seat is taken back. The app that held it is notified when it next renews it.",
    "freed": "The slot is free. The customer can activate another machine now.",
    "revoked": "The license is revoked. Verify and update checks are refused, and links do not work.",
    "extended": "The license is extended.",
    "slot-added": "The license has one more slot. The customer can activate another machine now.",
    "reissued": "The license has a new key, and the old one is revoked.",
    "bulk-revoked": "The licenses are revoked.",
    "bulk-extended": "The licenses are extended.",
    "reinstated": "The license is reinstated.",
    "customer-erased": "All data of the customer is erased.",
    "changed": "The license is changed, effective immediately.",
    "converted": "The trial is a purchased license now, with the same key.",
    "allowed": "The entry is on the allow-list. It takes no slot.",
    "disallowed": "The entry is off the allow-list.",
    "similar": "These keys look like it; compare them with the customer’s.",
    "issued": "The license is issued.",
    "product": "The product is added. Upload its first version next.",
    "renamed": "The product is renamed. Licenses keep the name under which they were issued.",
    "plan": "The plan is saved. Its licenses get the new entitlements with the next answer.",
    "plan-removed": "The plan is removed.",
    "rules": "The product is changed, effective immediately for all its licenses.",
    "published": "The version is published.",
    **{f"published-{flaw}": f"The version is published. {text}" for flaw, text in FLAWS.items()},
    "promoted": "The channel of the version is changed.",
    "wordpress": "What WordPress shows is changed, effective with the next update check.",
    "security": "The security notice is changed, effective with the next update check.",
    "rollout": "The rollout is changed, effective with the next update check.",
    "withdrawn": "The version is withdrawn. It is no longer offered, and links to it do not work.",
    "once": "This form was sent before and done once; see below. To repeat it, open the form again.",
    "password": "Your password is changed, and you are signed out everywhere else.",
    "second-factor-off": "Your second factor is removed, and you are signed out everywhere else.",
    "backup-started": "The backup is being written. You can leave this page.",
    "backup-deleted": "The backup is deleted.",
    "import-cancelled": "The import is cancelled. The file is removed, and nothing was written.",
    "user-added": "The user is added. Hand over the name and the password; the user should change it.",
    "user-role": "The role is changed, effective immediately.",
    "user-password": "The password is changed, and the user is signed out everywhere.",
    "user-factor": "The second factor is removed. The user can set up a new one.",
    "user-removed": "The user is removed and signed out.",
    "webhook-disabled": "The endpoint is disabled. Nothing more is sent to it.",
    "webhook-enabled": "The endpoint is enabled. It gets events from now on.",
    "webhook-removed": "The endpoint is removed.",
    "key-mailed": "The key is mailed in a moment. Health → Mail to customers shows what became of it.",
    "mail-tested": "The test is sent in a moment. Load this page again to see what became of it.",
    "mail-repeated": "It is sent again in a moment. Load this page again to see what became of it.",
    "webhook-tested": "The test is sent in a moment. Load this page again to see the response.",
    "webhook-repeated": "It is sent again in a moment. Load this page again to see the response.",
    "token-revoked": "The token is revoked. It is refused from now on.",
    "source-added": "The shop is added. Let it deliver to the address below, and map its products.",
    "source-mapped": "The product is mapped. Repeat the deliveries that failed for it.",
    "source-unmapped": "The mapping is removed.",
    "sale-left": "It is left as it is.",
    "sale-answered": "Answered. The sale is processed again, in a moment.",
    "sale-mapped": "The product is mapped. All sales of it are processed again, in a moment.",
    "source-replayed": "The delivery is processed again, in a moment. Nothing is issued twice.",
    "signed-out": "You are signed out.",
}
"""Messages after an action; the address has the name, never the text."""


REFUSALS: Final[Mapping[str, str]] = {
    "slots full": "All slots were in use, and this machine had none.",
    "expired": "The license had expired.",
    "revoked": "The license was revoked.",
}
"""Reasons of refusals, by the label of the statistics."""


def license_name(license_: IssuedLicense) -> str:
    """Return a license's masked key, or the beginning of its id for an altered row."""
    return license_.masked_key or license_.id.hex()[:8]


def number(value: int) -> str:
    """Format a number with thousands separated."""
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def file_size(count: int) -> str:
    """Format a number of bytes."""
    size = float(count)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:  # noqa: PLR2004 - the next unit
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def day(value: date | None) -> str:
    """Format a date."""
    return "–" if value is None else f"{value.day} {value:%B %Y}"


def ago(instant: datetime, now: datetime) -> str:
    """Format how long ago an instant was, rounded."""
    seconds = (now - instant).total_seconds()
    if seconds < 90:  # noqa: PLR2004 - the ends of the ranges
        return "just now"
    for unit, length, limit in (
        ("minute", 60, 90),
        ("hour", 3600, 36),
        ("day", 86400, 60),
        ("month", 2629800, 24),
        ("year", 31557600, 10**6),
    ):
        count = round(seconds / length)
        if count < limit:
            return f"{count} {plural(count, unit)} ago"
    raise AssertionError


class StatusLabel(NamedTuple):
    """A license's status: in a word or two, with a class of the style sheet, and as a whole sentence.

    `short` is shown beside the label in a list; it may be empty.
    """

    label: str
    style: str
    short: str
    sentence: str


def describe(license_: IssuedLicense, now: datetime) -> StatusLabel:
    """Describe the status of a license at `now`, and its effect for the customer."""
    term, end = find_term(license_, now)
    sentence = describe_term(license_, now)
    match license_state(license_, now):
        case LicenseState.REVOKED:
            reason = f" Reason: {license_.revoked_reason.rstrip(' .')}." if license_.revoked_reason else ""
            effect = "Verify and update checks are refused, and download links no longer work."
            shown = StatusLabel("revoked", "bad", _on(end), f"{sentence}{reason} {effect}")
        case LicenseState.EXPIRED:
            short = "subscription ended" if term is Term.SUBSCRIPTION_ENDED else _on(end)
            shown = StatusLabel("expired", "bad", short, sentence)
        case LicenseState.ACTIVE:
            shown = _describe_active(license_, term, end, sentence, now)
    if not license_.trial:
        return shown
    return shown._replace(label=f"trial, {shown.label}", sentence=f"Trial. {shown.sentence}")


def describe_term(license_: IssuedLicense, now: datetime) -> str:
    """Describe in a sentence, which customers read as well, how long a license is valid."""
    term, end = find_term(license_, now)
    return TERM_SENTENCES[term].format(date=day(end))


_SHORT: Final = {Term.NO_END: "does not expire", Term.SUBSCRIPTION: "while its subscription runs"}


def _describe_active(
    license_: IssuedLicense, term: Term, end: date | None, sentence: str, now: datetime
) -> StatusLabel:
    short = _SHORT.get(term, "")
    if end is not None:
        days = (end - now.date()).days
        soon = "" if days > 60 else ", today" if days == 0 else f", {_count(days, 'day')} left"  # noqa: PLR2004 - two months
        short = f"through {day(end)}{soon}"
        sentence = f"Valid {short}."
    total, used = license_.slots, license_.slots_used
    if total is not None and used >= total:
        reason = "“Max activations exceeded or unrecognized environment.”"
        full = f"All slots are in use; a further machine is refused: {reason}"
        return StatusLabel("all slots in use", "good", short, f"{sentence} {full}")
    more = "any number of further machines" if total is None else _count(total - used, "further machine")
    return StatusLabel("active", "good", short, f"{sentence} Slots are left for {more}.")


def describe_updates(license_: IssuedLicense, product: Product, now: datetime) -> str:
    """Describe whether the customer gets updates."""
    if license_state(license_, now) is not LicenseState.ACTIVE:
        return "no: the license is not valid"
    if is_support_over(product, license_, now):
        return f"offered without a file: support ended {_on(license_.support_until)}"
    return "yes" if product.latest else "yes, but no version is published"


def _on(when: date | None) -> str:
    return "" if when is None else f"on {day(when)}"


def _count(value: int, noun: str) -> str:
    return f"{number(value)} {plural(value, noun)}"


# --- forms ------------------------------------------------------------------------------------


def parse_form(body: bytes) -> dict[str, str]:
    """Parse an urlencoded form; of a repeated name the last value counts."""
    if body.count(b"&") >= MAX_CONSOLE_BODY_FIELDS:
        raise InvalidInputError(f"this form has more than {MAX_CONSOLE_BODY_FIELDS} fields")
    try:
        fields = [
            [decode_escapes(part, "strict") for part in pair.partition("=")[::2]]
            for pair in body.decode("ascii").split("&")
            if pair
        ]
    except ValueError:  # or its subclass UnicodeDecodeError
        raise InvalidInputError("this form cannot be read") from None
    return {name: value.replace("\r\n", "\n") for name, value in fields}  # browsers send both characters


def is_touched(form: Mapping[str, str], name: str) -> bool:
    """Return whether a field was edited: it differs from the value that the page showed, ``was-…``."""
    typed, was = form.get(name), form.get(f"was-{name}")
    return typed is not None and (was is None or _normalize(typed) != _normalize(was))


def _normalize(text: str) -> str:
    return text.strip().replace("\r\n", "\n")


def parse_day(text: str) -> date | None:
    """Parse a date; None for empty text."""
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(f"{text!r} is not a date; write it like 2027-01-31") from None
    if problem := describe_short_year(day):
        raise InvalidInputError(problem)
    return day


def read_number(text: str, digits: int = 9) -> int | None:
    """Parse a whole number of at most `digits` digits (nine fit into 32 bits); None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None


def parse_number(text: str, problem: str, digits: int = 9) -> int:
    """Parse a number as `read_number` does; `problem` is the message for any other text."""
    if (number_ := read_number(text, digits)) is None:
        raise InvalidInputError(problem)
    return number_


def choose(kind: Callable[[str], T], text: str, problem: str) -> T:
    """Parse a choice from a list; `problem` is the message for any other text."""
    try:
        return kind(text)
    except ValueError:
        raise InvalidInputError(problem) from None


def _parse_slots(text: str) -> int | None:
    if text.casefold() in {"unlimited", "∞"}:
        return None
    return parse_number(text, "slots must be a whole number from 0, or “unlimited”")


def parse_seats(text: str) -> int | None:
    """Parse a number of floating seats; None if it is empty."""
    problem = "floating seats must be a whole number from 1, or empty for none"
    return parse_number(text, problem) if text else None


# --- the terms of a license -------------------------------------------------------------------


class Field(NamedTuple):
    """A field of the forms that issue and change a license.

    Args:
        name: The name of the input.
        term: The field of `LicenseTerms`.
        kind: The kind of the input, which the macro `field` in `parts.html` renders and `_PARSERS` parses: a
            number of slots or floating seats, a date, names, text (a line for an address, several for a
            note), entitlements (a line each), or a choice of the existing plans.
    """

    name: str
    term: str
    label: str
    kind: Literal["slots", "seats", "date", "email", "text", "lines", "grants", "names", "plan"]


FIELDS: Final = (
    Field("slots", "slots", "Slots", "slots"),
    Field("seats", "floating_seats", "Floating seats", "seats"),
    Field("expires", "expires_on", "Last day", "date"),
    Field("support", "support_until", "Support until", "date"),
    Field("email", "customer_email", "Customer’s email address", "email"),
    Field("language", "customer_language", "Language of mails to the customer, such as de", "text"),
    Field("note", "note", "Note", "lines"),
    Field("plan", "plan", "Plan", "plan"),
    Field("overrides", "overrides", "Entitlements instead of the plan’s", "grants"),
    Field("channels", "channels", "Release channels besides stable", "names"),
)

_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "slots": _parse_slots,
    "date": parse_day,
    "grants": lambda text: parse_grant_lines(text) or None,
    "seats": parse_seats,
    "names": lambda text: tuple(text.replace(",", " ").split()),
}
"""Parsers by kind; the other kinds are text."""


_CHANNEL: Final = "channel-"


def merge_channels(form: Mapping[str, str]) -> Mapping[str, str]:
    """Return a form whose field `channels` includes the ticked channels, in the order of the page."""
    if "channels-chosen" not in form:
        return form
    typed = _PARSERS["names"](form.get("channels", ""))
    ticked = [name.removeprefix(_CHANNEL) for name in form if name.startswith(_CHANNEL)]
    before = _PARSERS["names"](form.get("was-channels", ""))
    chosen = {*typed, *ticked}
    ordered = dict.fromkeys([*(name for name in before if name in chosen), *ticked, *typed])
    return {**form, "channels": ", ".join(ordered)}


def parse_terms(form: Mapping[str, str]) -> LicenseTerms:
    """Parse the form that issues a license; empty fields have their defaults."""
    form = merge_channels(form)
    typed = {field: form.get(field.name, "").strip() for field in FIELDS}
    terms = {field.term: _parse(field, text) for field, text in typed.items() if text}
    subscription = form.get("subscription", "").strip() or None
    return LicenseTerms(**terms, lifetime=bool(form.get("lifetime")), subscription_id=subscription)


def parse_grant_lines(text: str) -> dict[str, Any]:
    """Parse entitlements, a line each."""
    return parse_grants(line for line in text.splitlines() if line.strip())


MAX_ISSUED: Final = 1_000
"""Licenses issued by a form: the page shows all their keys."""


def parse_count(form: Mapping[str, str]) -> int:
    """Parse the number of licenses to issue."""
    count = read_number(form.get("count", "").strip() or "1")
    if count is None or not 1 <= count <= MAX_ISSUED:
        raise InvalidInputError(f"the count must be a whole number from 1 to {MAX_ISSUED}")
    return count


def parse_changes(form: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse the form that changes a license; return the new and the shown values of the edited fields."""
    form = merge_channels(form)
    edited = [field for field in FIELDS if is_touched(form, field.name)]
    changes = {field.term: _parse(field, form[field.name].strip()) for field in edited}
    shown = {field: form[f"was-{field.name}"] for field in edited if f"was-{field.name}" in form}
    return changes, {field.term: _parse(field, text.strip()) for field, text in shown.items()}


def format_terms(terms: LicenseTerms) -> dict[str, str]:
    """Return the text of each field of the form."""
    return {field.name: _format(field, getattr(terms, field.term)) for field in FIELDS}


def _parse(field: Field, text: str) -> Any:
    return _PARSERS.get(field.kind, str)(text)


def _format(field: Field, value: Any) -> str:
    if value is None:
        return "unlimited" if field.kind == "slots" else ""
    if field.kind == "grants":
        return "\n".join(format_grants(value))
    if isinstance(value, tuple):
        return ", ".join(value)
    return value.isoformat() if isinstance(value, date) else str(value)
