"""Webhooks from a change to an endpoint's answer."""

import asyncio
import ipaddress
import json
from datetime import UTC, datetime, timedelta

import pytest
import standardwebhooks
from aiohttp import web
from sqlalchemy import update

from harness.engines import both_engines
from harness.receiver import receiver
from licserver.database.hot_path.store import BatchStore
from licserver.database.repositories.queue import JobState
from licserver.database.repositories.webhooks import DELIVERIES, EVENTS, SubscribedEvents
from licserver.database.tables.events import jobs
from licserver.domain.decisions import VerifyRefusal
from licserver.errors import BuryJobError, InvalidInputError, NotFoundError, RetryJobError
from licserver.jobs.webhooks import SHARE, register_webhooks
from licserver.jobs.worker import JobWorker
from licserver.protocol.webhooks import EventType, data_schema, describe_webhooks
from licserver.web.statistics import StatisticsCounter

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
HOOK = "https://hooks.example/in"


def validate(schema, data):
    """Hold data against a schema of JSON."""
    from openapi_schema_validator import OAS31Validator  # noqa: PLC0415 - a second, for each that collects tests

    OAS31Validator(schema).validate(data)


def written(world):
    """Events that wait for their endpoints, the first first; each is as it is documented."""
    jobs = world.repositories.queue.list_page(EVENTS, limit=200)[::-1]
    events = [(job.payload["type"], {**job.payload["data"]}) for job in jobs]
    for kind, data in events:
        validate(data_schema(EventType(kind)), data)
    return events


@pytest.mark.slow
@both_engines
def test_each_change_is_an_event_in_its_transaction(world, activate):
    """Licenses, slots, releases and subscriptions; nothing is written before there is an endpoint."""
    key = world.key(subscription_id="s")
    assert written(world) == []
    world.services.webhooks.add(HOOK)
    licenses, license_id = world.services.licenses, world.services.vault.license_id(key).hex()
    activate(key, "a.example", "192.0.2.1")
    licenses.revoke(key)
    licenses.revoke(key)
    licenses.reinstate(key)
    licenses.deactivate(key, "a.example")
    world.services.subscriptions.end("s")
    other = world.key()
    file = world.folder / "app.zip"
    file.write_bytes(b"zip")
    world.services.releases.publish("app", "2.0", file)
    of = {"license_id": license_id}
    ended = {"subscription_id": "s", "ended_at": world.clock().isoformat()}
    assert written(world) == [
        ("license.revoked", of),
        ("license.reinstated", of),
        ("activation.freed", {**of, "freed": 1}),
        ("subscription.ended", ended),
        ("license.expired", of),
        ("license.issued", {"license_id": world.services.vault.license_id(other).hex()}),
        ("release.published", {"product": "app", "version": "2.0"}),
    ]
    with pytest.raises(TypeError), world.services.transaction() as tx:
        assert tx.licenses.revoke(other) + None
    assert len(written(world)) == 7


@both_engines
async def test_slots_that_are_taken_and_refused_are_events(world):
    """From the transaction of the activation, and once a day from the batch that notes refusals."""
    key, wanted = world.key(), SubscribedEvents(world.repositories.webhooks)
    store = BatchStore(world.services.database, wanted)
    counter = StatisticsCounter(world.services.database, world.clock, wanted)
    store.activate([world.request_slot(key, "a.example")])
    world.services.webhooks.add(HOOK, ["activation.created", "activation.refused_full"])
    wanted.refresh()
    world.services.licenses.change(key, slots=2)
    store.activate([world.request_slot(key, domain) for domain in ("a.example", "b.example", "c.example")])
    refused = world.request_slot(key, "c.example").lookup
    for hours in (0, 1, 23):
        world.clock.forward(hours=hours)
        for _ in range(2):
            counter.count_verify(VerifyRefusal.ENVIRONMENT, refused, None, world.clock().date())
            await counter.flush()
    store.close()
    of = {"license_id": world.services.vault.license_id(key).hex(), "ip": "192.0.2.1"}
    created = ("activation.created", {**of, "domain": "b.example"})
    assert written(world) == [created, *[("activation.refused_full", {**of, "domain": "c.example"})] * 2]


