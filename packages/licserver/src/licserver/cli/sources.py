"""Commands on sales: shops whose deliveries issue, revoke and end licenses; and subscriptions."""

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, time
from typing import Any, Final

import click

from licserver.cli import Commands
from licserver.cli.common import (
    Printer,
    confirm,
    limit_option,
    name_argument,
    pick,
    row_id,
    services_command,
    warn_of_unused_support,
    yes_option,
)
from licserver.cli.licenses import SEATS, SLOTS
from licserver.cli.output import echo
from licserver.database.repositories.sales import (
    CHANGES,
    DEAD,
    Problem,
    Source,
    SourceMapping,
    StoredEvent,
)
from licserver.domain.text import plural
from licserver.errors import InvalidInputError
from licserver.services.installation import Services
from licserver.services.sales.deliveries import find_key
from licserver.services.sales.problems import list_answers
from licserver.services.sources import FILTERS, describe_odd_secrets, missing_variables
from licserver.shops import ROWS, ShopKind
from licserver.shops.contract import Answer
from licserver.shops.facts import OrderState

Command = Callable[..., None]
_MODES: Final = {False: "live", True: "test"}

external_id_argument = click.argument("external_id")


def _parse_days(text: str) -> int:
    number = text.removesuffix("d")
    if not (number.isascii() and number.isdecimal() and len(number) < 4):  # noqa: PLR2004 - at most a year
        raise click.BadParameter(f"{text!r} is not a number of days; write it like 7d")
    return int(number)


def _parse_states(texts: Sequence[str]) -> dict[str, str]:
    states = {}
    for text in texts:
        state, sign, meaning = text.rpartition("=")
        if not sign or not state:
            raise click.BadParameter(f"{text!r} is not a valid state; write it like shipped=paid")
        states[state] = meaning
    return states


def _api_options(command: Command) -> Command:
    """Add the options that depend on the shop."""
    for option in (
        click.option("--url", metavar="URL", help="The address of a shop that has an API of its own."),
        click.option("--key-env", metavar="VARIABLE", help="The environment variable with the API key."),
        click.option(
            "--renewal-field", metavar="NAME", help="The order's field with the subscription that it renews."
        ),
        click.option(
            "--state",
            "states",
            multiple=True,
            metavar="STATE=MEANING",
            help=f"What a state of your own means: {', '.join(OrderState)}. Again for each.",
        ),
    ):
        command = option(command)
    return command


source_group = Commands(
    "source",
    help="""Take sales from shops: add a source, map its products, and see what it has delivered.

A shop delivers to `POST /events/in/NAME` of this server.""",
)


@services_command("add", source_group)
@name_argument
@click.option(
    "--kind",
    type=click.Choice([member.value for member in ShopKind]),
    required=True,
    help="The shop's system.",
)
@click.option(
    "--secret-env",
    required=True,
    metavar="VARIABLE",
    help="The environment variable with the shop's signing secret; several, for rotation, with commas.",
)
@click.option("--test", "is_test", is_flag=True, help="Takes events of the shop's test mode, and no others.")
@click.option("--tolerance", type=int, default=300, show_default=True, help="Seconds a signature is valid.")
@click.option(
    "--grace",
    "grace_days",
    type=_parse_days,
    metavar="DAYS",
    default="7d",
    show_default=True,
    help="How long a subscription goes on after the time that was paid.",
)
@click.option(
    "--refund",
    type=click.Choice(["full", "any"]),
    default="full",
    show_default=True,
    help="Which refunds revoke the licenses of an order.",
)
@click.option(
    "--changes",
    type=click.Choice(CHANGES),
    default=CHANGES[0],
    show_default=True,
    help="Whether a changed plan, price or quantity changes the licenses, or you are asked.",
)
@_api_options
def add_source(
    services: Services,
    printer: Printer,
    name: str,
    kind: str,
    secret_env: str,
    refund: str,
    states: Sequence[str],
    **options: Any,
) -> None:
    """Add the source NAME; its secret is not stored here."""
    options["revokes_partial_refunds"] = refund == "any"
    options["states"] = _parse_states(states)
    source = services.sources.add(name, ShopKind(kind), secret_env, **options)
    _warn_of_secrets(source)
    path = f"/events/in/{source.name}"
    record = {"name": source.name, "kind": source.kind.value, "path": path}
    url = f"{services.settings.base_url or ''}{path}"
    printer.result(record, f"added {name}: let the shop deliver to {url}, then map its products")


