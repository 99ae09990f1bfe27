"""Commands on licenses."""

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any, Final

import click
from click.core import ParameterSource

from licserver.cli import Commands
from licserver.cli.common import (
    Printer,
    key_argument,
    limit_option,
    parse_day,
    pick,
    read_file,
    row_id,
    services_command,
    slug_argument,
    warn_of_unused_support,
    write_new,
)
from licserver.cli.output import echo
from licserver.clock import system_clock
from licserver.domain.decisions import TERM_SENTENCES, find_term, license_state
from licserver.domain.entitlements import format_grants, parse_grants
from licserver.domain.offline_files import DEFAULT_DAYS, MAX_DAYS
from licserver.domain.records import LISTS, TERMS, IssuedLicense, LicenseTerms
from licserver.domain.text import plural
from licserver.errors import InvalidInputError
from licserver.services.installation import Services
from licserver.services.license_search import LicenseFilter
from licserver.services.licenses import ISSUE_BATCH
from licserver.shops.contract import Answer


def _parse_number(text: str, word: str) -> int | None:
    if text.lower() == word:  # the help shows it in capitals
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004 - fits 32 bits
        raise click.BadParameter(f"{text!r} is not a whole number or {word!r}")
    return int(text)


MAX_FOR_SALE: Final = 10_000  # licenses: they are written in one transaction

SLOTS: Any = {
    "type": lambda text: _parse_number(text, "unlimited"),
    "metavar": "N|UNLIMITED",
    "help": "Activations that the key allows.",
}
SEATS: Any = {"metavar": "N", "help": "How many may use the key at the same time, beside the slots."}
_DAY: Any = {"type": parse_day, "metavar": "YYYY-MM-DD"}
_DAY_OR_NEVER: Any = {
    "type": lambda text: None if text.lower() == "never" else parse_day(text),
    "metavar": "YYYY-MM-DD|NEVER",
}

_GRANTS: Any = {
    "multiple": True,
    "metavar": "GRANT",
    "callback": lambda _context, _parameter, grants: parse_grants(grants),
}
_CHANNELS: Any = {
    "type": lambda text: tuple(filter(None, text.split(","))),
    "metavar": "NAME,…",
    "help": "Channels whose releases its holder is offered, such as beta; '' for stable ones only.",
}

license_group = Commands(
    "license",
    help="""Issue license keys, and change what they allow.

KEY is a license key, the id that `license list` shows, or - to read one from standard input.""",
)


# Each option of a license is named after its field of `LicenseTerms`.
@services_command("issue", license_group)
@slug_argument
@click.option("--slots", default="1", show_default=True, **SLOTS)
@click.option("--floating-seats", type=int, **SEATS)
@click.option("--expires", "expires_on", help="Last day of validity, UTC; may be in the past.", **_DAY)
@click.option("--lifetime", is_flag=True, help="Never expires.")
@click.option("--support-until", help="Last day of update downloads, if the product has a policy.", **_DAY)
@click.option("--subscription", "subscription_id", metavar="ID", help="Expires when this subscription ends.")
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="ENTRY",
    help="A domain, `*.domain`, IP or network that takes no slot.",
)
@click.option(
    "--email", "customer_email", metavar="ADDRESS", help="The customer's address, to find licenses."
)
@click.option("--language", "customer_language", metavar="CODE", help="Of mails to the customer, such as de.")
@click.option("--note", help="Any text, to find licenses.")
@click.option("--plan", metavar="NAME", help="A plan of the product, which defines what the license grants.")
@click.option("--grant", "overrides", help="As in `licserver plan`; overrides the plan.", **_GRANTS)
@click.option("--trial", is_flag=True, help="A trial; `license convert` turns it into a purchased license.")
@click.option("--channels", default="", **_CHANNELS)
@click.option(
    "--problem",
    "problem_id",
    type=row_id,
    metavar="ID",
    help="Of `source problems`: take over customer, note and mapping of its sale, and settle it.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    help="How many keys; default: 1, and with --problem as many as were bought.",
)
@click.option("--mail", is_flag=True, help="Mail the keys to the address of --email, all in one mail.")
def issue(
    services: Services,
    printer: Printer,
    slug: str,
    problem_id: int | None,
    count: int | None,
    *,
    mail: bool,
    **terms: Any,
) -> None:
    """Issue license keys for the product SLUG, and print them, one a line."""
    if count is None:
        count = 1 if problem_id is None else _find_quantity(services, problem_id)
    _warn_of_useless(LicenseTerms(**terms), services.now())
    if terms["support_until"] is not None:
        warn_of_unused_support(services, slug)
    if problem_id is None:
        _warn_of_ended_subscription(services, terms["subscription_id"])
        batches = services.licenses.issue_batches(slug, LicenseTerms(**terms), count, is_mailed=mail)
    else:
        batches = _issue_for_sale(services, slug, problem_id, count, is_mailed=mail, terms=terms)
    try:
        _print_keys(printer, slug, batches, count)
    except KeyboardInterrupt:
        echo("licserver: interrupted; all keys printed above are issued and valid", err=True)
        raise
    except OSError:  # the reader has gone, or the disk is full
        advice = "`licserver license list` shows all that are issued"
        echo(f"licserver: not all keys could be printed; {advice}", err=True)
        raise
    if count > ISSUE_BATCH:
        echo(f"issued {count} keys", err=True)
    if mail:
        echo("the running server mails the keys; see: licserver mail list", err=True)


