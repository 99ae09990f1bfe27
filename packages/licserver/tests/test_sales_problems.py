"""What a person has to look at in sales: listed, mended by one click, and reported."""

import json
from contextlib import closing, suppress
from datetime import timedelta

import pytest

from harness import shops
from harness.engines import both_engines
from harness.sales import REFUNDED, add, licenses, process, receive, states, work
from licserver.database.repositories.queue import JobState
from licserver.database.repositories.webhooks import EVENTS
from licserver.domain.records import LicenseTerms
from licserver.errors import (
    BuryJobError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    StatementRefusedError,
)
from licserver.protocol.webhooks import EventType
from licserver.services.installation import open_services
from licserver.services.queues import measure_queues
from licserver.services.self_check import Level, check_installation
from licserver.settings import Settings
from licserver.shops import SHOPS, ShopKind
from licserver.shops.contract import ProblemKind
from licserver.shops.reading import UnreadableDeliveryError
from licserver.web.console.pages.sales import describe_sale

pytestmark = pytest.mark.usefixtures("shop_secrets")
MAIL = {"mail_host": "mail.example", "mail_sender": "shop@example.com", "mail_admin": "owner@example.com"}


def bought(order="1", external_id="app"):
    """A purchase."""
    item = {"order_id": order, "external_id": external_id, "customer_email": "ann@example.com"}
    return shops.standard("purchase.completed", **item)


def problems(world):
    """What is open."""
    return world.services.sale_problems.list_open().items


def mails(world):
    """How many mails to the vendor there were."""
    return sum(job.payload["template"] == "sale_problems" for job in world.services.mail.list_jobs().items)


@both_engines
def test_one_mapping_mends_all_sales_that_wait_for_it(world):
    """Map and go on: the keys are issued, the deliveries are done, and nothing is open any more."""
    add(world, "standard", mapped=False)
    process(world, "standard", bought("1"), bought("2"), bought("3", "other"))
    found = problems(world)
    assert [problem.kind for problem in found] == ["not mapped"] * 3
    assert states(world, "standard") == ["dead"] * 3
    world.services.sources.map_and_go_on(found[-1].id, "app", "app", slots=2)
    work(world)
    assert [license_.slots for license_ in licenses(world)] == [2, 2]
    assert states(world, "standard") == ["done", "done", "dead"]
    assert [problem.object for problem in problems(world)] == ["order:3"]


@both_engines
def test_taken_as_it_is(world):
    """It is not asked again, whatever is delivered, and the audit log has who said so."""
    add(world, "standard", mapped=False)
    process(world, "standard", bought())
    (problem,) = problems(world)
    world.services.sources.answer(problem.id, "leave")
    work(world)
    assert (problems(world), states(world, "standard"), licenses(world)) == ([], ["done"], [])
    again = shops.standard("purchase.completed", order_id="1", external_id="app", customer_language="de")
    process(world, "standard", again)
    assert (problems(world), states(world, "standard")) == ([], ["done", "done"])
    (line,) = [
        entry for entry in world.services.audit.list_page(limit=5).items if entry.action == "source.answer"
    ]
    assert (line.object_id, line.details["answer"]) == ("standard", "leave")


def test_an_answer_that_is_none(world):
    """A problem knows its answers."""
    add(world, "standard", mapped=False)
    process(world, "standard", bought())
    (problem,) = problems(world)
    with pytest.raises(InvalidInputError, match="leave"):
        world.services.sources.answer(problem.id, "follow")
    with pytest.raises(NotFoundError):
        world.services.sources.answer(99, "leave")


@both_engines
def test_the_vendor_is_told_once_an_hour(make_world):
    """By mail, however many sales wait, and not of the same ones again."""
    world = make_world(**MAIL)
    add(world, "standard", mapped=False)
    process(world, "standard", bought("1"), bought("2"))
    for _ in range(3):
        world.services.sale_problems.send_mail()
    assert mails(world) == 1
    world.clock.forward(seconds=600)
    process(world, "standard", bought("3"))
    world.services.sale_problems.send_mail()
    assert mails(world) == 1
    world.clock.forward(seconds=3600)
    for _ in range(2):
        world.services.sale_problems.send_mail()
    assert mails(world) == 2
    latest = world.services.mail.list_jobs(JobState.WAITING).items[0]
    message = world.services.mail.render(latest)
    assert message is not None
    assert "1 sale waits" in str(message.get_body(("plain",)))


