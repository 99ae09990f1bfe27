"""Who guesses is slowed down and who bought is not (D-70); who floods is turned away at the door (D-71)."""

import asyncio
import contextlib
import io
import sys
import time

import pytest

from harness.engines import sqlite_only
from licserver.domain.records import LicenseTerms
from licserver.errors import SettingsError
from licserver.protocol.license_files import read_rows
from licserver.protocol.public_api import DEACTIVATE_PATH
from licserver.protocol.rollbacks import ROLLED_BACK_PATH
from licserver.protocol.seats import SEAT_PATH
from licserver.protocol.uses import CONSUME_PATH
from licserver.web import rate_limits
from licserver.web.app import create_app
from licserver.web.rate_limits import WINDOW, MissLimiter, SlidingWindowCounter, TokenBucket

PROXY = "127.0.0.1"


class Seconds:
    """A clock for a counter."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Read it."""
        return self.now


def taken(counter, address="a", tries=100):
    """How many of some calls are let in."""
    return sum(counter.take(address) for _ in range(tries))


STORIES = {  # seconds passed, then how many more of 100 calls are let in, at ten a minute
    "all at once": [(0, 10), (0, 0)],
    "a moment later": [(0, 10), (1, 0)],
    "at the turn nothing is forgotten": [(59, 10), (1, 0)],
    "half a minute after the turn half of it is": [(0, 10), (WINDOW + 30, 5)],
    "a minute without any": [(30, 10), (WINDOW, 5), (WINDOW, 8)],
    "two minutes forget everything": [(0, 10), (2 * WINDOW, 10)],
    "an hour as well": [(0, 10), (3600, 10), (0, 0)],
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_a_minute_slides(story):
    """The calls of the last sixty seconds count, those of the window before by the share still in it."""
    counter = SlidingWindowCounter(10, clock := Seconds())
    for passed, let_in in story:
        clock.now += passed
        assert taken(counter) == let_in


def test_who_waits_a_minute_is_always_let_in_again():
    """What `Retry-After` promises, 61 seconds, holds at every instant of a window."""
    for second in range(120):
        counter = SlidingWindowCounter(3, clock := Seconds())
        clock.now += second / 2
        taken(counter)
        clock.now += 61
        assert counter.take("a")


def test_addresses_are_counted_apart_and_are_bounded(monkeypatch):
    """However many addresses call, no more than two windows full of them are held."""
    monkeypatch.setattr(rate_limits, "_MAX_COUNTED", 50)
    counter = SlidingWindowCounter(2, Seconds())
    assert [taken(counter, f"a{number}") for number in range(1000)] == [2] * 1000
    assert len(counter._counts) + len(counter._before) <= 100


def test_a_bucket_refuses_only_the_excess():
    """A burst of a minute's requests, then one for each interval, and what is refused costs nothing later."""
    bucket = TokenBucket(60, clock := Seconds())
    assert [bucket.take("a") for _ in range(60)] == [0.0] * 60
    assert [bucket.take("a") for _ in range(1000)] == [1.0] * 1000
    assert bucket.take("b") == 0.0
    for _ in range(150):
        clock.now += 1  # what Retry-After promised
        assert (bucket.take("a"), bucket.take("a")) == (0.0, 1.0)
    clock.now += WINDOW
    assert sum(bucket.take("a") == 0.0 for _ in range(100)) == 60


def test_buckets_are_bounded(monkeypatch):
    """However many addresses call, no more than two turns full of their buckets are held."""
    monkeypatch.setattr(rate_limits, "_MAX_COUNTED", 50)
    bucket = TokenBucket(1, Seconds())
    assert [bucket.take(f"a{number}") for number in range(1000)] == [0.0] * 1000
    assert len(bucket._full_at) + len(bucket._before) <= 100


def verify(key, **more: str):
    """A verify request."""
    body = {"license_key": key, "domain": "a.example", "ip": "::1", **more}
    return "POST", "/api/v1/licenses/verify", {"json": body}


def check(key, slug="app", **more: str):
    """An update check."""
    query = {"license_key": key, "slug": slug, "current_version": "1.0", "domain": "a.example", **more}
    return "GET", "/api/v1/update-check", {"params": query}


UNKNOWN = "CP-000000-000000-000000-000000-000000"
MISSES = {
    "an unknown key": (verify(UNKNOWN), 404),
    "no key": (verify("rubbish"), 403),
    "a malformed call": (verify("rubbish", ip="rubbish"), 422),
    "no body": (("POST", "/api/v1/licenses/verify", {}), 422),
    "an unknown key at update check": (check(UNKNOWN), 401),
    "no key at update check": (check("rubbish"), 401),
    "a malformed check": (("GET", "/api/v1/update-check", {}), 422),
    "a forged link": (("GET", "/api/v1/update-download?license=1&signature=x", {}), 403),
    "no product of this name": (lambda key: check(key, "nothing"), 404),
    "another product": (lambda key: check(key, "other"), 403),
}


@pytest.mark.sampled(7, "status")
@sqlite_only
@pytest.mark.parametrize(("request_", "status"), MISSES.values(), ids=MISSES.keys())
async def test_misses_are_answered_so_often_and_then_are_429(make_world, open_site, request_, status):
    """Whatever somebody guesses at: after the limit the verdict is kept back, and a minute is asked for."""
    world = make_world(miss_limit=6)  # three for one installation
    world.product("other")
    site, key = await open_site(world), world.key()
    method, path, more = request_(key) if callable(request_) else request_
    for _ in range(3):
        assert (await site.call(method, path, **more))[0] == status
    found, headers, body = await site.call(method, path, **more)
    assert (found, body["error"], headers["Retry-After"]) == (429, "too_many_requests", "61")
    assert headers["Cache-Control"] == "no-store"
    assert (await site.call(*verify(UNKNOWN)[:2], "127.0.0.2", **verify(UNKNOWN)[2]))[0] == 404


async def test_thirty_misses_a_minute_and_then_still_every_sold_key(site, world):
    """By default an installation's 31st miss is 429; who holds a key gets its verdict behind the address."""
    world.publish("1.0")
    valid, full, revoked = world.key(), world.key(slots=0), world.key()
    expired = world.key(expires_on=world.clock().date().replace(year=2020))
    world.services.licenses.revoke(revoked)
    statuses = [(await site.verify(UNKNOWN))[0] for _ in range(35)]
    assert statuses == [404] * 30 + [429] * 5
    for key, status, reason in (
        (valid, 200, None),
        (full, 403, "Max activations exceeded or unrecognized environment."),
        (revoked, 403, "License has been revoked."),
        (expired, 403, "License expired."),
    ):
        found, answer = await site.verify(key)
        assert (found, answer.get("reason")) == (status, reason)
    assert (await site.check(expired))[1]["error"] == "license_expired"
    assert (await site.call("GET", await site.link(valid)))[0] == 200
    assert world.held(valid) == [("a.example", "127.0.0.1")]


async def test_a_guesser_is_not_told_of_a_short_key_of_another_system(make_world, open_site):
    """Once an address has used up its misses, such a key is a 429 there, except where it was valid before."""
    site = await open_site(make_world(account=True))
    services, key = site.world.services, "48213377"
    services.products.change("app", accepts_imported_keys=True)
    text = f"license_key,product,slots,lifetime\n{key},app,5,true\n"
    with services.transfer.start_import() as incoming:
        incoming.read(read_rows("csv", io.StringIO(text, newline="")))
        assert (incoming.problems, incoming.commit()) == ([], 1)
    fields = {"license_key": key, "domain": "new.example"}
    assert (await site.verify(key, "known.example"))[0] == 200
    for number in range(60):
        await site.verify(f"{number:08}", f"{number}.example")
    assert (await site.verify(key, "new.example"))[0] == 429
    assert (await site.verify(key, "known.example"))[0] == 200
    assert (await site.verify(site.world.key(), "other.example"))[0] == 200
    assert (await site.verify(key, "other.example"))[0] == 429  # known, but not by this key
    query = fields | {"slug": "app", "current_version": "1.0"}
    assert (await site.call("GET", "/api/v1/update-check", params=query))[0] == 429
    assert (await site.call("GET", "/feeds/app/appcast.xml", params=query))[0] == 429
    more = {"seat": "0" * 32, "name": "x", "use_id": "0" * 8, "amount": 1, "slug": "app", "version": "1.0"}
    for path in (DEACTIVATE_PATH, SEAT_PATH, CONSUME_PATH, ROLLED_BACK_PATH):
        status, headers, _ = await site.call("POST", path, json=fields | more)
        assert (path, status, headers["Retry-After"]) == (path, 429, "61")
    form = {"key": key, "csrf": ""}
    headers = {"Sec-Fetch-Site": "same-origin"}
    assert (await site.call("POST", "/account/sign-in", data=form, headers=headers))[0] == 429


def test_keys_of_other_systems_are_looked_up_again_after_a_minute():
    """And what is remembered of refusals is bounded."""
    now = [0.0]
    misses = MissLimiter(6, None, lambda: now[0])
    assert not misses.is_used_up("192.0.2.1", "a", "48213377")
    misses._note_refused("192.0.2.1")
    now[0] = 59.0
    assert misses.is_used_up("192.0.2.1", "a", "48213377")
    misses.known.add("192.0.2.1", "b")
    assert misses.is_used_up("192.0.2.1", "b", "48213377")
    misses.known.add("192.0.2.1", "b", "48213377")
    assert not misses.is_used_up("192.0.2.1", "b", "48213377")
    now[0] = 60.0
    assert not misses.is_used_up("192.0.2.1", "a", "48213377")
    for number in range(100_000):
        misses._note_refused(number)
    assert len(misses._refused) + len(misses._refused_before) <= 65_536


@sqlite_only
async def test_an_honest_typo_beside_a_machine_that_guesses_is_answered(make_world, open_site):
    """One machine uses up half of an office's misses, ever new names five sixths, and all together 60."""
    site = await open_site(make_world())
    key = site.world.key()
    assert (await site.verify(key, "desk.office"))[0] == 200

    async def count_misses(domain, tries=1):
        statuses = [(await site.verify(UNKNOWN, domain.format(number)))[0] for number in range(tries)]
        assert set(statuses) <= {404, 429}
        return statuses.count(404)

    assert await count_misses("virus.office", 40) == 30
    assert await count_misses("fresh.office") == 1  # a new machine, and its first key is mistyped
    assert await count_misses("guess{}.office", 40) == 19
    assert await count_misses("another.office") == 0
    assert await count_misses("desk.office", 40) == 10  # it has shown a valid key, and is kept a reserve
    assert await count_misses("desk.office", 40) == 0
    assert (await site.verify(key, "desk.office"))[0] == 200


OFFICE = 500  # more than the default limits allow a single guesser


@pytest.mark.slow
@sqlite_only
async def test_an_office_of_500_starts_at_nine_and_sees_no_429(make_world, open_site):
    """All behind one address, in the same minute: activation, update check and download, and a few typos."""
    world = make_world(trusted_proxies=PROXY, base_url="http://licenses.example")
    world.publish("1.0")
    site = await open_site(world)
    keys = [
        key for batch in world.services.licenses.issue_batches("app", LicenseTerms(), OFFICE) for key in batch
    ]
    behind = {"headers": {"X-Forwarded-For": "203.0.113.7"}}
    gate = asyncio.Semaphore(50)

    async def start(number, key):
        async with gate:
            typo = key[:-1] + ("A" if key[-1] != "A" else "B")
            domain = f"pc{number}.office.example"
            statuses = [(await site.verify(typo, domain, **behind))[0]] if number % 10 == 0 else []
            statuses.append((await site.verify(key, domain, **behind))[0])
            status, answer = await site.check(key, **behind)
            link = answer["download_url"].removeprefix("http://licenses.example")
            return [*statuses, status, (await site.call("GET", link, **behind))[0]]

    answers = await asyncio.gather(*(start(number, key) for number, key in enumerate(keys)))
    assert sorted({status for statuses in answers for status in statuses}) == [200, 404]
    assert all(statuses[-3:] == [200, 200, 200] for statuses in answers)


@sqlite_only
async def test_a_flood_is_turned_away_before_anything_is_done_for_it(make_world, open_site):
    """Over the limit even a good key is 429, an address of its own is not, and no database is asked."""
    world = make_world(trusted_proxies=PROXY, flood_limit=10)
    site, key = await open_site(world), world.key()

    async def call(address):
        return (await site.verify(key, headers={"X-Forwarded-For": address}))[0]

    assert [await call("203.0.113.7") for _ in range(11)] == [200] * 10 + [429]
    assert await call("203.0.113.8") == 403  # served: its one slot is the other's
    world.services.database.close()
    for path in ("/api/v1/update-check", "/api/v1/update-download", "/readyz"):
        headers = {"X-Forwarded-For": "203.0.113.7"}
        assert (await site.call("GET", path, headers=headers))[0] == 429
    assert (await site.call("GET", "/healthz"))[0] == 200  # from this machine: not counted


@pytest.mark.sampled(1)
@sqlite_only
@pytest.mark.parametrize("where", ["/api/v1/update-check", "/admin/api/v1/products", "/console/sign-in"])
async def test_after_a_burst_an_address_is_served_after_the_announced_time(make_world, open_site, where):
    """Only the excess is refused: after the seconds of `Retry-After`, with no minute to wait for."""
    site = await open_site(make_world(trusted_proxies=PROXY, flood_limit=60, miss_limit=0))
    behind = {"headers": {"X-Forwarded-For": "203.0.113.7"}}
    answers = [await site.call("GET", where, **behind) for _ in range(90)]
    refused = [headers["Retry-After"] for status, headers, _ in answers if status == 429]
    assert refused
    assert set(refused) == {"1"}
    await asyncio.sleep(1)  # as `Retry-After` announced
    assert (await site.call("GET", where, **behind))[0] != 429


@sqlite_only
@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:203.0.113.7", "203.0.113.7", True),
        ("203.0.113.7", "203.0.113.8", False),
    ],
)
async def test_an_ipv6_network_is_one_caller(make_world, open_site, first, second, together):
    """Who has one address of a /64 has them all, so they count together; IPv4 counts by address."""
    site = await open_site(make_world(trusted_proxies=PROXY, miss_limit=2))
    for address, status in ((first, 404), (second, 429 if together else 404)):
        assert (await site.verify(UNKNOWN, headers={"X-Forwarded-For": address}))[0] == status


