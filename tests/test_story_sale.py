"""A sale from beginning to end: shop, mail, app, customer's page, refund."""

import re
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from harness import chromium, fake_stripe, shops
from harness.chromium import PHONE, visiting
from harness.customer import eventually
from harness.world import MovableClock, World
from licclient import LicenseClient, Reason, Source, explain
from licclient.errors import LicenseRefusedError
from licserver.domain.records import EnvironmentPolicy
from licserver.shops import ShopKind

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from aiosmtpd.controller import Controller

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.PROGRAM is None, reason=chromium.MISSING),
    fake_stripe.needed,
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
    clock: MovableClock,
    program: Browser,
    mail: tuple[Mailbox, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key is mailed, two computers take it, a third one when the customer has removed one; it ends."""
    clock.now = datetime.now(UTC)  # as the shop, a process of its own, has it
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
    services.sources.add("stripe", ShopKind.STRIPE, "STRIPE_SECRET", is_test=True)
    services.sources.map("stripe", "monthly", "photo-lab", slots=2)

    with ExitStack() as stack:
        stripe = stack.enter_context(fake_stripe.running())
        server = stack.enter_context(world.serving())
        stripe.deliver_to(f"{server.url}/events/in/stripe")
        subscription = stripe.subscribe("monthly", "ann@example.com")
        eventually(lambda: mailbox.texts != [])
        (key,) = {*re.findall(r"CP(?:-[A-Z0-9]{6}){5}", mailbox.texts[0])}

        computers = [
            stack.enter_context(
                LicenseClient(server.url, storage=tmp_path / name, clock=world.clock, label=name)
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

        # Stripe would report the refund as `charge.refunded`, this one reports the cancellation alone.
        paid_through = services.licenses.get(key).subscription_ended_at
        stripe.refund(subscription)
        eventually(lambda: services.licenses.get(key).subscription_ended_at != paid_through)
        clock.now = datetime.now(UTC)
        with pytest.raises(LicenseRefusedError) as ended:
            computers[2].verify(key, force=True)
        assert explain(ended.value, "en") == (
            "This license has expired. Please renew it, or enter another key."
        )
    assert len(mailbox.texts) == 1
