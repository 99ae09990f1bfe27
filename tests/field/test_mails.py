"""What goes wrong with the mails of shops and services: senders, addresses, languages, queues, abuse."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from email.message import EmailMessage
from typing import Any

import pytest

from harness import shops
from harness.mailbox import Mailbox
from harness.sales import add, process
from harness.world import World
from licserver.database.repositories.queue import Job, JobState
from licserver.domain.records import Environment, EnvironmentPolicy, LicenseTerms
from licserver.jobs.mail import register_mail
from licserver.jobs.worker import JobWorker
from licserver.services.mail import QUEUES
from licserver.services.validation import find_email, read_email

Opened = tuple[World, Mailbox, Callable[[], Awaitable[Sequence[Job]]]]
Open = Callable[..., Opened]

ANN = "ann@example.com"


def sell(world: World, address: str = ANN, **terms: Any) -> tuple[bytes, str]:
    """Sell a license; return its id and its key."""
    if not world.services.products.list_all():
        world.services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
    license_, key = world.services.licenses.issue("app", LicenseTerms(customer_email=address, **terms))
    return license_.id, key


def body(message: EmailMessage) -> str:
    """Return the plain text of a message."""
    part = message.get_body(("plain",))
    assert part is not None
    return str(part.get_content())


# --- senders and recipients -------------------------------------------------------------------

SENDERS = {
    '"Acme, Inc." <licenses@vendor.example>': '"Acme, Inc." <licenses@vendor.example>',
    "Acme, Inc. <licenses@vendor.example>": '"Acme, Inc." <licenses@vendor.example>',
    "Acme (Billing): Ann <licenses@vendor.example>": '"Acme (Billing): Ann" <licenses@vendor.example>',
    "Müller & Söhne <lizenz@müller.example>": '"Müller & Söhne" <lizenz@xn--mller-kva.example>',
    "licenses@vendor.example": "licenses@vendor.example",
}


@pytest.mark.sampled(2, "expected")
@pytest.mark.parametrize(("sender", "expected"), SENDERS.items(), ids=list(SENDERS))
@pytest.mark.parametrize("smtp", ["ascii"], indirect=True)
async def test_knadh_listmonk_2599_senders(open_mailing: Open, sender: str, expected: str) -> None:
    """A comma in the sender's name is no second sender; an international domain is sent as an A-label."""
    world, mailbox, send = open_mailing(mail_sender=sender)
    world.services.mail.send_keys([sell(world)[0]])
    (job,) = await send()
    assert job.state is JobState.DONE
    (message,) = mailbox.messages
    assert str(message["From"]).replace('"', "") == expected.replace('"', "")
    assert len(message["From"].addresses) == 1
    assert message["Message-ID"].endswith(f"{expected.rpartition('@')[2].rstrip('>')}>")


@pytest.mark.parametrize("smtp", ["starttls", "ascii"], indirect=True)
async def test_bitwarden_server_1512_international_domains(mailing: Opened) -> None:
    """They are sent as A-labels, which servers without SMTPUTF8 take as well."""
    world, mailbox, send = mailing
    world.services.mail.send_keys([sell(world, "ann@bücher.example")[0]])
    (job,) = await send()
    assert job.state is JobState.DONE
    ((_, recipients, _),) = mailbox.got
    assert recipients == ["ann@xn--bcher-kva.example"]


@pytest.mark.sampled(3, "address", "recipient", "smtp", "state")
@pytest.mark.parametrize(
    ("smtp", "state"), [("starttls", JobState.DONE), ("ascii", JobState.DEAD)], indirect=["smtp"]
)
@pytest.mark.parametrize(
    ("address", "recipient"),
    [
        ("jörg@example.org", "jörg@example.org"),
        ("jörg@bücher.example", "jörg@xn--bcher-kva.example"),
        ("用户@例子.example", "用户@xn--fsqu00a.example"),
    ],
)
async def test_jstedfast_mailkit_1026_international_addresses(
    mailing: Opened, state: JobState, address: str, recipient: str
) -> None:
    """The part before the @ is never rewritten; if the server cannot take it, the mail says so at once."""
    world, mailbox, send = mailing
    world.services.mail.send_keys([sell(world, address)[0]])
    (job,) = await send()
    assert job.state is state
    assert [recipients for _, recipients, _ in mailbox.got] == ([[recipient]] if mailbox.has_utf8 else [])
    if mailbox.has_utf8:
        (message,) = mailbox.messages
        assert str(message["To"]) == recipient
    else:
        assert "SMTPUTF8" in (job.last_error or "")
        assert address not in (job.last_error or "")


# --- texts ------------------------------------------------------------------------------------


async def test_woocommerce_woocommerce_35875_language(open_mailing: Open) -> None:
    """A mail that the vendor sends by hand is in the customer's language, not in the vendor's."""
    world, mailbox, send = open_mailing(mail_language="en")
    id_, key = sell(world, customer_language="de-DE")
    world.services.mail.resend_key(id_.hex())
    await send()
    (message,) = mailbox.messages
    assert message["Subject"] == "Ihr Lizenzschlüssel für App"
    assert key in body(message)  # wpexpertsio/license-manager-for-woocommerce#115: it had none


SALES = {
    "stripe": shops.stripe("checkout.session.completed", shops.stripe_session(locale="fr-CA")),
    "woocommerce": shops.woo(meta_data=[{"id": 1, "key": "wpml_language", "value": "fr"}]),
    "standard": shops.standard(
        "purchase.completed", order_id="1", external_id="app", customer_email=ANN, customer_language="fr"
    ),
}
"""Kind of shop → a sale in French."""


