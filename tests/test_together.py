"""The real client against the real server, over a socket, with a clock that moves when told."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.flavours import Client, opened
from harness.sockets import Cable
from harness.world import MovableClock, Server, World
from licclient import (
    LicclientError,
    License,
    LicenseClient,
    LicenseRefused,
    Reason,
    ServiceUnavailable,
    Source,
)

SLUG, NAME = "photo-lab", "Photo Lab"
MIB = 1 << 20

Open = Callable[..., Client]


@pytest.fixture(params=["sync", "async"])
def flavour(request: pytest.FixtureRequest) -> str:
    """Which of the two clients tells the story."""
    return str(request.param)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A vendor with one product, judged by the domain, and two versions."""
    world = make_world()
    world.stock({"products": [_product()], "licenses": []})
    return world


def _product(**changes: Any) -> dict[str, Any]:
    releases = [
        {"version": "1.0.0", "published_at": "2026-11-01T08:30:00Z", "changelog": "The first."},
        {"version": "1.1.0", "published_at": "2026-11-05T08:30:00Z", "changelog": "Export.", "size": 4 * MIB},
    ]
    product = {
        "slug": SLUG,
        "name": NAME,
        "environment": "domain",
        "support_policy": True,
        "releases": releases,
    }
    return {**product, **changes}


@pytest.fixture
def server(world: World) -> Iterator[Server]:
    """The vendor's server, running."""
    with world.serving() as server:
        yield server


@pytest.fixture
def open_client(flavour: str, server: Server, tmp_path: Path, clock: MovableClock) -> Iterator[Open]:
    """Opens clients of the flavour; one state folder each unless told otherwise."""
    with ExitStack() as stack:
        count = 0

        def open_one(**settings: Any) -> Client:
            nonlocal count
            count += 1
            state = {"state_dir": tmp_path / f"state-{count}", "clock": clock}
            app = {"slug": SLUG, "version": "1.0.0"}
            url = settings.pop("url", server.url)
            return stack.enter_context(opened(flavour, url, **{**state, **app, **settings}))

        yield open_one


# --- verify, cache and grace ------------------------------------------------------------------


def test_a_day_without_calls(world: World, server: Server, open_client: Open, clock: MovableClock) -> None:
    """A success is answered from the cache for 24 hours, and asked for again after that."""
    key = world.new_key(SLUG, expires_on="2027-01-31")
    client = open_client(product=NAME)
    first = client.verify(key)
    assert (first.product, f"{first.expiry}", first.lifetime, first.source) == (
        NAME,
        "2027-01-31",
        False,
        Source.SERVER,
    )
    clock.forward(hours=23, minutes=59)
    assert client.verify(key).source is Source.CACHE
    assert server.verifies == 1
    clock.forward(minutes=2)
    assert client.verify(key).source is Source.SERVER
    assert server.verifies == 2


def test_what_one_process_learned_another_remembers(
    world: World, server: Server, open_client: Open, tmp_path: Path
) -> None:
    """A second client on the same state folder answers without a call, with the server stopped."""
    key = world.new_key(SLUG)
    open_client(state_dir=tmp_path / "shared").verify(key)
    server.stop()
    assert open_client(state_dir=tmp_path / "shared").verify(key).source is Source.CACHE


def test_the_customer_asks_for_a_re_check(world: World, server: Server, open_client: Open) -> None:
    """With recheck the server is asked although the cache is fresh."""
    key = world.new_key(SLUG)
    client = open_client()
    client.verify(key)
    assert client.verify(key, recheck=True).source is Source.SERVER
    assert server.verifies == 2


def test_what_a_person_types(world: World, open_client: Open) -> None:
    """White space and lower case in a typed key are made right before it is sent (D-02)."""
    key = world.new_key(SLUG)
    assert open_client().verify(f"  {key.lower()}\n").source is Source.SERVER


def test_an_outage_of_three_days(
    world: World, server: Server, open_client: Open, clock: MovableClock
) -> None:
    """When the server is away the last success holds for its 24 hours and 72 hours of grace, and says so."""
    key = world.new_key(SLUG)
    client = open_client()
    client.verify(key)
    server.stop()
    clock.forward(hours=23)
    assert client.verify(key).source is Source.CACHE
    clock.forward(hours=2)
    assert client.verify(key).source is Source.GRACE
    clock.forward(hours=70)
    assert client.verify(key).source is Source.GRACE
    clock.forward(hours=2)
    with pytest.raises(ServiceUnavailable):
        client.verify(key)
    server.start()
    assert client.verify(key).source is Source.SERVER


