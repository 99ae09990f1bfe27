"""Commands on licenses and subscriptions."""

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import date, datetime
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from licserver.cli.common import Commands, Day, DayOrNever, Instant, Printer, Slots, services_command
from licserver.database.repositories.licenses import IssuedLicense
from licserver.domain.decisions import mask_key
from licserver.domain.records import LicenseTerms
from licserver.errors import VaultError, WrongUse
from licserver.services import ISSUE_BATCH, MAX_PAGE, LicenseFilter, Services
from licserver.services.licenses import Changes
from licserver.services.phrases import plural

_WIDTHS = (32, 10, 20, 9, 10, 10, 23, 0)


def _read_key(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Let ``-`` stand for a key on standard input: arguments stay in the shell's history."""
    if value != "-":
        return value
    if sys.stdin is None:
        raise WrongUse("there is no standard input to read the key from")
    try:
        return sys.stdin.readline().strip()
    except UnicodeDecodeError:
        raise WrongUse("standard input is no text") from None


_NOT_ALL_PRINTED = (
    "licserver: not all keys could be printed; `licserver license list` has all that are issued"
)

key_argument = click.argument("key", callback=_read_key)


@click.group("license", cls=Commands)
def license_group() -> None:
    """Issue license keys, and change what they allow.

    KEY is a license key, the id that `license list` shows, or - to read one from standard input.
    """


@license_group.command("issue")
@click.argument("slug")
@click.option(
    "--slots", type=Slots(), default="1", show_default=True, help="Activations that the key allows."
)
@click.option("--expires", type=Day(), help="Last day of validity, UTC; may lie in the past.")
@click.option("--lifetime", is_flag=True, help="Never expires.")
@click.option(
    "--support-until", type=Day(), help="Last day of update downloads, if the product has a policy."
)
@click.option("--subscription", metavar="ID", help="The subscription that the key ends with.")
@click.option(
    "--allow", multiple=True, metavar="ENTRY", help="A domain, *.domain, IP or network that takes no slot."
)
@click.option("--email", metavar="ADDRESS", help="The customer's, for you alone; licenses are found by it.")
@click.option("--note", help="Whatever you want to find it by.")
@click.option("--count", type=click.IntRange(min=1), default=1, help="How many keys.")
@services_command
def issue(
    services: Services,
    printer: Printer,
    slug: str,
    slots: tuple[int | None],
    expires: date | None,
    support_until: date | None,
    subscription: str | None,
    allow: tuple[str, ...],
    email: str | None,
    note: str | None,
    count: int,
    *,
    lifetime: bool,
) -> None:
    """Issue license keys for the product SLUG, and print them, one a line."""
    terms = LicenseTerms(slots[0], expires, lifetime, support_until, subscription, allow, email, note)
    batches = services.licenses.issue_batches(slug, terms, count)
    try:
        issued = _print_keys(printer, slug, batches, count)
    except KeyboardInterrupt:
        click.echo("licserver: interrupted; every key printed above is issued and valid", err=True)
        raise
    except OSError:  # nobody reads on, or the disk is full
        click.echo(_NOT_ALL_PRINTED, err=True)
        raise
    if count > ISSUE_BATCH:
        click.echo(f"issued {issued} keys", err=True)


def _print_keys(printer: Printer, slug: str, batches: Iterator[list[str]], count: int) -> int:
    """Print each batch once it is in the books; a bar on the terminal when the keys go elsewhere."""
    issued = 0
    wants_bar = count > ISSUE_BATCH and not sys.stdout.isatty()
    if printer.as_json:
        click.echo(f'{{"product": {json.dumps(slug)}, "license_keys": [', nl=False)
    with Progress(console=Console(stderr=True)) if wants_bar else nullcontext() as progress:
        bar = progress.add_task("issuing", total=count) if progress else None
        for keys in batches:
            if printer.as_json:
                click.echo((", " if issued else "") + ", ".join(f'"{key}"' for key in keys), nl=False)
            else:
                click.echo("\n".join(keys))
            issued += len(keys)
            if progress and bar is not None:
                progress.update(bar, completed=issued)
    if printer.as_json:
        click.echo("]}")
    return issued


@license_group.command("show")
@key_argument
@click.option("--reveal", is_flag=True, help="Print the whole key.")
@services_command
def show(services: Services, printer: Printer, key: str, *, reveal: bool) -> None:
    """Show a license and its activations."""
    _show(services, printer, services.licenses.get(key), reveal=reveal)


@license_group.command("change")
@key_argument
@click.option("--slots", type=Slots(), help="Activations that the key allows.")
@click.option("--expires", type=DayOrNever(), help="Last day of validity, UTC, or 'never' for no such day.")
@click.option("--lifetime/--no-lifetime", default=None, help="Never expires, whatever happens.")
@click.option("--support-until", type=DayOrNever(), help="Last day of update downloads, or 'never'.")
@click.option("--email", metavar="ADDRESS", help="The customer's; '' forgets it.")
@click.option("--note", help="Yours; '' forgets it.")
@services_command
def change(
    services: Services,
    printer: Printer,
    key: str,
    slots: tuple[int | None] | None,
    expires: tuple[date | None] | None,
    support_until: tuple[date | None] | None,
    email: str | None,
    note: str | None,
    *,
    lifetime: bool | None,
) -> None:
    """Change what is agreed about a license; what is not named stays."""
    changes: Changes = {}
    if slots is not None:
        changes["slots"] = slots[0]
    if expires is not None:
        changes["expires_on"] = expires[0]
    if support_until is not None:
        changes["support_until"] = support_until[0]
    if lifetime is not None:
        changes["lifetime"] = lifetime
    if email is not None:
        changes["customer_email"] = email
    if note is not None:
        changes["note"] = note
    if not changes:
        raise WrongUse("say what is to change; `licserver license change --help` shows what can")
    _changed(services, printer, services.licenses.change(key, **changes), "changed")


@license_group.command("find")
@click.argument("text")
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=50, show_default=True, help="How many.")
@services_command
def find(services: Services, printer: Printer, text: str, limit: int) -> None:
    """Find licenses by the beginnings of words of an e-mail or a note, of a domain, or by a key."""
    page = services.licenses.search(LicenseFilter(text), limit=limit)
    printer.rows((_summary(services, printer, one) for one in page.items), _WIDTHS, "found none")
    if page.cursor is not None:
        click.echo("there may be more; search for more of the word", err=True)


