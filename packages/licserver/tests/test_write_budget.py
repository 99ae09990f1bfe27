"""What clients and customers can make the server store: all has a bound, and stands in the documentation."""

import asyncio
import json
import re
import threading
from base64 import b32encode
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import func, select

import licserver
from harness.engines import both_engines
from licserver.database.hot_path.lookups import Lookup
from licserver.database.hot_path.store import BatchStore
from licserver.database.repositories.statistics import KEPT_PER_LICENSE, note_refusals
from licserver.database.repositories.webhooks import EVENTS, SubscribedEvents
from licserver.database.tables import metadata
from licserver.database.tables.events import jobs
from licserver.database.tables.licenses import rollbacks, seats
from licserver.domain.moves import KEPT_RECORDS
from licserver.domain.records import Environment
from licserver.domain.seats import SeatRefusal, SeatRequest
from licserver.errors import TooManyMovesError
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.protocol.webhooks import EventType
from licserver.security.secrets_file import format_signing_key, new_secrets
from licserver.services.audit import SWEPT_EVERY
from licserver.services.context import CUSTOMER
from licserver.services.mail import QUEUES as MAIL_QUEUES
from licserver.services.mail import TEMPLATES
from licserver.services.queues import QUEUES
from licserver.services.seats import ENDED_KEPT, SeatService
from licserver.web.rate_limits import USE_WEIGHT, Write, WriteBudget

SECURITY = Path(__file__).parents[3] / "docs" / "security.md"
SOURCES = Path(licserver.__file__).parent


@pytest.fixture
def world(make_world):
    """A vendor with everything that writes: webhooks, mail, the page, license files."""
    keys = [format_signing_key(SigningKey(PrivateKey(b"\1" * 32), datetime(2026, 6, 1, tzinfo=UTC)))]
    mail = {"mail_host": "mail.example", "mail_sender": "shop@example.com", "mail_activations": True}
    world = make_world(account=True, secrets=json.dumps(new_secrets() | {"signing_keys": keys}), **mail)
    world.services.webhooks.add("https://hook.example")
    return world


class Customer:
    """A customer with keys who does things and undoes them."""

    def __init__(self, world) -> None:
        self.world, self.services = world, world.services.acting_as(CUSTOMER)
        self.wanted = SubscribedEvents(world.services.repositories.webhooks)
        self.wanted.refresh()
        self.store = BatchStore(world.services.database, self.wanted)
        self.key = world.key(slots=2, floating_seats=2, customer_email="ann@example.com")
        self.license = world.services.licenses.get(self.key)
        self.number = 0

    def next(self) -> int:
        """Count a cycle."""
        self.number += 1
        return self.number

    def verify(self, domain="pc", ip="192.0.2.1"):
        """Take a slot."""
        (verdict,) = self.store.activate([self.world.request_slot(self.key, domain, ip)])
        return verdict

    def verify_and_deactivate(self):
        """One computer."""
        self.verify()
        self.services.moves.deactivate(self.license, "pc")

    def move_between_two(self):
        """Two computers in turns, as far as the moves allow."""
        for domain in ("laptop", "desktop"):
            self.verify(domain)
            try:
                self.services.moves.deactivate(self.license, domain)
            except TooManyMovesError:
                return

    def move_to_and_fro(self):
        """Two computers in turns, each by a move in the app."""
        self.verify("laptop")
        self.verify("tablet")
        for domain in ("desktop", "laptop"):
            listed = self.services.moves.list_computers(self.key, Environment(domain, "127.0.0.1"))
            source = next(id_ for id_, computer in listed.computers if computer.domain != "tablet")
            self.services.moves.move(self.key, Environment(domain, "192.0.2.1"), source)

    def show_key(self):
        """On the page."""
        self.services.licenses.reveal(self.license.id.hex())

    def sign_in_and_out(self):
        """By the key."""
        self.services.customer_sign_in.sign_out(self.services.customer_sign_in.sign_in(self.key))

    def hold_and_release(self):
        """A floating seat with one id."""
        self.services.seats.hold(self.key, SeatRequest(bytes(16), "pc"))
        self.services.seats.release(self.key, bytes(16))
        self.world.clock.forward(minutes=3)

    def take_and_take_back(self):
        """Floating seats with ever new ids, taken back on the page."""
        seat = self.next().to_bytes(16, "big")
        self.services.seats.hold(self.key, SeatRequest(seat, f"pc{self.number}"))
        self.services.seats.take_back(self.license.id.hex(), seat.hex())

    def issue_file(self):
        """For one computer, again and again."""
        content = b"\2" + b"ab" * 16 + b"\0app\x001.0"
        request = "REQ-" + b32encode(content + sha256(content).digest()[:3]).decode().rstrip("=")
        self.services.offline_files.issue(self.license.id.hex(), request, 30)

    def be_refused(self):
        """All slots are taken, and ever new computers ask."""
        for domain in ("one", "two"):
            self.verify(domain)
        number = self.next()
        self.world.clock.forward(seconds=1)
        lookup = Lookup(self.license.id, Environment(f"pc{number}", "192.0.2.1"))
        counted = {(*lookup, "environment"): 3}
        events = self.wanted.describe_refusals([lookup], self.world.clock())
        note_refusals(self.world.services.database, counted, self.world.clock(), events)

    def ask_for_a_code(self):
        """From one address."""
        self.services.customer_sign_in.send_code("ann@example.com", "192.0.2.1")

    def start_a_trial(self):
        """On ever new machines at one address."""
        self.services.trials.start("app", f"{self.next():064x}", "192.0.2.1", "pc")


