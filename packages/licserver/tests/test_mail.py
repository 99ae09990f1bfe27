"""Mail to customers: what is queued, what is written, and what a real SMTP server gets."""

import json
from datetime import timedelta
from email import message_from_bytes, policy

import pytest

from harness import shops
from harness.engines import both_engines
from harness.mailbox import SENDER, USER, send_due
from harness.sales import add, process
from licserver.database.repositories.queue import JobState
from licserver.domain.records import EnvironmentPolicy
from licserver.errors import BuryJobError, InvalidInputError
from licserver.services.mail import KEYS


def license_id(world, key):
    """The id of a key."""
    return world.services.vault.license_id(key)


@pytest.mark.parametrize("smtp", ["starttls", "tls"], indirect=True)
async def test_a_key_arrives_encrypted_once_and_stands_in_no_job(mailing):
    """By TLS and a login, as text and as HTML, with the headers of a machine's mail."""
    world, mailbox, send = mailing
    key = world.key(customer_email="bob@customer.example")
    assert world.services.mail.send_keys([license_id(world, key)]) == 1
    assert world.services.mail.send_keys([license_id(world, key)]) == 0
    jobs = await send()
    ((is_encrypted, recipients, content),) = mailbox.got
    message = message_from_bytes(content, policy=policy.default)
    assert (is_encrypted, recipients) == (True, ["bob@customer.example"])
    assert message["Subject"] == "Your license key for App"
    assert message["From"] == SENDER
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Message-ID"].endswith("@vendor.example>")
    assert message["Date"].datetime == world.clock()
    assert [key in part.get_content() for part in message.iter_parts()] == [True, True]
    assert [job.state for job in jobs] == [JobState.DONE]
    assert key not in json.dumps(jobs[0].payload)


async def test_the_vendor_gets_mail_about_a_disabled_endpoint(mailing):
    """Once, with why and what to do; not if they have disabled it themselves."""
    world, mailbox, send = mailing
    webhooks = world.services.webhooks
    broken, unwanted = (webhooks.add(f"https://{name}.example/s3cret")[0].id for name in ("broken", "old"))
    webhooks.disable(unwanted)
    for _ in range(2):
        webhooks.disable(broken, "it answered 410 Gone")
    await send()
    ((_, recipients, content),) = mailbox.got
    message = message_from_bytes(content, policy=policy.default)
    text = message.get_body(("plain",)).get_content()
    assert (recipients, message["Subject"]) == (
        ["me@vendor.example"],
        "Webhook endpoint disabled: broken.example",
    )
    assert "it answered 410 Gone" in text
    assert f"licserver webhook enable {broken}" in text
    assert "s3cret" not in text


@pytest.mark.sampled(2, "recipient", "data", "state")
@pytest.mark.parametrize(
    ("recipient", "data", "state"),
    [
        ("451 try later", "250 OK", JobState.WAITING),
        ("250 OK", "452 disk full", JobState.WAITING),
        ("550 no bob@customer.example here", "250 OK", JobState.DEAD),
        ("250 OK", "554 looks like spam", JobState.DEAD),
    ],
)
async def test_4xx_is_repeated_and_5xx_is_the_end(mailing, recipient, data, state):
    """The server's response is shown, without the address; a mail that was given up can be sent again."""
    world, mailbox, send = mailing
    mailbox.to_recipient, mailbox.to_data = recipient, data
    world.services.mail.send_keys([license_id(world, world.key(customer_email="bob@customer.example"))])
    (job,) = await send()
    assert job.state is state
    assert job.last_error.startswith("the mail server answered ")
    assert "bob" not in job.last_error
    mailbox.to_recipient = mailbox.to_data = "250 OK"
    if state is JobState.DEAD:
        world.services.mail.retry(job.id)
    world.clock.forward(minutes=1)
    assert [job.state for job in await send()] == [JobState.DONE]


async def test_a_mail_that_had_no_recipient_follows_when_the_license_is_reinstated(mailing):
    """It counts as not sent, and is sent once then; one that was sent is not sent again."""
    world, mailbox, send = mailing
    keys = [world.key(customer_email=f"{name}@customer.example") for name in ("ann", "bob")]
    world.services.mail.send_keys([license_id(world, key) for key in keys])
    world.services.licenses.revoke(keys[1], "the payment was disputed")
    jobs = {job.payload["license_id"]: job for job in await send()}
    skipped = jobs[license_id(world, keys[1]).hex()]
    assert (skipped.state, skipped.last_error.split()[:2]) == (JobState.DONE, ["its", "license"])
    world.services.licenses.revoke(keys[0])
    for key in keys:
        world.services.licenses.reinstate(key)
        world.services.licenses.revoke(key)
        world.services.licenses.reinstate(key)
    jobs = await send()
    assert [(job.state, job.last_error) for job in jobs] == [(JobState.DONE, None)] * 2
    assert [recipients for _, recipients, _ in mailbox.got] == [
        ["ann@customer.example"],
        ["bob@customer.example"],
    ]


