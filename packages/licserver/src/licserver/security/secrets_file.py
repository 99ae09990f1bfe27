"""The secrets file: created once, read at every start, changed completely or not at all.

Without it, all license keys are lost; a reader of it can decrypt them. So it has mode 0600 from its first
byte, keeps its owner, and is never replaced by a new file if a database depends on it.
"""

import contextlib
import json
import os
import secrets
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from licserver import libraries
from licserver.errors import InvalidInputError, SecretsError
from licserver.protocol.downloads import LinkSecret
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.security.key_vault import KeyVault
from licserver.security.private_files import describe_link, open_unlinked, remove_leftovers, sync_folder
from licserver.settings import Settings

SECRETS_FILE: Final = "secrets.json"
_SECRET_BYTES: Final = 32
_LOCK_SECONDS: Final = 5.0
_TEMPORARY: Final = ".secrets-"
_HAS_DATABASE: Final = "has_database"
_CHANGEABLE: Final = ("link_secrets", "signing_keys")  # the others show whether two machines belong together
_LEFTOVER_SECONDS: Final = 3600
"""Writing takes less than a second: an older temporary file was left by a killed process."""


def new_secrets() -> dict[str, Any]:
    """Return fresh content for a secrets file."""
    return {"index_secret": _generate(), "seal_secret": _generate(), "link_secrets": [new_link_secret()]}


def new_link_secret() -> dict[str, str]:
    """Return a fresh link secret, as in the secrets file."""
    return {"id": secrets.token_hex(4), "secret": _generate()}


