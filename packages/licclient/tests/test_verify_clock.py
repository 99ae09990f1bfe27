from datetime import UTC, datetime, timedelta

import pytest

from licclient import (
    ServiceUnavailable,
    Source,
)


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