@license_group.command("list")
@click.option("--product", metavar="SLUG", help="Only this product's.")
@services_command
def list_licenses(services: Services, printer: Printer, product: str | None) -> None:
    """List licenses, keys masked."""
    printer.rows(
        (_summary(services, printer, license_) for license_ in services.licenses.list_all(product)),
        _WIDTHS,
        "no licenses yet",
    )


@license_group.command("revoke")
@key_argument
@click.option("--reason", help="For your own records.")
@services_command
def revoke(services: Services, printer: Printer, key: str, reason: str | None) -> None:
    """Revoke a license: verify, update check and handed-out links refuse it from now on."""
    _changed(services, printer, services.licenses.revoke(key, reason), "revoked")


@license_group.command("reinstate")
@key_argument
@services_command
def reinstate(services: Services, printer: Printer, key: str) -> None:
    """Take a revocation back."""
    _changed(services, printer, services.licenses.reinstate(key), "reinstated")


@license_group.command("deactivate")
@key_argument
@click.argument("domain_or_ip")
@services_command
def deactivate(services: Services, printer: Printer, key: str, domain_or_ip: str) -> None:
    """Free the slots that DOMAIN_OR_IP took."""
    freed = services.licenses.deactivate(key, domain_or_ip)
    printer.one({"freed": freed}, f"freed {freed} {plural(freed, 'slot')}")