@sqlite_only
async def test_nobody_talks_himself_out_of_the_count(make_world, open_site):
    """Without a trusted proxy a made-up `X-Forwarded-For` changes nothing (D-05)."""
    site = await open_site(make_world(miss_limit=4))
    statuses = [
        (await site.verify(UNKNOWN, headers={"X-Forwarded-For": f"203.0.113.{number}"}))[0]
        for number in range(3)
    ]
    assert statuses == [404, 404, 429]


@sqlite_only
async def test_limits_can_be_turned_off(make_world, open_site):
    """Zero counts nothing."""
    site = await open_site(make_world(miss_limit=0, flood_limit=0, trusted_proxies=PROXY))
    headers = {"X-Forwarded-For": "203.0.113.7"}
    assert {(await site.verify(UNKNOWN, headers=headers))[0] for _ in range(70)} == {404}


# --- several servers, one Redis ---------------------------------------------------------------


def wait_longer(monkeypatch, times):
    """Have servers wait for their Redis so many times as long, where a machine may stand still meanwhile."""
    monkeypatch.setattr(rate_limits, "_REDIS_TIMEOUT", times * rate_limits._REDIS_TIMEOUT)


@pytest.mark.slow
@sqlite_only
async def test_servers_with_one_redis_count_misses_together(make_world, open_site, redis, monkeypatch):
    """What one server has counted the other knows; and no address is counted for ever."""
    wait_longer(monkeypatch, 80)
    sites = [await open_site(make_world(miss_limit=6, redis_url=redis.url)) for _ in range(2)]
    statuses = [(await sites[number % 2].verify(UNKNOWN, f"{number}.example"))[0] for number in range(7)]
    assert statuses == [404] * 5 + [429] * 2  # the sixth is kept for who has shown a valid key
    key = sites[0].world.key()
    assert [(await sites[0].verify(tried))[0] for tried in (key, UNKNOWN, UNKNOWN)] == [200, 404, 429]
    assert redis.names()
    assert all(0 < redis.lifetime(name) <= 2 * WINDOW for name in redis.names())