def test_a_webhook_event_names_the_sale(world):
    """Once for a problem."""
    world.services.webhooks.add("https://example.com/hook", [EventType.SALE_NEEDS_ATTENTION])
    world.clock.forward(seconds=10)
    add(world, "standard", mapped=False)
    process(world, "standard", bought())
    process(world, "standard", bought())
    jobs = world.repositories.queue.claim(EVENTS, world.clock(), timedelta(minutes=1), 10)
    assert [job.payload["data"] for job in jobs] == [
        {"source": "standard", "object": "order:1", "problem": "not mapped"}
    ]


def test_check_and_metrics_count_them(world):
    """And name the command that lists them."""
    add(world, "standard", mapped=False)
    process(world, "standard", bought())
    found = check_installation(world.settings, world.clock(), reach=False, reads_file=False)
    (finding,) = [report for report in found if "needs you" in report.message]
    assert (finding.level, finding.advice) == (Level.WARNING, "licserver source problems")
    sizes = {queue.name: queue for queue in measure_queues(world.repositories, world.settings, world.clock())}
    assert sizes["sales"].problems == 1


@pytest.fixture
def unmapped(world, shop_secrets):
    """Two sales that wait; they come before the server, which would process deliveries as well."""
    add(world, "standard", mapped=False)
    process(world, "standard", bought("<b>1</b>"), bought("2", "other"))


@pytest.mark.usefixtures("unmapped")
async def test_the_console_shows_and_mends_them(world, alice):
    """From the overview to the list, and from there by one click."""
    assert "2 sales need you" in await alice.get("/console")
    assert "2 sales need you" in await alice.get("/console/sources")
    page = await alice.get("/console/sales")
    assert "&lt;b&gt;1" in page
    assert "app is not mapped; choose its product" in page
    assert "licserver source map" not in page
    mapped, left = problems(world)[::-1]
    assert "selected>Choose a product" in page
    chosen = {"problem": str(mapped.id), "external_id": "app", "slots": "1"}
    await alice.post("/console/sales/map", product="", **chosen)
    assert "choose a product" in alice.text.lower()
    await alice.post("/console/sales/map", product="app", **chosen)
    assert "processed again" in alice.text
    await alice.post("/console/sales/answer", problem=str(left.id), answer="leave")
    assert "It is left as it is." in alice.text
    await alice.post("/console/sales/answer", problem="x", answer="leave")
    assert alice.status == 422
    work(world)
    assert "Nothing needs you" in await alice.get("/console/sales")
    assert len(licenses(world)) == 1


@pytest.fixture
def left(world, shop_secrets):
    """A license that a person has reinstated after its refund, which came again; as above."""
    add(world, "standard")
    process(world, "standard", bought(), shops.standard("purchase.refunded", order_id="1"))
    (license_,) = licenses(world)
    world.services.licenses.reinstate(license_.id.hex())
    process(world, "standard", shops.standard("purchase.refunded", order_id="1", customer_language="de"))
    return license_


async def test_the_page_of_a_license_shows_what_was_left(left, alice):
    """What a person has set stays, and the page says so."""
    assert "revoked: the order was refunded" in await alice.get(f"/console/licenses/{left.id.hex()}")


def sell_unmapped(cli, monkeypatch, body):
    """A sale that waits for a person; return the number of its problem."""
    monkeypatch.setenv("SHOP_SECRET", shops.SECRETS["standard"])
    cli("product", "add", "app", "--name", "App")
    cli("source", "add", "shop", "--kind", "standard", "--secret-env", "SHOP_SECRET")
    with closing(open_services(Settings(data_dir=cli.folder))) as services:
        headers = shops.sign("standard", body, services.now())
        services.sources.receive("shop", {name.lower(): value for name, value in headers.items()}, body)
        with suppress(BuryJobError):
            services.sales.process(services.sources.list_events("shop").items[0].id)
        return str(services.sale_problems.list_open().items[0].id)


def test_the_command_line_lists_and_answers_them(cli, monkeypatch):
    """`source problems` and `source answer`."""
    problem = sell_unmapped(cli, monkeypatch, bought())
    (listed,) = json.loads(cli("source", "problems", "--json"))
    assert (listed["kind"], listed["answers"]) == ("not mapped", "leave issued")
    assert "leave" in cli("source", "answer", problem, "leave")
    assert "nothing needs you" in cli("source", "problems")


