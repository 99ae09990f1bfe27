"""New secrets for links while the server runs: writing them, and taking them up in every process (D-66).

A new secret is believed as soon as a process has seen it, and signs only some time later. By then every
process has seen it, so no link meets one that does not know its secret; and the old one is believed until the
last link that it signed has run out.
"""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from licserver.domain.decisions import DownloadRefusal
from licserver.errors import VaultError, WrongUse
from licserver.protocol.download_links import (
    LinkSecret,
    LinkSubject,
    believed_secrets,
    read_link,
    retires_at,
    signing_secret,
)
from licserver.security.key_vault import Vault
from licserver.security.secrets_file import (
    SECRETS_FILE,
    change_secrets,
    new_link_secret,
    read_secrets_file,
    read_vault,
)
from licserver.settings import Settings

LOOK_EVERY: Final = timedelta(seconds=5)
"""How often a process looks whether the secrets file is another one."""

READ_AGAIN_AFTER: Final = timedelta(seconds=1)
"""How soon invalid links cause another read of a file that could not be used."""

LEAD: Final = timedelta(minutes=1)
"""How long a new secret is only believed; leaves room for clocks that differ."""

_log = logging.getLogger("licserver.secrets")

_Mark = tuple[int, int, int]


class LinkRing:
    """The secrets for links of one process, as they stand now. Belongs to one thread, the event loop's.

    Args:
        vault: The secrets at the start.
        path: The file to watch; None for secrets that cannot change while the process runs.
    """

    def __init__(self, vault: Vault, path: Path | None) -> None:
        self._vault = vault
        self._path = path
        self._mark = _mark(path)
        self._refused: _Mark | None = None
        self._secrets = vault.link_secrets
        self._signer: LinkSecret  # chosen by the first look, which comes before anything else
        self._looked_at = self._look_at = datetime.min.replace(tzinfo=UTC)

    def signer(self, now: datetime) -> LinkSecret:
        """The secret that signs at `now`."""
        if not self._looked_at <= now < self._look_at:  # also when the clock was set back
            self._look(now)
        return self._signer

    def read(self, query: str, now: datetime) -> LinkSubject | DownloadRefusal:
        """Read a link as `signing.read_link` does, with the secrets believed at `now`.

        An invalid link may name a secret newer than those of this process: the file is read again before the
        link is refused. Each invalid link costs a `stat`; a changed file is read once, and one that could not
        be used at most once a second.
        """
        if not self._looked_at <= now < self._look_at:
            self._look(now)
        subject = read_link(query, self._believed(now), now)
        if subject is DownloadRefusal.INVALID_LINK and self._is_changed(now):
            self._look(now)
            subject = read_link(query, self._believed(now), now)
        return subject

    def _is_changed(self, now: datetime) -> bool:
        """Return whether the file is worth reading before the next look is due."""
        mark = _mark(self._path)
        if mark is None or mark == self._mark:
            return False
        return mark != self._refused or now - self._looked_at >= READ_AGAIN_AFTER

    def _believed(self, now: datetime) -> tuple[LinkSecret, ...]:
        return believed_secrets(self._secrets, now)

    def _look(self, now: datetime) -> None:
        """Take up another file, if there is one, and choose who signs."""
        self._looked_at, self._look_at = now, now + LOOK_EVERY
        mark = _mark(self._path)
        if self._path is not None and mark is not None and mark != self._mark:
            try:
                self._secrets = self._read(self._path)
                self._mark = mark
            except VaultError as problem:
                if mark != self._refused:  # it is tried at each look, and complained of once
                    _log.error("the secrets for links stay as they were: %s", problem)
                self._refused = mark
        self._signer = signing_secret(self._secrets, now)

    def _read(self, path: Path) -> tuple[LinkSecret, ...]:
        found = read_vault(read_secrets_file(path), str(path))
        if found.fingerprint != self._vault.fingerprint:
            raise VaultError(f"{path} holds the secrets of another database")
        return found.link_secrets


def open_ring(settings: Settings, vault: Vault) -> LinkRing:
    """Watch over the secrets of a data folder; those from the environment stay as they are."""
    return LinkRing(vault, None if settings.secrets is not None else settings.data_dir / SECRETS_FILE)


def _mark(path: Path | None) -> _Mark | None:
    """What sets a file apart from the one that had its name before; None when it cannot be had."""
    try:
        status = path.stat() if path else None
    except OSError:
        return None
    return status and (status.st_ino, status.st_size, status.st_mtime_ns)


# --- rotating ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SecretStatus:
    """How a secret for links stands; the secret itself is not part of it.

    Args:
        id: Links name it.
        signs_from: Since or from when it signs; None: ever since.
        believed_until: When it is retired; None: not yet known.
        signs: Whether it is the one that signs now.
    """

    id: str
    signs_from: datetime | None
    believed_until: datetime | None
    signs: bool


def standings(secrets: tuple[LinkSecret, ...], now: datetime) -> list[SecretStatus]:
    """Say how each secret stands, the newest first; retired ones are left out."""
    signer = signing_secret(secrets, now)
    return [
        SecretStatus(one.id, one.signs_from, retires_at(secrets, at), one is signer)
        for at, one in enumerate(secrets)
        if one in believed_secrets(secrets, now)
    ]


def rotate(
    settings: Settings, now: datetime, *, lead: timedelta = LEAD, leaked: bool = False
) -> list[SecretStatus]:
    """Add a new secret for links, and drop those that are retired.

    Args:
        settings: Whose.
        now: The instant of the command.
        lead: How long the new one is only believed.
        leaked: The old ones are not to be believed any longer, and the new one signs at once: links that are
            out are dead.

    Returns:
        How the secrets stand then.

    Raises:
        WrongUse: when another rotation is under way, or the secrets stand in the environment.
        VaultError: when the secrets cannot be read.
        OSError: when they cannot be written.
    """
    signs_from = now if leaked else now + lead
    new = {**new_link_secret(), "signs_from": signs_from.astimezone(UTC).isoformat()}

    def edit(held: dict[str, Any]) -> None:
        known = read_vault(json.dumps(held), SECRETS_FILE).link_secrets
        if not leaked and known[0].signs_from is not None and known[0].signs_from > now:
            due = f"{known[0].signs_from.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
            raise WrongUse(f"a new secret is on its way already; it signs from {due}")
        kept = [] if leaked else [one.id for one in believed_secrets(known, now)]
        held["link_secrets"] = [new, *(one for one in held["link_secrets"] if one["id"] in kept)]

    return standings(change_secrets(settings, edit).link_secrets, now)