async def test_a_wrong_password_or_no_server_lets_mail_wait(make_world, smtp):
    """It is not the mail's fault."""
    _, port = smtp
    for settings, message in [
        ({"mail_port": port, "mail_user": USER, "mail_password": "wrong"}, "refused user or password"),
        ({"mail_port": 9}, "cannot be reached"),
    ]:
        world = make_world(mail_host="127.0.0.1", mail_sender=SENDER, **settings)
        world.services.mail.send_test("ann@vendor.example")
        (job,) = await send_due(world)
        assert job.state is JobState.WAITING
        assert message in job.last_error


@pytest.fixture
def mail(make_world):
    """A world whose mail is only queued."""
    return make_world(mail_host="mail.example", mail_sender=SENDER)


def rendered(world):
    """The messages of all queued mails that have a recipient, the oldest first."""
    messages = [world.services.mail.render(job) for job in world.services.mail.list_jobs().items[::-1]]
    return [(message["To"], message["Subject"], message) for message in messages if message is not None]


def day_of(day):
    """Write a day as the mail in English does."""
    return f"{day.day} {day:%B %Y}"


def test_an_end_is_announced_once_for_each_last_day(mail):
    """Two weeks before; not for other customers, and again when the license was renewed."""
    near, service = mail.clock().date() + timedelta(days=14), mail.services.mail
    key = mail.key(expires_on=near, customer_email="a@b.example")
    mail.key(expires_on=near)
    mail.key(expires_on=near + timedelta(days=1), customer_email="later@b.example")
    mail.services.licenses.revoke(mail.key(expires_on=near, customer_email="revoked@b.example"))
    for _ in range(2):
        service.send_ending()
    assert [(to, subject) for to, subject, _ in rendered(mail)] == [
        ("a@b.example", f"Your license for App ends on {day_of(near)}")
    ]
    mail.services.licenses.change(key, expires_on=near - timedelta(days=1))
    service.send_ending()
    assert len(rendered(mail)) == 2


@both_engines
def test_a_subscription_is_announced_only_if_its_end_is_known(make_world, shop_secrets):
    """Not before each renewal; once it is cancelled, with its last day; and if a person has set its end."""
    world = make_world(mail_host="mail.example", mail_sender=SENDER)
    service, day = world.services.mail, world.clock().date() + timedelta(days=10)
    add(world, "standard")
    about = {"subscription_id": "s1", "paid_through": str(day)}
    sold = {"order_id": "1", "external_id": "app", "customer_email": "a@b.example"}
    process(world, "standard", shops.standard("purchase.completed", **sold, **about))

    def announced():
        service.send_ending()
        return [(to, subject) for to, subject, _ in rendered(world) if "ends" in subject]

    assert announced() == []
    process(world, "standard", shops.standard("subscription.cancelled", "2026-06-15T12:00:01Z", **about))
    mailed = [("a@b.example", f"Your license for App ends on {day_of(day)}")]
    assert (announced(), announced()) == (mailed, mailed)
    resumed = shops.standard("subscription.resumed", "2026-06-15T12:00:02Z", subscription_id="s1")
    process(world, "standard", resumed)
    renewed = {"subscription_id": "s1", "paid_through": str(day + timedelta(days=1))}
    process(world, "standard", shops.standard("subscription.renewed", **renewed))
    assert announced() == mailed
    for person in ("revoked", "by hand"):
        key = world.key(subscription_id=person, customer_email="c@b.example")
        world.services.subscriptions.end(person, world.clock() + timedelta(days=14))
        if person == "revoked":
            world.services.licenses.revoke(key)
    last = world.clock().date() + timedelta(days=14)
    assert announced() == [*mailed, ("c@b.example", f"Your license for App ends on {day_of(last)}")]


def test_lost_keys_and_codes_stand_in_no_job(mail):
    """Nor does the address; an address without a license gets nothing."""
    keys = [mail.key(customer_email="Bob@b.example"), mail.key(customer_email="bob@b.example")]
    revoked = mail.key(customer_email="bob@b.example")
    mail.services.licenses.revoke(revoked)
    assert not mail.services.mail.send_lost_keys("nobody@b.example")
    assert mail.services.mail.send_lost_keys("bob@b.example")
    assert mail.services.mail.send_code("bob@b.example", "042317")
    (_, _, lost), (_, subject, _) = rendered(mail)
    text = lost.get_body().get_content()
    assert [key_ in text for key_ in (*keys, revoked)] == [True, True, False]
    assert subject == "Your code: 042317"
    jobs = str([job.payload for job in mail.services.mail.list_jobs().items])
    assert not any(secret in jobs for secret in ("bob", "042317", *keys))