def count_rows(world):
    """Return the number of rows of each table."""
    with world.services.database.reading() as connection:
        return {
            table.name: connection.scalar(select(func.count()).select_from(table))
            for table in metadata.sorted_tables
        }


LOOPS = [
    (Customer.verify_and_deactivate, 2),
    (Customer.move_between_two, 5),
    (Customer.show_key, 1),
    (Customer.sign_in_and_out, 1),
    (Customer.hold_and_release, 1),
    (Customer.take_and_take_back, ENDED_KEPT + 1),
    (Customer.move_to_and_fro, KEPT_RECORDS // 2),
    (Customer.issue_file, 1),
    (Customer.be_refused, 2 * KEPT_PER_LICENSE + 1),
    (Customer.ask_for_a_code, 3),
    (Customer.start_a_trial, 5),
]
"""What a customer does and undoes, and after how often nothing more is stored."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("loop", "times"), LOOPS, ids=[loop.__name__ for loop, _ in LOOPS])
@both_engines
def test_a_loop_adds_nothing_beyond_its_first_times(world, loop, times):
    """Not a row in any table, though events, audit log and mail are on (D-296)."""
    world.services.products.change("app", trial_days=14)
    customer = Customer(world)
    for _ in range(times):
        loop(customer)
    bounded = count_rows(world)
    for _ in range(20):
        loop(customer)
    assert count_rows(world) == bounded
    assert bounded["audit"] < 30
    customer.store.close()


def test_the_day_after_a_loop_is_noted_again(world):
    """Once more: it goes on."""
    customer = Customer(world)
    for _ in range(3):
        customer.verify_and_deactivate()
        customer.show_key()
    world.clock.forward(days=1)
    for _ in range(3):
        customer.verify_and_deactivate()
        customer.show_key()
    lines = [entry.action for entry in world.services.audit.list_page().items]
    assert (lines.count("license.move"), lines.count("license.reveal")) == (2, 2)
    events = [job.payload["type"] for job in world.services.repositories.queue.list_page(EVENTS)]
    assert events.count(EventType.ACTIVATION_CREATED) == events.count(EventType.ACTIVATION_FREED) == 2
    customer.store.close()


def test_what_support_does_is_noted_each_time(world):
    """The bound is for customers: a person at the vendor leaves a line for every key that is shown."""
    key = world.key()
    for _ in range(15):
        world.services.licenses.reveal(key)
    lines = [entry.action for entry in world.services.audit.list_page().items]
    assert lines.count("license.reveal") == 15


@pytest.mark.slow
def test_ended_seats_are_trimmed_and_late_requests_still_refused(world):
    """The latest hundred of a license stay: an app that is asked to stop does not take its seat again."""
    customer = Customer(world)
    for number in range(ENDED_KEPT + 50):
        customer.services.seats.hold(customer.key, SeatRequest(number.to_bytes(16, "big"), "pc"))
        customer.services.seats.release(customer.key, number.to_bytes(16, "big"))
        world.clock.forward(seconds=0.001)
    with world.services.database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(seats)) == ENDED_KEPT
    last = (ENDED_KEPT + 49).to_bytes(16, "big")
    assert customer.services.seats.hold(customer.key, SeatRequest(last, "pc")) is SeatRefusal.LOST
    customer.store.close()


def test_a_license_gets_twenty_mails_about_new_computers_a_day(world):
    """A key without a limit on ever new computers does not fill its customer's mailbox."""
    license_id = world.services.licenses.get(world.key(slots=None, customer_email="ann@example.com")).id
    sent = [world.services.mail.send_activation(f"msg_{number}", license_id) for number in range(30)]
    assert sent == [True] * 20 + [False] * 10
    world.clock.forward(days=1)
    assert world.services.mail.send_activation("msg_later", license_id)


@pytest.mark.slow
def test_a_license_reports_a_hundred_rollbacks_a_day(world):
    """Whoever invents computers for a key without a limit does not fill the table."""
    world.publish("1.0")
    key = world.key(slots=None)
    store = BatchStore(world.services.database)
    license_ = world.services.licenses.get(key)
    for number in range(120):
        store.activate([world.request_slot(key, f"pc{number}")])
        world.services.rollouts.count_rollback(license_, "app", "1.0", f"pc{number}", "")
    with world.services.database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(rollbacks)) == 100
    store.close()