def test_the_answers_that_are_listed_are_those_that_are_accepted(cli, monkeypatch):
    """The list had `leave`, and the error had `leave, issued` also for what can be missing no license."""
    problem = sell_unmapped(cli, monkeypatch, shops.standard("purchase.completed", order_id="1"))
    (listed,) = json.loads(cli("source", "problems", "--json"))
    assert (listed["kind"], listed["answers"]) == ("delivery not readable", "leave")
    for answer in ("follow", "issued"):
        error = cli("source", "answer", problem, answer, expect=2)
        assert f"{answer} is no answer to problem {problem}; answer leave\n" in error
    assert "no answer" in cli("license", "issue", "app", "--problem", problem, expect=2)
    assert cli("license", "list", "--json").strip() == "[]"
    assert "Invalid value for 'ANSWER': 'yes' is not one of" in cli("source", "answer", "1", "yes", expect=2)
    assert cli("source", "answer", problem, "leave")


async def test_the_console_offers_a_license_only_where_one_can_be_missing(world, alice, shop_secrets):
    """A refund needs none, nor does a delivery that cannot be read, whose link lists those alone."""
    add(world, "standard")
    part = shops.standard("purchase.refunded", order_id="1", refund_id="r", amount=5)
    process(world, "standard", bought(), part)
    receive(world, "standard", shops.standard("purchase.completed", order_id="2"), "msg_2")
    assert {problem.kind for problem in problems(world)} == {
        "share of a refund not known",
        "delivery not readable",
    }
    page = await alice.get("/console/sales")
    assert page.count("Leave it as it is</button>") == 2
    assert "Issue a license by hand" not in page
    assert "/console/sources/standard/events?state=unreadable" in page
    process(world, "standard", shops.standard("purchase.completed", order_id="3", external_id="new"))
    assert (await alice.get("/console/sales")).count("Issue a license by hand") == 1


def test_the_command_line_issues_a_license_for_a_sale(cli, monkeypatch):
    """As the console's button does: with customer, note and mapping, and the sale is settled."""
    body = shops.standard(
        "purchase.completed",
        order_id="1",
        external_id="a",
        customer_email="ann@example.com",
        customer_language="de",
    )
    problem = sell_unmapped(cli, monkeypatch, body)
    cli("product", "add", "other", "--name", "Other")
    terms = ("--slots", "3", "--floating-seats", "4", "--expires-in", "1y", "--support", "2y")
    cli("source", "map", "shop", "a", "--product", "app", *terms)
    key = cli("license", "issue", "app", "--problem", problem, "--slots", "5").strip()
    with closing(open_services(Settings(data_dir=cli.folder))) as services:
        license_, year = services.licenses.get(key), services.now().year
    assert (license_.customer_email, license_.customer_language) == ("ann@example.com", "de")
    assert (license_.note, license_.slots, license_.floating_seats) == ("Order 1 (shop)", 5, 4)
    assert (license_.expires_on.year, license_.support_until.year) == (year + 1, year + 2)
    assert "nothing needs you" in cli("source", "problems")
    assert "needs no decision" in cli("license", "issue", "app", "--problem", problem, expect=2)
    assert "at most" in cli("license", "issue", "app", "--problem", problem, "--count", "10001", expect=2)
    assert "no problem 99" in cli("license", "issue", "app", "--problem", "99", expect=2)


ENDED_KEY = (
    "subscription s has ended, so the key would be expired at once; extend it with "
    "`licserver subscription end s --at YYYY-MM-DD`, which makes its licenses valid again, and answer leave"
)


@pytest.fixture
def late(cli, monkeypatch):
    """The number of the problem of a payment after the end of its subscription."""
    monkeypatch.setenv("SHOP_SECRET", shops.SECRETS["lemonsqueezy"])
    cli("product", "add", "app", "--name", "App")
    cli("license", "issue", "app", "--subscription", "s")
    cli("subscription", "end", "s", "--at", "2026-06-01")
    cli("source", "add", "shop", "--kind", "standard", "--secret-env", "SHOP_SECRET")
    with closing(open_services(Settings(data_dir=cli.folder))) as services:
        values = {"kind": ProblemKind.LATE.value, "message": "paid", "answers": "leave", "external_ids": None}
        sales = services.repositories.sales
        id_, _ = sales.put_problem("shop", "subscription:s", "late:s:1", services.now(), **values)
    return str(id_)


def test_no_key_is_issued_for_a_sale_into_a_subscription_that_has_ended(cli, late):
    """The key would already be expired: it is refused, nothing is mailed, and the problem stays open."""
    mail = ("--email", "ann@example.com")
    assert ENDED_KEY in cli("license", "issue", "app", "--problem", late, *mail, expect=2)
    assert len(json.loads(cli("license", "list", "--json"))) == 1
    assert late in cli("source", "problems")
    cli("subscription", "end", "s", "--at", "2099-01-01")
    assert cli("license", "issue", "app", "--problem", late, *mail)


