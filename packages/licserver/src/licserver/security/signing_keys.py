"""Add, retire and list the keys that sign responses, in the secrets file."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from licserver.errors import InvalidInputError
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.security.secrets_file import change_secrets, format_signing_key, open_vault
from licserver.settings import Settings


def signing_keys(settings: Settings) -> tuple[SigningKey, ...]:
    """Return all keys, including retired ones, the oldest first."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return tuple(sorted(open_vault(settings).signing_keys, key=lambda key: key.added_at))


def add_signing_key(settings: Settings, private: PrivateKey, now: datetime) -> SigningKey:
    """Add a key; servers use it after a restart.

    Raises:
        InvalidInputError: if it exists already, or the secrets are in the environment.
    """
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    added = SigningKey(private, now)

    def edit(content: dict[str, Any]) -> None:
        known = content.setdefault("signing_keys", [])
        if any(key["id"] == added.id for key in known):
            raise InvalidInputError(f"the signing key {added.id} exists already")
        known.append(format_signing_key(added))

    change_secrets(settings, edit)
    return added


def retire_signing_key(settings: Settings, key_id: str, now: datetime, *, last: bool = False) -> SigningKey:
    """Retire a key; servers stop using it after a restart.

    Args:
        settings: Of the installation.
        key_id: The id, or an unambiguous start of it.
        now: The time of retirement.
        last: Whether to retire even the last live key, after which responses are not signed.

    Raises:
        InvalidInputError: if there is no such key, it is retired already, or it is the last one.
    """
    key = _find(signing_keys(settings), key_id)
    retired = replace(key, retired_at=now)

    def edit(content: dict[str, Any]) -> None:
        known = content["signing_keys"]
        live = [one["id"] for one in known if one["retired_at"] is None]
        if key.id not in live:
            raise InvalidInputError(f"the signing key {key.id} is retired already")
        if live == [key.id] and not last:
            raise InvalidInputError(
                f"{key.id} is the last live signing key: apps that pin it would trust no response any more; "
                "add another key first, or use --last"
            )
        content["signing_keys"] = [
            format_signing_key(retired) if one["id"] == key.id else one for one in known
        ]

    change_secrets(settings, edit)
    return retired


def _find(keys: Sequence[SigningKey], key_id: str) -> SigningKey:
    found = [key for key in keys if key_id and key.id.startswith(key_id)]
    if len(found) != 1:
        problem = "there are several signing keys" if found else "there is no signing key"
        raise InvalidInputError(f"{problem} {key_id!r}; `licserver signing-key list` shows all ids")
    return found[0]
