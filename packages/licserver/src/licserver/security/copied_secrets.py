"""Bring the secrets to the other machines of an installation.

Link secrets and signing keys change with time. The other two never do, and say whether two machines belong
together.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from licserver.errors import InvalidInputError
from licserver.security.secrets_file import (
    SECRETS_FILE,
    change_secrets,
    create_secrets,
    open_vault,
    read_secrets,
    read_vault,
)
from licserver.settings import Settings

_CHANGEABLE: Final = ("link_secrets", "signing_keys")
_Content = dict[str, Any]


def export_secrets(settings: Settings) -> str:
    """Return all secrets, for `import_secrets` on another machine."""
    open_vault(settings)
    return read_secrets(settings)


def import_secrets(settings: Settings, text: str) -> list[str]:
    """Take over the secrets of another machine with the same database, or all where there are none.

    Returns:
        What changed: ``link_secrets``, ``signing_keys``.

    Raises:
        InvalidInputError: if they are of another database, or this machine has a secret that the other lacks.
    """
    received = read_vault(text, "the input")
    content: _Content = json.loads(text)
    if settings.secrets is None and not os.path.lexists(settings.data_dir / SECRETS_FILE):
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        if create_secrets(settings, text):
            return [name for name in _CHANGEABLE if content.get(name)]
    if open_vault(settings).fingerprint != received.fingerprint:
        raise InvalidInputError("these are the secrets of another database; nothing was changed")
    changed: list[str] = []

    def edit(here: _Content) -> None:
        _refuse_to_lose_secrets(here, content)
        changed.extend(name for name in _CHANGEABLE if here.get(name, []) != content.get(name, []))
        here.update({name: content.get(name, []) for name in changed})

    change_secrets(settings, edit)
    return changed


def _refuse_to_lose_secrets(here: _Content, received: _Content) -> None:
    """Refuse what is older than this machine's own: somebody has rotated or added here."""
    ours, theirs = here["link_secrets"][0], received["link_secrets"][0]
    is_newer = ours.get("signs_from", "") > theirs.get("signs_from", "")
    if is_newer and ours["id"] not in _ids(received["link_secrets"]):
        raise InvalidInputError(
            f"this machine has a newer link secret, {ours['id']}: copy the secrets from here instead"
        )
    their_keys = {key["id"]: key for key in received.get("signing_keys", [])}
    for key in here.get("signing_keys", []):
        other = their_keys.get(key["id"])
        if other is None or (key["retired_at"] is not None and other["retired_at"] is None):
            what = "has" if other is None else "has retired"
            raise InvalidInputError(
                f"this machine {what} the signing key {key['id']}, and the other has not: copy the secrets "
                "from here instead"
            )


def _ids(secrets: Sequence[Mapping[str, Any]]) -> set[str]:
    return {one["id"] for one in secrets}
