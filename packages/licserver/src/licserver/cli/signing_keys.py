"""Commands on the keys that sign responses."""

from datetime import UTC
from pathlib import Path
from typing import Any

import click

from licserver.cli.common import Commands, record_change, settings_command
from licserver.cli.output import Printer
from licserver.cli.parameters import read_file
from licserver.clock import system_clock
from licserver.errors import InvalidInputError
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.protocol.response_signatures import live_keys
from licserver.security import secrets_file
from licserver.settings import Settings

_RESTART = "restart running servers to use this, or send SIGHUP with --workers"


@click.group("signing-key", cls=Commands)
def signing_key_group() -> None:
    """Add, list and retire the keys that sign responses, and print the public keys for apps to pin."""


@signing_key_group.command("add")
@click.option(
    "--pem",
    type=click.Path(path_type=Path),
    help="A key file of openssl genpkey -algorithm ed25519; default: generate a key.",
)
@settings_command
def add(settings: Settings, printer: Printer, pem: Path | None) -> None:
    """Add a key that signs responses."""
    private = PrivateKey.generate() if pem is None else PrivateKey.from_pem(read_file(pem), str(pem))
    key = secrets_file.add_signing_key(settings, private, system_clock().astimezone(UTC))
    record_change(settings, "signing_key.add", ("signing-key", key.id), given=pem is not None)
    printer.result(_record(key), f"added {key.id}; {_RESTART}\napps pin {key.private.public.text}")


@signing_key_group.command("list")
@settings_command
def list_keys(settings: Settings, printer: Printer) -> None:
    """List all keys, the oldest first."""
    keys = secrets_file.signing_keys(settings)
    printer.table(map(_record, keys), (43, 24, 24, 0), "no signing keys: responses are not signed")


# An id may begin with a hyphen, and its letters are no options, not even -h.
@signing_key_group.command(
    "retire", context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]}
)
@click.argument("key_id", metavar="ID")
@click.option("--last", is_flag=True, help="Retire even the last key: responses are then not signed.")
@settings_command
def retire(settings: Settings, printer: Printer, key_id: str, *, last: bool) -> None:
    """Retire the key ID, or the only key that starts with ID: it signs nothing any more."""
    key = secrets_file.retire_signing_key(settings, key_id, system_clock().astimezone(UTC), last=last)
    record_change(settings, "signing_key.retire", ("signing-key", key.id), last=last)
    printer.result(_record(key), f"retired {key.id}; {_RESTART}")


@signing_key_group.command("public")
@settings_command
def public(settings: Settings, printer: Printer) -> None:
    """Print the public keys for apps to pin, of all live keys, the newest first."""
    pins = [key.private.public.text for key in live_keys(secrets_file.signing_keys(settings))]
    if not pins:
        raise InvalidInputError("there is no live signing key; add one with: licserver signing-key add")
    printer.result({"public_keys": pins}, "\n".join(pins))


def _record(key: SigningKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "added_at": key.added_at,
        "retired_at": key.retired_at,
        "public_key": key.private.public.text,
    }
