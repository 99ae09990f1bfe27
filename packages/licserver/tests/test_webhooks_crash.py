"""The server is killed while it delivers: no event is lost, and none arrives with two ids."""

import asyncio
import random
import threading
import time
from collections import defaultdict
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import standardwebhooks

from harness.commands import kill_all
from licserver.database.repositories.queue import JobState
from licserver.database.repositories.webhooks import DELIVERIES, EVENTS
from licserver.domain.records import LicenseTerms
from licserver.jobs.webhooks import register_webhooks
from licserver.jobs.worker import JobWorker
from licserver.services.installation import open_services
from licserver.settings import Settings

pytestmark = pytest.mark.crash
CRASHES, LICENSES = 3, 60


@contextmanager
def receiving(got):
    """Serve an endpoint on loopback that adds id, headers and body of each request to `got`."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers["webhook-id"], dict(self.headers), body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


async def deliver_all(services):
    """Deliver what is left, as a process does that starts after the killed ones."""
    worker = JobWorker(services.repositories, services.now)
    register_webhooks(worker, services)
    running, queue = worker.running(None), services.repositories.queue
    await anext(running)
    async with asyncio.timeout(30):
        while any(queue.list_page(name, JobState.WAITING) for name in (EVENTS, DELIVERIES)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert await anext(running, None) is None


def test_a_kill_loses_no_event_and_changes_no_id(program):
    """Each license's event arrives, perhaps several times, with one id and one body, and correctly signed."""
    program.stock()
    program.environ["LICSERVER_WEBHOOK_NETWORKS"] = "127.0.0.0/8"
    settings = Settings(data_dir=program.folder, webhook_networks="127.0.0.0/8")
    got = []
    with receiving(got) as url, closing(open_services(settings)) as services:
        _, secret = services.webhooks.add(url)
        issued = set()
        for _ in range(CRASHES):
            wanted = len(got) + random.randint(1, LICENSES // 2)
            with program.serve() as (process, _):
                for _ in range(LICENSES):
                    issued.add(services.licenses.issue("app", LicenseTerms())[0].id.hex())
                until = time.monotonic() + 30
                while len(got) < wanted and time.monotonic() < until:
                    time.sleep(0.01)
                kill_all(process)
        # The leases of what the killed processes had claimed are over.
        with closing(open_services(settings, lambda: datetime.now(UTC) + timedelta(minutes=2))) as later:
            asyncio.run(deliver_all(later))
    events = defaultdict(set)
    for event_id, headers, body in got:
        data = standardwebhooks.Webhook(secret).verify(body, headers)["data"]
        events[data["license_id"]].add((event_id, body))
    assert events.keys() == issued
    assert {len(value) for value in events.values()} == {1}