@license_group.command("allow")
@key_argument
@click.argument("entry")
@services_command
def allow(services: Services, printer: Printer, key: str, entry: str) -> None:
    """Let ENTRY, a domain, *.domain, IP or network, use the key without a slot."""
    _changed(services, printer, services.licenses.allow(key, entry), "changed")


@license_group.command("disallow")
@key_argument
@click.argument("entry")
@services_command
def disallow(services: Services, printer: Printer, key: str, entry: str) -> None:
    """Take ENTRY back: what uses the key by it needs a slot from now on."""
    _changed(services, printer, services.licenses.disallow(key, entry), "changed")


@click.group("subscription", cls=Commands)
def subscription_group() -> None:
    """End subscriptions, and take an end back."""


@subscription_group.command("end")
@click.argument("subscription_id", metavar="ID")
@click.option("--at", type=Instant(), help="When it ends, UTC unless a zone is given; now unless given.")
@services_command
def end(services: Services, printer: Printer, subscription_id: str, at: datetime | None) -> None:
    """End the subscription ID: its licenses expire at that instant."""
    count = services.subscriptions.end(subscription_id, at)
    licenses = plural(count, "license expires", "licenses expire")
    printer.one(
        {"subscription": subscription_id, "licenses": count},
        f"ended {subscription_id}: {count} {licenses} with it",
    )


@subscription_group.command("resume")
@click.argument("subscription_id", metavar="ID")
@services_command
def resume(services: Services, printer: Printer, subscription_id: str) -> None:
    """Take the end of the subscription ID back."""
    count = services.subscriptions.resume(subscription_id)
    printer.one(
        {"subscription": subscription_id, "licenses": count},
        f"resumed {subscription_id}: {count} {plural(count, 'license')}",
    )


def _changed(services: Services, printer: Printer, license_: IssuedLicense, done: str) -> None:
    if printer.as_json:
        _show(services, printer, license_, reveal=False)
    else:
        printer.one({}, f"{done} {_masked(services, license_)}")


def _masked(services: Services, license_: IssuedLicense) -> str:
    """A license's key, masked; one altered row must neither end a list nor hide that a change is done."""
    try:
        return mask_key(services.licenses.decrypt_key(license_))
    except VaultError:
        return "unreadable"


def _summary(services: Services, printer: Printer, license_: IssuedLicense) -> dict[str, Any]:
    """A license in a list; for programs each field has one kind of value, as `license show` has it."""
    until: dict[str, Any] = {"expires_on": license_.expires_on}
    if printer.as_json:
        until["lifetime"] = license_.lifetime
    elif license_.lifetime:
        until["expires_on"] = "lifetime"
    return {
        "id": license_.id.hex(),
        "license_key": _masked(services, license_),
        "product": license_.product_slug,
        "slots": "unlimited" if license_.slots is None else license_.slots,
        "slots_used": license_.slots_used,
        **until,
        "revoked_at": license_.revoked_at,
        "customer_email": license_.customer_email,
    }


def _show(services: Services, printer: Printer, license_: IssuedLicense, *, reveal: bool) -> None:
    key = services.licenses.reveal(license_.id.hex()) if reveal else _masked(services, license_)
    printer.fields(
        {
            "id": license_.id.hex(),
            "license_key": key,
            "product": license_.product_slug,
            "product_name": license_.product_name,
            "issued_at": license_.issued_at,
            "expires_on": license_.expires_on,
            "lifetime": license_.lifetime,
            "revoked_at": license_.revoked_at,
            "revoked_reason": license_.revoked_reason,
            "slots": "unlimited" if license_.slots is None else license_.slots,
            "slots_used": license_.slots_used,
            "support_until": license_.support_until,
            "customer_email": license_.customer_email,
            "note": license_.note,
            "subscription": license_.subscription_id,
            "subscription_ended_at": license_.subscription_ended_at,
            "allowed": list(license_.allowed),
            "activations": [
                {"domain": environment.domain, "ip": environment.ip, "activated_at": activated_at}
                for environment, activated_at in services.licenses.list_all_activations(license_)
            ],
        }
    )