def test_a_key_of_a_subscription_that_has_ended_is_warned_of(cli, late):
    """Without a sale it is issued all the same, as one whose last day has passed."""
    cli("license", "issue", "app", "--subscription", "s")
    assert "warning: subscription s has ended, so the license is expired" in cli.errors


async def test_the_console_issues_no_key_for_a_sale_that_is_expired_at_birth(world, alice, shop_secrets):
    """The message names who can extend the subscription."""
    add(world, "standard")
    services = world.services
    services.licenses.issue("app", LicenseTerms(subscription_id="s"))
    services.subscriptions.end("s", world.clock() - timedelta(days=1))
    values = {"kind": ProblemKind.LATE.value, "message": "paid", "answers": "leave", "external_ids": None}
    id_, _ = services.repositories.sales.put_problem(
        "shop", "subscription:s", "late:s:1", world.clock(), **values
    )
    await alice.get(f"/console/licenses/issue?sale={id_}")
    form = {"sale": str(id_), "product": "app", "slots": "1", "count": "1", "subscription": "s"}
    await alice.post("/console/licenses/issue/new", **form)
    assert "have the operator run `licserver subscription end s --at YYYY-MM-DD` to extend it" in alice.text
    assert len(licenses(world)) == 1


def test_as_many_are_issued_by_hand_as_were_bought(cli, monkeypatch):
    """Unless another number is chosen: the sale is settled, and nobody would notice that keys are missing."""
    body = shops.standard("purchase.completed", order_id="1", external_id="a", quantity=3)
    problem = sell_unmapped(cli, monkeypatch, body)
    assert "3 of a are not mapped" in cli("source", "problems")
    with closing(open_services(Settings(data_dir=cli.folder))) as services:
        assert describe_sale(services, int(problem))["count"] == "3"
    assert len(cli("license", "issue", "app", "--problem", problem).split()) == 3


@both_engines
def test_a_sale_that_has_licenses_says_not_how_many_are_missing(world):
    """Its item became one that is not mapped: three more would be six."""
    add(world, "standard")
    bought_three = {"external_id": "app", "quantity": 3, "subscription_id": "s"}
    process(world, "standard", shops.standard("purchase.completed", order_id="1", **bought_three))
    world.clock.forward(seconds=60)
    changed = {"subscription_id": "s", "external_id": "other", "quantity": 3}
    stamp = f"{world.clock():%Y-%m-%dT%H:%M:%SZ}"
    process(world, "standard", shops.standard("subscription.changed", stamp, **changed))
    (problem,) = problems(world)
    assert (problem.kind, len(licenses(world))) == ("not mapped", 3)
    assert world.services.sale_problems.find_quantity(problem) is None


def test_the_command_line_maps_and_goes_on(cli, monkeypatch):
    """It names what waits; with --go-on the server processes it."""
    sell_unmapped(cli, monkeypatch, shops.standard("purchase.completed", order_id="1", external_id="a"))
    mapping = ("source", "map", "shop", "a", "--product", "app")
    cli(*mapping)
    assert "1 sale waits for it; add --go-on" in cli.errors
    cli(*mapping, "--go-on")
    assert "the server goes on with them" in cli.errors
    with closing(open_services(Settings(data_dir=cli.folder))) as services:
        (event,) = services.sources.list_events("shop").items
        services.sales.process(event.id)
        assert sum(1 for _ in services.licenses.list_all()) == 1
    cli(*mapping, "--go-on")
    assert "wait" not in cli.errors


def test_an_address_that_cannot_be_used_is_named(world):
    """The key is issued, and a person is asked once, until the shop has another address."""
    add(world, "standard")
    item = {"order_id": "1", "external_id": "app", "customer_email": "foo"}
    process(world, "standard", shops.standard("purchase.completed", **item))
    (event,) = world.services.sources.list_events("standard").items
    assert event.reason == "issued 1 license of app; the customer's address cannot be used: nothing is mailed"
    (problem,) = problems(world)
    assert (event.state, problem.kind, problem.object) == ("done", "address not usable", "order:1")
    assert problem.message == (
        "order 1: the customer's address cannot be used, and nothing is mailed; give its license the right "
        "one and send the key, or leave it"
    )
    world.services.sources.answer(problem.id, "leave")
    work(world)
    process(world, "standard", shops.standard("purchase.completed", **item, total=9))
    assert problems(world) == []
    process(world, "standard", shops.standard("purchase.completed", **item | {"order_id": "2"}))
    (problem,) = problems(world)
    right = item | {"order_id": "2", "customer_email": "ann@example.com"}
    process(world, "standard", shops.standard("purchase.completed", "2026-06-16T12:00:00Z", **right))
    assert (problem.object, problems(world)) == ("order:2", [])


