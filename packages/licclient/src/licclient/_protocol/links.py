"""Pure: where a file may be fetched from (D-53)."""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urljoin, urlsplit

from licclient._model import Settings

_PORTS: Final = {"http": 80, "https": 443}


def origin(url: str) -> str | None:
    """Return scheme, host and port of an address, in one spelling; None when it is no plain http address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.scheme not in _PORTS or "@" in parts.netloc:
        return None
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{port or _PORTS[parts.scheme]}"


def is_safe_link(link: str, settings: Settings) -> bool:
    """Return whether a file may be fetched from this address.

    It must be `https`. On this machine, where other programs trust whoever is on it, the file may be fetched
    only if the service is on it too, and then by plain `http` as well (D-172). An app that names origins gets
    files from those and from the service itself only; one that it names may be any.
    """
    place = origin(link)
    if place is None or not link.isprintable() or " " in link:
        return False
    named = settings.download_origins
    if named is not None and place in named:
        return True
    if named is not None and place != origin(settings.server):
        return False
    if is_loopback(urlsplit(link).hostname or ""):
        return is_loopback(urlsplit(settings.server).hostname or "")
    return place.startswith("https://")


def is_protected(link: str, settings: Settings) -> bool:
    """Return whether a file from here may come without a digest: `https`, or the service's own (D-55)."""
    place = origin(link)
    return place is not None and (place.startswith("https://") or place == origin(settings.server))


def redirect_target(link: str, location: str, settings: Settings) -> str | None:
    """Follow a redirect of a download: never from `https` to `http`, only to a safe address; else None."""
    try:
        target = urljoin(link, location)
    except ValueError:
        return None
    downgrade = link.startswith("https:") and not target.startswith("https:")
    return None if downgrade or not is_safe_link(target, settings) else target


def is_in_the_clear(server: str) -> bool:
    """Return whether others on the way can read keys and forge responses: http, and not this machine."""
    return server.startswith("http:") and not is_loopback(urlsplit(server).hostname or "")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, in any spelling, without a name look-up."""
    host = host.rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host.partition("%")[0] if ":" in host else _dotted(host))
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified


def _dotted(host: str) -> str:
    """Return an IPv4 address as four numbers: 127.1 and 0x7f000001 are addresses, too; else `ValueError`."""
    parts = host.split(".")
    *front, last = [int(part, 16 if part[:2] == "0x" else 8 if part[:1] == "0" else 10) for part in parts]
    number = last + sum(one << (24 - 8 * at) for at, one in enumerate(front))
    return ".".join(str(number >> bits & 0xFF) for bits in (24, 16, 8, 0))