def test_no_grace_past_the_expiry(
    world: World, server: Server, open_client: Open, clock: MovableClock
) -> None:
    """Neither cache nor grace reaches past the day named by expiry (D-41)."""
    key = world.new_key(SLUG, expires_on="2026-11-20")
    client = open_client()
    client.verify(key)
    server.stop()
    clock.forward(hours=11, minutes=59)
    assert client.verify(key).source is Source.CACHE
    clock.forward(minutes=2)
    with pytest.raises(ServiceUnavailable):
        client.verify(key)


def test_a_clock_set_back_gains_nothing(
    world: World, server: Server, open_client: Open, clock: MovableClock
) -> None:
    """Offline, a clock set back does not make the last success last longer (D-43)."""
    key = world.new_key(SLUG)
    client = open_client()
    client.verify(key)
    clock.forward(hours=20)
    assert client.verify(key).source is Source.CACHE
    server.stop()
    clock.forward(hours=-15)
    with pytest.raises(ServiceUnavailable):
        client.verify(key)


def test_a_clock_that_jumped_ahead_once(
    world: World, server: Server, open_client: Open, clock: MovableClock
) -> None:
    """A clock that was years ahead for a moment locks nobody out who can reach the server (D-43)."""
    key = world.new_key(SLUG)
    client = open_client()
    clock.forward(days=1000)
    client.verify(key)
    clock.forward(days=-1000)
    assert client.verify(key).source is Source.SERVER
    assert client.verify(key).source is Source.CACHE
    server.stop()
    assert client.verify(key).source is Source.CACHE


# --- what the vendor does in between ----------------------------------------------------------


def test_revoked_between_two_calls(
    world: World, server: Server, open_client: Open, clock: MovableClock
) -> None:
    """A revocation is seen at the next call, and wipes the remembered success (D-41)."""
    key = world.new_key(SLUG)
    client = open_client()
    client.verify(key)
    world.vendor.revoke(key)
    assert client.verify(key).source is Source.CACHE  # not asked yet
    with pytest.raises(LicenseRefused) as refused:
        client.verify(key, recheck=True)
    assert (refused.value.reason, refused.value.message) == (Reason.REVOKED, "License has been revoked.")
    server.stop()
    with pytest.raises(ServiceUnavailable):  # and not "valid by grace"
        client.verify(key)
    world.vendor.reinstate(key)
    server.start()
    assert client.verify(key).source is Source.SERVER


def test_a_slot_for_each_machine(world: World, open_client: Open) -> None:
    """Two machines take two slots, the third is refused until the vendor frees one."""
    key = world.new_key(SLUG, slots=2)
    machines = [open_client() for _ in range(3)]  # each with an installation id of its own (D-45)
    for machine in machines[:2]:
        machine.verify(key)
    with pytest.raises(LicenseRefused) as refused:
        machines[2].verify(key)
    assert refused.value.reason is Reason.ENVIRONMENT
    (domain, _), _ = world.activations(key)
    assert world.vendor.deactivate(key, domain) == 1
    assert machines[2].verify(key).source is Source.SERVER


def test_an_installation_keeps_its_slot(
    world: World, open_client: Open, clock: MovableClock, tmp_path: Path
) -> None:
    """The installation id lasts: re-verifying for weeks takes no second slot."""
    key = world.new_key(SLUG, slots=1)
    for _ in range(5):
        assert open_client(state_dir=tmp_path / "one").verify(key).source is Source.SERVER
        clock.forward(days=7)
    assert len(world.activations(key)) == 1


def test_the_key_of_another_product(world: World, server: Server, open_client: Open) -> None:
    """A good key for another product is a refusal of its own kind, and is not remembered (D-44)."""
    key = world.new_key(SLUG)
    client = open_client(product="Photo Studio")
    for _ in range(2):
        with pytest.raises(LicenseRefused) as refused:
            client.verify(key)
        assert refused.value.reason is Reason.OTHER_PRODUCT
    assert server.verifies == 2


# --- races (D-08) -----------------------------------------------------------------------------