NO_ADDRESS = {"order_id": "1", "external_id": "app"}


def keys_mailed(world):
    """The templates of the mails to customers."""
    return [job.payload["template"] for job in world.services.mail.list_jobs().items]


@both_engines
def test_a_sale_without_an_address_asks_and_a_later_report_has_it(make_world):
    """The key reached nobody, and nothing said so; the address of a later report is put on the license."""
    world = make_world(**MAIL)
    add(world, "standard")
    process(world, "standard", shops.standard("purchase.completed", **NO_ADDRESS))
    (event,) = world.services.sources.list_events("standard").items
    assert (
        event.reason
        == "issued 1 license of app; the customer's address is not in the report: nothing is mailed"
    )
    (problem,) = problems(world)
    assert (event.state, problem.kind, problem.object) == ("done", "no address", "order:1")
    assert problem.message == (
        "order 1: the shop has reported no address of the customer, so nobody is mailed the key; give its "
        "license the address and send the key, or leave it"
    )
    process(
        world, "standard", shops.standard("purchase.completed", "2026-06-15T12:00:01Z", **NO_ADDRESS, total=9)
    )
    assert [open_.id for open_ in problems(world)] == [problem.id]
    later = {**NO_ADDRESS, "customer_email": "ann@example.com", "customer_language": "de"}
    for second in (2, 3):
        at = f"2026-06-15T12:00:0{second}Z"
        process(world, "standard", shops.standard("purchase.completed", at, **later, total=second))
    (license_,) = licenses(world)
    assert (license_.customer_email, license_.customer_language) == ("ann@example.com", "de")
    assert (problems(world), keys_mailed(world)) == ([], ["license_key"])
    reasons = [event.reason for event in world.services.sources.list_events("standard").items]
    assert reasons[:2] == ["nothing to change", "added the customer's address"]


def test_a_sale_without_an_address_is_nothing_where_no_mail_is_sent(world):
    """Without a mail server nobody is mailed anything; the address is stored all the same."""
    add(world, "standard")
    process(world, "standard", shops.standard("purchase.completed", **NO_ADDRESS))
    assert problems(world) == []
    later = {**NO_ADDRESS, "customer_email": "ann@example.com"}
    process(world, "standard", shops.standard("purchase.completed", "2026-06-15T12:00:01Z", **later))
    assert [license_.customer_email for license_ in licenses(world)] == ["ann@example.com"]


def test_an_address_that_a_person_has_removed_stays_away(make_world):
    """As one that was erased, or left as it is: the shop goes on to report it."""
    world = make_world(**MAIL)
    add(world, "standard")
    process(world, "standard", *map(bought, "123"))
    process(world, "standard", shops.standard("purchase.completed", **{**NO_ADDRESS, "order_id": "4"}))
    removed = next(license_ for license_ in licenses(world) if license_.note.startswith("Order 1 "))
    world.services.licenses.change(removed.id.hex(), customer_email=None)
    world.services.personal_data.erase("ann@example.com", keep_licenses=True)
    (problem,) = problems(world)
    world.services.sources.answer(problem.id, "leave")
    work(world)
    mailed = len(keys_mailed(world))
    for order in "1234":
        later = {**NO_ADDRESS, "order_id": order, "customer_email": "ann@example.com"}
        process(world, "standard", shops.standard("purchase.completed", "2026-06-15T12:00:01Z", **later))
    assert [license_.customer_email for license_ in licenses(world)] == [None] * 4
    assert (problems(world), len(keys_mailed(world))) == ([], mailed)


@pytest.mark.parametrize(
    ("key_env", "advice"),
    [
        (None, "give the source an API key"),
        ("PAD_KEY", "set PAD_KEY, which the server does not have, to the API key"),
    ],
)
def test_a_shop_whose_api_has_the_addresses_is_named_with_its_key(make_world, key_env, advice):
    """Paddle without an API key: each sale is asked about, and the sentence says what ends that."""
    world = make_world(**MAIL)
    add(world, "paddle", key_env=key_env)
    sold = shops.paddle_transaction(customer_id="ctm_1", custom_data=None)
    process(world, "paddle", shops.paddle("transaction.completed", sold))
    (problem,) = problems(world)
    assert problem.message.endswith(
        f"or leave it; {advice}, so that the shop is asked for the addresses of later sales"
    )


