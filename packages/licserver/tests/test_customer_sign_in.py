"""The customer's page by mail: a code that is typed where it was asked for."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select

from harness.engines import both_engines
from licserver.database.tables.access import account_codes
from licserver.domain.customer_sign_in import CODE_ATTEMPTS, SHORT_CODES, code_digits
from licserver.domain.records import LicenseTerms
from licserver.services.mail import MailService


@pytest.fixture
def world(make_world, monkeypatch):
    """A vendor with a page for customers and a mail server, and one customer with two licenses."""
    options = {"mail_host": "mail.example", "mail_sender": "shop@example.com"}
    world = make_world(account=True, miss_limit=30, **options)
    for _ in range(2):
        world.key(customer_email="Ann@Example.com")
    world.key(customer_email="bob@example.com")
    world.drawn, send = [], MailService.send_code

    def note(mail, address, code, language, client):
        world.drawn.append(code)
        return send(mail, address, code, language, client)

    monkeypatch.setattr(MailService, "send_code", note)
    return world


def sent_codes(world):
    """The codes in the queued mails, the oldest first, with their addresses."""
    mail = world.services.mail
    messages = [mail.render(job) for job in reversed(mail.list_jobs().items)]
    return [(message["To"], re.search(r"[0-9]{6}", message["Subject"])[0]) for message in messages]


@both_engines
async def test_a_customer_signs_in_by_mail(world, open_browser):
    """A code is typed in the browser that asked for it, once, and shows all licenses of the address."""
    browser, other = await open_browser(), await open_browser()
    await browser.post("/account/code", csrf="", email=" ann@example.com ")
    assert "If this address has a license" in browser.text
    ((to, code),) = sent_codes(world)
    assert to == "Ann@Example.com"  # as it is stored: another case may be a stranger's mailbox
    await other.post("/account/sign-in-by-code", csrf="", code=code)
    assert other.status == 401
    await browser.post("/account/sign-in-by-code", csrf="", code=f" {code[:3]} {code[3:]} ")
    assert browser.status == 200
    assert browser.text.count("does not expire") == 2
    again = await open_browser()
    await again.post("/account/sign-in-by-code", csrf="", code=code)
    assert again.status == 401


@pytest.mark.sampled(3)
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
    assert [to for to, _ in sent_codes(world)] == ["kim@xn--strae-oqa.example"]


@pytest.mark.slow
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("typed", ["a://b@www", "x@192.0.2.7", "//b@example.org", "b@*"])
async def test_what_is_typed_as_an_address_is_never_searched_for(world, open_browser, monkeypatch, typed):
    """The console's search takes it for a domain or network, and reads all activations: nine seconds."""
    for name in ("search", "count"):
        monkeypatch.setattr(f"licserver.services.licenses.LicenseService.{name}", None)
    browser = await open_browser()
    await browser.post("/account/code", csrf="", email=typed)
    assert browser.status == 200
    assert sent_codes(world) == []


@pytest.mark.slow
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
        ask = world.services.customer_sign_in.send_code
        tokens = list(threads.map(lambda _: ask("bob@example.com", "192.0.2.1"), range(8)))
    assert tokens.count(None) == 5
    assert len(sent_codes(world)) == 3


@pytest.mark.slow
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


@pytest.mark.slow
async def test_who_asks_again_and_again_gets_three_codes_and_keeps_the_last(world, open_browser):
    """Nobody fills a customer's mailbox; a browser that asks once too often can still use its code."""
    browser = await open_browser()
    for number in range(5):
        await browser.post("/account/code", csrf="", email="bob@example.com")
        assert browser.status == (200 if number < 3 else 429)
    assert "try again in 15 minutes" in browser.text
    await browser.post("/account/sign-in-by-code", csrf="", code=sent_codes(world)[-1][1])
    assert browser.status == 200
    world.clock.forward(minutes=15)
    await browser.post("/account/sign-out")
    await browser.post("/account/code", csrf="", email="bob@example.com")
    assert browser.status == 200


async def test_a_refusal_to_send_a_code_does_not_show_whether_an_address_is_known(open_browser):
    """Unknown addresses are counted as known ones are."""
    for name in ("bob", "nobody"):
        browser = await open_browser()
        statuses = []
        for _ in range(4):
            await browser.post("/account/code", csrf="", email=f"{name}@example.com")
            statuses.append(browser.status)
        assert statuses == [200, 200, 200, 429]