def _generate() -> str:
    return b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def read_vault(text: str, source: str) -> KeyVault:
    """Parse the content of a secrets file; raise `SecretsError` that names `source`, never its content."""
    try:
        content = json.loads(text)
        vault = KeyVault(
            index_secret=b64decode(content["index_secret"], validate=True),
            encryption_secret=b64decode(content["seal_secret"], validate=True),
            link_secrets=tuple(map(_read_link_secret, content["link_secrets"])),
            signing_keys=tuple(map(_read_signing_key, content.get("signing_keys", []))),
            has_database=content.get(_HAS_DATABASE) is True,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SecretsError(
            f"{source} does not hold licserver's secrets; restore it from your backup"
        ) from None
    keys = [vault.index_secret, vault.encryption_secret, *(link.secret for link in vault.link_secrets)]
    if {len(key) for key in keys} != {_SECRET_BYTES} or not vault.link_secrets:
        raise SecretsError(
            f"{source} does not hold secrets of {_SECRET_BYTES} bytes; restore it from your backup"
        )
    return vault


def _read_link_secret(content: Mapping[str, Any]) -> LinkSecret:
    signs_from = content.get("signs_from")
    secret = b64decode(content["secret"], validate=True)
    if not isinstance(content["id"], str):
        raise TypeError("the id of a link secret must be text")
    return LinkSecret(content["id"], secret, None if signs_from is None else _read_instant(signs_from))


def _read_signing_key(content: Mapping[str, Any]) -> SigningKey:
    retired_at = content["retired_at"]
    return SigningKey(
        PrivateKey(b64decode(content["secret"], validate=True)),
        _read_instant(content["added_at"]),
        None if retired_at is None else _read_instant(retired_at),
    )


def _read_instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("an instant needs a time zone")
    return instant


def format_signing_key(key: SigningKey) -> dict[str, Any]:
    """Return a signing key as in the secrets file, with its secret."""
    return {
        "id": key.id,  # for people; it follows from the secret
        "secret": b64encode(key.private.seed).decode(),
        "added_at": key.added_at.isoformat(),
        "retired_at": key.retired_at and key.retired_at.isoformat(),
    }


def open_vault(settings: Settings, is_in_use: Callable[[], bool] = lambda: False) -> KeyVault:
    """Read the secrets from the environment or the data folder; create them on first use.

    `is_in_use` is called if there are none: if the database was written with secrets, they are lost, and
    `SecretsError` is raised (D-74).
    """
    if settings.secrets is not None:
        return read_vault(settings.secrets.get_secret_value(), "LICSERVER_SECRETS")
    path = settings.data_dir / SECRETS_FILE
    if not os.path.lexists(path):
        # Check again: another process may have written the file in the meantime, and then the database.
        if is_in_use() and not os.path.lexists(path):
            raise SecretsError(
                f"{path} is lost: the database was written with its secrets, and new ones cannot replace "
                "them; restore the file from your backup, or put its content into LICSERVER_SECRETS"
            )
        create_secrets(settings, json.dumps(new_secrets(), indent=2))
    return read_vault(read_secrets_file(path), str(path))


def expects_database(settings: Settings, vault: KeyVault) -> bool:
    """Return whether a database written with these secrets must exist.

    Always true for secrets from the environment, which cannot be marked.
    """
    return settings.secrets is not None or vault.has_database


def note_database(settings: Settings, vault: KeyVault) -> None:
    """Mark in the secrets file that a database exists; the last step of a first start.

    If this user cannot replace the file, it stays unmarked; `licserver check` reports that.
    """
    if not expects_database(settings, vault):
        with contextlib.suppress(OSError, SecretsError):
            change_secrets(settings, lambda content: content.update({_HAS_DATABASE: True}))


def change_secrets(settings: Settings, edit: Callable[[dict[str, Any]], None]) -> KeyVault:
    """Edit the secrets file under a lock, completely or not at all; create a missing file.

    `edit` changes the content in place; an exception leaves the file as it is.
    """
    if settings.secrets is not None:
        raise InvalidInputError(
            "the secrets are in LICSERVER_SECRETS, which this command cannot change: put them into "
            f"{SECRETS_FILE} of a data folder, run the command there without LICSERVER_SECRETS, and copy the "
            "file's content back"
        )
    open_vault(settings)
    path = settings.data_dir / SECRETS_FILE
    with _locked(path):
        content = json.loads(read_secrets_file(path))
        edit(content)
        text = json.dumps(content, indent=2)
        vault = read_vault(text, str(path))
        _write_secrets(path, text)
        return vault


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        with libraries.filelock.FileLock(path.with_suffix(".lock"), timeout=_LOCK_SECONDS, mode=0o600):
            yield
    except libraries.filelock.Timeout:
        raise SecretsError(f"another process is changing {path}; try again") from None


def name_before_restore(path: Path) -> Path:
    """Return an unused name for a file that a restore replaces."""
    number, path_ = 1, path.with_name(f"{path.name}.before-restore")
    while path_.is_file():
        number += 1
        path_ = path.with_name(f"{path.name}.{number}.before-restore")
    return path_


@contextlib.contextmanager
def other_secrets(settings: Settings, text: str) -> Iterator[Callable[[], None]]:
    """Prepare other secrets; yield a function that installs them. Undo that if the block raises.

    The old file is kept beside the new file. Everything that needs disk space is done first.
    """
    path = settings.data_dir / SECRETS_FILE
    kept_path = name_before_restore(path)
    read_vault(text, "the backup")
    old = read_secrets_file(path) if settings.secrets is None and os.path.lexists(path) else None
    if settings.secrets is not None or old == text:
        yield lambda: None
        return
    is_replaced = False
    with _written(path, text) as new, contextlib.ExitStack() as stack:
        copy = None if old is None else stack.enter_context(_written(path, old))

        def put_in_place() -> None:
            nonlocal is_replaced
            if copy is not None:
                copy.replace(kept_path)
            is_replaced = True
            new.replace(path)
            sync_folder(path.parent)

        try:
            yield put_in_place
        except BaseException:
            if is_replaced and copy is not None:
                kept_path.replace(path)
            elif is_replaced:
                path.unlink(missing_ok=True)
            raise


def read_secrets(settings: Settings) -> str:
    """Return the content of the secrets file or its variable, for a backup."""
    if settings.secrets is not None:
        return settings.secrets.get_secret_value()
    return read_secrets_file(settings.data_dir / SECRETS_FILE)


def read_secrets_file(path: Path) -> str:
    """Return the content of a secrets file; raise `SecretsError` if it is unreadable, or a link (D-159)."""
    try:
        if problem := describe_link(path):
            raise SecretsError(problem)
        with open_unlinked(path) as file:
            return file.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SecretsError(f"cannot read {path}: {reason}") from None


def create_secrets(settings: Settings, text: str) -> bool:
    """Write a secrets file unless it exists; return whether it was written."""
    path = settings.data_dir / SECRETS_FILE
    with _locked(path):
        if os.path.lexists(path):
            return False
        _write_secrets(path, text)
        return True


def _write_secrets(path: Path, text: str) -> None:
    with _written(path, text) as temporary:
        temporary.replace(path)
        sync_folder(path.parent)  # durable before a database on another disk is written with them


@contextlib.contextmanager
def _written(path: Path, text: str) -> Iterator[Path]:
    """Yield a durable temporary file of mode 0600 beside `path`."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_TEMPORARY)  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            remove_leftovers(path.parent, _TEMPORARY, os.fstat(handle).st_mtime, _LEFTOVER_SECONDS)
            file.write(text)
            file.flush()
            # The server's user could not read a file of another user any more (D-126).
            if os.name != "nt" and path.exists() and os.fstat(handle).st_uid != path.stat().st_uid:
                raise SecretsError(
                    f"{path} belongs to another user, and would become unreadable to it; run as that user"
                )
            os.fsync(file.fileno())
        yield Path(temporary)
    finally:
        Path(temporary).unlink(missing_ok=True)


# --- signing keys -----------------------------------------------------------------------------


def signing_keys(settings: Settings) -> tuple[SigningKey, ...]:
    """Return all keys, including retired ones, the oldest first."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return tuple(sorted(open_vault(settings).signing_keys, key=lambda key: key.added_at))


def add_signing_key(settings: Settings, private: PrivateKey, now: datetime) -> SigningKey:
    """Add a key; servers use it after a restart."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    added = SigningKey(private, now)

    def edit(content: dict[str, Any]) -> None:
        stored_keys = content.setdefault("signing_keys", [])
        if any(key["id"] == added.id for key in stored_keys):
            raise InvalidInputError(f"the signing key {added.id} exists already")
        stored_keys.append(format_signing_key(added))

    change_secrets(settings, edit)
    return added


def retire_signing_key(settings: Settings, key_id: str, now: datetime, *, last: bool = False) -> SigningKey:
    """Retire a key by the start of its id, the last key only with `last`; servers use it until a restart."""
    matching = [key for key in signing_keys(settings) if key_id and key.id.startswith(key_id)]
    if len(matching) != 1:
        problem = "there are several signing keys" if matching else "there is no signing key"
        raise InvalidInputError(f"{problem} {key_id!r}; `licserver signing-key list` shows all ids")
    key = matching[0]
    retired = replace(key, retired_at=now)

    def edit(content: dict[str, Any]) -> None:
        stored_keys = content["signing_keys"]
        live = [stored["id"] for stored in stored_keys if stored["retired_at"] is None]
        if key.id not in live:
            raise InvalidInputError(f"the signing key {key.id} is retired already")
        if live == [key.id] and not last:
            raise InvalidInputError(
                f"{key.id} is the last live signing key: apps that pin it would trust no response any more; "
                "add another key first, or use --last"
            )
        content["signing_keys"] = [
            format_signing_key(retired) if stored["id"] == key.id else stored for stored in stored_keys
        ]

    change_secrets(settings, edit)
    return retired


# --- the other machines of an installation ----------------------------------------------------


def export_secrets(settings: Settings) -> str:
    """Return all secrets, for `import_secrets` on another machine."""
    open_vault(settings)
    return read_secrets(settings)


def import_secrets(settings: Settings, text: str) -> list[str]:
    """Import the secrets of another machine with the same database; without own secrets, import all.

    Returns:
        The changed names: ``link_secrets``, ``signing_keys``.

    Raises:
        InvalidInputError: The secrets are of another database, or lack a secret of this machine.
    """
    received = read_vault(text, "the input")
    content = json.loads(text)
    if settings.secrets is None and not os.path.lexists(settings.data_dir / SECRETS_FILE):
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        if create_secrets(settings, text):
            return [name for name in _CHANGEABLE if content.get(name)]
    if open_vault(settings).fingerprint != received.fingerprint:
        raise InvalidInputError("these are the secrets of another database; nothing was changed")
    changed: list[str] = []

    def edit(local: dict[str, Any]) -> None:
        _refuse_to_lose_secrets(local, content)
        changed.extend(name for name in _CHANGEABLE if local.get(name, []) != content.get(name, []))
        local.update({name: content.get(name, []) for name in changed})

    change_secrets(settings, edit)
    return changed


def _refuse_to_lose_secrets(local: dict[str, Any], received: dict[str, Any]) -> None:
    """Refuse secrets that are older than those of this machine."""
    own_secret, received_secret = local["link_secrets"][0], received["link_secrets"][0]
    is_newer = own_secret.get("signs_from", "") > received_secret.get("signs_from", "")
    if is_newer and all(own_secret["id"] != secret["id"] for secret in received["link_secrets"]):
        raise InvalidInputError(
            f"this machine has a newer link secret, {own_secret['id']}: copy the secrets from here instead"
        )
    received_keys = {key["id"]: key for key in received.get("signing_keys", [])}
    for key in local.get("signing_keys", []):
        received_key = received_keys.get(key["id"])
        if received_key is None or (key["retired_at"] is not None and received_key["retired_at"] is None):
            state = "has" if received_key is None else "has retired"
            raise InvalidInputError(
                f"this machine {state} the signing key {key['id']}, and the other has not: copy the secrets "
                "from here instead"
            )
