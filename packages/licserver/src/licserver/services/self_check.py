"""The self-check of an installation (`licserver check`); it only reads."""

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from licserver.artifacts import open_artifacts
from licserver.database import engine, schema
from licserver.database.hosts import HostState
from licserver.database.log_growth import find_growth
from licserver.database.replica import Replica
from licserver.database.repositories import Repositories
from licserver.database.repositories.queue import MAX_COUNTED_JOBS
from licserver.database.repositories.sales import DEAD
from licserver.database.timelines import Timelines
from licserver.domain.moves import least_idle_days
from licserver.domain.offers import list_offered
from licserver.domain.records import FileKind, Product, Release
from licserver.domain.text import describe_span, plural
from licserver.errors import LicserverError, SecretsError
from licserver.protocol import release_manifests
from licserver.security.key_vault import KeyVault
from licserver.security.secrets_file import SECRETS_FILE, expects_database, read_secrets, read_vault
from licserver.services.products import describe_short_idle
from licserver.services.queues import measure_queues
from licserver.services.release_files import name_kind
from licserver.services.sales.deliveries import find_key
from licserver.services.sources import describe_odd_secrets, describe_secret, missing_variables
from licserver.services.sources import read_secrets as read_source_secrets
from licserver.settings import Settings
from licserver.shops import ROWS

TIMEOUT: Final = 5.0  # seconds for name, connection and response together
RENEW_WITHIN: Final = timedelta(days=30)  # a manifest that expires sooner should be renewed
LATE: Final = 300.0  # seconds after which a due job counts as not processed
CLOCK_TOLERANCE: Final = timedelta(seconds=30)
"""Between this machine's clock and another's: signatures, links and expiry depend on it."""

_LIMIT: Final = 1 << 16
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
    """A result of the self-check, without secrets: subject, level, message, and advice unless it is OK."""

    about: str
    level: Level
    message: str
    advice: str = ""


def _ok(about: str, message: str) -> Finding:
    return Finding(about, Level.OK, message)


def _odd(about: str, message: str, advice: str) -> Finding:
    return Finding(about, Level.WARNING, message, advice)


def _bad(about: str, message: str, advice: str) -> Finding:
    return Finding(about, Level.FAILED, message, advice)


def check_installation(
    settings: Settings, now: datetime, *, reach: bool, reads_file: bool = True
) -> Iterator[Finding]:
    """Check everything that an installation needs to serve.

    Args:
        reach: Whether to request the base URL.
        reads_file: Whether to read all of a SQLite file, which takes five seconds per million licenses.
    """
    yield from check_settings(settings)
    yield from _check_folder(settings)
    vault = None
    try:
        vault = read_vault(read_secrets(settings), "the secrets")
    except SecretsError as problem:
        advice = f"restore {SECRETS_FILE} from your backup; on a fresh machine run any command"
        yield _bad("secrets", str(problem), advice)
    else:
        yield _check_keys(vault, settings)
    if now < _EARLIEST:
        message = f"this machine's date is {now:%Y-%m-%d}"
        yield _bad("clock", message, "set the clock, and keep it right with NTP")
    else:
        yield _ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")
    yield from _check_database(settings, vault, now, reads_file=reads_file)
    if not reach:
        yield _ok("base URL", "was not requested; --reach does it")
    elif not settings.base_url:
        yield _bad("base URL", "not set, so nothing was requested", "set LICSERVER_BASE_URL")
    else:
        fault, date = check_base_url(settings.base_url)
        if fault:
            advice = "see that DNS, firewall, certificate and proxy lead here"
            yield _bad("base URL", f"{settings.base_url} {fault}", advice)
        else:
            yield _ok("base URL", f"{settings.base_url} answers")
            yield from _compare_clocks(f"{settings.base_url}'s", date, now)


