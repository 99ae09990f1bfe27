"""What strangers and customers make a service store, and how they use up what belongs to others."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import Any

import httpx
import pyotp
import pytest
from sqlalchemy import func, select

from harness.world import Server, World
from licserver.database.tables import metadata
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.errors import InvalidInputError
from licserver.jobs.process import create_job_worker

Call = Callable[..., httpx.Response]
MAIL = {"mail_host": "mail.example", "mail_sender": "shop@example.com"}
ANN = "ann@example.com"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no request for a code take the tenth of a second that all take."""
    monkeypatch.setattr("licserver.web.account.app.CODE_SECONDS", 0.0)


@pytest.fixture
def serve() -> Iterator[Callable[[World], Call]]:
    """Serve a vendor; requests come from any loopback address."""
    with ExitStack() as stack:

        def start(world: World) -> Call:
            world.services.products.add("app", "App", EnvironmentPolicy.STRICT, trial_days=14)
            server = Server(world)
            server.start()
            stack.callback(server.stop)
            clients: dict[str, httpx.Client] = {}

            def call(path: str, source: str = "127.0.0.1", **more: Any) -> httpx.Response:
                if source not in clients:
                    transport = httpx.HTTPTransport(local_address=source)
                    client = httpx.Client(base_url=server.url, transport=transport, timeout=20)
                    clients[source] = stack.enter_context(closing(client))
                return clients[source].post(path, **more)

            return call

        yield start


def issue(world: World, **terms: Any) -> str:
    """Issue a license; return its key."""
    return world.services.licenses.issue("app", LicenseTerms(**terms))[1]


def count_rows(world: World) -> Counter[str]:
    """Count the rows of every table."""
    with world.services.database.reading() as connection:
        return Counter(
            {
                table.name: connection.scalar(select(func.count()).select_from(table)) or 0
                for table in metadata.sorted_tables
            }
        )


def ask_for_code(call: Call, email: str, source: str) -> httpx.Response:
    """Send the form that asks for a code."""
    headers = {"Sec-Fetch-Site": "same-origin"}
    return call("/account/code", source, data={"csrf": "", "email": email}, headers=headers)


def sent_codes(world: World) -> list[str]:
    """Return the codes of the queued mails, the oldest first."""
    messages = [world.services.mail.render(job) for job in world.services.mail.list_jobs(limit=200).items]
    found = [re.search(r"[0-9]{6,}", message["Subject"]) for message in messages if message is not None]
    return [row[0] for row in found[::-1] if row]


@pytest.mark.slow
def test_p2pool_starter_stack_pithead_1814_audit_lines_of_others(
    make_world: Callable[..., World], serve: Callable[[World], Call]
) -> None:
    """A loop of verify and deactivate wrote 0.8 GiB an hour: lines, events, deliveries and mails."""
    world = make_world(**MAIL, mail_activations=True)
    call = serve(world)
    world.services.webhooks.add("https://hook.example/")
    fields = {"license_key": issue(world, customer_email=ANN), "domain": "pc.example", "ip": "192.0.2.1"}
    sizes = []
    for _ in range(15):
        for endpoint in ("verify", "deactivate"):
            assert call(f"/api/v1/licenses/{endpoint}", json=fields).status_code == 200
        sizes.append(count_rows(world))
    events = world.services.repositories.queue.list_page("webhook-events")
    assert Counter(job.payload["type"] for job in events if "activation" in job.payload["type"]) == {
        "activation.created": 1,
        "activation.freed": 1,
    }
    assert sizes[-1]["audit"] == sizes[0]["audit"]


@pytest.mark.slow
def test_rucio_rucio_4459_and_windmill_labs_windmill_9338_names_drawn_anew(
    make_world: Callable[..., World], serve: Callable[[World], Call]
) -> None:
    """Floating seats with ever new ids, taken and released: each stayed in the table."""
    world = make_world(write_limit=0)  # without the budget of D-301
    call = serve(world)
    key = issue(world, floating_seats=3)
    for number in range(150):
        fields = {"license_key": key, "domain": "pc.example", "seat": f"{number:032x}"}
        assert call("/api/v1/licenses/seat", json=fields).status_code == 200
        assert call("/api/v1/licenses/seat", json={**fields, "release": True}).status_code == 200
    assert count_rows(world)["seats"] <= 100


@pytest.mark.slow
def test_schej_it_timeful_260_codes_that_strangers_ask_for(
    make_world: Callable[..., World], serve: Callable[[World], Call]
) -> None:
    """Three requests by anybody, and the customer got no code; with a limit for each asker, one at once."""
    world = make_world(account=True, **MAIL)
    call = serve(world)
    issue(world, customer_email=ANN)
    for number in range(20):
        ask_for_code(call, ANN, f"127.1.{number}.1")
    before = len(sent_codes(world))
    assert ask_for_code(call, ANN, "127.2.0.1").status_code == 303
    assert len(sent_codes(world)) == before + 1
    latest = world.services.mail.list_jobs(limit=1).items[0]
    assert latest.due_at is not None
    was_tried = latest.attempts > 0  # then it was due at once
    assert was_tried or latest.due_at <= world.clock() + timedelta(seconds=1)


