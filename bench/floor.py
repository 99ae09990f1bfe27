"""The floor: the least that an aiohttp server can do for the same bytes on the wire.

Plain asyncio, no middleware, no access log: the JSON is parsed, a dict is returned as JSON.
"""

import socket
import sys
from typing import Any

from aiohttp import web

VERIFIED = {"valid": True, "product": "Bench Notes", "expiry": None, "lifetime": False}
LINK = f"https://licenses.example/api/v1/update-download?license={'0' * 32}&release=1&expires=1795176000"
UPDATE: dict[str, Any] = {
    "name": "Bench Notes",
    "slug": "bench-notes",
    "version": "1.1.0",
    "download_url": f"{LINK}&key=1f2e3d4c&signature={'A' * 43}",
    "sections": {"changelog": "<ul><li>Faster.</li></ul>"},
    "last_updated": "2026-11-01 08:30:00",
    "requires": None,
    "tested": None,
}


async def verify(request: web.Request) -> web.Response:
    """Parse, and answer the same every time."""
    await request.json()
    return web.json_response(VERIFIED)


async def update(request: web.Request) -> web.Response:
    """Read the query, and answer the same every time."""
    dict(request.query)
    return web.json_response(UPDATE)


def main() -> None:
    """Serve on the port given until killed."""
    app = web.Application()
    app.router.add_post("/api/v1/licenses/verify", verify)
    app.router.add_get("/api/v1/update-check", update)
    sock = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=2048)
    web.run_app(app, sock=sock, access_log=None, print=None)


if __name__ == "__main__":
    main()