async def test_new_activations_of_a_license_without_a_limit(make_world, open_site, caplog):
    """A limit a day, and then 429; computers with a slot are served, and so is every other license."""
    world = make_world(activation_limit=6)
    site, key, other = await open_site(world), world.key(slots=None), world.key(slots=5)
    answers = [await site.verify(key, f"pc{number}") for number in range(5)]
    assert [status for status, _ in answers] == [200, 200, 200, 429, 429]
    assert "too many new computers" in answers[-1][1]["message"]
    assert "LICSERVER_ACTIVATION_LIMIT" in caplog.text
    assert key not in caplog.text
    assert (await site.verify(key, "pc0"))[0] == 200
    assert [(await site.verify(other, f"pc{number}"))[0] for number in range(5)] == [200] * 5


@pytest.mark.slow
async def test_uses_of_a_license(make_world, open_site):
    """A limit a day, and then 429 with a time; a use that is refused so is not counted."""
    world = make_world(use_limit=6)
    world.services.plans.add("app", "pro", {"exports": {"limit": 100, "per": "month"}})
    site, key = await open_site(world), world.key(plan="pro")
    await site.verify(key, "pc")
    fields = {"license_key": key, "domain": "pc", "name": "exports", "amount": 1}
    answers = [
        await site.call("POST", "/api/v1/licenses/consume", json=fields | {"use_id": f"use-{number:04}"})
        for number in range(5)
    ]
    assert [status for status, _, _ in answers] == [200, 200, 200, 429, 429]
    assert int(answers[-1][1]["Retry-After"]) > 0
    assert answers[2][2]["used"] == 3


# --- what is written in a minute -----------------------------------------------------------------


class Seconds:
    """A clock."""

    now = 1000.0

    def __call__(self) -> float:
        """Read it."""
        return self.now


@pytest.mark.parametrize(("size", "weight"), [(0, 1), (11, 1), (1000, 1), (0, USE_WEIGHT)])
def test_a_license_has_a_budget_by_its_size(size, weight):
    """All of it at once, and it comes back within a minute; another license has its own."""
    budget = WriteBudget(10**9, 120, clock := Seconds())
    license_, other = (Write(bytes([number]) * 16, size, weight) for number in (1, 2))
    most = round((60 + 2 * size) / weight)
    assert sum(not budget.take(license_, "a") for _ in range(2 * most)) == most
    assert budget.take(other, "a") == 0
    delay = budget.take(license_, "a")
    assert 0 < delay <= 60 / most + 0.001
    clock.now += delay
    assert budget.take(license_, "a") == 0
    clock.now += 60
    assert sum(not budget.take(license_, "a") for _ in range(2 * most)) == most


