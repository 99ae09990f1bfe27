"""Whether this installation is fit to serve; everything is looked at, and nothing is changed."""

import enum
import http.client
import ipaddress
import json
import os
import shutil
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from licserver.artifacts import open_artifacts
from licserver.database import engine, schema
from licserver.database.repositories import Repositories
from licserver.domain.records import Release
from licserver.errors import LicserverError, SecretsError
from licserver.protocol import release_manifests
from licserver.security.key_vault import KeyVault
from licserver.security.secrets_file import SECRETS_FILE, expects_database, read_secrets, read_vault
from licserver.settings import Settings

TIMEOUT: Final = 5.0  # seconds for all of it: a name, a connection, an answer
_LIMIT: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ReachResult:
    """What is wrong, as the rest of a sentence, or empty; and the response's own clock, to the second."""

    problem: str = ""
    date: datetime | None = None


def ask_base_url(base_url: str) -> ReachResult:
    """Request the base URL over the network, as a customer would."""
    try:
        with urllib.request.urlopen(f"{base_url}/healthz", timeout=TIMEOUT) as answer:  # noqa: S310 - settings check the scheme
            body, date = answer.read(_LIMIT), answer.headers.get("Date")
    except urllib.error.HTTPError as refused:
        with refused:
            return ReachResult(f"answers {refused.code} at /healthz")
    except urllib.error.URLError as problem:
        return ReachResult(_why(problem.reason))
    except (OSError, http.client.HTTPException, ValueError) as problem:
        return ReachResult(_why(problem))
    try:
        is_ours = json.loads(body) == {"status": "ok"}
        server_time = None if date is None else parsedate_to_datetime(date)
    except (ValueError, TypeError):
        is_ours, server_time = False, None
    return ReachResult("" if is_ours else "is answered by something other than licserver", server_time)


def _why(problem: object) -> str:
    match problem:
        case ssl.SSLCertVerificationError():
            return f"has a certificate that is not trusted: {problem.verify_message}"
        case TimeoutError():
            return f"does not answer within {TIMEOUT:.0f} seconds"
        case OSError():
            return f"cannot be reached: {problem.strerror or problem}"
        case _:
            return f"cannot be reached: {type(problem).__name__}"


RENEW_WITHIN: Final = timedelta(days=30)
"""A manifest that expires this soon should be renewed: later there is nothing to offer."""

CLOCK_TOLERANCE: Final = timedelta(seconds=30)
"""Between this machine's clock and another's: signatures, links and expiry depend on it."""

_SCARCE_BYTES: Final = 1 << 30
_EARLIEST: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SHOWN: Final = 3