def _warn_of_useless(terms: LicenseTerms, now: datetime) -> None:
    """Print a warning for terms with which no app accepts the license: probably a slip."""
    if terms.expires_on is not None and terms.expires_on < now.date():
        echo(f"warning: {terms.expires_on} has passed, so the license is expired", err=True)
    if terms.slots == 0 and not terms.allowed:
        echo("warning: without slots and an allow-list no computer can use the license", err=True)


def _warn_of_ended_subscription(services: Services, subscription_id: str | None) -> None:
    if subscription_id is not None and services.subscriptions.has_ended(subscription_id):
        advice = f"`licserver subscription end {quote(subscription_id)} --at YYYY-MM-DD` extends it"
        echo(
            f"warning: subscription {subscription_id} has ended, so the license is expired; {advice}",
            err=True,
        )


def _warn_of_useless_changes(services: Services, changed: IssuedLicense, changes: dict[str, Any]) -> None:
    """Print the warning for terms that a command has changed."""
    new = {name: changes[name] for name in ("slots", "expires_on") if name in changes}
    _warn_of_useless(LicenseTerms(**new, allowed=changed.allowed), services.now())


def _find_quantity(services: Services, problem_id: int) -> int:
    problems = services.sale_problems
    return problems.find_quantity(problems.get(problem_id)) or 1


def _issue_for_sale(
    services: Services, slug: str, problem_id: int, count: int, *, is_mailed: bool, terms: dict[str, Any]
) -> Iterator[list[str]]:
    """Issue licenses for the sale of a problem, and settle it in the same transaction."""
    if count > MAX_FOR_SALE:
        raise InvalidInputError(f"at most {MAX_FOR_SALE} keys are issued for a sale at once")
    with services.transaction() as tx:
        sale_terms = tx.sale_problems.find_terms(tx.sale_problems.get(problem_id), slug)
        sale_terms.pop("product", None)
        chosen = LicenseTerms(**{**terms, **sale_terms, **_given(terms)})
        tx.sale_problems.check_terms(chosen)
        tx.sources.answer(problem_id, Answer.ISSUED)
        return iter([*tx.licenses.issue_batches(slug, chosen, count, is_mailed=is_mailed)])


def _print_keys(printer: Printer, slug: str, batches: Iterator[list[str]], count: int) -> None:
    """Print each batch once it is stored; if the keys go elsewhere, show a progress bar on the terminal."""
    separator = ""
    if printer.as_json:
        echo(f'{{"product": {json.dumps(slug)}, "license_keys": [', nl=False)
    is_hidden = count <= ISSUE_BATCH or sys.stdout.isatty() or not sys.stderr.isatty()
    with click.progressbar(length=count, label="issuing", file=sys.stderr, hidden=is_hidden) as progress:
        for keys in batches:
            if printer.as_json:
                echo(separator + ", ".join(f'"{key}"' for key in keys), nl=False)
            else:
                echo("\n".join(keys))
            separator = ", "
            progress.update(len(keys))
    if printer.as_json:
        echo("]}")


