"""The server and its jobs are killed amid deliveries and their processing: no sale is lost or done twice."""

import http.client
import os
import random
from collections import Counter
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest

from harness import shops
from harness.commands import kill_all
from licserver.database.repositories.queue import JobState
from licserver.services.installation import open_services
from licserver.settings import Settings
from licserver.shops import ShopKind

pytestmark = pytest.mark.crash
CRASHES = int(os.environ.get("LICENSING_SALE_CRASHES", "3"))  # `nox -s crash` asks for 50
ORDERS, MOST_DONE = 1_000, 20


def deliver(port: int, order: str) -> bool:
    """Deliver a purchase; return whether the server has accepted it."""
    body = shops.standard("purchase.completed", order_id=order, external_id="app")
    headers = shops.sign("standard", body, datetime.now(UTC), delivery=f"msg-{order}")
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("POST", "/events/in/shop", body, headers)
        return connection.getresponse().status == 200


def count_licenses(services) -> int:
    """How many licenses were issued."""
    return sum(1 for _ in services.licenses.list_all())


def test_a_kill_loses_no_sale_and_repeats_none(program) -> None:
    """Each accepted order has exactly one license, and an order without a response has at most one."""
    program.environ["SHOP_SECRET"] = shops.SECRETS["standard"]
    program.stock(count=1)
    settings = Settings(data_dir=program.folder)
    with closing(open_services(settings)) as services:
        services.sources.add("shop", ShopKind.STANDARD, "SHOP_SECRET")
        services.sources.map("shop", "app", "app")
    accepted, waiting = [], 0
    for crash in range(CRASHES):
        with closing(open_services(settings)) as services:
            wanted = count_licenses(services) + random.randint(1, MOST_DONE)
            with program.serve() as (process, address), suppress(OSError, http.client.HTTPException):
                for number in range(ORDERS):
                    if deliver(urlsplit(address).port, f"{crash}-{number}"):
                        accepted.append(f"{crash}-{number}")
                    if count_licenses(services) >= wanted:
                        kill_all(process)  # amid the jobs of what was accepted; the next delivery fails
            assert count_licenses(services) >= wanted
            waiting += services.repositories.queue.list_page("sale", JobState.WAITING) != []
    with closing(open_services(settings, lambda: datetime.now(UTC) + timedelta(minutes=5))) as services:
        queue = services.repositories.queue
        while jobs := queue.claim("sale", services.now(), timedelta(minutes=1), 50):
            for job in jobs:  # those of killed processes as well: their leases are over
                services.sales.process(job.payload["event"])
                assert queue.finish(job, services.now())
        notes = Counter(license_.note for license_ in services.licenses.list_all() if license_.note)
    assert waiting, "no process was killed amid its jobs"
    assert all(notes[f"Order {order} (shop)"] == 1 for order in accepted)
    assert set(notes.values()) == {1}