@pytest.mark.slow
@sqlite_only
async def test_who_floods_one_server_is_refused_by_the_others(make_world, open_site, redis, monkeypatch):
    """What an address takes here is taken there within a second (D-257); another address is not affected."""
    monkeypatch.setattr(rate_limits, "_SHARE_SECONDS", 0.05)
    wait_longer(monkeypatch, 20)
    settings = {"trusted_proxies": PROXY, "flood_limit": 60, "miss_limit": 0, "redis_url": redis.url}
    flooded, other = [await open_site(make_world(**settings)) for _ in range(2)]

    async def call(site, address):
        return (await site.call("GET", "/healthz", headers={"X-Forwarded-For": address}))[0]

    assert [await call(flooded, "203.0.113.7") for _ in range(60)] == [200] * 60
    until = time.monotonic() + 20
    statuses = [await call(other, "203.0.113.7")]
    while statuses[-1] == 200 and time.monotonic() < until:
        await asyncio.sleep(0.1)  # several times as long as until they have shared it
        statuses.append(await call(other, "203.0.113.7"))
    assert statuses[-1] == 429
    assert len(statuses) < 30  # by itself it would have served 60
    assert await call(other, "203.0.113.8") == 200
    assert redis.lifetime("licserver/flood/203.0.113.7") <= WINDOW + 5


