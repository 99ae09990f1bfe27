"""A sale from beginning to end: shop, mail, app, customer's page, refund."""

import json
import re
import socket
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from harness import chromium, shops
from harness.chromium import PHONE, visiting
from harness.customer import eventually
from harness.world import World
from licclient import LicenseClient, LicenseRefusedError, Reason, Source, explain
from licserver.domain.records import EnvironmentPolicy
from licserver.sources import SourceKind

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from aiosmtpd.controller import Controller

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.PROGRAM is None, reason=chromium.MISSING),
    pytest.mark.asyncio(loop_scope="module"),
]


class Mailbox:
    """Keeps what arrives."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        """Take a message."""
        text = message_from_bytes(envelope.content, policy=policy.default).get_body(("plain",))
        assert text is not None
        self.texts.append(text.get_content())
        return "250 OK"


@pytest.fixture
def mail() -> Iterator[tuple[Mailbox, int]]:
    """A mail server in the vendor's own network: its mailbox, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    mailbox = Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=port, server_hostname="mail.example")
    controller.start()
    yield mailbox, port
    controller.stop()


async def test_a_purchase_becomes_a_license_that_moves_and_is_refunded(
    make_world: Callable[..., World],
    program: Browser,
    mail: tuple[Mailbox, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key is mailed, two computers take it, a third one when the customer has removed one; it ends."""
    mailbox, port = mail
    monkeypatch.setenv("STRIPE_SECRET", shops.SECRETS["stripe"])
    world = make_world(
        account=True,
        mail_host="127.0.0.1",
        mail_port=port,
        mail_tls="none",
        mail_sender="shop@vendor.example",
    )
    services = world.services
    services.products.add("photo-lab", "Photo Lab", EnvironmentPolicy.DOMAIN)
    services.sources.add("stripe", SourceKind.STRIPE, "STRIPE_SECRET")
    services.sources.map("stripe", "plink_1", "photo-lab", slots=2)

    with ExitStack() as stack:
        server = stack.enter_context(world.serving())

        def deliver(body: bytes) -> dict[str, str]:
            headers = shops.sign("stripe", body, world.clock())
            request = urllib.request.Request(f"{server.url}/events/in/stripe", body, headers)  # noqa: S310 - as below
            with urllib.request.urlopen(request) as response:  # noqa: S310 - our own loopback address
                told: dict[str, str] = json.load(response)
            return told

        bought = shops.stripe("checkout.session.completed", shops.stripe_session())
        assert [deliver(bought)["status"] for _ in range(2)] == ["accepted", "duplicate"]
        eventually(lambda: mailbox.texts != [])
        (key,) = {*re.findall(r"CP(?:-[A-Z0-9]{6}){5}", mailbox.texts[0])}

        computers = [
            stack.enter_context(
                LicenseClient(server.url, state_dir=tmp_path / name, clock=world.clock, label=name)
            )
            for name in ("Desk", "Laptop", "Studio")
        ]
        for computer in computers[:2]:
            assert computer.activate(key).product == "Photo Lab"
        with pytest.raises(LicenseRefusedError) as refused:
            computers[2].activate(key)
        assert refused.value.reason is Reason.ENVIRONMENT

        async with visiting(program, server.url, viewport=PHONE) as visitor:
            await visitor.open("/account")
            await visitor.page.get_by_label("License key").fill(key)
            await visitor.page.get_by_role("button", name="Sign in").click()
            await expect(visitor.page.get_by_text("2 of 2 in use.")).to_be_visible()
            desk = visitor.page.get_by_role("listitem").filter(has_text="Desk")
            await desk.locator("summary").click()
            await desk.get_by_role("button", name="Remove").click()
            await expect(visitor.page.get_by_text("The computer is removed.")).to_be_visible()
        assert computers[2].activate(key).source is Source.SERVER

        deliver(shops.stripe("charge.refunded", {"payment_intent": "pi_1", "refunded": True}, id_="evt_2"))
        eventually(lambda: services.licenses.get(key).revoked_at is not None)
        with pytest.raises(LicenseRefusedError) as ended:
            computers[2].verify(key, force=True)
        assert explain(ended.value, "en") == "This license has been revoked. Please contact support."
    assert len(mailbox.texts) == 1