@services_command("change", source_group)
@name_argument
@click.option("--secret-env", metavar="VARIABLE", help="The environment variable; several with commas.")
@click.option("--tolerance", type=int, metavar="SECONDS", help="How long a signature is valid.")
@click.option("--grace", "grace_days", type=_parse_days, metavar="DAYS", help="After the time that was paid.")
@click.option("--refund", type=click.Choice(["full", "any"]), help="Which refunds revoke licenses.")
@click.option(
    "--changes", type=click.Choice(CHANGES), help="Whether a changed plan, price or quantity is followed."
)
@_api_options
def change_source(
    services: Services, printer: Printer, name: str, refund: str | None, states: Sequence[str], **options: Any
) -> None:
    """Change the source NAME, such as the variables of its secrets; mappings and deliveries stay."""
    changes = {option: value for option, value in options.items() if value is not None}
    if refund is not None:
        changes["revokes_partial_refunds"] = refund == "any"
    if states:
        changes["states"] = _parse_states(states)
    source = services.sources.change(name, **changes)
    _warn_of_secrets(source)
    printer.result({"name": name, **changes}, f"changed {name}")


def _warn_of_secrets(source: Source) -> None:
    if missing := missing_variables(source):
        echo(f"not set here: {', '.join(missing)}; the server needs it", err=True)
    if odd := describe_odd_secrets(source):
        echo(odd, err=True)


@services_command("list", source_group)
def list_sources(services: Services, printer: Printer) -> None:
    """List all sources, and what is mapped."""
    mappings = defaultdict[str, list[SourceMapping]](list)
    for mapping in services.sources.list_mappings():
        mappings[mapping.source].append(mapping)
    records = (
        {
            "name": source.name,
            "kind": source.kind.value,
            "mode": _MODES[source.is_test],
            "secret": "missing" if missing_variables(source) else "set",
            "secret_env": source.secret_env,
            "mapped": ", ".join(map(_describe_mapping, mappings[source.name])) or None,
        }
        for source in services.sources.list_all()
    )
    printer.table(records, (16, 12, 4, 7, 20, 0), "no sources yet")


@services_command("show", source_group)
@name_argument
def show_source(services: Services, printer: Printer, name: str) -> None:
    """Show the settings of the source NAME; of secrets and keys, the variables and whether they are set."""
    source = services.sources.get(name)
    has_key = bool(find_key(source, services.settings))
    states = [f"{state}={meaning}" for state, meaning in sorted(source.states.items())]
    printer.details(
        {
            "name": name,
            "kind": source.kind.value,
            "mode": _MODES[source.is_test],
            "path": f"/events/in/{name}",
            "secret_env": source.secret_env,
            "secret": "missing" if missing_variables(source) else "set",
            **pick(source, "tolerance", "grace_days"),
            "refund": "any" if source.revokes_partial_refunds else "full",
            "changes": source.changes,
            "states": dict(source.states) if printer.as_json else states,
            **pick(source, "renewal_field", "key_env"),
            "api_key": "set" if has_key else "missing" if source.key_env else None,
            "url": source.url,
            "mappings": len(services.sources.list_mappings(name)),
            "created_at": source.created_at,
        }
    )


def _describe_mapping(mapping: SourceMapping) -> str:
    if mapping.product is None:
        return f"{mapping.external_id} -> nothing"
    slots = "unlimited" if mapping.slots is None else mapping.slots
    terms = [f"slots {slots}", *(["lifetime"] if mapping.lifetime else [])]
    more = pick(mapping, "expires_in", "support", "plan", "floating_seats", "quantity")
    terms += [f"{name.replace('_', ' ')} {value}" for name, value in more.items() if value]
    return f"{mapping.external_id} -> {mapping.product} ({', '.join(terms)})"


