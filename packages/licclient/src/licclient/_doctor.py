"""Finds out why it does not work, in words that a customer can paste into a mail: `LicenseClient.diagnose`.

Every check stands alone and says what it saw. The license key appears masked, proxies without their
passwords, and nothing here asks the service about the key: a diagnosis takes no activation slot.
"""

import os
import platform
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from licclient import _keyring
from licclient._flows.activation import pinned_keys, status
from licclient._flows.context import Context
from licclient._flows.runners import run, send_with_retries
from licclient._model import Settings
from licclient._policy import is_version
from licclient._protocol.links import is_in_the_clear
from licclient._protocol.requests import MAX_UPDATE_BYTES, UPDATE_CHECK_PATH, Call
from licclient._protocol.responses import REDIRECTS, Reply
from licclient._sockets import system_proxy, within
from licclient._status import LicenseState, LicenseStatus
from licclient.errors import ServiceUnavailableError

SECONDS: Final = 10.0
"""How long one check may take."""

_NOT_COMPARED: Final = "could not be compared"

MOST_APART: Final = timedelta(minutes=5)
"""How far the two clocks may be apart without a word: as in D-43."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw.

    Attributes:
        name: As `clock`.
        is_fine: None when there was nothing to judge.
        words: What was seen; one line.
    """

    name: str
    is_fine: bool | None
    words: str


def diagnose(context: Context, agent: str) -> str:
    """Make every check, and write a report; arguments as for `examine`."""
    return write_report(examine(context, agent), context.now())


def examine(context: Context, agent: str) -> list[Finding]:
    """Make every check, for one client.

    Args:
        context: The client's.
        agent: What it calls itself: `licclient/` and its version.
    """
    settings = context.settings
    found = [_noted("server", settings.server), _noted("program", _program(settings, agent))]
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "name": lambda: _name(settings.server),
        "proxy": lambda: _proxy(settings.server),
        "tls": lambda: _tls(settings.server),
        "service": lambda: _service(settings, agent, context.now()),
        "version": lambda: _version(settings.version),
        "state folder": lambda: _folder(context.storage.folder(), settings.domain),
        "keyring": lambda: iter([_noted("keyring", _keyring.describe())]),
        "license": lambda: _license(status(context)),
        "pinned keys": lambda: iter([_noted("pinned keys", ", ".join(pinned_keys(context)) or "none")]),
    }
    for name, check in checks.items():
        try:
            found += check()
        except Exception as problem:  # noqa: BLE001 - one check that fails must not hide the others
            found.append(_wrong(name, f"the check itself failed ({type(problem).__name__})"))
    return found


def _fine(name: str, words: str) -> Finding:
    return Finding(name, is_fine=True, words=words)


def _wrong(name: str, words: str) -> Finding:
    return Finding(name, is_fine=False, words=words)


def _noted(name: str, words: str) -> Finding:
    return Finding(name, is_fine=None, words=words)


def write_report(findings: list[Finding], now: datetime) -> str:
    """Write what can be pasted into a mail."""
    marks: Mapping[bool | None, str] = {True: "ok", False: "!!", None: "  "}
    lines = [f"licclient doctor, {now:%Y-%m-%d %H:%M:%S} UTC"]
    lines += [f"{marks[one.is_fine]} {one.name + ':':14} {one.words}" for one in findings]
    wrong = [one.name for one in findings if one.is_fine is False]
    lines.append(f"Look at: {', '.join(wrong)}." if wrong else "Nothing wrong was found.")
    return "\n".join(lines)


def _program(settings: Settings, agent: str) -> str:
    frozen = ", frozen" if getattr(sys, "frozen", False) else ""
    app = f"{settings.product or settings.slug or 'app'} {settings.version or ''}".strip()
    python = f"Python {platform.python_version()}{frozen}"
    return f"{app}, {agent.replace('/', ' ')}, {python}, {platform.system()} {platform.release()}"


def _name(server: str) -> Iterator[Finding]:
    parts = urlsplit(server)
    host = parts.hostname or ""
    try:
        found = within(SECONDS, lambda: socket.getaddrinfo(host, parts.port or 443, type=socket.SOCK_STREAM))
    except TimeoutError:
        yield _wrong("name", f"looking up {host} took longer than {SECONDS:.0f} s")
    except (OSError, UnicodeError) as problem:
        # Behind a proxy names are often looked up by the proxy alone.
        is_fine = None if system_proxy(server) else False
        yield Finding("name", is_fine, f"{host} cannot be looked up ({problem})")
    else:
        addresses = dict.fromkeys(str(one[4][0]) for one in found)
        yield _fine("name", f"{host} is {', '.join(addresses)}")


def _proxy(server: str) -> Iterator[Finding]:
    proxy = system_proxy(server)
    if proxy is None:
        yield _noted("proxy", "none")
        return
    try:
        parts = urlsplit(proxy)
        place = f"{parts.hostname}:{parts.port or ''}"
    except ValueError:  # its words may hold the password
        yield _wrong("proxy", "its address cannot be read")
        return
    password = " (with a password)" if parts.username else ""
    kind = "" if parts.scheme == "http" else f"{parts.scheme}, "
    yield _noted("proxy", f"{kind}{place}{password}")


