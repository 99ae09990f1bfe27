"""Commands on the keys that sign answers."""

import functools
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any, TypeVar

import click

from licserver.cli.common import Commands, Printer, data_dir_option, load_command_settings, note_done
from licserver.clock import system_clock
from licserver.errors import WrongUse
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.protocol.response_signatures import newest_first
from licserver.security import signing_keys
from licserver.settings import Settings

R = TypeVar("R")

_FROM_THEN_ON = "a server that runs takes note when it is restarted, or on SIGHUP with --workers"


def _command(function: Callable[..., R]) -> Callable[..., R]:
    """Give a command ``--data-dir`` and ``--json``, and hand it settings and a printer: no vendor."""

    @data_dir_option
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @functools.wraps(function)
    def command(*, data_dir: Path | None, as_json: bool, **parameters: Any) -> R:
        return function(load_command_settings(data_dir), Printer(as_json=as_json), **parameters)

    return command


@click.group("signing-key", cls=Commands)
def signing_key_group() -> None:
    """Add, list and retire the keys that sign answers, and print what apps pin."""


@signing_key_group.command("add")
@click.option(
    "--pem",
    type=click.Path(path_type=Path),
    help="Take the key in this file, as openssl genpkey -algorithm ed25519 writes it; else one is drawn.",
)
@_command
def add(settings: Settings, printer: Printer, pem: Path | None) -> None:
    """Add a key that signs answers."""
    private = PrivateKey.generate() if pem is None else PrivateKey.from_pem(_read(pem), str(pem))
    key = signing_keys.add_signing_key(settings, private, system_clock().astimezone(UTC))
    note_done(settings, "signing_key.add", ("signing-key", key.id), given=pem is not None)
    printer.one(_record(key), f"added {key.id}; {_FROM_THEN_ON}\napps pin {key.private.public.text}")


@signing_key_group.command("list")
@_command
def list_keys(settings: Settings, printer: Printer) -> None:
    """List all keys, the oldest first."""
    printer.rows(
        map(_record, signing_keys.signing_keys(settings)),
        (43, 24, 24, 0),
        "no signing keys: answers are not signed",
    )


# An id may begin with a hyphen, and is no option for that.
@signing_key_group.command("retire", context_settings={"ignore_unknown_options": True})
@click.argument("key_id", metavar="ID")
@click.option("--last", is_flag=True, help="Also when no other key is left: answers are then not signed.")
@_command
def retire(settings: Settings, printer: Printer, key_id: str, *, last: bool) -> None:
    """Let the key ID sign nothing any more; its beginning is enough."""
    key = signing_keys.retire_signing_key(settings, key_id, system_clock().astimezone(UTC), last=last)
    note_done(settings, "signing_key.retire", ("signing-key", key.id), last=last)
    printer.one(_record(key), f"retired {key.id}; {_FROM_THEN_ON}")


@signing_key_group.command("public")
@_command
def public(settings: Settings, printer: Printer) -> None:
    """Print what apps pin: the public half of every live key, the newest first."""
    pins = [key.private.public.text for key in newest_first(signing_keys.signing_keys(settings))]
    if not pins:
        raise WrongUse("there is no live signing key; add one with: licserver signing-key add")
    printer.one({"public_keys": pins}, "\n".join(pins))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise WrongUse(f"cannot read {path}: {problem.strerror}") from None


def _record(key: SigningKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "added_at": key.added_at,
        "retired_at": key.retired_at,
        "public_key": key.private.public.text,
    }