@both_engines
def test_what_ends_by_itself_is_found_once(world):
    """A day that is over, and a subscription's end in the future; however often they are looked for."""
    service, began = world.services.webhooks, world.clock()
    world.key(expires_on=world.clock().date())  # its last day
    world.key(expires_on=world.clock().date() - timedelta(days=1))  # over before anybody wanted to know
    world.key(expires_on=world.clock().date(), slots=2)
    world.key(subscription_id="s")
    world.key(subscription_id="s")
    service.add(HOOK)
    world.services.subscriptions.end("s", at=world.clock() + timedelta(hours=3))
    for _ in range(2):
        service.scan()
    assert written(world) == []
    world.clock.forward(hours=4)
    service.scan()
    assert sorted(kind for kind, _ in written(world)) == ["license.expired"] * 2 + ["subscription.ended"]
    for _ in range(3):
        world.clock.forward(days=1)
        world.repositories.webhooks.write_scanned_at(began)  # as if the process had crashed
        service.scan()
    assert sorted(kind for kind, _ in written(world)) == ["license.expired"] * 4 + ["subscription.ended"]


@both_engines
@pytest.mark.parametrize("is_found", [False, True])
def test_what_a_change_ends_is_an_event_once(world, is_found):
    """A last day that is set to the past, a subscription whose end a shop reports late, a reinstatement."""
    today, services = world.clock().date(), world.services
    edited, linked, revoked = world.key(), world.key(subscription_id="s"), world.key(expires_on=today)
    both = world.key(expires_on=today - timedelta(days=3), subscription_id="s")  # ended before, by its day
    services.webhooks.add(HOOK)
    services.licenses.revoke(revoked)
    services.licenses.change(edited, expires_on=today - timedelta(days=2))
    services.subscriptions.follow("s", world.clock() - timedelta(hours=1))
    if is_found:  # by a scan as well
        world.repositories.webhooks.write_scanned_at(world.clock() - timedelta(days=9))
    else:  # what has ended is moved
        services.licenses.change(edited, expires_on=today - timedelta(days=1))
        services.subscriptions.follow("s", world.clock() - timedelta(hours=2))
    world.clock.forward(days=1)
    services.webhooks.scan()
    services.licenses.reinstate(revoked)
    ended = [data.get("license_id") for kind, data in written(world) if kind == "license.expired"]
    ids = [services.vault.license_id(key).hex() for key in (edited, linked, revoked)]
    late = [services.vault.license_id(both).hex()] if is_found else []
    assert sorted(ended) == sorted(ids + late)
    assert [kind for kind, _ in written(world)].count("subscription.ended") == 1


@both_engines
async def test_an_event_arrives_signed_and_without_a_key(make_world):
    """A receiver with the secret verifies it; what it answers is kept."""
    world, got = make_world(webhook_networks=LOOPBACK), []
    world.clock.now = datetime.now(UTC)  # receivers refuse what is five minutes old

    async def accept(request):
        got.append((await request.read(), {**request.headers}))
        return web.Response(text="thanks")

    async with receiver(accept) as url:
        endpoint, secret = world.services.webhooks.add(url, ["license.issued"])
        key = world.key()
        worker = JobWorker(world.repositories, world.clock)
        register_webhooks(worker, world.services)
        async for _ in worker.running(None):
            async with asyncio.timeout(10):
                while DELIVERIES not in {*states(world, JobState.DONE)}:  # noqa: ASYNC110 - in the database
                    await asyncio.sleep(0.02)
    ((body, headers),) = got
    standardwebhooks.Webhook(secret).verify(body, headers)
    found = world.services.licenses.get(key)
    data = {"license_id": found.id.hex(), "masked_key": found.masked_key, "product": "app"}
    assert json.loads(body)["data"] == data
    (content,) = describe_webhooks()["license.issued"]["post"]["requestBody"]["content"].values()
    validate(content["schema"], json.loads(body))
    assert key not in body.decode()
    (delivery,) = world.services.webhooks.list_deliveries(endpoint.id).items
    assert (delivery.status, delivery.response, delivery.attempts) == (200, "thanks", 1)