@pytest.mark.slow
def test_many_licenses_get_an_address_that_arrives_later(make_world):
    """In parts, each key in one mail."""
    world = make_world(**MAIL)
    add(world, "standard")
    process(world, "standard", shops.standard("purchase.completed", **NO_ADDRESS, quantity=600))
    assert [problem.kind for problem in problems(world)] == ["no address"]
    later = {**NO_ADDRESS, "customer_email": "ann@example.com", "quantity": 600}
    process(world, "standard", shops.standard("purchase.completed", "2026-06-15T12:00:01Z", **later))
    assert {license_.customer_email for license_ in world.services.licenses.list_all()} == {"ann@example.com"}
    mailed = [
        id_ for job in world.services.mail.list_jobs().items for id_ in job.payload.get("license_ids", ())
    ]
    assert (len(mailed), len({*mailed}), problems(world)) == (600, 600, [])


def test_an_address_that_cannot_be_used_is_asked_about_until_it_is_mended(world):
    """A further report of the same sale, of which a shop sends several, closed the question."""
    add(world, "standard")
    item = {"order_id": "1", "external_id": "app", "customer_email": "foo"}
    process(world, "standard", shops.standard("purchase.completed", **item))
    process(world, "standard", shops.standard("purchase.completed", "2026-06-15T12:00:01Z", **item, total=9))
    assert [problem.kind for problem in problems(world)] == ["address not usable"]


@pytest.mark.slow
async def test_the_console_leads_to_the_license_whose_address_is_to_be_mended(world, alice):
    """The sentence asked for it, and the page had only "Leave it as it is"."""
    add(world, "standard")
    item = {"order_id": "1", "external_id": "app", "customer_email": "foo"}
    process(world, "standard", shops.standard("purchase.completed", **item))
    (license_,) = licenses(world)
    page = await alice.get("/console/sales")
    assert f'<a href="/console/licenses/{license_.id.hex()}">Open the license</a>' in page


def test_a_license_that_has_got_its_address_by_hand_is_not_asked_about(world):
    """Nor one that is revoked."""
    add(world, "standard")
    item = {"order_id": "1", "external_id": "app", "customer_email": "foo"}
    process(world, "standard", shops.standard("purchase.completed", **item))
    (license_,) = licenses(world)
    world.services.licenses.change(license_.id.hex(), customer_email="ann@example.com")
    process(world, "standard", shops.standard("purchase.completed", **item, total=9))
    assert problems(world) == []
    process(world, "standard", shops.standard("purchase.completed", **item | {"order_id": "2"}))
    assert [problem.kind for problem in problems(world)] == ["address not usable"]
    process(world, "standard", shops.standard("purchase.refunded", order_id="2"))
    assert problems(world) == []


def test_a_license_of_another_product_for_a_sale(cli, monkeypatch):
    """What is mapped does not apply to it; customer and subscription do."""
    ids = {"order_id": "1", "subscription_id": "s", "external_id": "a", "customer_email": "ann@example.com"}
    problem = sell_unmapped(
        cli, monkeypatch, shops.standard("purchase.completed", paid_through="2027-06-15", **ids)
    )
    cli("product", "add", "other", "--name", "Other")
    cli("source", "map", "shop", "a", "--product", "app", "--slots", "3", "--expires-in", "1y")
    key = cli("license", "issue", "other", "--problem", problem).strip()
    with closing(open_services(Settings(data_dir=cli.folder))) as services:
        license_ = services.licenses.get(key)
    assert (license_.slots, license_.expires_on, license_.subscription_id) == (1, None, "s")
    assert (license_.customer_email, license_.note) == ("ann@example.com", "Subscription s (shop)")


def test_what_depends_on_the_shop_is_chosen_for_its_source(cli, monkeypatch):
    """States of a shop's own, what is followed, the field of renewals, and the shop's API."""
    monkeypatch.setenv("SHOP_SECRET", shops.SECRETS["woocommerce"])
    options = ("--state", "wc-shipped=paid", "--state", "wc-lost=failed", "--changes", "ask")
    api = ("--renewal-field", "_renews", "--key-env", "WOO_KEY", "--url", "https://shop.example.com")
    cli("source", "add", "shop", "--kind", "woocommerce", "--secret-env", "SHOP_SECRET", *options, *api)
    with closing(open_services(Settings(data_dir=cli.folder))) as services:
        source = services.sources.get("shop")
        assert source.states == {"shipped": "paid", "lost": "failed"}
        assert (source.changes, source.renewal_field) == ("ask", "_renews")
        assert (source.key_env, source.url) == ("WOO_KEY", "https://shop.example.com")
    cli("source", "change", "shop", "--state", "wc-lost=", "--changes", "follow")
    with closing(open_services(Settings(data_dir=cli.folder))) as services:
        source = services.sources.get("shop")
        assert (source.states, source.changes) == ({"shipped": "paid"}, "follow")
    assert "choose from" in cli("source", "change", "shop", "--state", "wc-lost=gone", expect=2)
    assert "shipped=paid" in cli("source", "change", "shop", "--state", "wc-lost", expect=2)
    assert "capital letters" in cli("source", "change", "shop", "--key-env", "ck_1:cs_1", expect=2)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", REFUNDED)
