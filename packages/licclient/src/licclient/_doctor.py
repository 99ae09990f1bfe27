"""Diagnosis: the report of `LicenseClient.diagnose`, which a customer can paste into an e-mail.

Each check is independent. The license key appears masked and a proxy without its password, and no request
contains the key: a diagnosis takes no activation slot.
"""

import itertools
import os
import platform
import socket
import ssl
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from licclient._core.activations import describe_keyring
from licclient._core.computer import list_rolled_back, own_platform
from licclient._core.happy_eyeballs import connect
from licclient._core.lazy import lazy
from licclient._core.model import InstallObstacle, License, Settings
from licclient._core.network import run_with_deadline, system_proxy
from licclient._core.policy import is_alike, is_version
from licclient._core.records import find_flaw
from licclient._core.requests import MAX_UPDATE_BYTES, UPDATE_CHECK_PATH, Call, is_in_the_clear
from licclient._core.responses import REDIRECTS, Reply, read_http_date
from licclient._core.runners import run, send_with_retries
from licclient._core.session import Session
from licclient._core.status import LicenseState, LicenseStatus, read_outcome
from licclient._core.storage import NEW_FILE, StateFolder, read_with_retries
from licclient._status import status
from licclient._updates.check import NOT_CHECKED, remembered_check
from licclient.errors import LicenseRefusedError, ServiceUnavailableError, StateUnreadableError

if TYPE_CHECKING:
    from licclient._core import transport as transport_module
    from licclient.install import _detection as detection
    from licclient.install import _flow as installing
else:
    detection = lazy("licclient.install._detection")
    installing = lazy("licclient.install._flow")
    transport_module = lazy("licclient._core.transport")

SECONDS: Final = 10.0
"""Time limit of one check."""

_NOT_NOW: Final = {429, 502, 503, 504}
"""Statuses of servers and proxies that have too much to do, or start just now."""

_NO_TLS: Final = {"HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "WRONG_VERSION_NUMBER"}
"""OpenSSL's words, in each of its versions, for a response in plain text."""

MAX_CLOCK_DIFFERENCE: Final = timedelta(minutes=5)
"""As in D-43."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `is_fine` is None where nothing can be checked."""

    name: str
    is_fine: bool | None
    text: str


def diagnose(session: Session, agent: str, transport: Any) -> tuple[list[Finding], str]:
    """Run every check on a client; return the findings, and the report as text.

    The way to the service is not checked if the app passed a `transport`.
    """
    settings = session.settings
    folder = session.storage.folder()
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "name": lambda: _check_name(settings.server),
        "proxy": lambda: _check_proxy(settings.server),
        "tls": lambda: _check_tls(settings.server),
    }
    findings = [_noted("server", settings.server), _noted("program", _format_program(settings, agent))]
    if transport is not None:
        findings += [_noted(name, "not checked: the app has its own transport") for name in checks]
        checks = {}
    checks |= {
        "service": lambda: _check_service(settings, agent, transport, session.now()),
        "version": lambda: _check_version(settings.version),
        "state folder": lambda: _check_folder(folder, session),
        "state files": lambda: _check_records(session),
        "keyring": lambda: [_noted("keyring", "not used" if folder is None else describe_keyring())],
        "installation": lambda: [_noted("installation", session.domain())],
        "installed": lambda: [_noted("installed", _format_installation())],
        "own updates": lambda: _check_own_updates(session),
        "rolled back": _list_rolled_back,
        "platform": lambda: [_noted("platform", own_platform(settings.platform) or "none is sent")],
        "label": lambda: [_noted("label", _format_machine(settings.machine))],
        "license": lambda: [_check_license(status(session), _list_products(folder, settings))],
        "product": lambda: [_check_product(session)],
        "updates": lambda: [_check_updates(session)],
        "license file": lambda: [_check_file(session)],
        "pinned keys": lambda: [_noted("pinned keys", _format_keys(settings))],
    }
    for name, check in checks.items():
        try:
            findings += check()
        except StateUnreadableError as problem:
            findings.append(_wrong(name, f"{problem.reason}: {_shorten(Path(problem.path or ''))}"))
        except Exception as problem:  # noqa: BLE001 - one check that fails must not hide the others
            findings.append(_wrong(name, f"the check itself failed ({type(problem).__name__})"))
    marks: Mapping[bool | None, str] = {True: "ok", False: "!!", None: "  "}
    lines = [f"licclient doctor, {session.now():%Y-%m-%d %H:%M:%S} UTC"]
    lines += [f"{marks[finding.is_fine]} {finding.name + ':':14} {finding.text}" for finding in findings]
    wrong = list(dict.fromkeys(finding.name for finding in findings if finding.is_fine is False))
    lines.append(f"Look at: {', '.join(wrong)}." if wrong else "Nothing wrong was found.")
    return findings, "\n".join(lines)