class LosesCancellations:
    """A Redis whose client may go on when cancelled, as `asyncio.wait_for` does until 3.12."""

    def __init__(self) -> None:
        self.was_called = asyncio.Event()

    async def take_together(self, _seconds):
        """Wait to be cancelled, and return as if that had not been."""
        self.was_called.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return {}


async def test_a_server_stops_even_if_its_redis_client_loses_the_cancellation(monkeypatch):
    """It once shared for ever then, and a server that was to stop did not."""
    monkeypatch.setattr(rate_limits, "_SHARE_SECONDS", 0.01)
    buckets, redis = TokenBucket(60), LosesCancellations()
    shared = rate_limits.SharedBuckets(buckets, 60, redis)
    shared.start()
    taken(buckets)
    await redis.was_called.wait()
    _, unfinished = await asyncio.wait([asyncio.create_task(shared.stop())], timeout=10)
    assert not unfinished


class Mistaken:
    """A Redis whose client fails in a way that nobody has thought of."""

    def __init__(self) -> None:
        self.calls = 0
        self.was_called_again = asyncio.Event()

    async def take_together(self, _seconds):
        """Fail."""
        self.calls += 1
        if self.calls > 1:
            self.was_called_again.set()
        raise ValueError


async def test_a_mistake_does_not_end_the_sharing_of_counts(monkeypatch, caplog):
    """It is logged, and the next second is shared; it once ended the sharing without a word."""
    monkeypatch.setattr(rate_limits, "_SHARE_SECONDS", 0.01)
    buckets, redis = TokenBucket(60), Mistaken()
    shared = rate_limits.SharedBuckets(buckets, 60, redis)
    shared.start()
    async with asyncio.timeout(20):
        while not redis.was_called_again.is_set():
            taken(buckets)
            await asyncio.sleep(0.01)
    await shared.stop()
    assert "counted by this process alone" in caplog.text