def check_settings(settings: Settings, *, listens_openly: bool = False) -> Iterator[Finding]:
    """Report settings that are unsafe for customers.

    Args:
        listens_openly: Whether the server listens at an address that other machines reach.
    """
    url = settings.base_url
    if settings.admin_listen is None and (listens_openly if url is None else _is_public(url)):
        yield _odd(
            "settings",
            "LICSERVER_ADMIN_LISTEN is not set: console and admin API answer at the address of customers",
            "set it to an address for your network only, 127.0.0.1:8081; or respond 404 in the proxy",
        )
    if url is None:
        yield _odd(
            "settings",
            "LICSERVER_BASE_URL is not set: links begin with the Host that a caller sends",
            "set it to the address that customers use, https://licenses.example.com",
        )
        return
    is_https = url.startswith("https:")
    if not is_https:
        message = "LICSERVER_BASE_URL is http: keys cross the network in the clear"
        yield _odd("settings", message, "put https in front")
    elif not settings.trusted_proxies:
        yield _odd(
            "settings",
            "LICSERVER_TRUSTED_PROXIES is not set: behind a proxy all customers come from one address",
            "set it to the proxy's address, 127.0.0.1 for one on this machine",
        )
    if is_https and settings.trusted_proxies:
        yield _ok("settings", f"customers reach {url}, behind a proxy that is trusted")


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
        advice = "set LICSERVER_DATA_DIR, or run any command to have it made"
        yield _bad("data folder", f"there is no {folder}", advice)
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        advice = f"run this as the server's user, or chown {folder}"
        yield _bad("data folder", f"this user cannot write {folder}", advice)
        return
    is_open = _others_may_read(folder)
    private = [folder / SECRETS_FILE, *(sorted(folder.glob("licserver.sqlite3*")) if is_open else ())]
    if readable := [path for path in private if path.exists() and _others_may_read(path)]:
        names = " ".join(path.name for path in readable)
        yield _bad("permissions", f"others may read {names}", f"chmod 600 {' '.join(map(str, readable))}")
    elif is_open:
        yield _odd("permissions", f"others may look into {folder}", f"chmod 700 {folder}")
    else:
        yield _ok("permissions", f"{folder} is private")
    free = shutil.disk_usage(folder).free
    if free < _SCARCE_BYTES:
        message = f"{free >> 20} MiB are left in {folder}"
        yield _bad("disk", message, "make room: a full disk ends all activations")
    else:
        yield _ok("disk", f"{free >> 30} GiB are free")


def _others_may_read(path: Path) -> bool:
    return os.name != "nt" and bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def _check_keys(vault: KeyVault, settings: Settings) -> Finding:
    live = [key for key in vault.signing_keys if key.retired_at is None]
    if not vault.signing_keys:
        return _ok("signing keys", "none: responses are not signed")
    if not live:
        message = "all are retired: apps that pin a key trust no response"
        return _odd("signing keys", message, "licserver signing-key add")
    if settings.base_url is None:
        message = "responses are signed and there is no LICSERVER_BASE_URL: the signature covers the address"
        return _bad("signing keys", message, "set it to exactly the address that apps are given")
    return _ok("signing keys", f"{len(live)} sign responses; the newest is {live[-1].id}")