def test_a_refund_of_an_order_that_was_never_seen_asks_nobody(world, kind):
    """A vendor who moves in gets many: each is done, with a note."""
    add(world, kind)
    process(world, kind, REFUNDED[kind])
    (event,) = world.services.sources.list_events(kind).items
    assert (event.state, problems(world), licenses(world)) == ("done", [], [])
    assert "no license of order" in event.reason


@both_engines
def test_deliveries_that_cannot_be_read_are_one_problem_of_their_source(world):
    """Each names its cause; once a person has looked, they are ignored, and the next one is asked again."""
    add(world, "standard")
    nameless = shops.standard("purchase.completed", external_id="app")
    assert receive(world, "standard", nameless).status == "unreadable"
    receive(world, "standard", shops.standard("purchase.refunded", order_id="1", amount=5), "msg_2")
    (problem,) = problems(world)
    assert (problem.kind, problem.object) == ("delivery not readable", "deliveries:unreadable")
    ids = [event.id for event in world.services.sources.list_events("standard", "unreadable").items]
    assert problem.message == (
        f"2 deliveries could not be read ({ids[1]} and {ids[0]}), and what they report is not done; "
        f"of {ids[0]}: data.refund_id: Field required with amount, partial or quantity: refunds "
        "of an order add up; correct the sender and send again what it reports; if this stays, answer leave; "
        "see `licserver source events standard --state unreadable`"
    )
    assert describe_sale(world.services, problem.id) == {}
    assert "note" not in world.services.sale_problems.find_terms(problem)
    world.services.sources.answer(problem.id, "leave")
    assert (problems(world), states(world, "standard")) == ([], ["ignored", "ignored"])
    receive(world, "standard", shops.standard("purchase.completed", order_id="1"), "msg_3")
    assert [problem_.id for problem_ in problems(world)] == [problem.id]


def test_a_corrected_delivery_settles_that_it_could_not_be_read(world):
    """By its id, or as it was, once a newer version of the server can read it; the others stay."""
    add(world, "standard")
    receive(world, "standard", shops.standard("purchase.completed", order_id="1"), "msg_1")
    receive(world, "standard", shops.standard("purchase.completed", order_id="2"), "msg_2")
    receive(world, "standard", bought("1"), "msg_1")
    (problem,) = problems(world)
    assert problem.message.startswith("delivery 2 could not be read, ")
    receive(world, "standard", bought("2"), "msg_2")
    assert problems(world) == []
    work(world)
    assert states(world, "standard") == ["done", "done"]
    receive(world, "standard", shops.standard("purchase.completed", order_id="3"), "msg_3")
    assert [again.id for again in problems(world)] == [problem.id]


def test_a_delivery_that_a_new_version_can_read_settles_the_problem(world, monkeypatch):
    """Of a shop whose deliveries have no signed id: the same body arrives again."""
    add(world, "woocommerce")
    body, shop = shops.woo(), SHOPS[ShopKind.WOOCOMMERCE]

    def fail(*_: object) -> None:
        raise UnreadableDeliveryError("a newer version of the API")

    with monkeypatch.context() as older:
        older.setattr(shop, "read", fail)
        assert receive(world, "woocommerce", body).status == "unreadable"
    assert len(problems(world)) == 1
    process(world, "woocommerce", body)
    assert (problems(world), states(world, "woocommerce")) == ([], ["done"])