@pytest.mark.sampled(1)
@sqlite_only
@pytest.mark.parametrize("trouble", ["stopped", "frozen"])
async def test_without_its_redis_a_server_counts_by_itself(
    make_world, open_site, redis, caplog, monkeypatch, trouble
):
    """Misses are answered at once and still counted, the log says so once, and sold keys never asked."""
    wait_longer(monkeypatch, 8)
    world = make_world(miss_limit=8, redis_url=redis.url)
    site, key = await open_site(world), world.key()
    assert (await site.verify(UNKNOWN))[0] == 404
    with getattr(redis, trouble)():
        assert (await site.verify(key))[0] == 200
        assert caplog.text == ""
        began = time.monotonic()
        statuses = [(await site.verify(UNKNOWN))[0] for _ in range(6)]
        assert time.monotonic() - began < 5  # not as long as the Redis is silent
    assert statuses == [404] * 3 + [429] * 3
    (line,) = caplog.messages
    assert "by itself" in line
    assert redis.url not in line


@sqlite_only
@pytest.mark.parametrize("url", ["http://:secret@host", "redis://127.0.0.1:1/0?secret=bar"])
def test_an_invalid_redis_address_is_reported_with_its_variable(make_world, url):
    """At the start, and without a word of the address: it may hold a password."""
    with pytest.raises(SettingsError, match="LICSERVER_REDIS_URL must look like") as refusal:
        create_app(make_world(redis_url=url).services)
    assert "secret" not in str(refusal.value)


