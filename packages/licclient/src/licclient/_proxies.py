"""Which proxy the system names for an address: one rule for calls, downloads and the doctor (D-143).

Not httpx's own: that reads all settings before its first call, and one that it cannot read, though it be for
another scheme or another network, then stands in the way of every call.
"""

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def system_proxy(url: str) -> str | None:
    """Ask the environment, or on Windows and macOS the system, for the proxy on the way to an address.

    Args:
        url: An `http` or `https` address.

    Returns:
        The proxy's address with its scheme, as it was set, maybe with a password in it; None for none.
    """
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or _is_direct(parts.hostname or "", parts.port, proxies.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_direct(host: str, port: int | None, exceptions: str) -> bool:
    if "*" in map(str.strip, exceptions.split(",")) or proxy_bypass(host):
        return True
    shown = f"[{host}]" if ":" in host else host
    return port is not None and bool(proxy_bypass(f"{shown}:{port}"))