def test_many_deliveries_that_cannot_be_read_are_named_up_to_ten(world):
    """One problem has them all, and its command lists them without sales that wait for a mapping."""
    add(world, "standard", mapped=False)
    process(world, "standard", bought())
    for number in range(12):
        receive(
            world, "standard", shops.standard("purchase.completed", order_id=f"{number}"), f"msg_{number}"
        )
        message = problems(world)[0].message
        if number == 0:
            assert message.startswith("delivery 2 could not be read, and what it reports is not done: data.")
    assert message.startswith(
        "more than 10 deliveries could not be read (…, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 13), and what they "
        "report is not done; of 13: data.external_id: Field required; "
    )
    events = world.services.sources.list_events("standard", "unreadable").items
    assert [event.id for event in events] == [*range(13, 1, -1)]
    assert len(world.services.sources.list_events("standard", "dead").items) == 13
    with pytest.raises(InvalidInputError, match="dead, unreadable"):
        world.services.sources.list_events("standard", "lost")


def test_a_field_that_is_not_read_is_named_in_the_response_and_at_the_delivery(world):
    """A shop has fields of its own, and may have meant something by them."""
    add(world, "standard")
    own = shops.standard("purchase.completed", order_id="1", external_id="app", customer_id=5)
    note = "not read, because this format has no such fields: customer_id"
    assert receive(world, "standard", own) == ("accepted", note)
    work(world)
    (event,) = world.services.sources.list_events("standard").items
    assert event.reason == f"issued 1 license of app; {note}"
    world.services.sources.replay(event.id)
    work(world)
    (event,) = world.services.sources.list_events("standard").items
    assert event.reason == f"nothing to change; {note}"


def test_a_problem_that_has_solved_itself_needs_no_answer(world):
    """An answer to it would be kept, and its sale would be left for ever."""
    add(world, "standard")
    late = {"subscription_id": "s1", "paid_through": "2026-08-15T12:00:00Z"}
    process(world, "standard", shops.standard("subscription.renewed", "2026-07-15T12:00:00Z", **late))
    (problem,) = problems(world)
    first = {"order_id": "1", "external_id": "app", "subscription_id": "s1"}
    process(world, "standard", shops.standard("purchase.completed", **first))
    assert problems(world) == []
    with pytest.raises(ConflictError, match="needs no answer any more"):
        world.services.sources.answer(problem.id, "leave")


def test_a_delivery_that_was_left_or_changes_nothing_says_why(world):
    """Not that the purchase has not arrived."""
    add(world, "standard", mapped=False)
    process(world, "standard", bought())
    world.services.sources.answer(problems(world)[0].id, "leave")
    work(world)
    (event,) = world.services.sources.list_events("standard").items
    assert event.reason == "no license of order 1: it was left as it is"
    world.services.sources.map("standard", "app", "app")
    process(world, "standard", shops.standard("purchase.completed", order_id="2", external_id="app", total=9))
    part = shops.standard("purchase.refunded", order_id="2", refund_id="r1", amount=3)
    process(world, "standard", part)
    assert world.services.sources.list_events("standard").items[0].reason == (
        "order 2 was refunded in part, which revokes nothing"
    )


def test_check_names_the_sources_with_dead_deliveries(world):
    """The command can be copied as it is."""
    add(world, "standard", mapped=False)
    process(world, "standard", bought())
    found = check_installation(world.settings, world.clock(), reach=False, reads_file=False)
    advice = [problem.advice for problem in found if "given up" in problem.message]
    assert advice == ["licserver source events standard --state dead"]


@both_engines
def test_a_sale_that_the_database_refuses_is_a_problem_that_a_person_sees(world):
    """It waited in silence, and was tried again and again. Once it is done, the problem is over."""
    add(world, "standard")
    process(world, "standard", shops.standard("purchase.completed", order_id="1", external_id="app"))
    sales = world.repositories.sales
    (sold,) = sales.list_sold("standard", ["order:1"], [])
    sales.change_sold("standard", {sold.license_id: {"thing": "line:2/app"}})
    receive(world, "standard", shops.standard("purchase.completed", order_id="2", external_id="app"))
    (event,) = world.services.sources.list_events("standard", "waiting").items
    for attempt in range(3):
        (job,) = world.repositories.queue.claim("sale", world.clock(), timedelta(minutes=1), 1)
        with pytest.raises(StatementRefusedError):
            world.services.sales.process(event.id, job=job)
        world.repositories.queue.retry(job, world.clock(), "refused")
        assert [problem.kind for problem in problems(world)] == ["refused by the database"] * (attempt > 0)
    (problem,) = problems(world)
    assert problem.message.startswith("order 2: the database has refused what it reports (")
    assert problem.message.endswith("); nothing of it is done, and it is tried again: see the server's log")
    sales.change_sold("standard", {sold.license_id: {"thing": "line:1/app"}})
    work(world)
    assert ([*problems(world)], states(world, "standard")) == ([], ["done", "done"])
