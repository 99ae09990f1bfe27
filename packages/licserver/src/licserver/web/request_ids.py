"""A name for each request that is written about, the same in every line and in the proxy's own log.

Made when somebody first asks for it: a request of which nothing is written has none, and pays nothing.
"""

import logging
import re
import secrets
from typing import Final

from aiohttp import web

from licserver.domain.environments import parse_ip
from licserver.settings import Settings

HEADER: Final = "X-Request-ID"

_NAME: Final = web.RequestKey("request_id", str)
_SANE: Final = re.compile(r"[A-Za-z0-9_.:=+/-]{1,64}")
_LOOKS_SECRET: Final = re.compile(r"CP-", re.IGNORECASE)


class RequestIds:
    """Names requests.

    Args:
        settings: Whose `trusted_proxies` may name a request; everybody else's header is ignored.
    """

    def __init__(self, settings: Settings) -> None:
        self._trusted = settings.trusted_proxies

    def of(self, request: web.BaseRequest) -> str:
        """Return the request's name: what a trusted proxy calls it, or else one of ours.

        A proxy's name is taken only if it is short and plain: it goes into logs, and comes from a header
        that a careless proxy hands on from its caller (D-100).
        """
        known = request.get(_NAME)
        if known is None:
            known = request[_NAME] = self._told(request) or secrets.token_hex(8)
        return known

    def log_error(
        self,
        log: logging.Logger,
        request: web.BaseRequest,
        response: web.StreamResponse,
        what: str,
        exc_info: Exception | None = None,
    ) -> None:
        """Log a failed request, and put its id into the response: a report can name it."""
        method, path, name = request.method, request.rel_url.raw_path, self.of(request)
        extra = {"request_id": name, "method": method, "path": path, "status": response.status}
        log.error("%s %s%s (%s)", method, path, what, name, extra=extra, exc_info=exc_info)
        response.headers[HEADER] = name

    def _told(self, request: web.BaseRequest) -> str | None:
        told = request.headers.get(HEADER)
        if told is None or _SANE.fullmatch(told) is None or _LOOKS_SECRET.search(told):
            return None
        peername = request.protocol.peername
        address = parse_ip(str(peername[0]).partition("%")[0]) if peername else None
        return told if address is not None and any(address in one for one in self._trusted) else None