def test_an_address_has_a_budget_for_all_its_licenses():
    """Also for requests that name none; a client on this machine, which may be a proxy, has no limit."""
    budget = WriteBudget(10, 120, Seconds())
    writes = [Write(None), *(Write(bytes([number]) * 16) for number in range(20))]
    assert sum(not budget.take(write, "a") for write in writes) == 10
    assert budget.take(Write(None), "b") == 0
    assert all(budget.take(write, None) == 0 for write in writes)


def test_renewals_of_seats_are_not_counted():
    """A license of 500 renews three times in a lease; renewals in a loop are counted, and new seats."""
    budget, license_ = WriteBudget(10**9, 120, clock := Seconds()), bytes(16)
    seats = [number.to_bytes(16, "big") for number in range(500)]
    for seat in seats:
        budget.note_seat(license_, 500, seat)
    for _ in range(20):
        clock.now += 40
        for seat in seats:
            assert budget.take(Write(license_, seat=seat), "a") == 0
            budget.note_seat(license_, 500, seat)
    assert sum(not budget.take(Write(license_, seat=seats[0]), "a") for _ in range(5000)) == 1060


async def test_a_loop_of_seats_and_slots_is_a_429(make_world, open_site):
    """Taken and released, freed and taken again; others and known computers are served meanwhile."""
    world = make_world()
    site, key, other = await open_site(world), *(world.key(slots=2, floating_seats=2) for _ in range(2))
    path, fields = "/api/v1/licenses/seat", {"license_key": key, "domain": "pc", "seat": "ab" * 16}
    assert (await site.verify(key, "pc"))[0] == 200
    seen = []
    for number in range(40):
        call = {"license_key": key, "domain": "pc", "seat": f"{number:032x}"}
        seen += [(await site.call("POST", path, json=call | more)) for more in ({}, {"release": True})]
    statuses = [status for status, _, _ in seen]
    assert set(statuses) == {200, 429}
    assert 60 <= statuses.count(200) < 70
    assert int(seen[-1][1]["Retry-After"]) > 0
    assert "too many changes" in seen[-1][2]["message"].lower()
    deactivate = {"license_key": key, "domain": "pc"}
    assert (await site.call("POST", "/api/v1/licenses/deactivate", json=deactivate))[0] == 429
    assert (await site.verify(key, "pc"))[0] == 200
    assert (await site.verify(key, "pc2"))[0] == 429
    assert (await site.call("POST", path, json=fields | {"license_key": other}))[0] == 200


async def test_the_budget_can_be_switched_off(make_world, open_site):
    """0 is no limit."""
    world = make_world(write_limit=0)
    site, key = await open_site(world), world.key(slots=2, floating_seats=2)
    call = {"license_key": key, "domain": "pc", "seat": "ab" * 16}
    answers = [await site.call("POST", "/api/v1/licenses/seat", json=call) for _ in range(70)]
    assert {status for status, _, _ in answers} == {200}


# --- sweeps -----------------------------------------------------------------------------------


@both_engines
def test_slots_that_were_paid_for_are_never_freed_by_default(world):
    """Those of a license without a limit are, after ninety days, and the audit log has a default as well."""
    paid, unlimited = world.key(slots=2), world.key(slots=None)
    store = BatchStore(world.services.database)
    world.services.retention.sweep()  # from here on it is watched
    for key in (paid, unlimited):
        store.activate([world.request_slot(key, "pc")])
    world.clock.forward(days=91)
    assert world.services.retention.sweep(dry_run=True).activations == 1
    assert world.services.retention.sweep().activations == 1
    assert (len(world.held(paid)), len(world.held(unlimited))) == (1, 0)
    assert world.services.settings.audit_days == 730
    store.close()


