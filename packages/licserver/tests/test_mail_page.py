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


@pytest.fixture
def given_up(users):
    """A mail that the server gave up; it comes before the server, which would send it."""
    key = users.licenses.issue("app", LicenseTerms(customer_email=ADDRESS))[1]
    assert users.mail.send_keys([users.vault.license_id(key)])
    (job,) = users.repositories.queue.claim("mail-keys", users.now(), timedelta(minutes=1), 1)
    users.repositories.queue.bury(job, users.now(), "the mail server answered 550")
    return key, job


async def test_mails_are_shown_sent_again_and_previewed(users, given_up, alice):
    """What was given up has its reason; the texts are shown with made-up values, and none with a key."""
    key, job = given_up
    assert "the mail server answered 550" in await alice.get("/console/mail?failed=1")
    assert "1 mail given up" in await alice.get("/console/health")
    await alice.post("/console/mail/retry", mail=str(job.id))
    assert "sent again" in alice.notice
    assert [mail_job.state for mail_job in users.mail.list_jobs().items] == [JobState.WAITING]
    await alice.post("/console/mail/test", address=ADDRESS)
    assert "test is sent" in alice.notice
    assert "Your license key for Example App" in await alice.get("/console/mail?text=license_key")
    assert key not in alice.text + await alice.get("/console/mail")


@pytest.mark.slow
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


@pytest.mark.slow
async def test_a_key_is_mailed_from_the_page_of_its_license(users, alice):
    """However often it is wanted, once for each form; the audit log has it, and none without an address."""
    license_, key = users.licenses.issue("app", LicenseTerms(customer_email=ADDRESS))
    page = f"/console/licenses/{license_.id.hex()}"
    for count in (1, 2):
        assert f"Mail the key to {ADDRESS}" in await alice.get(page)
        form = alice.once
        for _ in range(2):
            await alice.post(f"{page}/mail", once=form)
        assert len(users.mail.list_jobs().items) == count
    assert "Mailed the key to the customer" in await alice.get(page)
    assert key not in alice.text
    users.licenses.revoke(key)
    assert "Mail the key to" not in await alice.get(page)
    nobody, _ = users.licenses.issue("app", LicenseTerms())
    assert "Mail the key to" not in await alice.get(f"/console/licenses/{nobody.id.hex()}")


@pytest.mark.slow
async def test_keys_are_mailed_when_they_are_issued(users, alice):
    """All in one mail, in the customer's language; refused as a whole without an address."""
    await alice.get("/console/licenses/issue")
    form = {"product": "app", "slots": "1", "count": "3", "mail": "on", "language": "de"}
    await alice.post("/console/licenses/issue/new", **form)
    assert (alice.status, "with an e-mail address" in alice.alert) == (422, True)
    assert users.licenses.search().items == []
    await alice.post("/console/licenses/issue/new", **form, email=ADDRESS)
    (job,) = users.mail.list_jobs().items
    assert users.mail.render(job)["Subject"] == "Ihre 3 Lizenzschlüssel"


async def test_keys_are_mailed_by_the_admin_api(users, api):
    """With a new license if that is wanted, and on request; a mistake issues nothing."""
    status, wrong = await api("POST", "/licenses", {"product": "app", "mail": True})
    assert (status, "with an e-mail address" in wrong["detail"]) == (422, True)
    wanted = {"product": "app", "customer_email": ADDRESS, "customer_language": "fr-CA"}
    status, issued = await api("POST", "/licenses", {**wanted, "mail": True})
    assert (status, issued["customer_language"]) == (201, "fr")
    assert len(users.licenses.search().items) == len(users.mail.list_jobs().items) == 1
    assert (await api("POST", f"/licenses/{issued['id']}/mail"))[0] == 200
    assert [users.mail.render(job)["Subject"] for job in users.mail.list_jobs().items] == [
        "Votre clé de licence pour App"
    ] * 2
    await api("POST", f"/licenses/{issued['id']}/revoke", {})
    assert (await api("POST", f"/licenses/{issued['id']}/mail"))[0] == 422
