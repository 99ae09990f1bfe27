"""Pure: where a file may be fetched from (D-53)."""

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
    """Tell whether a file may be fetched from this address.

    It must be `https`, or this very machine. An app that names origins gets files from those and from the
    service itself only; one that it names may also be plain `http`.
    """
    place = origin(link)
    if place is None or not link.isprintable() or " " in link:
        return False
    named = settings.download_origins
    if named is not None and place in named:
        return True
    if named is not None and place != origin(settings.server):
        return False
    return place.startswith("https://") or is_loopback(urlsplit(link).hostname or "")


def redirect_target(link: str, location: str, settings: Settings) -> str | None:
    """Follow one redirect of a download: never from `https` to `http`, and only to a safe address.

    Returns:
        The absolute address, or None when it must not be followed.
    """
    try:
        target = urljoin(link, location)
    except ValueError:
        return None
    downgrade = link.startswith("https:") and not target.startswith("https:")
    return None if downgrade or not is_safe_link(target, settings) else target


def is_in_the_clear(server: str) -> bool:
    """Tell whether others on the way can read keys and write answers: http, and not this machine."""
    return server.startswith("http:") and not is_loopback(urlsplit(server).hostname or "")


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine, without asking anybody for its address."""
    from ipaddress import ip_address  # noqa: PLC0415 - for a file only

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