@pytest.mark.slow
def test_brave_accounts_183_new_codes_are_new_guesses(
    make_world: Callable[..., World], serve: Callable[[World], Call]
) -> None:
    """Five attempts a code, and codes without end; after a hundred in a day a code has ten digits."""
    world = make_world(account=True, **MAIL)
    call = serve(world)
    issue(world, customer_email=ANN)
    for number in range(120):
        ask_for_code(call, ANN, f"127.1.{number}.1")
    assert Counter(map(len, sent_codes(world))) == {6: 100, 10: 20}


@pytest.mark.slow
def test_letsencrypt_boulder_2738_and_zulip_zulip_21544_trials_of_a_network(
    make_world: Callable[..., World], serve: Callable[[World], Call]
) -> None:
    """A limit for the address, and a higher one for its network: one /48 had all trials of a product."""
    world = make_world()
    call = serve(world)
    answers = [
        call(
            "/api/v1/licenses/trial",
            f"127.3.0.{number % 60 + 1}",
            json={"slug": "app", "machine": f"{number:064x}", "domain": f"pc{number}"},
        ).status_code
        for number in range(60)
    ]
    assert answers.count(200) == 50
    fields = {"slug": "app", "machine": "f" * 64, "domain": "other"}
    assert call("/api/v1/licenses/trial", "127.4.0.1", json=fields).status_code == 200


def test_josipmusa_idempotency4j_12_one_id_for_two_uses(
    make_world: Callable[..., World], serve: Callable[[World], Call]
) -> None:
    """The second one was answered as if it had been counted."""
    world = make_world()
    call = serve(world)
    world.services.plans.add("app", "pro", {"exports": {"limit": 100, "per": "month"}})
    key = issue(world, plan="pro")
    call("/api/v1/licenses/verify", json={"license_key": key, "domain": "pc", "ip": "192.0.2.1"})
    fields = {"license_key": key, "domain": "pc", "name": "exports", "amount": 1, "use_id": "use-00000001"}
    assert call("/api/v1/licenses/consume", json=fields).json()["used"] == 1
    refused = call("/api/v1/licenses/consume", json={**fields, "amount": 50})
    assert (refused.status_code, refused.json()["error"]) == (409, "use_id_conflict")
    assert call("/api/v1/licenses/consume", json=fields).json()["used"] == 1


@pytest.mark.slow
def test_wg_easy_wg_easy_2775_and_privacyidea_3741_second_factor(make_world: Callable[..., World]) -> None:
    """At a known address it was guessed without a bound; a bound must lock nobody out for good."""
    world = make_world()
    services, password = world.services, "four words of a sentence"
    services.users.add("ann", password)
    first = services.logins.sign_in("ann", password)
    assert first is not None
    assert services.second_factors.begin_enrolment(first, password)
    enrolment = services.second_factors.find_enrolment(first)
    assert enrolment is not None
    app = pyotp.TOTP(enrolment.secret)
    enrolled = services.second_factors.confirm_enrolment(first, app.at(world.clock()))
    assert enrolled is not None

    def sign_in(code: str, times: int = 1) -> object:
        who = services.logins.sign_in("ann", password)
        assert who is not None
        found = [services.second_factors.sign_in(who, code, "192.0.2.1", is_known=True) for _ in range(times)]
        return found[-1]

    assert sign_in("000000", 100) is None
    world.clock.forward(seconds=60)
    with pytest.raises(InvalidInputError, match="too many wrong codes"):
        sign_in(app.at(world.clock()))
    assert sign_in(enrolled.recovery_codes[0])
    world.clock.forward(days=1)
    assert sign_in(app.at(world.clock()))


def run_periodic(world: World) -> None:
    """Do what a server does now and then."""
    for _, work in create_job_worker(world.services, world.clock)._periodic:
        work()


def test_lanternops_breeze_4000_and_coder_coder_14775_retention_that_never_ran(
    make_world: Callable[..., World],
) -> None:
    """The audit log had no default age, and nothing swept unless a timer was set up."""
    world = make_world()
    world.services.products.add("app", "App", EnvironmentPolicy.STRICT)
    run_periodic(world)
    world.clock.forward(days=1000)
    for _ in range(2):  # a step of the clock must be seen twice
        run_periodic(world)
        world.clock.forward(hours=25)
    run_periodic(world)
    assert {entry.action for entry in world.services.audit.list_page().items} <= {"sweep"}


@pytest.mark.slow
def test_keygen_sh_keygen_api_998_and_dotcms_core_10388_paid_slots(
    make_world: Callable[..., World], serve: Callable[[World], Call]
) -> None:
    """Machines that were away lost their licenses by a default; no slot that was paid for is freed so."""
    world = make_world()
    call = serve(world)
    fields = {"license_key": issue(world, slots=2), "domain": "pc.example", "ip": "192.0.2.1"}
    assert call("/api/v1/licenses/verify", json=fields).status_code == 200
    for _ in range(3):
        run_periodic(world)
        world.services.retention.sweep()
        world.clock.forward(days=1000)
    assert count_rows(world)["activations"] == 1