def _check_database(
    settings: Settings, vault: KeyVault | None, now: datetime, *, reads_file: bool
) -> Iterator[Finding]:
    try:
        database = engine.connect(settings.database, Timelines(settings.data_dir, keep=False))
    except LicserverError as problem:
        advice = "follow this message, or correct LICSERVER_DATABASE_URL"
        if settings.database_url is None:
            advice = "it is made in the data folder by the first command"
        yield _bad("database", str(problem), advice)
        return
    try:
        version = schema.read_version(database)
        expected = vault is not None and expects_database(settings, vault)
        schema.check_expected(database, version, expected=expected)
        if version is None and database.file is not None:
            advice = "the first command that needs it makes it: licserver product list"
            yield _bad("database", f"there is no database in {database.file} yet", advice)
            return
        schema.check_version(database, version)
        if reads_file:
            schema.check_pages(database)
        is_owner = vault is not None and schema.check_owner(database, vault.fingerprint, expected=expected)
        if is_owner and not expected:
            yield _odd(
                "secrets",
                f"{SECRETS_FILE} does not record its database: if it is lost, a new one is created silently",
                "run any command as the user to whom the file belongs: licserver product list",
            )
        unread = database.file is not None and not reads_file
        more = "; `licserver check` also reads all of its file" if unread else ""
        yield _ok("database", f"{database.engine.dialect.name}, schema {version}{more}")
        yield from (_odd("database log", growth.message, growth.advice) for growth in find_growth(database))
        yield from _check_hosts(database)
        if vault is not None and settings.replica_url is not None:
            timelines, url = Timelines(settings.data_dir, keep=False), settings.replica_url.get_secret_value()
            with closing(Replica(url, vault.fingerprint, timelines)) as replica:
                yield _check_host("replica", replica.examine(database))
        yield from _compare_clocks("the database's", schema.read_clock(database), now)
        repositories = Repositories(database)
        yield from _check_readings(repositories, now)
        yield from check_idle_days(settings, repositories)
        yield from _check_releases(settings, repositories, now)
        yield from _check_sources(settings, repositories)
        yield from _check_queues(repositories, settings, now)
        yield from _check_problems(repositories)
    except LicserverError as problem:
        advice = "follow the message, as the server's user; else restore a backup"
        if database.is_remote:
            advice = (
                "see that it runs, that this machine may reach it, and that LICSERVER_DATABASE_URL is right"
            )
        yield _bad("database", str(problem), advice)
    except OSError as problem:  # of the file, or of the folder around it
        message = f"cannot look at {problem.filename}: {problem.strerror}"
        yield _bad("database", message, "run this as the server's user")
    finally:
        database.close()


def check_idle_days(settings: Settings, repositories: Repositories) -> Iterator[Finding]:
    """Report products that call a computer idle sooner than it is stored as seen again (D-334)."""
    for product in repositories.products.list_all():
        if (message := describe_short_idle(product, settings.last_seen_days)) is not None:
            least = least_idle_days(settings.last_seen_days)
            advice = f"licserver product change {product.slug} --idle {least}, or lower the setting"
            yield _odd("products", message, advice)


def _check_hosts(database: engine.Database) -> Iterator[Finding]:
    """Report the role of each host, and the hosts that cannot take over."""
    hosts = database.query_hosts()
    for host in hosts:
        if host.fault:
            yield _check_host("database hosts", host)
    if len(hosts) > 1 and not any(host.fault for host in hosts):
        yield _ok("database hosts", "; ".join(f"{host.name} {host.description}" for host in hosts))


def _check_host(about: str, host: HostState) -> Finding:
    message = f"{host.name} {host.description}"
    if not host.fault:
        return _ok(about, message)
    return (_odd if host.is_warning else _bad)(about, message, host.fault)


def _compare_clocks(owner: str, other_time: datetime | None, now: datetime) -> Iterator[Finding]:
    if other_time is not None and abs(other_time - now) > CLOCK_TOLERANCE:
        message = f"{owner} clock is {abs(other_time - now).total_seconds():.0f} seconds off this machine's"
        yield _odd("clock", message, "keep both right with NTP")


def describe_clock(repositories: Repositories, now: datetime) -> str | None:
    """Describe a clock that is not trusted, and when it will be; return None if it is trusted."""
    reading = repositories.clock.evaluate(now)
    if reading.believed_from is None:
        return None
    confirmed_at = reading.record.confirmed_at
    away = f"{describe_span(now - confirmed_at)} {'ahead of' if now > confirmed_at else 'behind'}"
    return (
        f"this machine's clock is {away} the latest reading that is certain "
        f"({confirmed_at:%Y-%m-%d %H:%M} UTC), "
        f"and is trusted from {reading.believed_from:%Y-%m-%d %H:%M} UTC"
    )


_HELD: Final = (
    "set the clock, and keep it right with NTP; if it is right, `licserver clock --accept`. Until it is "
    "trusted, nothing is reported as ended, no mail about an end is sent, and nothing is deleted"
)