@pytest.mark.slow
@both_engines
async def test_silent_endpoints_delay_no_other_one(make_world):
    """Each endpoint has a share of the requests: three that never answer, and a hundred events for each."""
    world, got, held = make_world(webhook_networks=LOOPBACK), [], asyncio.Event()

    async def accept(request):
        got.append(request.headers["webhook-id"])
        return web.Response()

    async def be_silent(_request):
        held.count = getattr(held, "count", 0) + 1
        await held.wait()
        return web.Response()

    async with receiver(accept) as url, receiver(be_silent) as silent:
        for _ in range(3):
            world.services.webhooks.add(silent, ["license.revoked"])
        world.services.webhooks.add(url, ["license.revoked"])
        for key in [world.key() for _ in range(100)]:
            world.services.licenses.revoke(key)
        worker = JobWorker(world.repositories, world.clock)
        register_webhooks(worker, world.services)
        async for _ in worker.running(None):
            async with asyncio.timeout(14):  # a silent one is given 15 seconds
                while len(got) < 100:  # noqa: ASYNC110 - the receiver is not ours
                    await asyncio.sleep(0.02)
            held.set()
    assert len({*got}) == 100
    assert held.count == 3 * SHARE


def test_a_delivery_of_an_earlier_program_is_its_endpoints_too(world, sent):
    """A program before schema 0035 names no owner: its deliveries are claimed together until named."""
    endpoint, service, _ = sent
    queue = world.repositories.queue
    with world.services.database.writing() as connection:
        connection.execute(update(jobs).values(owner=None))
    assert queue.find_owners(DELIVERIES, world.clock()) == [""]
    world.repositories.webhooks.name_owners()
    assert queue.find_owners(DELIVERIES, world.clock()) == [endpoint]
    (job,) = queue.claim(DELIVERIES, world.clock(), timedelta(minutes=1), 10, owner=endpoint)
    service.record(job, 200, "")
    with world.services.database.writing() as connection:
        connection.execute(update(jobs).values(owner=None))
    service.redeliver(job.id)
    assert queue.find_owners(DELIVERIES, world.clock()) == [endpoint]


def states(world, state):
    """Queues that have a job of a state."""
    return [name for name in (EVENTS, DELIVERIES) if world.repositories.queue.list_page(name, state)]


@pytest.fixture
def sent(world):
    """An endpoint with a delivery that is claimed: the endpoint, its secret, the service and `claim`."""
    endpoint, _ = world.services.webhooks.add(HOOK)
    world.services.webhooks.send_test(endpoint.id)

    def claim():
        (job,) = world.repositories.queue.claim(DELIVERIES, world.clock(), timedelta(minutes=1), 10)
        return job

    return endpoint.id, world.services.webhooks, claim


def test_a_failure_is_repeated_with_the_same_id_and_another_time(world, sent):
    """And with both secrets for a day after a rotation; a success forgets the failures."""
    endpoint, service, claim = sent
    job = claim()
    first = service.prepare(job).headers
    with pytest.raises(RetryJobError) as failed:
        service.record(job, 503, "busy")
    assert 5 <= (failed.value.at - world.clock()).total_seconds() <= 5.5
    assert service.get(endpoint).failing_since == world.clock()
    service.rotate(endpoint)
    world.clock.forward(minutes=1)
    second = service.prepare(job).headers
    assert first["webhook-id"] == second["webhook-id"]
    assert first["webhook-timestamp"] != second["webhook-timestamp"]
    assert [len(event["webhook-signature"].split()) for event in (first, second)] == [1, 2]
    service.record(job, 204, "")
    assert service.get(endpoint).failing_since is None
    world.clock.forward(days=1)
    assert len(service.prepare(job).headers["webhook-signature"].split()) == 1