@services_command("map", source_group)
@name_argument
@external_id_argument
@click.option("--product", "slug", metavar="SLUG", help="The product whose licenses are issued.")
@click.option("--ignore", is_flag=True, help="Nothing is issued for it.")
@click.option("--slots", default="1", show_default=True, **SLOTS)
@click.option("--expires-in", metavar="PERIOD", help="From the purchase, as 30d, 6m or 1y.")
@click.option("--support", metavar="PERIOD", help="From the purchase to the end of the support period.")
@click.option("--lifetime", is_flag=True, help="Never expires.")
@click.option("--plan", metavar="NAME", help="The plan of each license.")
@click.option("--floating-seats", type=int, **SEATS)
@click.option(
    "--quantity", type=int, metavar="N", help="How many a purchase is, where the shop does not report it."
)
@click.option(
    "--go-on", is_flag=True, help="Process the sales that wait for it, as the console's button does."
)
def map_product(
    services: Services,
    printer: Printer,
    name: str,
    external_id: str,
    *,
    ignore: bool,
    go_on: bool,
    **terms: Any,
) -> None:
    """Choose what the source NAME issues for EXTERNAL_ID, the shop's id of a product or price."""
    if ignore is (terms["slug"] is not None):
        raise InvalidInputError("give --product or --ignore")
    mapping = services.sources.map(name, external_id, **terms)
    printer.result(asdict(mapping), f"mapped {_describe_mapping(mapping)}")
    if mapping.slots == 0 and mapping.product is not None:
        echo("warning: without slots no computer can use the licenses", err=True)
    if mapping.support is not None and mapping.product is not None:
        warn_of_unused_support(services, mapping.product)
    if waiting := services.sources.count_waiting(name, external_id):
        sales = f"{waiting} {plural(waiting, 'sale waits', 'sales wait')} for it"
        if go_on:
            services.sources.process_waiting(name, external_id)
        echo(f"{sales}: the server goes on with them" if go_on else f"{sales}; add --go-on", err=True)


@services_command("unmap", source_group)
@name_argument
@external_id_argument
def unmap_product(services: Services, printer: Printer, name: str, external_id: str) -> None:
    """Remove a mapping."""
    services.sources.unmap(name, external_id)
    printer.result({"source": name, "external_id": external_id}, f"unmapped {external_id}")


@services_command("remove", source_group)
@name_argument
@yes_option
def remove_source(services: Services, printer: Printer, name: str, *, yes: bool) -> None:
    """Remove the source NAME with its mappings and deliveries, after asking; its licenses stay."""
    services.sources.get(name)
    if not yes:
        mapped = len(services.sources.list_mappings(name))
        mappings = f"{mapped} {plural(mapped, 'mapping')}"
        confirm(
            f"Remove {name} with {mappings} and all its deliveries? Its licenses stay.",
            "removing a source deletes its mappings and deliveries",
        )
    services.sources.remove(name)
    printer.result({"source": name}, f"removed {name}")


@services_command("events", source_group)
@name_argument
@click.option(
    "--state",
    type=click.Choice(FILTERS),
    help="Only those in this state; dead ones need you, and unreadable ones are a part of those.",
)
@limit_option
def list_events(services: Services, printer: Printer, name: str, state: str | None, limit: int) -> None:
    """List what the source NAME has delivered, the latest first."""
    events = services.sources.list_events(name, state, limit=limit).items
    printer.table(map(_event_record, events), (6, 23, 32, 7, 0), "no deliveries")


def _event_record(event: StoredEvent) -> dict[str, Any]:
    return pick(event, "id", "received_at", "type", "state", "reason")


@services_command("replay", source_group)
@click.argument("event_ids", metavar="ID...", type=row_id, nargs=-1, required=True)
def replay(services: Services, printer: Printer, event_ids: Sequence[int]) -> None:
    """Process the delivery ID, or several, again; `source events` shows ids. Nothing is issued twice."""
    events = [services.sources.replay(event_id) for event_id in event_ids]
    again = f"{len(events)} {plural(len(events), 'delivery', 'deliveries')}"
    printer.result({"events": [*map(_event_record, events)]}, f"the server will process {again} again")


@services_command("problems", source_group)
@limit_option
def list_problems(services: Services, printer: Printer, limit: int) -> None:
    """List what you have to look at, the latest first."""
    problems = services.sale_problems.list_open(limit=limit).items
    dead = [
        source.name
        for source in services.sources.list_all()
        if services.sources.list_events(source.name, DEAD, limit=1).items
    ]
    empty = "no sale waits for an answer" if dead else "nothing needs you"
    printer.table(map(_problem_record, problems), (6, 16, 24, 22, 14, 0), empty)
    for name in dead if not problems else ():
        echo(f"deliveries could not be processed: licserver source events {name} --state dead", err=True)