def _tls(server: str) -> Iterator[Finding]:
    parts = urlsplit(server)
    if parts.scheme != "https":
        clear = is_in_the_clear(server)
        words = "not used: the address is http" + (", so keys travel in the clear" if clear else "")
        yield _wrong("tls", words) if clear else _noted("tls", words)
        return
    if system_proxy(server):
        yield _noted("tls", "goes through the proxy; see service")
        return
    host = parts.hostname or ""

    def shake() -> str:
        import truststore  # noqa: PLC0415 - loads the system's trust store

        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with (
            socket.create_connection((host, parts.port or 443), timeout=SECONDS) as line,
            context.wrap_socket(line, server_hostname=host) as secured,
        ):
            return secured.version() or "TLS"

    try:
        version = within(SECONDS, shake)
    except ssl.SSLCertVerificationError as problem:
        yield _wrong("tls", f"the certificate is not trusted: {problem.verify_message}")
    except ssl.SSLError as problem:
        yield _wrong("tls", f"no agreement: {problem.reason or type(problem).__name__}")
    except (OSError, TimeoutError) as problem:
        yield _wrong("tls", f"no connection ({str(problem) or 'no answer in time'})")
    else:
        yield _fine("tls", f"{version}, the certificate is trusted")


def _service(settings: Settings, agent: str, now: datetime) -> Iterator[Finding]:
    from licclient._transport import Transport  # noqa: PLC0415 - loads httpx

    transport = Transport(settings, agent)
    try:
        # Nothing is asked about a key, so a service that is well says what is missing: 422.
        link = settings.server + UPDATE_CHECK_PATH
        call = Call("GET", link, {"Accept": "application/json"}, None, MAX_UPDATE_BYTES)
        reply = run(send_with_retries(call, settings.timeout.total_seconds()), lambda: transport).result
    finally:
        transport.close()
    if isinstance(reply, ServiceUnavailableError):
        yield _wrong("service", str(reply))
        yield _noted("clock", _NOT_COMPARED)
    else:
        yield from _judge(reply, now)


def _judge(reply: Reply, now: datetime) -> Iterator[Finding]:
    speaks = reply.status == 422 and b'"errors"' in reply.body  # noqa: PLR2004 - spec 4.2
    redirects = "; it redirects: is base_url right?" if reply.status in REDIRECTS else ""
    words = "answers" if speaks else f"something else answers (HTTP status {reply.status}{redirects})"
    yield Finding("service", speaks, words)
    yield _clock(reply.headers.get("date"), now)


def _clock(told: str | None, now: datetime) -> Finding:
    try:
        there = parsedate_to_datetime(told or "").astimezone(UTC)
    except ValueError:
        return _noted("clock", "the server does not say what time it has")
    apart = now - there
    seconds = round(apart.total_seconds())
    if abs(apart) <= MOST_APART:
        return _fine("clock", "agrees with the server's")
    direction = "ahead of" if seconds > 0 else "behind"
    return _wrong("clock", f"{timedelta(seconds=abs(seconds))} {direction} the server's")


def _version(version: str | None) -> Iterator[Finding]:
    if version is not None and not is_version(version):
        yield _wrong("version", f"{version} is none that PEP 440 can read: no update is ever offered")


def _folder(folder: Path | None, domain: str | None) -> Iterator[Finding]:
    lost = "the key is forgotten at the end" + ("" if domain else ", and each start takes an activation slot")
    if folder is None:
        yield _wrong("state folder", f"there is none: no home folder was found; {lost}")
        return
    nearest = _nearest(folder)
    may_write = os.access(nearest, os.W_OK | os.X_OK)
    kinds = ", ".join(sorted({path.name.partition("-")[0] for path in folder.glob("*.state")}))
    held = f"holds {kinds}" if kinds else "empty" if folder.exists() else "not made yet"
    words = f"{_short(folder)}: {held}" + ("" if may_write else f"; cannot be written: {lost}")
    yield Finding("state folder", may_write, words)


def _nearest(folder: Path) -> Path:
    while not folder.exists() and folder.parent != folder:
        folder = folder.parent
    return folder


def _short(folder: Path) -> str:
    """Write a path without the name of whoever is at home there."""
    try:
        return str(Path("~") / folder.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(folder)


def _license(status: LicenseStatus) -> Iterator[Finding]:
    parts = [status.state.value.replace("_", " ")]
    if status.key_hint:
        parts.append(f"key {status.key_hint}")
    if status.product:
        term = "lifetime" if status.lifetime else f"through {status.expiry}" if status.expiry else "no expiry"
        parts.append(f"{status.product}, {term}")
    if status.checked_at:
        parts.append(f"confirmed {status.checked_at:%Y-%m-%d %H:%M} UTC")
    if status.grace_ends_at:
        parts.append(f"holds without the service until {status.grace_ends_at:%Y-%m-%d %H:%M} UTC")
    if status.message:
        parts.append(f"last word: {status.message}")
    is_fine = {LicenseState.VALID: True, LicenseState.NOT_ACTIVATED: None}.get(status.state, False)
    yield Finding("license", is_fine, "; ".join(parts))
