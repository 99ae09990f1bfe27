"""The API of a shop, as `source sync` reads it: pages of lists, from a real socket."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def serving_lists(lists: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Serve lists by their paths, each on one page, for a block; yields the address. Others are a 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Send a list."""
            found = lists.get(self.path.partition("?")[0].strip("/"))
            body = json.dumps({"code": "rest_no_route"} if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
