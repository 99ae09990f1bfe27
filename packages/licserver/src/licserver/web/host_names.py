"""The names under which the server may be addressed: that of the base URL, and addresses."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from licserver.domain.environments import parse_ip

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.%]{2,64}\]|[^:\[\]]{1,255})(?::[0-9]{0,5})?")
_UNCHECKED: Final = {"/healthz", "/readyz"}
"""Load balancers request these under any name."""
_LONGEST: Final = 300  # characters of a name with a port


class HostNames:
    """Knows which hosts a request may name (D-275).

    Browsers take every name that leads here for a site of its own: pages, links and cookies of another name
    would be an attacker's. An address cannot be resolved to another host.
    """

    def __init__(self, base_url: str | None, others: Iterable[str]) -> None:
        self._is_checked = base_url is not None
        names = (urlsplit(base_url or "").hostname or "", *others)
        self._names = {"localhost", *(name.rstrip(".").casefold() for name in names)}
        self._allows = lru_cache(maxsize=64)(self._is_known)

    def allow(self, request: web.BaseRequest) -> bool:
        """Return whether to handle a request; without a base URL any, and one of HTTP/1.0 without a host."""
        if not self._is_checked:
            return True
        # A target with a scheme has a host of its own, which counts (RFC 9112, 3.2.2).
        is_path = request.raw_path.startswith("/")
        host = request.headers.get(hdrs.HOST, "") if is_path else request.host
        return len(host) <= _LONGEST and (self._allows(host) or request.rel_url.raw_path in _UNCHECKED)

    def _is_known(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return not host
        name = match[1].rstrip(".").casefold()
        return name in self._names or parse_ip(name.strip("[]")) is not None