@services_command("show", license_group)
@key_argument
@click.option("--reveal", is_flag=True, help="Print the whole key.")
def show(services: Services, printer: Printer, key: str, *, reveal: bool) -> None:
    """Show a license and its activations."""
    _show(services, printer, services.licenses.get(key), reveal=reveal)


@services_command("change", license_group)
@key_argument
@click.option("--slots", **SLOTS)
@click.option(
    "--floating-seats",
    type=lambda text: _parse_number(text, "none"),
    **{**SEATS, "metavar": "N|NONE"},
)
@click.option("--expires", "expires_on", help="Last day of validity, UTC, or 'never'.", **_DAY_OR_NEVER)
@click.option("--lifetime/--no-lifetime", default=None, help="Never expires.")
@click.option("--support-until", help="Last day of update downloads, or 'never'.", **_DAY_OR_NEVER)
@click.option("--email", "customer_email", metavar="ADDRESS", help="The customer's address; '' deletes it.")
@click.option("--language", "customer_language", metavar="CODE", help="Of mails; '' for an unknown one.")
@click.option("--note", help="Any text; '' deletes it.")
@click.option("--plan", metavar="NAME", help="A plan of the product; '' for none.")
@click.option(
    "--grant",
    "overrides",
    help="As in `licserver plan`; overrides the plan. NAME=none removes it.",
    **_GRANTS,
)
@click.option("--inherit", multiple=True, metavar="NAME", help="Use the plan's value again.")
@click.option("--trial/--no-trial", default=None, help="Whether it is a trial.")
@click.option("--channels", **_CHANNELS)
def change(services: Services, printer: Printer, key: str, inherit: tuple[str, ...], **options: Any) -> None:
    """Change the terms of a license; what is not given stays."""
    changes = _given(options)
    was = {}
    if inherit or "overrides" in changes:
        was["overrides"] = overrides = services.licenses.get(key).overrides or {}
        merged = {**overrides, **changes.get("overrides", {})}
        if unknown := [name for name in inherit if name not in merged]:
            own = ", ".join(merged) or "none"
            raise InvalidInputError(f"{unknown[0]!r} is not an override of this license; it has: {own}")
        changes["overrides"] = {name: value for name, value in merged.items() if name not in inherit}
    if not changes:
        raise InvalidInputError("there is nothing to change; see `licserver license change --help`")
    changed = services.licenses.change(key, was=was, **changes)
    _warn_of_useless_changes(services, changed, changes)
    if changes.get("support_until") is not None:
        warn_of_unused_support(services, changed.product_slug)
    _print_changed(services, printer, changed, "changed")


def _given(options: dict[str, Any]) -> dict[str, Any]:
    source = click.get_current_context().get_parameter_source  # None is a value: unlimited, or never
    return {name: value for name, value in options.items() if source(name) is ParameterSource.COMMANDLINE}


@services_command("convert", license_group)
@key_argument
@click.option("--slots", **SLOTS)
@click.option("--expires", "expires_on", help="Last day of validity, UTC; default: none.", **_DAY)
@click.option("--lifetime", is_flag=True, help="Never expires.")
@click.option("--support-until", help="Last day of update downloads, if the product has a policy.", **_DAY)
@click.option("--email", "customer_email", metavar="ADDRESS", help="The customer's address.")
@click.option("--language", "customer_language", metavar="CODE", help="Of mails, such as de.")
@click.option("--note", help="Any text.")
@click.option("--plan", metavar="NAME", help="A plan of the product; default: none.")
def convert(services: Services, printer: Printer, key: str, **options: Any) -> None:
    """Make a purchased license of a trial; the app goes on with the same key."""
    converted = services.trials.convert(key, **_given(options))
    _warn_of_useless_changes(services, converted, _given(options))
    if options["support_until"] is not None:
        warn_of_unused_support(services, converted.product_slug)
    _print_changed(services, printer, converted, "converted")


@services_command("find", license_group)
@click.argument("text")
@limit_option
def find(services: Services, printer: Printer, text: str, limit: int) -> None:
    """Find licenses.

    By the start of a word of the e-mail, the note or the reason of a revocation; by a domain, an IP address
    or a subscription; by a masked key (CP-AB…O345), a part of a key, or a whole one.
    """
    page = services.licenses.search(LicenseFilter(text), limit=limit)
    _print_list(services, printer, page.items, "no licenses found")
    if page.cursor is not None:
        echo("there may be more; search for a longer text", err=True)