def test_a_license_that_is_revoked_or_forgotten_meanwhile_gets_no_mail(mail):
    """Nor one without an address."""
    key = mail.key(customer_email="a@b.example")
    assert not mail.services.mail.send_keys([license_id(mail, mail.key())])
    assert not mail.services.mail.send_keys([b"x" * 16])
    mail.services.mail.send_keys([license_id(mail, key)])
    mail.services.licenses.revoke(key)
    assert rendered(mail) == []


def test_no_header_can_be_added(mail):
    """Not by a product's name in a subject, nor by an address."""
    mail.services.mail._context.repositories.queue.add(
        KEYS,
        "k",
        {"template": "test", "encrypted": mail_secret(mail, to="a@b.example\r\nBcc: c@d.example")},
        mail.clock(),
    )
    with pytest.raises(BuryJobError):
        rendered(mail)
    for address in (
        "a",
        "@b",
        "a@",
        "a b@c",
        "a@b\nBcc: c@d",
        "a@b,c@d",
        "a@=?utf-8?q?d.example?=",
        "a(b)@d.example",
        "x" * 250 + "@b.example",
    ):
        with pytest.raises(InvalidInputError, match="not a valid email address"):
            mail.services.mail.send_test(address)
    folder = mail.settings.data_dir / "templates" / "mail"
    folder.mkdir(parents=True)
    (folder / "test.txt").write_text("Subject: {{ '\\r\\nBcc: c@d.example' }}\nBody")
    message = mail.services.mail.preview("test")
    assert message["Bcc"] is None


def test_no_encoded_word_adds_a_header(mail):
    """A line break in it would, until Python 3.11.10."""
    name = "=?utf-8?q?=0d=0aBcc:c@d.example?="
    mail.services.products.add("evil", name, EnvironmentPolicy.DOMAIN)
    mail.services.mail.send_keys([license_id(mail, mail.key("evil", customer_email="ann@example.com"))])
    ((_, _, message),) = rendered(mail)
    assert message_from_bytes(message.as_bytes(policy=policy.SMTP))["Bcc"] is None


def mail_secret(world, **values: str):
    """What is encrypted in a job."""
    from base64 import b64encode  # noqa: PLC0415 - only here

    return b64encode(world.services.vault.encrypt(json.dumps(values).encode(), b"mail")).decode()


def test_without_a_server_nothing_is_queued(world):
    """Off by default."""
    service = world.services.mail
    assert not service.send_keys([license_id(world, world.key(customer_email="a@b.example"))])
    assert not service.send_code("a@b.example", "123456")
    service.send_ending()
    with pytest.raises(InvalidInputError, match="LICSERVER_MAIL_HOST"):
        service.send_test("a@b.example")
    assert service.list_jobs().items == []


def test_the_command_line_shows_mails(cli, monkeypatch):
    """The list, a test, a preview, and one that is sent again."""
    monkeypatch.setenv("LICSERVER_MAIL_SENDER", SENDER)
    monkeypatch.setenv("LICSERVER_MAIL_HOST", "mail.example")
    assert "no mails" in cli("mail", "list")
    cli("mail", "test", "ann@vendor.example")
    (mail,) = json.loads(cli("mail", "list", "--json"))
    assert (mail["template"], mail["state"]) == ("test", "waiting")
    assert "no mails" in cli("mail", "list", "--failed")
    cli("mail", "retry", str(mail["mail"]), expect=2)  # it waits still
    assert "CP-XXXXXX" in cli("mail", "preview", "license_key")
    assert "no valid license" in cli("mail", "keys", "bob@customer.example", expect=2)
    cli("product", "add", "app", "--name", "App")
    cli("license", "issue", "app", "--email", "bob@customer.example")
    assert "sends them" in cli("mail", "keys", "bob@customer.example")
    assert [job["template"] for job in json.loads(cli("mail", "list", "--json"))] == ["lost_key", "test"]


def test_an_activation_is_mailed_where_the_vendor_wants_it(make_world):
    """Once for each event."""
    world = make_world(mail_host="mail.example", mail_sender=SENDER, mail_activations=True)
    id_ = license_id(world, world.key(customer_email="a@b.example"))
    assert world.services.mail.send_activation("msg_1", id_)
    assert not world.services.mail.send_activation("msg_1", id_)
    ((to, subject, _),) = rendered(world)
    assert (to, subject) == ("a@b.example", "App was activated on a new computer")