def _fine(name: str, text: str) -> Finding:
    return Finding(name, is_fine=True, text=text)


def _wrong(name: str, text: str) -> Finding:
    return Finding(name, is_fine=False, text=text)


def _noted(name: str, text: str) -> Finding:
    return Finding(name, is_fine=None, text=text)


def _format_program(settings: Settings, agent: str) -> str:
    frozen = ", frozen" if getattr(sys, "frozen", False) else ""
    app = f"{settings.product or settings.slug or 'app'} {settings.version or ''}".strip()
    python = f"Python {platform.python_version()}{frozen}"
    return f"{app}, {agent.replace('/', ' ')}, {python}, {platform.system()} {platform.release()}"


def _format_installation() -> str:
    installation = detection.detect()
    kind = installation.kind if installation.is_certain else f"{installation.kind}, as far as can be seen"
    rights = "can be written" if installation.is_writable else "cannot be written"
    updater = "" if installation.updater is None else f"; updated by {installation.updater}"
    command = "" if installation.command is None else f": {_hide_home(installation.command)}"
    return f"{kind}, in {_shorten(installation.folder)}, which {rights}{updater}{command}"


def _check_own_updates(session: Session) -> Iterator[Finding]:
    """Report a frozen app that nothing can replace, such as a zip that a person has unpacked."""
    has_updates = session.settings.slug is not None and session.settings.version is not None
    if not getattr(sys, "frozen", False) or not has_updates:
        return
    if installing.plan_update(session).obstacle is InstallObstacle.NOT_REPLACEABLE:
        yield _wrong(
            "own updates",
            "this copy cannot update itself, as no set-up and no launcher has installed it: a folder needs"
            " current.txt and versions; install the app as its vendor describes it",
        )


def _list_rolled_back() -> Iterator[Finding]:
    """Report why a customer still has an older version: the newer one did not start, or was left."""
    if versions := list_rolled_back():
        yield _noted("rolled back", f"{', '.join(versions)}; a newer version is offered as usual")


def _format_machine(machine: Mapping[str, str]) -> str:
    if not machine:
        return "none is sent"
    version = machine.get("app_version")
    return f"sent with each verify: {machine['label']}" + (f", version {version}" if version else "")


def _format_keys(settings: Settings) -> str:
    keys = [f"answers {key.id}" for key in settings.public_keys]
    return ", ".join([*keys, *(f"updates {key.id}" for key in settings.release_keys)]) or "none"


