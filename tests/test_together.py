"""The real client against the real server: verifying, with a clock that the test moves."""

from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from harness.engines import both_engines
from harness.flavours import both_flavours
from harness.shop import NAME, SLUG, Open
from harness.threads import call_at_once
from harness.world import MovableClock, Server, World
from licclient import License, LicenseClient, Reason, Source
from licclient._cli import main
from licclient.errors import (
    DeactivationError,
    LicenseRefusedError,
    NotActivatedError,
    ServiceUnavailableError,
)


@both_flavours
def test_a_day_without_calls(shop: World, server: Server, open_client: Open, clock: MovableClock) -> None:
    """A success is answered from the cache for 24 hours, and asked for again after that."""
    key = shop.new_key(SLUG, expires_on="2027-01-31")
    client = open_client(product=NAME)
    first = client.verify(key)
    assert (first.product, f"{first.expiry}", first.is_lifetime, first.source) == (
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


def test_revoked_between_two_calls(
    shop: World, server: Server, open_client: Open, clock: MovableClock
) -> None:
    """A revocation is seen at the next call, and wipes the remembered success (D-41)."""
    key = shop.new_key(SLUG)
    client = open_client()
    client.verify(key)
    shop.services.licenses.revoke(key)
    assert client.verify(key).source is Source.CACHE  # not asked yet
    with pytest.raises(LicenseRefusedError) as refused:
        client.verify(key, force=True)
    assert (refused.value.reason, refused.value.message) == (Reason.REVOKED, "License has been revoked.")
    server.stop()
    with pytest.raises(ServiceUnavailableError):  # and not "valid by grace"
        client.verify(key)
    shop.services.licenses.reinstate(key)
    server.start()
    assert client.verify(key).source is Source.SERVER


def test_a_slot_for_each_machine(shop: World, open_client: Open) -> None:
    """Two machines take two slots, the third is refused until the vendor frees one."""
    key = shop.new_key(SLUG, slots=2)
    machines = [open_client() for _ in range(3)]  # each with an installation id of its own (D-45)
    for machine in machines[:2]:
        machine.verify(key)
    with pytest.raises(LicenseRefusedError) as refused:
        machines[2].verify(key)
    assert refused.value.reason is Reason.ENVIRONMENT
    (domain, _), _ = shop.activations(key)
    assert shop.services.licenses.deactivate(key, domain) == 1
    assert machines[2].verify(key).source is Source.SERVER


@both_flavours
def test_a_customer_moves_from_machine_to_machine(
    shop: World, open_client: Open, clock: MovableClock
) -> None:
    """Each machine gives up its slot and forgets the key, until the product's moves are used up."""
    shop.services.products.change(SLUG, customer_moves=1)
    key = shop.new_key(SLUG, slots=1)
    first, second = open_client(), open_client()
    first.activate(key)
    first.deactivate()
    with pytest.raises(NotActivatedError):
        first.require()
    second.activate(key)
    with pytest.raises(DeactivationError) as refused:
        second.deactivate()
    assert refused.value.retry_at == clock() + timedelta(days=30)
    assert second.require().source is Source.CACHE
    clock.forward(days=30)
    second.deactivate()
    assert first.activate(key).source is Source.SERVER


def test_a_slot_is_freed_on_the_command_line(
    shop: World, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`licclient deactivate` frees what `verify` took; a product without moves says no, exit code 1."""
    key = shop.new_key(SLUG)
    options = ["--server", server.url, "--state-dir", str(tmp_path / "app")]
    assert [main([*options, command, key]) for command in ("verify", "deactivate", "deactivate")] == [0, 0, 0]
    assert shop.activations(key) == []
    shop.services.products.change(SLUG, customer_moves=0)
    assert [main([*options, command, key]) for command in ("verify", "deactivate")] == [0, 1]
    assert "support" in capsys.readouterr().out


@both_engines
@pytest.mark.parametrize("repetition", range(2))
def test_many_machines_race_for_the_last_slots(
    shop: World, server: Server, tmp_path: Path, clock: MovableClock, repetition: int
) -> None:
    """Sixteen new machines at once on five slots: exactly five are let in."""
    key = shop.new_key(SLUG, slots=5)
    with ExitStack() as stack:
        machines = [
            stack.enter_context(LicenseClient(server.url, storage=tmp_path / f"{number}", clock=clock))
            for number in range(16)
        ]
        results = call_at_once([partial(machine.verify, key) for machine in machines])
    assert sum(isinstance(result, License) for result in results) == 5
    refusals = [result.reason for result in results if isinstance(result, LicenseRefusedError)]
    assert refusals == [Reason.ENVIRONMENT] * 11
    assert len(shop.activations(key)) == 5