@pytest.mark.parametrize("kind", SALES)
async def test_woocommerce_woocommerce_35875_language_of_a_sale(
    open_mailing: Open, shop_secrets: None, kind: str
) -> None:
    """The key after a purchase is mailed in the language in which it was bought."""
    world, mailbox, send = open_mailing()
    world.services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
    add(world, kind)
    process(world, kind, SALES[kind])
    await send()
    (message,) = mailbox.messages
    assert message["Subject"] == "Votre clé de licence pour App"


async def test_flowdee_edd_software_license_manager_3_all_keys_of_an_order(
    open_mailing: Open, shop_secrets: None
) -> None:
    """An order of three keys of two lines is one mail, which has them all."""
    world, mailbox, send = open_mailing()
    world.services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
    add(world, "woocommerce")
    lines = [shops.woo_line(1, quantity=2), shops.woo_line(2)]
    process(world, "woocommerce", shops.woo(line_items=lines))
    await send()
    (message,) = mailbox.messages
    assert len(set(re.findall("CP-[A-Z0-9-]{34}", body(message)))) == 3


CLICK = "https-click-here.example"
"""What a client may send wherever it sends text."""


async def test_craftcms_cms_16633_and_theyworkforyou_1603_text_of_strangers(open_mailing: Open) -> None:
    """Mail programs make links of names: what an app sends as its domain is in no mail."""
    world, mailbox, send = open_mailing(mail_activations=True, webhook_networks=[])
    id_, key = sell(world, slots=3)
    for number, domain in enumerate((CLICK, f"WIN 1000 USD http://{CLICK}")):
        world.activate(id_, Environment(domain, "192.0.2.1"))
        world.services.mail.send_activation(f"msg_{number}", id_)
    world.services.mail._add("new_computer/earlier", "new_computer", [id_], domain=CLICK)
    world.services.mail.send_lost_keys(ANN)
    world.services.mail.send_code(ANN, "042317")
    await send()
    assert len(mailbox.got) == 5
    assert not any(b"click-here" in content or b"WIN" in content for _, _, content in mailbox.got)
    assert any(key in body(message) for message in mailbox.messages)
    own = world.folder / "data" / "templates" / "mail"
    own.mkdir(parents=True)
    (own / "new_computer.txt").write_text("Subject: New\n\n{{ domain }}")
    world.services.mail._add("new_computer/own", "new_computer", [id_], domain=CLICK)
    assert "'domain' is undefined" in ((await send())[0].last_error or "")


# --- queues -----------------------------------------------------------------------------------


def claim(world: World, seconds: float = 0) -> list[str]:
    """Claim what a look of the background claims; return the templates."""
    worker = JobWorker(world.repositories, world.clock)
    register_mail(worker, world.services)
    world.clock.forward(seconds=seconds)
    free = {name: queue.at_once for name, queue in worker._queues.items()}
    return [job.payload["template"] for job in worker._claim(free, Counter())]


@pytest.mark.slow
def test_schemalabz_opencouncil_380_and_frappe_1211_codes_before_notices(open_mailing: Open) -> None:
    """Neither a code nor a key waits for five hundred notices that were there first."""
    world, _, _ = open_mailing(mail_activations=True)
    ids = [sell(world, f"c{number}@example.com")[0] for number in range(500)]
    for number, id_ in enumerate(ids):
        world.services.mail.send_activation(f"msg_{number}", id_)
    world.services.mail.send_keys(ids[:1])
    world.services.mail.send_code(ANN, "042317")
    assert sorted(claim(world)) == ["license_key", "new_computer", "sign_in_code"]


@pytest.mark.slow
def test_no_recipient_takes_more_than_a_share_of_a_queue(open_mailing: Open) -> None:
    """Who gets a hundred notices gets five at once and then two a minute; others do not wait behind them."""
    world, _, _ = open_mailing(mail_activations=True)
    flooded, (other, _) = [sell(world, "flooded@example.com")[0] for _ in range(5)], sell(world)
    for number in range(100):
        world.services.mail.send_activation(f"msg_{number}", flooded[number % 5])
    world.services.mail.send_activation("other", other)
    queue = world.repositories.queue

    def due() -> int:
        return len(queue.claim(QUEUES[-1], world.clock(), timedelta(days=1), 1_000))

    assert due() == 6
    world.clock.forward(minutes=10)
    assert due() == 20


def test_keys_of_many_orders_of_one_customer_all_arrive(open_mailing: Open) -> None:
    """A share delays mail, and loses none."""
    world, _, _ = open_mailing()
    for _ in range(50):
        world.services.mail.send_keys([sell(world)[0]])
    world.clock.forward(minutes=1)
    assert len(world.repositories.queue.claim("mail-keys", world.clock(), timedelta(days=1), 1_000)) == 50


@pytest.mark.parametrize("around", ["\u202e", "\u200b", "\ufeff", " \u202c ", "\u2068"])
def test_an_address_is_copied_with_invisible_characters(around: str) -> None:
    """They are left out around it; within it the address would not be the one that is shown."""
    assert read_email(f"{around}ann@example.com{around}") == "ann@example.com"
    assert find_email(f"an{around}n@example.com") is None
    assert find_email(f"ann@exam{around}ple.com") is None
    assert find_email(around) is None
