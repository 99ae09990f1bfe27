"""The keys that sign answers: added, retired and listed in the secrets file (D-60).

A server reads them at its start. Several are live at once: callers ask for those that they know, so a new
one harms nobody who does not know it yet, and an old one serves until it is retired.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from licserver.errors import WrongUse
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.security.secrets_file import change_secrets, open_vault, write_signing_key
from licserver.settings import Settings


def signing_keys(settings: Settings) -> tuple[SigningKey, ...]:
    """All keys that sign answers or have done so, the oldest first."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return tuple(sorted(open_vault(settings).signing_keys, key=lambda key: key.added_at))


def add_signing_key(settings: Settings, private: PrivateKey, now: datetime) -> SigningKey:
    """Add a key; from a server's next start on it signs what nobody asks an older one for.

    Raises:
        WrongUse: when it is there already, or the secrets stand in the environment.
    """
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    added = SigningKey(private, now)

    def edit(held: dict[str, Any]) -> None:
        known = held.setdefault("signing_keys", [])
        if any(key["id"] == added.id for key in known):
            raise WrongUse(f"the signing key {added.id} is there already")
        known.append(write_signing_key(added))

    change_secrets(settings, edit)
    return added


def retire_signing_key(settings: Settings, key_id: str, now: datetime, *, last: bool = False) -> SigningKey:
    """Let a key sign nothing any more, from the server's next start on.

    Args:
        settings: Whose.
        key_id: Its id, or the beginning of it if only one key begins so.
        now: Since when.
        last: Whether it may be the last live one; without any, answers are not signed.

    Raises:
        WrongUse: when there is no such key, it is retired already, or it is the last one.
    """
    key = _find(signing_keys(settings), key_id)
    retired = replace(key, retired_at=now)

    def edit(held: dict[str, Any]) -> None:
        known = held["signing_keys"]
        live = [one["id"] for one in known if one["retired_at"] is None]
        if key.id not in live:
            raise WrongUse(f"the signing key {key.id} is retired already")
        if live == [key.id] and not last:
            raise WrongUse(
                f"{key.id} is the last live signing key: apps that pin it would trust no answer any more; "
                "add another one first, or say --last"
            )
        held["signing_keys"] = [write_signing_key(retired) if one["id"] == key.id else one for one in known]

    change_secrets(settings, edit)
    return retired


def _find(keys: Sequence[SigningKey], key_id: str) -> SigningKey:
    found = [key for key in keys if key_id and key.id.startswith(key_id)]
    if len(found) != 1:
        raise WrongUse(f"there {'are several signing keys' if found else 'is no signing key'} {key_id!r}")
    return found[0]
