"""The command that issues license files; `licenses` has the others on licenses."""

from pathlib import Path

import click

from licserver.cli.common import Printer, key_argument, read_file, services_command, write_new
from licserver.domain.offline import DEFAULT_DAYS, MAX_DAYS
from licserver.errors import InvalidInputError
from licserver.services import Services


@services_command("file")
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
    told = f"wrote {out}, valid until {issued.ends_at:%Y-%m-%d %H:%M} UTC" if out else issued.text.rstrip()
    printer.result(record, told)