@sqlite_only
def test_a_missing_extra_is_reported(make_world, monkeypatch):
    """Installed without its extra, licserver says what to install."""
    monkeypatch.setitem(sys.modules, "limits", None)
    with pytest.raises(SettingsError, match=r"pip install 'licserver\[redis\]'"):
        create_app(make_world(redis_url="redis://localhost").services)


@sqlite_only
async def test_whatever_the_redis_does_a_miss_is_answered(make_world, open_site, monkeypatch, caplog):
    """Also what its library does not foresee: this process counts by itself."""
    site = await open_site(make_world(miss_limit=2, redis_url="redis://127.0.0.1:1/0"))

    def fail(*_: object):
        raise TypeError("a surprise")

    monkeypatch.setattr("limits.aio.strategies.SlidingWindowCounterRateLimiter.hit", fail)
    assert [(await site.verify(UNKNOWN))[0] for _ in range(2)] == [404, 429]
    assert "TypeError" in caplog.text


@sqlite_only
@pytest.mark.parametrize(("proxies", "warnings"), [("", 1), (PROXY, 0)])
async def test_a_proxy_that_is_not_configured_is_logged_once(
    make_world, open_site, caplog, proxies, warnings
):
    """All its customers share one address: logged when the first slot is taken through it."""
    world = make_world(trusted_proxies=proxies)
    site, key = await open_site(world), world.key(slots=None)
    for number in range(3):
        headers = {"X-Forwarded-For": f"203.0.113.{number}"}
        assert (await site.verify(key, f"{number}.example", headers=headers))[0] == 200
    warned = [line for line in caplog.messages if "LICSERVER_TRUSTED_PROXIES names no proxy" in line]
    assert len(warned) == warnings
    assert "203.0.113" not in caplog.text
