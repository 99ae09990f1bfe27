"""The database away, locked or broken: 503, nothing granted, and all is well when it is back."""

import asyncio

import pytest

from harness import engines

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps


async def test_a_broken_database_is_503_and_recovers(site, world, meddler, caplog):
    """Every endpoint that needs it says so with Retry-After; health does not; afterwards nothing is lost."""
    world.publish("1.0")
    key = world.key()
    link = await site.link(key)
    meddler.do("ALTER TABLE licenses RENAME TO away")
    body = {"license_key": key, "domain": "a.example", "ip": "::1"}
    query = {"license_key": key, "slug": "app", "current_version": "1", "domain": "a.example"}
    for call in (
        site.call("POST", "/api/v1/licenses/verify", json=body),
        site.call("GET", "/api/v1/update-check", params=query),
        site.call("GET", link),
    ):
        status, headers, answer = await call
        assert (status, answer["error"], headers["Retry-After"]) == (503, "unavailable", "5")
    assert (await site.call("GET", "/healthz"))[0] == 200
    assert "licenses" in caplog.text
    assert key not in caplog.text
    assert link not in caplog.text
    meddler.do("ALTER TABLE away RENAME TO licenses")
    assert (await site.verify(key))[0] == 200
    assert (await site.call("GET", link))[0] == 200


@pytest.mark.slow
async def test_who_writes_for_long_holds_up_only_new_environments(site, world, meddler):
    """While another holds the lock, known environments are served; new ones soon get 503."""
    key = world.key(slots=2)
    assert (await site.verify(key))[0] == 200
    meddler.do("BEGIN IMMEDIATE", "BEGIN")
    meddler.do("SELECT 1", "SELECT id FROM licenses FOR UPDATE")
    assert (await site.verify(key))[0] == 200
    async with asyncio.timeout(5):  # the 503 comes within two; licclient waits for ten
        assert (await site.verify(key, "b.example"))[0] == 503
    meddler.do("ROLLBACK")
    assert world.held(key) == [("a.example", "127.0.0.1")]
    assert (await site.verify(key, "b.example"))[0] == 200


async def test_refusals_that_need_no_database_need_none(site, world, meddler):
    """A malformed call, a bad key and a bad link are answered while the database is away."""
    meddler.do("ALTER TABLE licenses RENAME TO away")
    assert (await site.verify("rubbish"))[0] == 403
    assert (await site.verify(None))[0] == 422
    assert (await site.call("GET", "/api/v1/update-download"))[0] == 403
    assert (await site.check("rubbish"))[0] == 401
    meddler.do("ALTER TABLE away RENAME TO licenses")
