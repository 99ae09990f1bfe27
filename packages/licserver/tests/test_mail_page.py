"""Mail to customers in the console."""

import html
import re
from datetime import timedelta

import pytest

from licserver.database.repositories.queue import JobState
from licserver.domain.records import LicenseTerms

ADDRESS = "ann@example.com"


@pytest.fixture
def world(make_world):
    """A vendor who sends mail."""
    return make_world(mail_host="mail.example", mail_sender="shop@example.com")


async def test_mails_are_shown_sent_again_and_previewed(users, alice):
    """What was given up has its reason; the texts are shown with made-up values, and none with a key."""
    key = users.licenses.issue("app", LicenseTerms(customer_email=ADDRESS))[1]
    assert users.mail.send_key(users.vault.license_id(key))
    (job,) = users.repositories.queue.claim("mail", users.now(), timedelta(minutes=1), 1)
    users.repositories.queue.bury(job, users.now(), "the mail server answered 550")
    assert "the mail server answered 550" in await alice.get("/console/mail?failed=1")
    assert "1 job given up" in await alice.get("/console/health")
    await alice.post("/console/mail/retry", mail=str(job.id))
    assert "sent again" in alice.notice
    assert [one.state for one in users.mail.list_jobs().items] == [JobState.WAITING]
    await alice.post("/console/mail/test", address=ADDRESS)
    assert "test is sent" in alice.notice
    assert "Your license key for Example App" in await alice.get("/console/mail?text=license_key")
    assert key not in alice.text + await alice.get("/console/mail")


async def test_there_is_a_next_page_only_if_there_are_more(users, alice):
    """Fifty are a page; of those that were given up there are none."""
    for _ in range(50):
        users.mail.send_test(ADDRESS)
    assert "Next page" not in await alice.get("/console/mail")
    users.mail.send_test(ADDRESS)
    page = await alice.get("/console/mail")
    (address,) = re.findall(r'href="(/console/mail\?after=[^"]+)"', page)
    assert (await alice.get(html.unescape(address))).count("a test for the vendor</th>") == 1


async def test_what_is_wrong_is_shown(alice):
    """A text that does not exist, no number, no address."""
    await alice.get("/console/mail?text=nothing")
    assert alice.status == 422
    await alice.get("/console/mail?after=x")
    assert alice.status == 422
    for name, field in [("retry", {"mail": "x"}), ("retry", {"mail": "7"}), ("test", {"address": "nobody"})]:
        await alice.post(f"/console/mail/{name}", **field)
        assert alice.status in {404, 422}