LIMITS = {
    "a client for an address": ([("192.0.2.1", "bob")] * 9, 3),
    "a network for an address": ([(f"192.0.2.{number}", "bob") for number in range(30)], 10),
    "a /48 for an address": ([(f"2001:db8:7:{number:x}::", "bob") for number in range(30)], 10),
    "a client": ([("192.0.2.1", f"c{number}") for number in range(40)], 20),
    "a network": ([(f"2001:db8:7:{number:x}::", f"c{number}") for number in range(90)], 60),
}
"""Whose codes → who asks for which addresses, and how many are sent."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("limit", LIMITS)
@both_engines
def test_codes_are_limited_by_who_asks(world, limit):
    """Beyond a limit nothing is stored and nothing is sent; another customer is not affected."""
    asked, sent = LIMITS[limit]
    ask, rows = world.services.customer_sign_in.send_code, select(func.count()).select_from(account_codes)
    answers = [ask(f"{name}@example.com", client) for client, name in asked]
    with world.services.database.reading() as connection:
        assert connection.scalar(rows) == sent == len(answers) - answers.count(None)
    token = ask("bob@example.com", "198.51.100.7")
    assert token
    assert world.services.customer_sign_in.sign_in_with_code(token, sent_codes(world)[-1][1])


@pytest.mark.parametrize(("sent_today", "digits"), [([0], 6), ([99, 0], 6), ([0, 100], 10), ([100], 10)])
def test_how_long_a_code_is(sent_today, digits):
    """The larger number decides: of the address, or of the network that asks."""
    assert code_digits(sent_today) == digits


@pytest.mark.slow
def test_an_attacker_with_a_network_guesses_500_times_a_day(world):
    """Of its codes of a day the first hundred have six digits and five attempts each: 0.05 % of a million."""
    for number in range(300):
        world.key(customer_email=f"c{number}@example.com")
    guesses = 0.0
    for turn in range(5):  # a quarter of an hour each
        for number in range(70):
            email = f"c{(turn * 70 + number) % 300}@example.com"
            before = len(world.drawn)
            if (
                world.services.customer_sign_in.send_code(email, f"2001:db8:7:{turn * 70 + number:x}::")
                is not None
            ):
                (code,) = world.drawn[before:]
                guesses += CODE_ATTEMPTS / 10 ** len(code)
        world.clock.forward(minutes=15)
    assert guesses <= 0.001
    assert len(world.drawn) > 2 * SHORT_CODES


@pytest.mark.slow
def test_an_account_is_guessed_at_500_times_a_day_from_however_many_networks(world):
    """And its customer still gets a code, which has ten digits then; the next day it has six again."""
    for number in range(200):
        assert world.services.customer_sign_in.send_code("bob@example.com", f"10.{number}.0.1")
    lengths = [len(code) for code in world.drawn]
    assert lengths == [6] * SHORT_CODES + [10] * (200 - SHORT_CODES)
    token = world.services.customer_sign_in.send_code("bob@example.com", "192.0.2.1")
    assert world.services.customer_sign_in.sign_in_with_code(token, world.drawn[-1])
    world.clock.forward(days=1)
    world.services.customer_sign_in.send_code("bob@example.com", "192.0.2.1")
    assert len(world.drawn[-1]) == 6


@pytest.mark.slow
def test_a_code_does_not_wait_for_those_that_others_ask_for(world):
    """A client elsewhere has a share of the queue, and the customer another one (D-264)."""
    for number in range(60):
        world.services.customer_sign_in.send_code("bob@example.com", f"10.{number}.0.1")
    world.services.customer_sign_in.send_code("bob@example.com", "192.0.2.1")
    due = {job.due_at for job in world.services.mail.list_jobs(limit=100).items}
    assert due == {world.clock()}


def test_a_code_and_a_session_end_with_the_address_of_the_license(world):
    """Support gives the license to another mailbox: who still reads the old one sees it no more."""
    sign_in, changed = world.services.customer_sign_in, "new@example.com"
    keys = [world.key(customer_email="old@example.com") for _ in range(2)]
    first, late, none = (sign_in.send_code("old@example.com", f"192.0.2.{number}") for number in range(3))
    codes = world.drawn[-3:]
    session = sign_in.sign_in_with_code(first, codes[0])
    assert len(sign_in.find_licenses(session)) == 2
    world.services.licenses.change(keys[0], note="by telephone")
    assert len(sign_in.find_licenses(session)) == 2
    world.services.licenses.change(keys[0], customer_email=changed)
    (kept,) = sign_in.find_licenses(session)
    later = sign_in.sign_in_with_code(late, codes[1])
    assert [license_.id for license_ in sign_in.find_licenses(later)] == [kept.id]
    world.services.licenses.change(keys[1], customer_email=changed)
    assert sign_in.find_licenses(later) == []
    assert sign_in.sign_in_with_code(none, codes[2]) is None
