from datetime import UTC, datetime, timedelta

import pytest

from licclient import (
    ServiceUnavailable,
    Source,
)


async def test_a_clock_set_back_asks_again_and_grants_nothing_offline(client, service, clock, key):
    """Behind the latest instant seen the cache is a miss; without a server there is no license."""
    service.grants()
    await client.verify(key)
    clock.move(hours=10)
    await client.verify(key)
    clock.move(hours=-9)
    service.goes_down()
    with pytest.raises(ServiceUnavailable, match="clock"):
        await client.verify(key)
    service.grants()
    assert (await client.verify(key)).source is Source.SERVER


async def test_small_steps_back_are_forgiven(client, service, clock, key):
    """A time server that nudges the clock by minutes locks nobody out."""
    service.grants()
    await client.verify(key)
    service.goes_down()
    clock.move(minutes=-5)
    assert (await client.verify(key)).source is Source.CACHE


async def test_an_end_that_was_seen_does_not_come_back(make_client, service, clock, key):
    """Once the end was crossed, no step within the tolerance, in a new process, goes back over it."""
    service.grants()
    await make_client(grace=timedelta(0)).verify(key)
    clock.move(hours=23, minutes=58)
    await make_client(grace=timedelta(0)).verify(key)
    service.goes_down()
    clock.move(minutes=2, seconds=1)
    with pytest.raises(ServiceUnavailable):
        await make_client(grace=timedelta(0)).verify(key)
    clock.move(seconds=-2)
    with pytest.raises(ServiceUnavailable):
        await make_client(grace=timedelta(0)).verify(key)


async def test_a_clock_that_jumped_ahead_heals_with_the_next_answer(client, service, clock, key):
    """One jump ahead and back costs one more call, and never locks out who can reach the server."""
    service.grants()
    await client.verify(key)
    clock.move(days=365)
    await client.verify(key)
    clock.move(days=-365)
    assert (await client.verify(key)).source is Source.SERVER
    service.goes_down()
    assert (await client.verify(key)).source is Source.CACHE


async def test_reading_the_cache_does_not_write_the_disk(client, service, clock, key, tmp_path):
    """The latest instant seen is written only when it has moved by minutes."""
    service.grants()
    await client.verify(key)
    [record] = (tmp_path / "state").glob("license-*")
    before = record.read_bytes()
    clock.move(minutes=4)
    await client.verify(key)
    assert record.read_bytes() == before
    clock.move(minutes=2)
    await client.verify(key)
    assert record.read_bytes() != before


@pytest.mark.parametrize("now", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
async def test_in_the_first_and_in_the_last_year_nothing_breaks(make_client, service, clock, key, now):
    """A clock without a battery, or a record that somebody forged: answers and our own errors, as ever."""
    service.grants()
    clock.now = now
    client = make_client()
    await client.activate(key)
    assert (await client.verify()).source is Source.CACHE
    assert (await client.require()).source is Source.CACHE
    assert (await client.status()).source is Source.CACHE
    assert await client.check_for_update() is None
    assert await client.check_for_update() is None