def _all_at_once(calls: list[Callable[[], License]]) -> list[License | LicclientError]:
    """Make all calls in the same moment, each on a thread of its own."""
    gate = threading.Barrier(len(calls))
    results: list[License | LicclientError] = []

    def call(one: Callable[[], License]) -> None:
        gate.wait()
        try:
            results.append(one())
        except LicclientError as problem:
            results.append(problem)

    threads = [threading.Thread(target=call, args=(one,)) for one in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("repetition", range(5))
def test_many_machines_race_for_the_last_slots(
    world: World, server: Server, tmp_path: Path, clock: MovableClock, repetition: int
) -> None:
    """Sixteen new machines at once on five slots: exactly five are let in."""
    key = world.new_key(SLUG, slots=5)
    with ExitStack() as stack:
        machines = [
            stack.enter_context(LicenseClient(server.url, state_dir=tmp_path / f"{number}", clock=clock))
            for number in range(16)
        ]
        results = _all_at_once([lambda machine=machine: machine.verify(key) for machine in machines])  # type: ignore[misc]
    assert sum(isinstance(result, License) for result in results) == 5
    refusals = [result.reason for result in results if isinstance(result, LicenseRefused)]
    assert refusals == [Reason.ENVIRONMENT] * 11
    assert len(world.activations(key)) == 5


@pytest.mark.parametrize("repetition", range(5))
def test_one_machine_calls_many_times_at_once(
    world: World, server: Server, tmp_path: Path, clock: MovableClock, repetition: int
) -> None:
    """Sixteen processes of one installation start at once: all are let in, on one slot."""
    key = world.new_key(SLUG, slots=1)
    with ExitStack() as stack:
        processes = [
            stack.enter_context(LicenseClient(server.url, state_dir=tmp_path / "shared", clock=clock))
            for _ in range(16)
        ]
        results = _all_at_once([lambda one=one: one.verify(key) for one in processes])  # type: ignore[misc]
    assert [type(result) for result in results] == [License] * 16
    assert len(world.activations(key)) == 1


# --- updates ----------------------------------------------------------------------------------


def test_one_check_in_twelve_hours(
    world: World, server: Server, open_client: Open, clock: MovableClock, tmp_path: Path
) -> None:
    """For twelve hours the offer is remembered, also by another process (D-46, D-48)."""
    key = world.new_key(SLUG)
    update = open_client(state_dir=tmp_path / "one").check_for_update(key)
    assert update is not None
    assert (update.name, update.version, update.changelog) == (NAME, "1.1.0", "Export.")
    world.publish(SLUG, "1.2.0", "2026-11-20T12:00:00Z")
    clock.forward(hours=11, minutes=59)
    again = open_client(state_dir=tmp_path / "one").check_for_update(key)
    assert again is not None
    assert again.version == "1.1.0"
    assert server.checks == 1
    clock.forward(hours=1, minutes=30)  # beyond twelve hours and their jitter
    later = open_client(state_dir=tmp_path / "one").check_for_update(key)
    assert later is not None
    assert later.version == "1.2.0"
    assert server.checks == 2


def test_the_customer_looks_for_updates(world: World, server: Server, open_client: Open) -> None:
    """With force the server is asked, whatever is remembered (D-46)."""
    key = world.new_key(SLUG)
    client = open_client()
    client.check_for_update(key)
    world.publish(SLUG, "1.2.0", "2026-11-20T12:00:00Z")
    update = client.check_for_update(key, force=True)
    assert update is not None
    assert update.version == "1.2.0"
    assert server.checks == 2


def test_a_new_key_is_checked_at_once(world: World, server: Server, open_client: Open) -> None:
    """The twelve hours of one key do not delay the first check of another (D-46)."""
    client = open_client()
    client.check_for_update(world.new_key(SLUG))
    assert client.check_for_update(world.new_key(SLUG)) is not None
    assert server.checks == 2


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param({"support_until": "2026-11-19"}, id="support over"),
        pytest.param({"revoked": True}, id="revoked"),
        pytest.param({"expires_on": "2026-11-19"}, id="expired"),
    ],
)
def test_no_update_for_who_may_not_have_it(world: World, open_client: Open, terms: dict[str, Any]) -> None:
    """Without a link, and without a 200, there is no update, and nothing is raised (D-46)."""
    assert open_client().check_for_update(world.new_key(SLUG, **terms)) is None


def test_no_update_while_the_server_is_away(world: World, server: Server, open_client: Open) -> None:
    """An outage is no update."""
    key = world.new_key(SLUG)
    server.stop()
    assert open_client().check_for_update(key) is None


# --- downloads --------------------------------------------------------------------------------