def test_a_server_sweeps_once_a_day_by_itself(world):
    """Whichever process asks; a clock that was ahead once does not stop it."""
    world.key()
    assert world.services.audit.list_page().items
    daily, swept = world.services.retention.sweep_daily, []
    world.services.retention.sweep_daily()  # the first start begins to count
    world.clock.forward(days=800)
    daily()
    assert [entry.action for entry in world.services.audit.list_page().items] == ["sweep"]
    with world.services.database.reading() as connection:
        swept.append(connection.exec_driver_sql("SELECT value FROM facts WHERE name = 'swept_at'").scalar())
    world.clock.forward(hours=1)
    daily()
    with world.services.database.reading() as connection:
        swept.append(connection.exec_driver_sql("SELECT value FROM facts WHERE name = 'swept_at'").scalar())
    assert swept[0] == swept[1]
    world.clock.forward(days=-700)
    daily()
    with world.services.database.reading() as connection:
        later = connection.exec_driver_sql("SELECT value FROM facts WHERE name = 'swept_at'").scalar()
    assert later < swept[0]
    assert timedelta(hours=23) == SWEPT_EVERY


def test_codes_are_forgotten_after_a_day(world):
    """Their mails stay in no list for ninety days, as others do."""
    customer = Customer(world)
    customer.ask_for_a_code()
    queue = world.services.repositories.queue
    (job,) = queue.claim("mail-codes", world.clock(), timedelta(minutes=1), 5)
    queue.finish(job, world.clock())
    world.clock.forward(hours=25)
    world.services.retention.sweep()
    with world.services.database.reading() as connection:
        left = select(func.count()).select_from(jobs).where(jobs.c.queue == "mail-codes")
        assert connection.scalar(left) == 0
    customer.store.close()


# --- the table of docs/security.md ------------------------------------------------------------


def table_names():
    """Return all that the first column of the table names."""
    text = SECURITY.read_text("utf-8")
    section = text.partition("## What others can make the server store\n")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    assert all(len(row) == 8 and all(cell.strip() for cell in row[1:-1]) for row in rows)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[1])]


def find_files():
    """Return what the program writes into the data folder, by its source."""
    found = re.compile(
        r"""data_dir / ["']([^"']+)["']|^(?:SECRETS_)?FILE: Final = "([^"]+)\"""", re.MULTILINE
    )
    texts = [path.read_text("utf-8") for path in SOURCES.rglob("*.py")]
    return {match[1] or match[2] for text in texts for match in found.finditer(text)}


STORED = {
    "tables": [table.name for table in metadata.sorted_tables],
    "events": [*EventType],
    "mail templates": [*TEMPLATES],
    "queues": [queue for queues in QUEUES.values() for queue in queues],
    "mail queues": MAIL_QUEUES,
    "files": find_files(),
}
"""What the model says that is stored."""


@pytest.mark.parametrize("kind", STORED)
def test_the_table_names_all_that_is_stored(kind):
    """Each table, event, mail, queue and folder, with who causes it, its bound, its end, and what follows."""
    assert set(STORED[kind]) <= set(table_names())


def test_the_table_names_nothing_else():
    """And nothing twice."""
    names, known = table_names(), {str(part) for kind in STORED.values() for part in kind}
    assert sorted(set(names)) == sorted(names)
    assert set(names) <= known


@both_engines
async def test_customers_who_write_leave_turns_to_new_activations(world, open_site, monkeypatch, engine_name):
    """SQLite has one writer: of all who take seats at the same moment one waits for it at a time."""
    keys, site, running, most = [world.key(floating_seats=9) for _ in "ab"], await open_site(world), [], []
    hold, meeting = SeatService.hold, threading.Barrier(2)

    def note(service, key, request):
        running.append(request)
        most.append(len(running))
        if engine_name == "postgresql":
            meeting.wait(10)
        try:
            return hold(service, key, request)
        finally:
            running.remove(request)

    monkeypatch.setattr(SeatService, "hold", note)
    fields = [{"license_key": key, "domain": "pc", "seat": f"{n:032x}"} for n, key in enumerate(keys * 2)]
    answers = await asyncio.gather(
        *(site.call("POST", "/api/v1/licenses/seat", json=field) for field in fields)
    )
    assert {status for status, _, _ in answers} == {200}
    assert max(most) == (1 if engine_name == "sqlite" else 2)