def _check_name(server: str) -> Iterator[Finding]:
    parts = urlsplit(server)
    host = parts.hostname or ""
    try:
        port = parts.port or 443
        resolved = run_with_deadline(SECONDS, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except TimeoutError:
        yield _wrong("name", f"{host} was not resolved within {SECONDS:.0f} s")
    except (OSError, UnicodeError) as problem:
        # Behind a proxy, often only the proxy can resolve names.
        is_fine = None if system_proxy(server) else False
        yield Finding("name", is_fine, f"{host} cannot be resolved ({problem})")
    else:
        addresses = dict.fromkeys(str(address[4][0]) for address in resolved)
        yield _fine("name", f"{host} resolves to {', '.join(addresses)}")


def _check_proxy(server: str) -> Iterator[Finding]:
    proxy = system_proxy(server)
    if proxy is None:
        yield _noted("proxy", "none")
        return
    try:
        parts = urlsplit(proxy)
        address = f"{parts.hostname}:{parts.port or ''}"
    except ValueError:  # its message may contain the password
        yield _wrong("proxy", "its address is not a valid URL")
        return
    password = " (with a password)" if parts.username else ""
    kind = "" if parts.scheme == "http" else f"{parts.scheme}, "
    yield _noted("proxy", f"{kind}{address}{password}")


def _check_tls(server: str) -> Iterator[Finding]:
    parts = urlsplit(server)
    if parts.scheme != "https":
        if is_in_the_clear(server):
            yield _wrong(
                "tls", "not used: the address is http, so license keys are sent unencrypted; use https"
            )
        else:
            yield _noted("tls", "not used: the address is http")
        return
    if system_proxy(server):
        yield _noted("tls", "goes through the proxy; see service")
        return
    host = parts.hostname or ""

    def shake_hands() -> str:
        import truststore  # noqa: PLC0415 - loads the system's trust store

        session = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with (
            connect(host, parts.port or 443, SECONDS) as line,
            session.wrap_socket(line, server_hostname=host) as secured,
        ):
            return secured.version() or "TLS"

    try:
        version = run_with_deadline(SECONDS, shake_hands)
    except ssl.SSLCertVerificationError as problem:
        yield _wrong("tls", f"the certificate is not trusted: {problem.verify_message}")
    except ssl.SSLError as problem:
        hint = "; the port answers without TLS: is the address http?" if problem.reason in _NO_TLS else ""
        yield _wrong("tls", f"the handshake failed: {problem.reason or type(problem).__name__}{hint}")
    except (OSError, TimeoutError) as problem:
        yield _wrong("tls", f"no connection ({str(problem) or 'timed out'})")
    else:
        yield _fine("tls", f"{version}, the certificate is trusted")


def _check_service(settings: Settings, agent: str, given: Any, now: datetime) -> Iterator[Finding]:
    transport = transport_module.Transport(settings, agent, given)
    try:
        # An update check without any field: a service that works answers 422.
        url = settings.server + UPDATE_CHECK_PATH
        call = Call("GET", url, {"Accept": "application/json"}, None, MAX_UPDATE_BYTES)
        reply = run(send_with_retries(call, settings.timeout.total_seconds()), lambda: transport).result
    finally:
        if given is None:
            transport.close()
    if isinstance(reply, ServiceUnavailableError):
        yield _wrong("service", reply.message)
        yield _noted("clock", "could not be compared")
    else:
        yield from _check_reply(reply)
        yield _check_clock(reply.headers.get("date"), now)


def _check_reply(reply: Reply) -> Iterator[Finding]:
    if reply.status == 422 and b'"errors"' in reply.body:  # noqa: PLR2004 - spec 4.2
        yield _fine("service", "responds")
        return
    if reply.status in _NOT_NOW:
        yield _wrong("service", f"responds, but not at the moment (HTTP status {reply.status})")
        return
    redirects = "; it redirects: is the address right?" if reply.status in REDIRECTS else ""
    yield _wrong("service", f"this is not a license service (HTTP status {reply.status}{redirects})")


def _check_clock(date: str | None, now: datetime) -> Finding:
    at = read_http_date(date or "")
    if at is None:
        return _noted("clock", "the server sends no date to compare with")
    difference = now - at
    if abs(difference) <= MAX_CLOCK_DIFFERENCE:
        return _fine("clock", "agrees with the server's")
    seconds = round(difference.total_seconds())
    direction = "ahead of" if seconds > 0 else "behind"
    return _wrong("clock", f"{timedelta(seconds=abs(seconds))} {direction} the server's")


def _check_version(version: str | None) -> Iterator[Finding]:
    if version is not None and not is_version(version):
        yield _wrong("version", f"{version} is not a version of PEP 440, so no update is ever offered")


def _check_folder(folder: Path | None, session: Session) -> Iterator[Finding]:
    slots = "" if session.settings.domain else ", and each start takes an activation slot"
    lost = f"the license key is forgotten at exit{slots}"
    if folder is None:
        if isinstance(session.storage, StateFolder):
            yield _wrong("state folder", f"not available, because no home folder was found; {lost}")
        else:
            yield _noted("state folder", "none: the app has its own storage")
        return
    nearest = folder
    while not nearest.exists() and nearest.parent != nearest:
        nearest = nearest.parent
    may_write = _can_write(nearest)
    kinds = ", ".join(sorted({path.name.partition("-")[0] for path in folder.glob("*.state")}))
    content = f"contains {kinds}" if kinds else "empty" if folder.exists() else "not created yet"
    text = f"{_shorten(folder)}: {content}" + ("" if may_write else f"; cannot be written: {lost}")
    yield Finding("state folder", may_write, text)


_AFTER_DAMAGE: Final = {
    "activation": "enter the license key again",
    "license": "connect to the internet and check the license again",
    "signed": "connect to the internet and check the license again",
    "file": "install the license file again",
    "installation": "nothing to do: there is a copy",
    "installation_copy": "nothing to do: it is a copy",
    "quota": "uses that were not reported yet may be lost",
}
"""Kind of a record that counts as missing → what to do."""

MOST_FLAWS: Final = 10
"""How many files are named: each read that fails takes 0.4 s."""

MOST_CALLS: Final = 100
"""How many keys are looked at: a tool may have verified thousands."""

_MADE_ANEW: Final = "nothing to do: the next request writes it anew"


def _check_records(session: Session) -> Iterator[Finding]:
    """Look at each file by itself: for a call a damaged one is missing, and memory may stand in for it."""
    if not isinstance(session.storage, StateFolder):
        return
    try:
        files = session.storage.files()
    except OSError as problem:
        yield _wrong("state files", _describe_unreadable(session.storage.folder() or Path(), problem))
        return
    flaws = list(itertools.islice(filter(None, map(_find_file_flaw, files)), MOST_FLAWS))
    yield from (_wrong("state files", flaw) for flaw in flaws)
    if files and not flaws:
        yield _fine("state files", f"all {len(files)} can be read")


def _find_file_flaw(path: Path) -> str | None:
    try:
        raw = read_with_retries(path)
    except OSError as problem:
        return _describe_unreadable(path, problem)
    flaw = "is not a plain file" if raw is None else find_flaw(path.stem, raw)
    if flaw is None or (raw is None and not os.path.lexists(path)):  # removed since it was listed
        return None
    todo = _AFTER_DAMAGE.get(path.name.partition("-")[0], _MADE_ANEW)
    return f"{_shorten(path)} {flaw}, and counts as missing: {todo}"


def _describe_unreadable(path: Path, problem: OSError) -> str:
    cause = problem.strerror or type(problem).__name__
    return (
        f"{_shorten(path)} cannot be read ({cause}), and is left as it is: check its permissions,"
        " or close the program that has it open, and try again"
    )


def _can_write(folder: Path) -> bool:
    """Return whether a file can be made in a folder; Windows knows only when it is tried."""
    probe = folder / f".licclient-{token_hex(8)}"
    try:
        os.close(os.open(probe, os.O_WRONLY | NEW_FILE, 0o600))
        probe.unlink()
    except OSError:
        return False
    return True


def _shorten(folder: Path) -> str:
    """Return a path without the user's name."""
    try:
        return str(Path("~") / folder.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(folder)


def _hide_home(command: str) -> str:
    """Return a command line without the user's name, as a shell understands it."""
    try:
        return command.replace(f"{Path.home()}{os.sep}", f"~{os.sep}")
    except RuntimeError:
        return command


def _check_file(session: Session) -> Finding:
    if not session.settings.public_keys:
        return _noted("license file", "not possible: the app pins no public keys")
    file = session.license_file()
    if file is None:
        return _noted("license file", "none for this app on this computer")
    about = file.describe(session.now(), None)
    until = f"of key {about.key_hint}, until {file.ends_at:%Y-%m-%d %H:%M} UTC"
    if isinstance(file.result, License):
        return _fine("license file", until)
    return _wrong("license file", f"{until}; {file.result.message}")


def _check_product(session: Session) -> Finding:
    """Compare the app's product with those of the keys that were verified here."""
    product, storage = session.settings.product, session.storage
    if product is None:
        return _noted("product", "none: the app accepts keys of every product of this service")
    files = storage.files() if isinstance(storage, StateFolder) else []
    calls = [path.stem for path in files if path.name.startswith("call-")][:MOST_CALLS]
    outcomes = [read_outcome(session.load_optional(name)) for name in calls]
    others = sorted({outcome.product for outcome in outcomes if outcome and outcome.product} - {product})
    if not others:
        return _noted("product", product)
    text = f"{product}; a key was entered for {', '.join(others)}, which is refused"
    if not any(is_alike(product, other) for other in others):
        return _noted("product", text)
    return _wrong("product", f"{text}; if these are the same product, the app passes its name wrongly")


def _check_updates(session: Session) -> Finding:
    """Report the last check of the activated key: without a key the service says nothing about products."""
    settings = session.settings
    missing = [name for name in ("slug", "version") if getattr(settings, name) is None]
    if missing:
        return _noted("updates", f"not checked: the app passes no {' and no '.join(missing)}")
    activation = session.activations.find()
    check = NOT_CHECKED if activation is None else remembered_check(session, activation)
    is_refused = isinstance(check.error, LicenseRefusedError)
    return _wrong("updates", check.message) if is_refused else _noted("updates", check.message)


def _list_products(folder: Path | None, settings: Settings) -> list[str]:
    """Return the folders of activated products below the folder of a client without a product."""
    if folder is None or settings.product is not None or settings.slug is not None:
        return []
    return sorted({path.parent.name for path in folder.glob("*/activation-*.state")})


def _check_license(about: LicenseStatus, products: Sequence[str]) -> Finding:
    parts = [about.state.value.replace("_", " ")]
    if about.state is LicenseState.NOT_ACTIVATED:
        parts.append(
            f"pass the product to check one of these: {', '.join(products)}"
            if products
            else "enter the license key in the app"
        )
    if about.key_hint:
        parts.append(f"key {about.key_hint}")
    if about.product:
        term = "lifetime" if about.is_lifetime else f"through {about.expiry}" if about.expiry else "no expiry"
        parts.append(f"{about.product}, {term}")
    if about.checked_at:
        parts.append(f"confirmed {about.checked_at:%Y-%m-%d %H:%M} UTC")
    if about.grace_ends_at:
        parts.append(f"valid without the service until {about.grace_ends_at:%Y-%m-%d %H:%M} UTC")
    if about.message:
        parts.append(f"last response: {about.message}" if about.key_hint else about.message)
    is_fine = {LicenseState.VALID: True, LicenseState.NOT_ACTIVATED: None}.get(about.state, False)
    return Finding("license", is_fine, "; ".join(parts))
