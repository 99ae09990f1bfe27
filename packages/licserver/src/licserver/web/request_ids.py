"""Request ids, the same in every log line and in the proxy's log (D-100); made when first needed."""

import logging
import re
import secrets
from typing import Final

from aiohttp import web

from licserver.domain.environments import parse_ip
from licserver.settings import Settings

HEADER: Final = "X-Request-ID"

_REQUEST_ID: Final = web.RequestKey("request_id", str)
_SANE: Final = re.compile(r"[A-Za-z0-9_.:=+/-]{1,64}")
_LOOKS_SECRET: Final = re.compile(r"CP-", re.IGNORECASE)


class RequestIds:
    """Identifies requests by the header of a trusted proxy, or by a random id."""

    def __init__(self, settings: Settings) -> None:
        self._trusted = settings.trusted_proxies

    def of(self, request: web.BaseRequest) -> str:
        """Return the request's id.

        A proxy's id is taken only if it is short and plain: it goes into logs, and a careless proxy forwards
        the header of its client.
        """
        known = request.get(_REQUEST_ID)
        if known is None:
            known = request[_REQUEST_ID] = self._from_proxy(request) or secrets.token_hex(8)
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
        method, path, request_id = request.method, request.rel_url.raw_path, self.of(request)
        extra = {"request_id": request_id, "method": method, "path": path, "status": response.status}
        log.error("%s %s%s (%s)", method, path, what, request_id, extra=extra, exc_info=exc_info)
        response.headers[HEADER] = request_id

    def _from_proxy(self, request: web.BaseRequest) -> str | None:
        sent = request.headers.get(HEADER)
        if sent is None or _SANE.fullmatch(sent) is None or _LOOKS_SECRET.search(sent):
            return None
        peername = request.protocol.peername
        address = parse_ip(str(peername[0]).partition("%")[0]) if peername else None
        return sent if address is not None and any(address in one for one in self._trusted) else None
