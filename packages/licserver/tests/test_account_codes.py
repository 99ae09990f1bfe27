"""The customer's page by mail: a code that is typed where it was asked for."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.engines import both_engines
from licserver.domain.records import LicenseTerms


@pytest.fixture
def world(make_world):
    """A vendor with a page for customers and a mail server, and one customer with two licenses."""
    options = {"mail_host": "mail.example", "mail_sender": "shop@example.com"}
    world = make_world(account=True, miss_limit=30, **options)
    for _ in range(2):
        world.key(customer_email="Ann@Example.com")
    world.key(customer_email="bob@example.com")
    return world


def sent_codes(world):
    """The codes in the queued mails, the oldest first, with their addresses."""
    mail = world.services.mail
    messages = [mail.render(job) for job in reversed(mail.list_jobs().items)]
    return [(one["To"], re.search(r"[0-9]{6}", one["Subject"])[0]) for one in messages]


@both_engines
async def test_a_customer_signs_in_by_mail(world, open_browser):
    """A code is typed in the browser that asked for it, once, and shows all licenses of the address."""
    browser, other = await open_browser(), await open_browser()
    await browser.post("/account/code", csrf="", email=" ann@example.com ")
    assert "If this address has a license" in browser.text
    ((to, code),) = sent_codes(world)
    assert to == "ann@example.com"
    await other.post("/account/sign-in-by-code", csrf="", code=code)
    assert other.status == 401
    await browser.post("/account/sign-in-by-code", csrf="", code=f" {code[:3]} {code[3:]} ")
    assert browser.status == 200
    assert browser.text.count("does not expire") == 2
    again = await open_browser()
    await again.post("/account/sign-in-by-code", csrf="", code=code)
    assert again.status == 401


@pytest.mark.parametrize("email", ["nobody@example.com", "no address", "", "x" * 3000])
async def test_nobody_learns_which_addresses_have_licenses(world, open_browser, email):
    """An unknown address gets the same page, and no mail; no code signs it in."""
    known, unknown = await open_browser(), await open_browser()
    await known.post("/account/code", csrf="", email="ann@example.com")
    await unknown.post("/account/code", csrf="", email=email)
    assert (unknown.status, unknown.text) == (known.status, known.text)
    assert len(sent_codes(world)) == 1


@pytest.mark.parametrize("lookalike", ["ann@strasse.example", "\N{KELVIN SIGN}im@straße.example"])
async def test_no_other_mailbox_gets_the_code_of_a_customer(world, open_browser, lookalike):
    """Addresses that differ by more than the case of ASCII letters are those of two people."""
    for email in ("ann@straße.example", "kim@straße.example"):
        world.key(customer_email=email)
    browser = await open_browser()
    await browser.post("/account/code", csrf="", email=lookalike)
    assert sent_codes(world) == []
    await browser.post("/account/code", csrf="", email="KIM@straße.example")
    assert [to for to, _ in sent_codes(world)] == ["KIM@straße.example"]


async def test_a_customer_is_found_beside_many_whose_addresses_begin_alike(world, open_browser):
    """Nobody keeps a customer from signing in by buying for such addresses; all of theirs are shown."""
    list(world.services.licenses.issue_batches("app", LicenseTerms(customer_email="bob@example.com"), 59))
    list(
        world.services.licenses.issue_batches(
            "app", LicenseTerms(customer_email="bob@example.com.example"), 250
        )
    )
    browser = await open_browser()
    await browser.post("/account/code", csrf="", email="bob@example.com")
    ((_, code),) = sent_codes(world)
    await browser.post("/account/sign-in-by-code", csrf="", code=code)
    assert browser.text.count("does not expire") == 60


async def test_the_time_of_an_answer_does_not_show_whether_a_mail_was_written(open_browser):
    """Writing one takes a millisecond, which some requests would show: all take a tenth of a second."""
    seconds = []
    for name in ("ann", "nobody"):
        browser, began = await open_browser(), time.perf_counter()
        await browser.post("/account/code", csrf="", email=f"{name}@example.com")
        seconds.append(time.perf_counter() - began)
    assert min(seconds) >= 0.1


@both_engines
def test_requests_at_the_same_moment_get_three_codes_as_well(world):
    """Each of many codes would be five more guesses, and another mail."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(world.services.account.send_code, ["bob@example.com"] * 8))
    assert len(sent_codes(world)) == 3


async def test_a_code_is_guessed_five_times_and_no_more(world, open_browser):
    """After five wrong ones the right one is refused; so it is after fifteen minutes."""
    browser = await open_browser()
    await browser.post("/account/code", csrf="", email="bob@example.com")
    ((_, code),) = sent_codes(world)
    for _ in range(5):
        await browser.post("/account/sign-in-by-code", csrf="", code="x")
        assert "This code is wrong" in browser.text
    await browser.post("/account/sign-in-by-code", csrf="", code=code)
    assert browser.status == 401
    await browser.post("/account/code", csrf="", email="bob@example.com")
    world.clock.forward(minutes=15)
    await browser.post("/account/sign-in-by-code", csrf="", code=sent_codes(world)[-1][1])
    assert browser.status == 401


async def test_an_address_is_sent_three_codes_at_most(world, open_browser, monkeypatch):
    """Nobody fills a customer's mailbox; further codes open nothing, so that guesses are bounded as well."""
    monkeypatch.setattr("licserver.services.account.secrets.randbelow", lambda _: 123456)
    for _ in range(5):
        browser = await open_browser()
        await browser.post("/account/code", csrf="", email="bob@example.com")
    assert sent_codes(world) == [("bob@example.com", "123456")] * 3
    await browser.post("/account/sign-in-by-code", csrf="", code="123456")
    assert browser.status == 401
