"""The file that holds the server's secrets: drawn once, read at every start, changed whole or not at all.

Whoever loses it loses every key, and whoever reads it can read them all. So it is private from its first
byte, keeps its owner, and is never replaced by a fresh one where a database knows of another.
"""

import contextlib
import json
import os
import secrets
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from licserver.errors import VaultError, WrongUse
from licserver.protocol.download_links import LinkSecret
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.security.key_vault import Vault
from licserver.security.private_files import describe_link, open_unlinked, sweep, sync_folder
from licserver.settings import Settings

SECRETS_FILE: Final = "secrets.json"
_SECRET_BYTES: Final = 32
_LOCK_SECONDS: Final = 5.0
_UNFINISHED: Final = ".secrets-"

_HAS_DATABASE: Final = "has_database"
"""Noted once a database was written with the secrets: from then on a missing one is an error (D-158)."""

_ABANDONED_SECONDS: Final = 3600
"""Who writes secrets needs no second: one that is older was left by a process that was killed."""


def new_secrets() -> dict[str, Any]:
    """Draw a fresh set of secrets, in the shape of the secrets file."""
    return {"index_secret": _draw(), "seal_secret": _draw(), "link_secrets": [new_link_secret()]}


def new_link_secret() -> dict[str, str]:
    """Draw a fresh secret for links, in the shape of the secrets file."""
    return {"id": secrets.token_hex(4), "secret": _draw()}