@services_command("list", license_group)
@click.option("--product", metavar="SLUG", help="Only this product's licenses.")
@click.option("--trials", is_flag=True, help="Only trials.")
@click.option("--shared", is_flag=True, help="Only licenses that went to and fro between computers lately.")
def list_licenses(
    services: Services, printer: Printer, product: str | None, *, trials: bool, shared: bool
) -> None:
    """List licenses, with masked keys."""
    licenses = services.licenses.list_shared(product) if shared else services.licenses.list_all(product)
    empty = "no such licenses" if shared else "no trials yet" if trials else "no licenses yet"
    _print_list(services, printer, (each for each in licenses if each.trial or not trials), empty)


@services_command("revoke", license_group)
@key_argument
@click.option("--reason", help="For your records.")
def revoke(services: Services, printer: Printer, key: str, reason: str | None) -> None:
    """Revoke a license: verify, update check and existing links refuse it from now on."""
    before = services.licenses.get(key).revoked_at
    done = "revoked" if before is None else f"revoked before, on {before:%Y-%m-%d}, and not changed:"
    _print_changed(services, printer, services.licenses.revoke(key, reason), done)


@services_command("reinstate", license_group)
@key_argument
def reinstate(services: Services, printer: Printer, key: str) -> None:
    """Undo the revocation of a license."""
    is_revoked = services.licenses.get(key).revoked_at is not None
    done = "reinstated" if is_revoked else "not revoked, and not changed:"
    _print_changed(services, printer, services.licenses.reinstate(key), done)


@services_command("reissue", license_group)
@key_argument
def reissue(services: Services, printer: Printer, key: str) -> None:
    """Revoke a license, and print a new key with the same terms; its machines must enter that key."""
    license_, new_key = services.support.reissue(key)
    printer.result({"id": license_.id.hex(), "license_key": new_key}, new_key)


@services_command("deactivate", license_group)
@key_argument
@click.argument("domain_or_ip")
def deactivate(services: Services, printer: Printer, key: str, domain_or_ip: str) -> None:
    """Free the slots that DOMAIN_OR_IP takes."""
    freed = services.licenses.deactivate(key, domain_or_ip)
    printer.result({"freed": freed}, f"freed {freed} {plural(freed, 'slot')}")


@services_command("seats", license_group)
@key_argument
def seats(services: Services, printer: Printer, key: str) -> None:
    """List the floating seats that are in use, and by whom."""
    rows = (
        {"seat": seat.id.hex(), **pick(seat, "taken_at", "expires_at", "domain", "label")}
        for seat in services.seats.list_held(services.licenses.get(key))
    )
    printer.table(rows, (32, 20, 20, 32, 0), "no seat is in use")


@services_command("take-back", license_group)
@key_argument
@click.argument("seat")
def take_back(services: Services, printer: Printer, key: str, seat: str) -> None:
    """Take back SEAT, as `license seats` shows it: the app that holds it is notified when it renews it."""
    services.seats.take_back(key, seat)
    printer.result({"taken_back": seat}, f"took back {seat}")


@services_command("allow", license_group)
@key_argument
@click.argument("entry")
def allow(services: Services, printer: Printer, key: str, entry: str) -> None:
    """Allow ENTRY, a domain, `*.domain`, IP or network, to use the key without a slot."""
    _print_changed(services, printer, services.licenses.allow(key, entry), "changed")


@services_command("disallow", license_group)
@key_argument
@click.argument("entry")
def disallow(services: Services, printer: Printer, key: str, entry: str) -> None:
    """Remove ENTRY: what used the key through it needs a slot from now on."""
    _print_changed(services, printer, services.licenses.disallow(key, entry), "changed")


@services_command("file", license_group)
@key_argument
@click.option(
    "--machine",
    "request",
    required=True,
    metavar="REQUEST",
    help="The code that the app shows (REQ-…), or a file with it.",
)
@click.option(
    "--days",
    type=click.IntRange(1, MAX_DAYS),
    default=DEFAULT_DAYS,
    show_default=True,
    help="How long it is valid; it ends with the license in any case.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Write to this new file; default: print it.")