def test_410_or_five_days_of_failures_disable_an_endpoint(world, sent):
    """Its reason is shown; what still waits for it is given up until it is enabled and sent again."""
    endpoint, service, claim = sent
    job = claim()
    assert world.services.mail.list_jobs().items == []
    with pytest.raises(BuryJobError, match="410"):
        service.record(job, 410, "gone")
    assert service.get(endpoint).disabled_reason == "it answered 410 Gone"
    with pytest.raises(BuryJobError, match="disabled"):
        service.prepare(job)
    service.enable(endpoint)
    for days in (0, 4, 1):
        world.clock.forward(days=days)
        with pytest.raises(RetryJobError):
            service.record(job, None, "cannot connect")
    assert "five days" in service.get(endpoint).disabled_reason
    service.enable(endpoint)
    world.repositories.queue.bury(job, world.clock(), "given up")
    service.redeliver(job.id)
    assert claim().attempts == 1
    service.remove(endpoint)
    assert service.prepare(job) is None
    with pytest.raises(NotFoundError):
        service.redeliver(job.id)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "ftp://example.com/",
        "https://",
        "https://user:password@example.com/",
        "https://example.com/a b",
        "https://example.com/\r\nX: y",
        "https://example.com:99999/",
        "https://[2606:4700::1]x/",
        "https://exämple.com/",
        "https://hooks..example/in",  # openbikesensor/portal#301, curabase/favicon-getter#10
        "https://.hooks.example/in",
        "https://hooks.example../in",
        "https://./in",
        f"https://{'a' * 64}.example/in",  # wummel/linkchecker#321
        f"https://{'a.' * 127}example/in",
        "https://example.com/" + "a" * 2_000,
        "nonsense",
    ],
)
def test_a_bad_address_is_refused(world, url):
    """Before anything is stored, with what would be right."""
    with pytest.raises(InvalidInputError, match="address"):
        world.services.webhooks.add(url)
    assert world.services.webhooks.list_endpoints() == []


def test_an_unknown_event_is_refused(world):
    """With the names of all."""
    with pytest.raises(InvalidInputError, match=r"license\.issued"):
        world.services.webhooks.add(HOOK, ["license.sold"])


def test_a_host_with_an_escape_is_no_name(world):
    """Nothing would ever be sent to it (found by an attack)."""
    for host in ("ex%61mple.com", "[fe80::1%25eth0]"):
        with pytest.raises(InvalidInputError, match="must look like"):
            world.services.webhooks.add(f"https://{host}/in")


def test_an_endpoint_that_is_never_sent_to_is_refused_at_once(world, make_world):
    """Not after five days of failed deliveries. A name may lead anywhere, and is checked later."""
    for host in (
        "127.0.0.1",
        "0x7f.1",
        "localhost",
        "ip6-localhost",
        "[::1]",
        "10.0.0.1:8443",
        "169.254.169.254",
    ):
        with pytest.raises(InvalidInputError, match=r"not a public address.*LICSERVER_WEBHOOK_NETWORKS"):
            world.services.webhooks.add(f"https://{host}/in")
    world = make_world(webhook_networks=LOOPBACK)
    world.services.webhooks.add("http://127.0.0.1:8080/in")
    world.services.webhooks.add("http://hooks.internal/in")
    with pytest.raises(InvalidInputError, match="must begin with https"):
        world.services.webhooks.add("http://8.8.8.8/in")
    world.services.webhooks.add("https://8.8.8.8/in")
