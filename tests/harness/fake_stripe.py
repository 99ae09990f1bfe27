"""A Stripe that keeps what is bought and sends signed webhooks: localstripe.

It is GPL, and runs as a process of its own: nothing here imports it.
"""

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlencode

import pytest

from harness import shops
from harness.customer import eventually

needed = pytest.mark.skipif(
    find_spec("localstripe") is None, reason="`nox -s full` installs the group `fakes`"
)
KEY = "sk_test_12345"
_VISA = {
    "card[number]": "4242424242424242",
    "card[exp_month]": "12",
    "card[exp_year]": "2060",
    "card[cvc]": "123",
}


class FakeStripe:
    """Its API, at an address."""

    def __init__(self, address: str) -> None:
        self.address = address

    def call(self, path: str, method: str = "POST", **fields: str) -> Any:
        """Send a form, as Stripe's libraries do."""
        form = urlencode(fields).encode() or None
        headers = {"Authorization": f"Bearer {KEY}"}
        request = urllib.request.Request(f"{self.address}/{path}", form, headers, method=method)  # noqa: S310 - loopback
        with urllib.request.urlopen(request) as response:  # noqa: S310 - the same
            return json.loads(response.read() or b"null")

    def deliver_to(self, url: str) -> None:
        """Send all events there, a second after each, and signed."""
        self.call("_config/webhooks/ours", url=url, secret=shops.SECRETS["stripe"])

    def subscribe(self, plan: str, email: str) -> str:
        """Let a customer pay for the first month of a new plan; return the subscription's id."""
        product = {"product[name]": "App", "name": plan}
        self.call("v1/plans", id=plan, amount="900", interval="month", currency="eur", **product)
        token = self.call("v1/tokens", **_VISA)["id"]
        customer = self.call("v1/customers", email=email, source=token)["id"]
        bought = self.call("v1/subscriptions", customer=customer, **{"items[0][plan]": plan})
        return str(bought["id"])

    def refund(self, subscription: str) -> None:
        """Pay the last invoice of a subscription back, and cancel it; the refund alone sends no event."""
        invoice = self.call(f"v1/subscriptions/{subscription}", "GET")["latest_invoice"]
        payment = self.call(f"v1/invoices/{invoice}", "GET")["payment_intent"]
        self.call("v1/refunds", payment_intent=payment)
        self.call(f"v1/subscriptions/{subscription}", "DELETE")


@contextmanager
def running() -> Iterator[FakeStripe]:
    """Run one for a block; it listens on loopback only."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    gunicorn = [sys.executable, "-m", "gunicorn", "--bind", address, "--log-level", "error"]
    worker = ["--worker-class", "aiohttp.GunicornWebWorker", "localstripe.server:app"]
    with subprocess.Popen([*gunicorn, *worker]) as process:
        try:
            eventually(lambda: _is_listening(address))
            yield FakeStripe(f"http://{address}")
        finally:
            process.terminate()


def _is_listening(address: str) -> bool:
    host, _, port = address.partition(":")
    with closing(socket.socket()) as socket_:
        return socket_.connect_ex((host, int(port))) == 0