def issue_file(
    services: Services, printer: Printer, key: str, request: str, days: int, out: Path | None
) -> None:
    """Issue a license file for a machine without a network; it takes a slot, as a verify does."""
    path = Path(request)
    if not request.upper().startswith("REQ"):
        request = read_file(path).decode(errors="replace")
    if out is not None and out.exists():
        raise InvalidInputError(f"{out} exists already; name a new file")
    issued = services.offline_files.issue(key, request, days)
    if out is not None:
        write_new(out, issued.text.encode(), 0o644)
    record = {"domain": issued.domain, "ends_at": issued.ends_at, "file": str(out) if out else issued.text}
    text = f"wrote {out}, valid until {issued.ends_at:%Y-%m-%d %H:%M} UTC" if out else issued.text.rstrip()
    printer.result(record, text)


def _print_changed(services: Services, printer: Printer, license_: IssuedLicense, done: str) -> None:
    if printer.as_json:
        _show(services, printer, license_, reveal=False)
    else:
        echo(f"{done} {services.licenses.mask_key(license_)}")


def _print_list(services: Services, printer: Printer, licenses: Iterable[IssuedLicense], empty: str) -> None:
    """Print licenses; in JSON each field has one type, as in `license show`."""

    def summarize(license_: IssuedLicense) -> dict[str, Any]:
        expiry: dict[str, Any] = pick(license_, "expires_on", "lifetime")
        if not printer.as_json and expiry.pop("lifetime"):
            expiry["expires_on"] = "lifetime"
        return {
            "id": license_.id.hex(),
            "license_key": services.licenses.mask_key(license_),
            "product": license_.product_slug,
            "slots": "unlimited" if license_.slots is None else license_.slots,
            "slots_used": license_.slots_used,
            **expiry,
            **pick(license_, "revoked_at", "subscription_ended_at", "customer_email"),
        }

    printer.table(map(summarize, licenses), (32, 10, 20, 9, 10, 10, 23, 23, 0), empty)


def _describe_term(license_: IssuedLicense, now: datetime) -> str:
    term, end = find_term(license_, now)
    return TERM_SENTENCES[term].format(date="-" if end is None else f"{end:%Y-%m-%d}")


def _list_terms(license_: IssuedLicense, *, overrides: Any) -> dict[str, Any]:
    """Return the terms as they are printed."""
    terms = pick(license_, *TERMS) | {"overrides": overrides}
    terms |= {name: list(terms[name]) for name in LISTS}
    terms |= {"slots": "unlimited" if license_.slots is None else license_.slots}
    return {"subscription" if name == "subscription_id" else name: value for name, value in terms.items()}


def _show(services: Services, printer: Printer, license_: IssuedLicense, *, reveal: bool) -> None:
    now = system_clock()
    granted = services.plans.resolve(license_)
    uses: list[Any] = [*services.uses.list_current(license_.id, granted)]
    grants: list[Any] = [license_.overrides or {}, granted]
    today: Any = services.audit.count_today(license_.id)
    if printer.as_json:
        uses = [use._asdict() for use in uses]
    else:
        today = [f"{action} {count}" for action, count in today.items()]
        uses = [f"{use.name} {use.used} of {use.limit}, again from {use.resets_at:%Y-%m-%d}" for use in uses]
        grants = [*map(format_grants, grants)]
    key = services.licenses.reveal(license_.id.hex()) if reveal else services.licenses.mask_key(license_)
    printer.details(
        {
            "id": license_.id.hex(),
            "license_key": key,
            "product": license_.product_slug,
            "product_name": license_.product_name,
            "state": license_state(license_, now) if printer.as_json else _describe_term(license_, now),
            "issued_at": license_.issued_at,
            **_list_terms(license_, overrides=grants[0]),
            **pick(license_, "slots_used", "subscription_ended_at", "revoked_at", "revoked_reason"),
            "entitlements": grants[1],
            "uses": uses,
            "customer_today": today,
            "activations": [
                pick(activation.environment, "domain", "ip")
                | pick(activation, "activated_at", "last_seen_at", "label", "app_version", "offline_until")
                for activation in services.licenses.list_all_activations(license_)
            ],
        }
    )
