"""Pure: settings and a license key → the request to send (spec 4); where a file may come from (D-53)."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from licclient._core.arguments import MAX_TYPED, is_text, wrong_type
from licclient._core.lazy import lazy
from licclient._core.model import Settings
from licclient.errors import InvalidRequestError

if TYPE_CHECKING:
    import ipaddress
    import unicodedata
    from urllib import parse
else:
    ipaddress = lazy("ipaddress")
    unicodedata = lazy("unicodedata")
    parse = lazy("urllib.parse")

VERIFY_PATH: Final = "/api/v1/licenses/verify"
DEACTIVATE_PATH: Final = "/api/v1/licenses/deactivate"
UPDATE_CHECK_PATH: Final = "/api/v1/update-check"

MAX_VERIFY_BYTES: Final = 64 * 1024
"""Longest response to a verify that is read: a real one has some hundred bytes."""

MAX_UPDATE_BYTES: Final = 1024 * 1024
"""Longest response to an update check that is read: a changelog can be long."""

KEY_PREFIX: Final = "CP-"

MAX_KEY: Final = 1_024
"""The longest key that the service has."""

_JSON: Final = {"Accept": "application/json"}


class Call(NamedTuple):
    """One request to one of the endpoints; what holds the license key is not in its repr."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    max_bytes: int
    nonce: str | None = None
    """The fields that a signed response must repeat; None when no signature is requested."""

    def __repr__(self) -> str:
        return f"Call(method={self.method!r}, headers={self.headers!r}, max_bytes={self.max_bytes})"


def path_of(url: str) -> str:
    """Return the path of an address, without its query, which may have a key."""
    return "/" + url.partition("?")[0].partition("://")[2].partition("/")[2]


def tidy_key(typed: str) -> str | InvalidRequestError:
    """Remove white space from a typed key, and convert a CP- key to upper case (D-02).

    Another key was sold elsewhere and stays as it is (D-185). Its shape is for the server to judge. Return
    `InvalidRequestError` when nothing or no text is left; raise `TypeError` for any other type.
    """
    if not isinstance(typed, str):
        raise wrong_type("key", "a string: a license key", typed)
    if len(typed) > MAX_TYPED:
        return InvalidRequestError({"license_key": ["The license key is too long."]})
    key = "".join(typed.split())
    if key[: len(KEY_PREFIX)].upper() == KEY_PREFIX:
        key = key.upper()
    if not key:
        return InvalidRequestError({"license_key": ["The license key is empty."]})
    if len(key) > MAX_KEY:
        return InvalidRequestError({"license_key": ["The license key is too long."]})
    if not is_text(key):
        return InvalidRequestError({"license_key": ["The license key is not readable text."]})
    return key


def hide_keys(text: str) -> str:
    """Return a text without the license keys in it, for messages and labels."""
    return re.sub(rf"{KEY_PREFIX}[A-Z0-9-]+", f"{KEY_PREFIX}…", text, flags=re.IGNORECASE)


def post_call(settings: Settings, path: str, fields: Mapping[str, object]) -> Call:
    """Return a request that sends a JSON object to an endpoint."""
    headers = {**_JSON, "Content-Type": "application/json"}
    return Call("POST", settings.server + path, headers, json.dumps(fields).encode(), MAX_VERIFY_BYTES)


def verify_call(
    settings: Settings, key: str, domain: str, ip: str, machine: Mapping[str, str] | None = None
) -> Call:
    """Return a verify request (spec 4.1).

    `domain` is the app's or the installation id (D-45). The server checks the syntax of our `ip` only (D-05),
    and others ignore `machine`, which is as in `Settings` (D-11).
    """
    fields = {"license_key": key, "domain": domain, "ip": ip, **(machine or {})}
    return post_call(settings, VERIFY_PATH, fields)


def deactivate_call(settings: Settings, key: str, domain: str) -> Call:
    """Return a request to free the slots of a domain; arguments as for `verify_call`."""
    return post_call(settings, DEACTIVATE_PATH, {"license_key": key, "domain": domain})


def update_call(
    settings: Settings,
    key: str,
    slug: str,
    version: str,
    domain: str,
    platform: str | None = None,
    *,
    kind: str | None = None,
    is_manual: bool = False,
) -> Call:
    """Return an update check (spec 4.2), with platform, kind of file and channels if there are any.

    A check that a person asked for is offered the latest version, however far its rollout is (D-230).
    """
    fields = {"license_key": key, "slug": slug, "current_version": version, "domain": domain}
    if platform:
        fields["platform"] = platform
    if kind:
        fields["kind"] = kind
    if settings.channels:
        fields["channels"] = ",".join(settings.channels)
    if is_manual:
        fields["manual"] = "1"
    url = f"{settings.server}{UPDATE_CHECK_PATH}?{parse.urlencode(fields, quote_via=parse.quote)}"
    return Call("GET", url, _JSON, None, MAX_UPDATE_BYTES)