def _draw() -> str:
    return b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def read_vault(text: str, source: str) -> Vault:
    """Read a secrets file's text.

    Args:
        text: JSON, as `new_secrets` shapes it.
        source: Where it came from, for the message.

    Raises:
        VaultError: naming `source`, never what stands in it.
    """
    try:
        held = json.loads(text)
        vault = Vault(
            index_secret=b64decode(held["index_secret"], validate=True),
            seal_secret=b64decode(held["seal_secret"], validate=True),
            link_secrets=tuple(map(_read_link_secret, held["link_secrets"])),
            signing_keys=tuple(map(_read_signing_key, held.get("signing_keys", []))),
            has_database=held.get(_HAS_DATABASE) is True,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise VaultError(f"{source} does not hold licserver's secrets; restore it from your backup") from None
    lengths = {
        len(vault.index_secret),
        len(vault.seal_secret),
        *(len(link.secret) for link in vault.link_secrets),
    }
    if lengths != {_SECRET_BYTES} or not vault.link_secrets:
        raise VaultError(
            f"{source} does not hold secrets of {_SECRET_BYTES} bytes; restore it from your backup"
        )
    return vault


def _read_link_secret(held: Mapping[str, Any]) -> LinkSecret:
    from_ = held.get("signs_from")
    secret = b64decode(held["secret"], validate=True)
    if not isinstance(held["id"], str):
        raise TypeError("a link's secret is named by a text")
    return LinkSecret(held["id"], secret, None if from_ is None else _instant(from_))


def _read_signing_key(held: Mapping[str, Any]) -> SigningKey:
    retired_at = held["retired_at"]
    return SigningKey(
        PrivateKey(b64decode(held["secret"], validate=True)),
        _instant(held["added_at"]),
        None if retired_at is None else _instant(retired_at),
    )


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("no instant without a zone")
    return instant


def write_signing_key(key: SigningKey) -> dict[str, Any]:
    """Write a signing key in the shape of the secrets file; a secret."""
    return {
        "id": key.id,  # for people who look into the file; it follows from the secret
        "secret": b64encode(key.private.seed).decode(),
        "added_at": key.added_at.isoformat(),
        "retired_at": key.retired_at and key.retired_at.isoformat(),
    }


def open_vault(settings: Settings, is_in_use: Callable[[], bool] = lambda: False) -> Vault:
    """Read the secrets from the environment or the data folder; draw them on the very first use.

    Args:
        settings: Where they are.
        is_in_use: Asked when there are none: whether the database was written with some. Fresh ones
            beside it would open nothing, and look like those that were lost.

    Raises:
        VaultError: when they cannot be read, or are lost; then nothing is written.
    """
    if settings.secrets is not None:
        return read_vault(settings.secrets.get_secret_value(), "LICSERVER_SECRETS")
    path = settings.data_dir / SECRETS_FILE
    if not os.path.lexists(path):
        # Looked for again: who was faster on a fresh folder wrote the file first, the database then.
        if is_in_use() and not os.path.lexists(path):
            raise VaultError(
                f"{path} is lost: the database was written with other secrets than any new ones; restore the "
                "file from your backup, or put its content into LICSERVER_SECRETS"
            )
        _create_secrets(path)
    return read_vault(read_secrets_file(path), str(path))


def expects_database(settings: Settings, vault: Vault) -> bool:
    """Return whether there must be a database that was written with these secrets (D-158).

    ``LICSERVER_SECRETS`` cannot be noted in, and was made before: with it a database is always created by
    ``licserver db create``.
    """
    return settings.secrets is not None or vault.has_database


def note_database(settings: Settings, vault: Vault) -> None:
    """Note in the secrets file that a database was written with the secrets; once.

    Last of all on a fresh folder: a process that is killed before leaves nothing that has to be mended. A
    file that this user cannot replace stays as it is, which `licserver check` reports.
    """
    if not expects_database(settings, vault):
        with contextlib.suppress(OSError, VaultError):
            change_secrets(settings, lambda held: held.update({_HAS_DATABASE: True}))


def change_secrets(settings: Settings, edit: Callable[[dict[str, Any]], None]) -> Vault:
    """Change the secrets file, whole or not at all, with nobody else changing it meanwhile.

    A server that runs goes on with the secrets that it has read at its start.

    Args:
        settings: Whose data folder; the file is made if there is none.
        edit: Changes the file's content in place. What it raises leaves the file as it was.

    Returns:
        The new secrets.

    Raises:
        WrongUse: when the secrets stand in the environment, where nobody but the vendor can change them.
        VaultError: when they cannot be read, or somebody else is changing them for too long.
    """
    if settings.secrets is not None:
        raise WrongUse(
            "the secrets stand in LICSERVER_SECRETS, which cannot be changed from here: put them into "
            f"{SECRETS_FILE} of a data folder, do it there without LICSERVER_SECRETS, and take back what the "
            "file then holds"
        )
    open_vault(settings)
    path = settings.data_dir / SECRETS_FILE
    with _locked(path):
        held = json.loads(read_secrets_file(path))
        edit(held)
        text = json.dumps(held, indent=2)
        vault = read_vault(text, str(path))
        _write_secrets(path, text)
        return vault


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let nobody else write secrets for a block.

    Raises:
        VaultError: when somebody else does for too long.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - most commands only read

    try:
        with FileLock(path.with_suffix(".lock"), timeout=_LOCK_SECONDS, mode=0o600):
            yield
    except Timeout:
        raise VaultError(f"another process is changing {path}; try again") from None


@contextlib.contextmanager
def other_secrets(settings: Settings, text: str) -> Iterator[Callable[[], None]]:
    """Write other secrets for a block, which puts them in place; if it fails, the old ones are back.

    The old ones are kept beside the new ones. All that needs room on the disk is done first.

    Args:
        settings: Whose data folder.
        text: The new secrets' text, as `read_vault` takes it.

    Yields:
        What puts them in place.

    Raises:
        VaultError: when the text holds no secrets.
        OSError: when they cannot be written.
    """
    path = settings.data_dir / SECRETS_FILE
    kept = path.with_name(f"{SECRETS_FILE}.before-restore")
    read_vault(text, "the backup")
    old = read_secrets_file(path) if os.path.lexists(path) else None
    if old == text:
        yield lambda: None
        return
    is_begun = False
    with _written(path, text) as new, contextlib.ExitStack() as more:
        copy = None if old is None else more.enter_context(_written(path, old))

        def put_in_place() -> None:
            nonlocal is_begun
            if copy is not None:
                copy.replace(kept)
            is_begun = True
            new.replace(path)
            sync_folder(path.parent)

        try:
            yield put_in_place
        except BaseException:
            if is_begun and copy is not None:
                kept.replace(path)
            elif is_begun:
                path.unlink(missing_ok=True)
            raise


def read_secrets(settings: Settings) -> str:
    """Read the secrets as they are kept, for a backup; never to be shown.

    Raises:
        VaultError: when they cannot be read.
    """
    if settings.secrets is not None:
        return settings.secrets.get_secret_value()
    return read_secrets_file(settings.data_dir / SECRETS_FILE)


def read_secrets_file(path: Path) -> str:
    """Read a secrets file's text; never to be shown.

    Raises:
        VaultError: when it cannot be read, or is a link.
    """
    try:
        if linked := describe_link(path):
            raise VaultError(linked)
        with open_unlinked(path) as file:
            return file.read().decode()
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is no text"
        raise VaultError(f"cannot read {path}: {why}") from None


def _create_secrets(path: Path) -> None:
    """Write fresh secrets; of two who try at once, one wins."""
    with _locked(path):
        if not os.path.lexists(path):
            _write_secrets(path, json.dumps(new_secrets(), indent=2))


def _write_secrets(path: Path, text: str) -> None:
    """Write secrets to a file of another name, then name it durably."""
    with _written(path, text) as temporary:
        temporary.replace(path)
        sync_folder(path.parent)  # a database elsewhere may be written with them before a power cut


@contextlib.contextmanager
def _written(path: Path, text: str) -> Iterator[Path]:
    """Have secrets for a block in a file beside their place, whole and private from the first byte.

    Whoever could read the old ones can read the new ones. What killed writers left is removed.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_UNFINISHED)  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            sweep(path.parent, _UNFINISHED, os.fstat(handle).st_mtime, _ABANDONED_SECONDS)
            file.write(text)
            file.flush()
            _keep_owner(file.fileno(), path)
            os.fsync(file.fileno())
        yield Path(temporary)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _keep_owner(handle: int, path: Path) -> None:
    """See to it that whoever reads the secrets goes on reading them."""
    if os.name != "nt" and path.exists() and os.fstat(handle).st_uid != path.stat().st_uid:
        raise VaultError(
            f"{path} belongs to another user, who could not read it then; change it as that user"
        )
