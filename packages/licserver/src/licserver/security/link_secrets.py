"""Rotate the secrets of download links while servers run.

A process accepts a new secret once it has read the file. The secret signs only later, when all processes
have read it. The old secret is accepted until its last link has expired.
"""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from licserver.domain.decisions import DownloadRefusal
from licserver.errors import InvalidInputError, SecretsError
from licserver.protocol.downloads import (
    LinkSecret,
    LinkSubject,
    accepted_secrets,
    current_secret,
    read_link,
    retires_at,
)
from licserver.security.key_vault import KeyVault
from licserver.security.secrets_file import (
    SECRETS_FILE,
    change_secrets,
    new_link_secret,
    read_secrets_file,
    read_vault,
)
from licserver.settings import Settings

LOOK_EVERY: Final = timedelta(seconds=5)  # how often a process checks whether the secrets file has changed

LEAD: Final = timedelta(minutes=1)
"""Time from the acceptance of a new secret to its first signature; tolerates different clocks."""

_log = logging.getLogger("licserver.secrets")

_FileVersion = tuple[int, int, int]


class LinkSecrets:
    """The current link secrets of a process; used by the event loop's thread only.

    - `current` returns the secret for a new link, `read` verifies a link; both take `now`.
    - Every `LOOK_EVERY` they check whether the secrets file has changed, and read it again.
    - An unusable file is logged once, and the old secrets stay in use: nothing is raised.

    >>> secrets = watch_link_secrets(settings, vault)
    >>> link = sign_link(base, subject, secrets.current(now), now)
    >>> secrets.read(urlsplit(link).query, now) == subject
    True

    Without the `path` of a secrets file, the secrets cannot change.
    """

    def __init__(self, vault: KeyVault, path: Path | None) -> None:
        self._vault = vault
        self._path = path
        self._version: _FileVersion | None = None  # the file may have changed since the vault was read
        self._unusable: _FileVersion | None = None
        self._secrets = vault.link_secrets
        self._current: LinkSecret  # set by the first check, before any use
        self._checked_at = self._check_at = datetime.min.replace(tzinfo=UTC)

    def current(self, now: datetime) -> LinkSecret:
        """Return the secret that signs at `now`."""
        self._check_if_due(now)
        return self._current

    def read(self, query: str, now: datetime) -> LinkSubject | DownloadRefusal:
        """Verify a link as `downloads.read_link` does.

        An invalid link may be signed with a newer secret than this process has read: so the file is checked
        again (D-169).
        """
        self._check_if_due(now)
        subject = read_link(query, accepted_secrets(self._secrets, now), now)
        known_versions = (None, self._version, self._unusable)
        if subject is DownloadRefusal.INVALID_LINK and _file_version(self._path) not in known_versions:
            self._check(now)
            subject = read_link(query, accepted_secrets(self._secrets, now), now)
        return subject

    def _check_if_due(self, now: datetime) -> None:
        if not self._checked_at <= now < self._check_at:  # also if the clock was set back
            self._check(now)

    def _check(self, now: datetime) -> None:
        """Read a changed file, and choose the secret that signs."""
        self._checked_at, self._check_at = now, now + LOOK_EVERY
        version = _file_version(self._path)
        if self._path is not None and version is not None and version != self._version:
            try:
                self._secrets = self._read_secrets(self._path)
                self._version = version
            except SecretsError as error:
                if version != self._unusable:  # logged once, read at each check
                    _log.error("cannot use the changed secrets file; keeping the old link secrets: %s", error)
                self._unusable = version
        self._current = current_secret(self._secrets, now)

    def _read_secrets(self, path: Path) -> tuple[LinkSecret, ...]:
        vault = read_vault(read_secrets_file(path), str(path))
        if vault.fingerprint != self._vault.fingerprint:
            raise SecretsError(f"{path} holds the secrets of another database")
        return vault.link_secrets


def watch_link_secrets(settings: Settings, vault: KeyVault) -> LinkSecrets:
    """Return the link secrets of a data folder; secrets from the environment never change."""
    return LinkSecrets(vault, None if settings.secrets is not None else settings.data_dir / SECRETS_FILE)


def _file_version(path: Path | None) -> _FileVersion | None:
    try:
        status = path.stat() if path else None
    except OSError:
        return None
    return status and (status.st_ino, status.st_size, status.st_mtime_ns)


# --- rotating ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SecretStatus:
    """The status of a link secret, without the secret; without `signs_from` it has always signed."""

    id: str
    signs_from: datetime | None
    believed_until: datetime | None
    signs: bool


def secret_statuses(secrets: tuple[LinkSecret, ...], now: datetime) -> list[SecretStatus]:
    """Return the status of each accepted secret, the newest first."""
    current = current_secret(secrets, now)
    return [
        SecretStatus(secret.id, secret.signs_from, retires_at(secrets, index), secret is current)
        for index, secret in enumerate(secrets)
        if secret in accepted_secrets(secrets, now)
    ]


def rotate(
    settings: Settings, now: datetime, *, lead: timedelta = LEAD, leaked: bool = False
) -> list[SecretStatus]:
    """Add a new link secret, which signs after `lead`, and remove retired ones; return their new status.

    If a secret has `leaked`, all old secrets are removed at once, and existing links stop working.
    """
    signs_from = now if leaked else now + lead
    new = {**new_link_secret(), "signs_from": signs_from.astimezone(UTC).isoformat()}

    def edit(content: dict[str, Any]) -> None:
        secrets_ = read_vault(json.dumps(content), SECRETS_FILE).link_secrets
        if (
            not leaked
            and secrets_[0].signs_from is not None
            and now < secrets_[0].signs_from <= now + max(lead, LEAD)
        ):
            due = f"{secrets_[0].signs_from.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
            raise InvalidInputError(f"a rotation is under way already: the new secret signs from {due}")
        kept_ids = [] if leaked else [secret.id for secret in accepted_secrets(secrets_, now)]
        content["link_secrets"] = [
            new,
            *(secret for secret in content["link_secrets"] if secret["id"] in kept_ids),
        ]

    return secret_statuses(change_secrets(settings, edit).link_secrets, now)
