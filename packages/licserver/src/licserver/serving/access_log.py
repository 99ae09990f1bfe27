"""The access log: a line for each request, with the client's address behind trusted proxies."""

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from licserver.runtime.logging import FIELDS, RequestIds
from licserver.web.client_addresses import ClientAddresses


class AccessLogger(AbstractAccessLogger):
    """Logs method, path and status; never the query, which has a license key in update checks."""

    clients: ClientAddresses | None = None
    request_ids: RequestIds | None = None

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Log one request."""
        path = request.rel_url.raw_path  # as sent: decoded, it could contain line breaks
        remote = request.remote
        if self.clients is not None and isinstance(request, web.Request):
            remote = self.clients.find(request).ip
        request_id = "-" if self.request_ids is None else self.request_ids.of(request)
        values = (request_id, remote, request.method, path, response.status, round(time, 4))
        self.logger.info(
            "%s %s %s %d %.4f %s", *values[1:], request_id, extra=dict(zip(FIELDS, values, strict=True))
        )


def access_logger(clients: ClientAddresses, request_ids: RequestIds) -> type[AccessLogger]:
    """Make an access logger class, of which aiohttp makes one for each connection."""
    return type("AccessLogger", (AccessLogger,), {"clients": clients, "request_ids": request_ids})