def _problem_record(problem: Problem) -> dict[str, Any]:
    record = pick(problem, "id", "source", "object", "kind", "answers", "message")
    return {**record, "answers": " ".join(list_answers(problem))}


@services_command("answer", source_group)
@click.argument("problem_id", metavar="ID", type=row_id)
@click.argument("answer", metavar="ANSWER", type=click.Choice([member.value for member in Answer]))
def answer_problem(services: Services, printer: Printer, problem_id: int, answer: str) -> None:
    """Answer the problem ID: `follow` what the shop reports, `leave` the licenses, or `issued` by hand.

    `source problems` shows which of them a problem can have.
    """
    services.sources.answer(problem_id, answer)
    printer.result({"problem": problem_id, "answer": answer}, f"answered {problem_id}: {answer}")


@services_command("sync", source_group)
@name_argument
@click.option("--since", required=True, metavar="DAY", help="What has happened since then, as 2026-01-31.")
@click.option(
    "--key-env", metavar="VARIABLE", help="The environment variable with the API key; default: the source's."
)
@click.option("--url", help="Address of a shop that has an API of its own; default: the source's.")
def sync(
    services: Services, printer: Printer, name: str, since: str, key_env: str | None, url: str | None
) -> None:
    """Ask the API of the shop NAME for what was not delivered; the running server processes it."""
    source = services.sources.get(name)
    if ROWS[source.kind].is_own:
        raise InvalidInputError("a shop of your own has no API to ask: let it deliver again what is missing")
    key_env, url = key_env or source.key_env, url or source.url
    if key_env is None:
        raise InvalidInputError("name the environment variable with the API key by --key-env")
    key = os.environ.get(key_env, "").strip()
    if not key:
        raise InvalidInputError(f"the environment variable {key_env} is empty")
    try:
        start = datetime.combine(date.fromisoformat(since), time(), UTC)
    except ValueError:
        raise InvalidInputError(f"{since!r} is not a valid date; write it like 2026-01-31") from None
    if start > services.now():
        raise InvalidInputError(f"{since} has not come yet; name a day that has passed")

    async def take_all() -> Counter[str]:
        from licserver.jobs.shop_apis import fetch_deliveries  # noqa: PLC0415 - loads aiohttp

        bodies = fetch_deliveries(source.kind, key, start, url, is_test=source.is_test)
        return Counter([services.sources.take(name, body).status async for body in bodies])

    counts = asyncio.run(take_all())
    record = {state: counts[state] for state in ("accepted", "duplicate", "ignored", "unreadable")}
    printer.result(record, ", ".join(f"{count} {state}" for state, count in record.items()))


# --- subscriptions of licenses ----------------------------------------------------------------

subscription_argument = click.argument("subscription_id", metavar="ID")


def _parse_instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a date and time; write it like 2027-01-31T12:00Z"
        ) from None


subscription_group = Commands("subscription", help="End and resume subscriptions.")


@services_command("end", subscription_group)
@subscription_argument
@click.option(
    "--at",
    type=_parse_instant,
    metavar="INSTANT",
    help="When it ends, UTC unless a zone is given; default: now.",
)
def end(services: Services, printer: Printer, subscription_id: str, at: datetime | None) -> None:
    """End the subscription ID: its licenses expire at that time."""
    count = services.subscriptions.end(subscription_id, at)
    done = f"ended {subscription_id}"
    if at is not None and at > services.now():
        done = f"{subscription_id} ends on {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    sentence = f"{done}: {count} {plural(count, 'license expires', 'licenses expire')} with it"
    printer.result({"subscription": subscription_id, "licenses": count}, sentence)


@services_command("resume", subscription_group)
@subscription_argument
def resume(services: Services, printer: Printer, subscription_id: str) -> None:
    """Undo the end of the subscription ID; of a shop's own it is the one that the shop reported."""
    count = services.subscriptions.resume(subscription_id)
    sentence = f"resumed {subscription_id}: {count} {plural(count, 'license')}"
    ends_at = services.subscriptions.get(subscription_id).ended_at
    if ends_at is not None:
        sentence += (
            f", until {ends_at:%Y-%m-%d %H:%M} UTC as its shop reported; `subscription end --at` moves that"
        )
    printer.result({"subscription": subscription_id, "licenses": count}, sentence)