def _check_readings(repositories: Repositories, now: datetime) -> Iterator[Finding]:
    """Check that the clock is trusted, and that no stored instant is in the future."""
    if (held := describe_clock(repositories, now)) is not None:
        yield _odd("clock", held, _HELD)
    if future := repositories.clock.count_future(now):
        shown = ", ".join(f"{entry.number} in {entry.column}" for entry in future)
        message = (
            f"a clock was ahead, or this one is behind: the database has instants of the future ({shown})"
        )
        yield _odd("clock", message, "a running server brings them back within an hour; at once: restart it")


def _check_sources(settings: Settings, repositories: Repositories) -> Iterator[Finding]:
    """Check that the secrets and API keys of sources are set in the environment of this command."""
    for source in repositories.sales.list_sources():
        about = f"source {source.name}"
        if not read_source_secrets(source):
            message = f"{source.secret_env} is not set here: its deliveries are refused with 503"
            form = ROWS[source.kind].secret_form
            yield _bad(about, message, f"set it to {describe_secret(source)}; it must {form}")
        elif missing := missing_variables(source):
            advice = f"remove it from the source if the rotation is over: {source.secret_env}"
            yield _odd(about, f"{', '.join(missing)} is not set here", advice)
        elif odd := describe_odd_secrets(source):
            yield _odd(about, odd, f"set it to {describe_secret(source)}")
        elif find_key(source, settings):
            yield _ok(about, "its secret and its API key are set")
        elif source.key_env is not None:
            message = f"{source.key_env} is not set here: what its API knows is not looked up"
            yield _odd(about, message, "set it to the shop's API key")
        elif not ROWS[source.kind].has_addresses and settings.mail_host is not None:
            name = ROWS[source.kind].name
            message = f"deliveries of {name} have no addresses, so without an API key nobody is mailed a key"
            yield _odd(about, message, f"licserver source change {source.name} --key-env VARIABLE")
        else:
            yield _ok(about, "its secret is set")


def _check_problems(repositories: Repositories) -> Iterator[Finding]:
    """Report sales that need a decision."""
    count = repositories.sales.count_open_problems(MAX_COUNTED_JOBS)
    if count:
        message = f"{count} {plural(count, 'sale needs', 'sales need')} you"
        yield _odd("sales", message, "licserver source problems")


def _advise_on_sales(repositories: Repositories) -> str:
    sources = repositories.sales.list_sources()
    dead = [source.name for source in sources if repositories.sales.list_events(source.name, DEAD, limit=1)]
    return "; ".join(f"licserver source events {name} --state dead" for name in dead)


_DEAD_JOBS: Final[Mapping[str, Callable[[Repositories], str]]] = {
    "sales": _advise_on_sales,
    "mail": lambda _repositories: "licserver mail list --failed",
}
"""Advice for failed jobs. Webhooks have endpoints with a state, and patches only save time."""


_DEAD_NOUNS: Final = {"sales": ("delivery", "deliveries"), "mail": ("mail", "mails")}


def _check_queues(repositories: Repositories, settings: Settings, now: datetime) -> Iterator[Finding]:
    """Report jobs that are not processed, and jobs that have failed for good."""
    is_well = True
    for queue in measure_queues(repositories, settings, now):
        if queue.oldest_due > LATE:
            since = f"for {queue.oldest_due / 60:.0f} minutes"
            message = f"{queue.waiting} {plural(queue.waiting, 'job')} waiting, the oldest is due {since}"
            advice = "see that `licserver serve` runs and what it logs; if it is silent, restart it"
            yield _odd(queue.name, message, advice)
            is_well = False
        if queue.dead and queue.name in _DEAD_JOBS:
            message = f"{queue.dead} {plural(queue.dead, *_DEAD_NOUNS[queue.name])} given up"
            yield _odd(queue.name, message, _DEAD_JOBS[queue.name](repositories))
            is_well = False
    if is_well:
        yield _ok("jobs", f"none has been due for longer than {LATE / 60:.0f} minutes")


def check_products(settings: Settings, repositories: Repositories) -> Iterator[Finding]:
    """Report an installation without a product, such as a new one in a mistyped data folder."""
    if not repositories.products.list_all():
        message = "there is no product yet, so that every key is refused"
        advice = f"see that {settings.data_dir} is the right data folder; to add one: licserver product add"
        yield _odd("products", message, advice)