class Level(enum.StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one thing, without a key or a secret, and what to do if it is not well."""

    about: str
    level: Level
    said: str
    advice: str = ""


def check_installation(settings: Settings, now: datetime, *, reach: bool) -> Iterator[Finding]:
    """Look at everything that has to be right for an installation to serve; `reach` asks the base URL."""
    yield from check_settings(settings)
    yield from _check_folder(settings)
    vault = None
    try:
        vault = read_vault(read_secrets(settings), "the secrets")
    except SecretsError as problem:
        yield _bad(
            "secrets",
            str(problem),
            f"restore {SECRETS_FILE} from your backup; on a fresh machine run any command",
        )
    else:
        yield from _check_keys(vault, settings)
    yield from _check_machine_clock(now)
    yield from _check_database(settings, vault, now)
    if not reach:
        yield Finding("base URL", Level.OK, "was not asked; --reach does")
    elif settings.base_url:
        yield from _check_reach(settings.base_url, now)
    else:
        yield _bad("base URL", "there is none to ask", "set LICSERVER_BASE_URL")


def _bad(about: str, said: str, advice: str) -> Finding:
    return Finding(about, Level.FAILED, said, advice)


def _odd(about: str, said: str, advice: str) -> Finding:
    return Finding(about, Level.WARNING, said, advice)


def check_settings(settings: Settings) -> Iterator[Finding]:
    """Say what of the settings is unsafe for customers."""
    url = settings.base_url
    if url is None:
        yield _odd(
            "settings",
            "LICSERVER_BASE_URL is not set: links begin with whatever Host a caller sends",
            "set it to the address that customers use, https://licenses.example.com",
        )
    elif url.startswith("http://"):
        yield _odd(
            "settings",
            "LICSERVER_BASE_URL is http: keys cross the network in the clear",
            "put https in front",
        )
    if (url or "").startswith("https:") and not settings.trusted_proxies:
        yield _odd(
            "settings",
            "LICSERVER_TRUSTED_PROXIES is not set: behind a proxy all customers come from one address",
            "set it to the proxy's address, 127.0.0.1 for one on this machine",
        )
    if settings.admin_listen is None and url is not None and _is_public(url):
        yield _odd(
            "settings",
            "LICSERVER_ADMIN_LISTEN is not set: console and admin API answer at the address of customers",
            "set it to an address that the internet does not reach: 127.0.0.1:8081; or let the proxy say 404",
        )
    if url and url.startswith("https:") and settings.trusted_proxies:
        yield Finding("settings", Level.OK, f"customers reach {url}, behind a proxy that is believed")


def _is_public(url: str) -> bool:
    """Return whether other machines may reach an address."""
    host = urlsplit(url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _check_folder(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    if not folder.is_dir():
        yield _bad(
            "data folder",
            f"there is no {folder}",
            "set LICSERVER_DATA_DIR, or run any command to have it made",
        )
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield _bad(
            "data folder",
            f"this user cannot write {folder}",
            f"run this as the server's user, or chown {folder}",
        )
        return
    is_open = _others_may_read(folder)
    private = [folder / SECRETS_FILE, *(sorted(folder.glob("licserver.sqlite3*")) if is_open else ())]
    readable = [path for path in private if path.exists() and _others_may_read(path)]
    if readable:
        names = " ".join(path.name for path in readable)
        yield _bad("permissions", f"others may read {names}", f"chmod 600 {' '.join(map(str, readable))}")
    elif is_open:
        yield _odd("permissions", f"others may look into {folder}", f"chmod 700 {folder}")
    else:
        yield Finding("permissions", Level.OK, f"{folder} is private")
    free = shutil.disk_usage(folder).free
    if free < _SCARCE_BYTES:
        yield _bad(
            "disk", f"{free >> 20} MiB are left in {folder}", "make room: a full disk ends all activations"
        )
    else:
        yield Finding("disk", Level.OK, f"{free >> 30} GiB are free")


def _others_may_read(path: Path) -> bool:
    return os.name != "nt" and bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def _check_keys(vault: KeyVault, settings: Settings) -> Iterator[Finding]:
    live = [key for key in vault.signing_keys if key.retired_at is None]
    if live and settings.base_url is None:
        yield _bad(
            "signing keys",
            "answers are signed and there is no LICSERVER_BASE_URL: the address is part of what is signed",
            "set it to exactly the address that apps are given",
        )
    elif live:
        yield Finding("signing keys", Level.OK, f"{len(live)} sign answers; the newest is {live[-1].id}")
    elif vault.signing_keys:
        yield _odd(
            "signing keys", "all are retired: apps that pin one trust no answer", "licserver signing-key add"
        )
    else:
        yield Finding("signing keys", Level.OK, "none: answers are not signed")


def _check_machine_clock(now: datetime) -> Iterator[Finding]:
    if now < _EARLIEST:
        yield _bad(
            "clock", f"this machine thinks it is {now:%Y-%m-%d}", "set the clock, and keep it right with NTP"
        )
    else:
        yield Finding("clock", Level.OK, f"{now:%Y-%m-%d %H:%M:%S} UTC")


def _check_database(settings: Settings, vault: KeyVault | None, now: datetime) -> Iterator[Finding]:
    try:
        database = engine.connect(settings.database)
    except LicserverError as problem:
        yield _bad("database", str(problem), _mend_address(settings))
        return
    try:
        version = schema.read_version(database)
        expected = vault is not None and expects_database(settings, vault)
        schema.check_expected(database, version, expected=expected)
        if version is None and database.file is not None:
            yield _bad(
                "database",
                f"there is no database in {database.file} yet",
                "the first command that needs it makes it: licserver product list",
            )
            return
        schema.check_version(version)
        schema.check_pages(database)
        if vault is not None and schema.check_owner(database, vault.fingerprint, expected=expected):
            yield from _check_note(expected=expected)
        yield Finding("database", Level.OK, f"{database.engine.dialect.name}, schema {schema.HEAD}")
        yield from _compare_clocks("the database's", schema.read_clock(database), now)
        yield from _check_releases(settings, Repositories(database), now)
    except LicserverError as problem:
        away = "see that it runs, that this machine may reach it, and that LICSERVER_DATABASE_URL is right"
        yield _bad(
            "database",
            str(problem),
            away if database.is_remote else "do what it says, as the server's user; else restore a backup",
        )
    except OSError as problem:  # of the file, or of the folder around it
        yield _bad(
            "database",
            f"cannot look at {problem.filename}: {problem.strerror}",
            "run this as the server's user",
        )
    finally:
        database.close()


def _mend_address(settings: Settings) -> str:
    if settings.database_url is None:
        return "it is made in the data folder by the first command"
    return "mend LICSERVER_DATABASE_URL"


def _check_note(*, expected: bool) -> Iterator[Finding]:
    if not expected:
        yield _odd(
            "secrets",
            f"{SECRETS_FILE} does not note its database: if that is lost, a new one is created in silence",
            "run any command as the user to whom the file belongs: licserver product list",
        )


def _compare_clocks(whose: str, theirs: datetime | None, now: datetime) -> Iterator[Finding]:
    if theirs is not None and abs(theirs - now) > CLOCK_TOLERANCE:
        apart = abs(theirs - now).total_seconds()
        yield _odd(
            "clock", f"{whose} clock is {apart:.0f} seconds off this machine's", "keep both right with NTP"
        )


def _check_releases(settings: Settings, records: Repositories, now: datetime) -> Iterator[Finding]:
    """See that what is offered can be had: its file is there, and its manifest does not run out soon."""
    products = records.products.list_all()
    if not products:
        yield _odd("products", "there are none yet", "licserver product add SLUG --name NAME")
    offered = [
        (product.slug, release)
        for product in products
        for release in records.releases.list_all(product.id)
        if product.latest is not None and release.id == product.latest.id
    ]
    yield from _check_files(settings, offered)
    for slug, release in offered:
        yield from _check_manifest(slug, release, now)


def _check_files(settings: Settings, offered: list[tuple[str, Release]]) -> Iterator[Finding]:
    try:
        artifacts = open_artifacts(settings)
        artifacts.probe()  # of a bucket that is not there, all files would seem to be missing, or none
        lacking = [
            f"{slug} {release.version}" for slug, release in offered if not artifacts.holds(release.artifact)
        ]
    except LicserverError as problem:
        yield _bad("files", str(problem), "mend what it says; downloads are refused until then")
        return
    where = settings.artifacts_url or "the artifacts folder"
    if lacking:
        some = ", ".join(lacking[:_SHOWN]) + ("…" if len(lacking) > _SHOWN else "")
        yield _bad("files", f"{where} lacks the file of {some}", "put it back from your backup")
    else:
        yield Finding("files", Level.OK, f"{where} has the file of {_every(len(offered))}")


def _every(count: int) -> str:
    """All the latest releases, of which there are so many."""
    return "the latest release" if count == 1 else f"each of {count} latest releases"


def _check_manifest(slug: str, release: Release, now: datetime) -> Iterator[Finding]:
    if release.manifest is None:
        return
    until = release_manifests.read(release.manifest).manifest.expires_at
    advice = f"licserver release renew {slug} {release.version}"
    if until <= now:
        yield _bad("manifests", f"that of {slug} {release.version} ran out on {until:%Y-%m-%d}", advice)
    elif until - now < RENEW_WITHIN:
        yield _odd("manifests", f"that of {slug} {release.version} runs out on {until:%Y-%m-%d}", advice)


def _check_reach(base_url: str, now: datetime) -> Iterator[Finding]:
    answer = ask_base_url(base_url)
    if answer.problem:
        yield _bad(
            "base URL",
            f"{base_url} {answer.problem}",
            "see that DNS, firewall, certificate and proxy lead here",
        )
        return
    yield Finding("base URL", Level.OK, f"{base_url} answers")
    if answer.date is not None:
        yield from _compare_clocks(f"{base_url}'s", answer.date, now)