def shown_ip(address: str) -> str:
    """Return a socket's address as the `ip` of a verify: without a zone, `0.0.0.0` for none."""
    try:
        return str(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return "0.0.0.0"  # noqa: S104 - "no address" on the wire; nothing is bound to it


def read_date(value: object) -> date | None:
    """Parse `YYYY-MM-DD`; None for anything else, such as a day that does not exist."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None


def read_instant(value: object) -> datetime | None:
    """Parse an instant in ISO 8601; None for anything else, such as one without a zone."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
        return at.astimezone(UTC) if at is not None and at.tzinfo else None
    except (ValueError, OverflowError):  # the first and the last day of all, in another zone
        return None


# --- where a file may be fetched from --------------------------------------------------------------


_URL_CHARACTERS: Final = "%/:?#[]@!$&'()*+,;=~"
_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK_NAMES: Final = frozenset(
    {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}
)
"""Names of this machine in `/etc/hosts`, by default, on the systems that we know."""


def origin(url: str) -> str | None:
    """Return scheme, host and port of an address, in one spelling; None when it is no plain http address."""
    try:
        parts = parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.scheme not in _PORTS or "@" in parts.netloc:
        return None
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{port or _PORTS[parts.scheme]}"


def is_safe_link(link: str, settings: Settings) -> bool:
    """Return whether a file may be fetched from this address.

    It must be `https`. On this machine, where programs trust each other, the file may be fetched
    only if the service is on it too, and then by plain `http` as well (D-172). An app that names origins gets
    files from those and from the service itself only; an origin that it names may be any.
    """
    place = origin(link)
    if place is None or not is_one_word(link):
        return False
    named = settings.download_origins
    if named is not None and place in named:
        return True
    if named is not None and place != origin(settings.server):
        return False
    if is_loopback(parse.urlsplit(link).hostname or ""):
        return is_loopback(parse.urlsplit(settings.server).hostname or "")
    return place.startswith("https://")


def is_https_address(text: str) -> bool:
    """Return whether a browser can open this address, and only by `https`."""
    return (origin(text) or "").startswith("https://") and is_one_word(text)


def is_one_word(text: str) -> bool:
    """Return whether a text has neither spaces nor control characters."""
    return text.isprintable() and " " not in text


def escape_link(link: str) -> str:
    """Return an address with its spaces and other characters encoded that no address may have (RFC 3986)."""
    try:
        parts = parse.urlsplit(link)
    except ValueError:
        return link
    if not link.isprintable():  # line ends, which `urlsplit` removes
        return link
    path, query = (parse.quote(part, safe=_URL_CHARACTERS) for part in (parts.path, parts.query))
    return parts._replace(path=path, query=query).geturl()


def is_protected(link: str, settings: Settings) -> bool:
    """Return whether a file from here may come without a digest: `https`, or the service's own (D-55)."""
    place = origin(link)
    return place is not None and (place.startswith("https://") or place == origin(settings.server))


def redirect_target(link: str, location: str, settings: Settings) -> str | None:
    """Follow a redirect of a download: never from `https` to `http`, only to a safe address; else None."""
    try:
        target = escape_link(parse.urljoin(link, location.strip()))
    except ValueError:
        return None
    downgrade = link.startswith("https:") and not target.startswith("https:")
    return None if downgrade or not is_safe_link(target, settings) else target


def is_in_the_clear(server: str) -> bool:
    """Return whether others on the way can read keys and forge responses: http, and not this machine."""
    return server.startswith("http:") and not is_loopback(parse.urlsplit(server).hostname or "")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, in any spelling, without a name look-up."""
    # In IDNA these count as dots and digits: 127。0。0。1 is connected to.
    host = host if host.isascii() else unicodedata.normalize("NFKC", host).replace("\u3002", ".")
    host = host.rstrip(".").lower()
    if host in _LOOPBACK_NAMES or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0] if ":" in host else _dotted(host))
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified


def _dotted(host: str) -> str:
    """Return an IPv4 address as four numbers: 127.1 and 0x7f000001 are addresses, too; else `ValueError`."""
    parts = host.split(".")
    *front, last = [int(part, 16 if part[:2] == "0x" else 8 if part[:1] == "0" else 10) for part in parts]
    number = last + sum(part << (24 - 8 * at) for at, part in enumerate(front))
    return ".".join(str(number >> bits & 0xFF) for bits in (24, 16, 8, 0))