def test_the_update_arrives(world: World, open_client: Open, tmp_path: Path) -> None:
    """The file comes whole, under the name that the vendor gave it, and progress says how far."""
    client, key = open_client(), world.new_key(SLUG)
    update = client.check_for_update(key)
    assert update is not None
    told: list[tuple[int, int | None]] = []
    path = client.download(
        update, tmp_path / "downloads", progress=lambda done, total: told.append((done, total))
    )
    content = world.files["1.1.0"]
    assert path.name == "photo-lab-1.1.0.zip"
    assert path.read_bytes() == content
    assert told == sorted(told)
    assert told[-1] == (len(content), len(content))
    assert [entry.name for entry in (tmp_path / "downloads").iterdir()] == [path.name]


def test_a_cable_pulled_half_way(
    make_world: Callable[..., World], flavour: str, tmp_path: Path, clock: MovableClock
) -> None:
    """A download cut half way goes on where it stopped, and the file is the vendor's to the last byte."""
    world = make_world(base_url=None)
    world.stock({"products": [_product()], "licenses": []})
    with (
        world.serving() as server,
        Cable(server.port).plugged() as cable,
        opened(
            flavour, cable.url, slug=SLUG, version="1.0.0", state_dir=tmp_path / "state", clock=clock
        ) as client,
    ):
        update = client.check_for_update(world.new_key(SLUG))
        assert update is not None
        cable.cut_after = [2 * MIB]
        path = client.download(update, tmp_path)
    content = world.files["1.1.0"]
    assert path.read_bytes() == content
    assert cable.cuts == 1
    whole, *_, rest = server.ranges  # aiohttp may note the one that was cut twice
    assert whole is None
    assert rest is not None
    assert rest.startswith("bytes=")
    assert 0 < int(rest.removeprefix("bytes=").removesuffix("-")) < len(content)


def test_a_link_that_ran_out(
    world: World, server: Server, open_client: Open, clock: MovableClock, tmp_path: Path
) -> None:
    """An offer remembered for hours still downloads: a fresh link is fetched first (D-48)."""
    client, key = open_client(), world.new_key(SLUG)
    client.check_for_update(key)
    clock.forward(hours=5)
    update = client.check_for_update(key)
    assert update is not None
    assert client.download(update, tmp_path).read_bytes() == world.files["1.1.0"]
    assert server.downloads == [200]
    assert server.checks == 2


def test_a_server_clock_that_is_ahead(
    world: World, server: Server, flavour: str, clock: MovableClock, tmp_path: Path
) -> None:
    """A link that the server already calls expired is replaced by a fresh one (D-31, D-48)."""
    key = world.new_key(SLUG)
    own = MovableClock(clock.now)  # the customer's clock stands still
    with opened(
        flavour, server.url, slug=SLUG, version="1.0.0", state_dir=tmp_path / "s", clock=own
    ) as client:
        update = client.check_for_update(key)
        assert update is not None
        clock.now += timedelta(hours=2)
        assert client.download(update, tmp_path).read_bytes() == world.files["1.1.0"]
    assert server.downloads == [403, 200]


def test_revoked_before_the_download(world: World, open_client: Open, tmp_path: Path) -> None:
    """A key revoked after the offer gets no byte, and the reason is told (D-31)."""
    client, key = open_client(), world.new_key(SLUG)
    update = client.check_for_update(key)
    assert update is not None
    world.vendor.revoke(key)
    with pytest.raises(LicenseRefused) as refused:
        client.download(update, tmp_path / "downloads")
    assert refused.value.reason is Reason.REVOKED
    assert list((tmp_path / "downloads").glob("*.zip")) == []


def test_withdrawn_before_the_download(
    world: World, server: Server, open_client: Open, tmp_path: Path
) -> None:
    """A version withdrawn after the offer is not delivered; with nothing newer, a refusal (D-33)."""
    client, key = open_client(), world.new_key(SLUG)
    update = client.check_for_update(key)
    assert update is not None
    world.vendor.withdraw(SLUG, "1.1.0")
    with pytest.raises(LicenseRefused):
        client.download(update, tmp_path / "downloads")
    assert list((tmp_path / "downloads").glob("*.zip")) == []
    assert server.downloads == [404]


def test_replaced_before_the_download(
    world: World, server: Server, open_client: Open, tmp_path: Path
) -> None:
    """When a better version took the withdrawn one's place, that is what arrives (D-33, D-48)."""
    client, key = open_client(), world.new_key(SLUG)
    update = client.check_for_update(key)
    assert update is not None
    world.vendor.withdraw(SLUG, "1.1.0")
    content = world.publish(SLUG, "1.1.1", "2026-11-20T12:00:00Z")
    assert client.download(update, tmp_path / "downloads").read_bytes() == content
    assert server.downloads == [404, 200]