def _check_releases(settings: Settings, repositories: Repositories, now: datetime) -> Iterator[Finding]:
    """Check the offered releases: the file exists, and the manifest does not expire soon."""
    products = repositories.products.list_all()
    yield from check_products(settings, repositories)
    yield from _check_names(products)
    offered = [
        (product.slug, release)
        for product in products
        for release in list_offered(product, repositories.releases.list_all(product.id))
    ]
    yield _check_files(settings, offered)
    for slug, release in offered:
        yield from _check_manifest(slug, release, now)


def _check_names(products: list[Product]) -> Iterator[Finding]:
    """Check that no two products have the same name, as databases of earlier versions may have."""
    slugs: dict[str, list[str]] = {}
    for product in products:
        slugs.setdefault(product.name, []).append(product.slug)
    for name, same in slugs.items():
        if len(same) > 1:
            message = f"{', '.join(same)} have the same name {name!r}: a key of one opens the app of another"
            yield _odd("products", message, f"licserver product rename {same[-1]} --name NAME")


def _check_files(settings: Settings, offered: list[tuple[str, Release]]) -> Finding:
    try:
        artifacts = open_artifacts(settings)
        artifacts.probe()  # in an unreachable bucket all files would seem to be missing, or none
        missing = [_name(slug, release) for slug, release in offered if not artifacts.holds(release.artifact)]
    except LicserverError as problem:
        return _bad("files", str(problem), "repair what it names; downloads are refused until then")
    where = settings.artifacts_url or "the artifacts folder"
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + ("…" if len(missing) > _SHOWN else "")
        message = f"{where} lacks the file of {shown}, or it has another size"
        return _bad("files", message, "put it back from your backup")
    releases = "the offered release" if len(offered) == 1 else f"each of {len(offered)} offered releases"
    return _ok("files", f"{where} has the file of {releases}")


def _name(slug: str, release: Release) -> str:
    for_platform = f" for {release.platform}" if release.platform else ""
    return f"{slug} {release.version}{for_platform}{name_kind(release.kind)}"


def _check_manifest(slug: str, release: Release, now: datetime) -> Iterator[Finding]:
    if release.manifest is None:
        return
    until = release_manifests.read(release.manifest).manifest.expires_at
    which = f" --platform {release.platform}" if release.platform else ""
    which += "" if release.kind is FileKind.FOLDER else f" --kind {release.kind}"
    advice = f"licserver release renew {slug} {release.version}{which}"
    if until <= now:
        yield _bad("manifests", f"that of {_name(slug, release)} ran out on {until:%Y-%m-%d}", advice)
    elif until - now < RENEW_WITHIN:
        yield _odd("manifests", f"that of {_name(slug, release)} runs out on {until:%Y-%m-%d}", advice)


class ReachabilityResult(NamedTuple):
    """The problem as the rest of a sentence, or empty; and the response's date, to the second."""

    problem: str = ""
    date: datetime | None = None


def check_base_url(base_url: str) -> ReachabilityResult:
    """Request the base URL over the network, as a customer would."""
    try:
        with urllib.request.urlopen(f"{base_url}/healthz", timeout=TIMEOUT) as response:  # noqa: S310 - settings check the scheme
            body, date = response.read(_LIMIT), response.headers.get("Date")
    except urllib.error.HTTPError as refused:
        with refused:
            return ReachabilityResult(f"answers {refused.code} at /healthz")
    except (OSError, http.client.HTTPException, ValueError) as problem:
        return ReachabilityResult(
            _why(problem.reason if isinstance(problem, urllib.error.URLError) else problem)
        )
    try:
        is_ours = json.loads(body) == {"status": "ok"}
    except (ValueError, RecursionError):
        is_ours = False
    doubt = "" if is_ours else "is answered by something other than licserver"
    return ReachabilityResult(doubt, _read_http_date(date or ""))


def _read_http_date(value: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, IndexError, OverflowError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)  # the oldest form of RFC 9110 names no zone


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
