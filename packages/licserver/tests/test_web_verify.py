"""POST /api/v1/licenses/verify over a real socket (spec 4.1)."""

import asyncio
import json
from datetime import date

import pytest

PATH = "/api/v1/licenses/verify"


async def test_a_new_environment_takes_a_slot_and_is_known_from_then_on(site, world):
    """The first call activates, the second is welcome, and the third environment finds the key full."""
    key = world.key(slots=2, expires_on=date(2027, 1, 31))
    success = {"valid": True, "product": "App", "expiry": "2027-01-31", "lifetime": False}
    assert await site.verify(key) == (200, success)
    assert await site.verify(key, "HTTPS://A.example:443/") == (200, success)
    assert await site.verify(key, source="127.0.0.2") == (200, success)
    refusal = {"valid": False, "reason": "Max activations exceeded or unrecognized environment."}
    assert await site.verify(key, source="127.0.0.3") == (403, refusal)
    assert world.held(key) == [("a.example", "127.0.0.1"), ("a.example", "127.0.0.2")]


async def test_the_content_type_is_nobodys_business(site, world):
    """A body is read as what it is, whatever it is called, and the answer is never cached."""
    body = json.dumps({"license_key": world.key(), "domain": "a.example", "ip": "::1"})
    for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded", "", "a/b; charset=x"):
        status, headers, _ = await site.call("POST", PATH, data=body.encode(), headers={"Content-Type": kind})
        assert status == 200
        assert headers["Content-Type"] == "application/json"
        assert headers["Cache-Control"] == "no-store"


SIZES = {16383: 422, 16384: 422, 16385: 413, 16386: 413, 100_000: 413}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chunked", [False, True], ids=["whole", "chunked"])
async def test_a_body_may_be_16_kib_long_and_no_longer(site, size, chunked):
    """The limit is exact, and holds for bodies that do not tell their length (D-11)."""

    async def pieces():
        for start in range(0, size, 1000):
            yield b"x" * min(1000, size - start)

    status, _, answer = await site.call("POST", PATH, data=pieces() if chunked else b"x" * size)
    assert status == SIZES[size]
    if status == 413:
        assert answer["error"] == "too_large"


async def test_a_body_of_16_kib_is_read_to_its_last_byte(site, world):
    """The largest body is not cut."""
    body = json.dumps({"license_key": world.key(), "domain": "a.example", "ip": "::1", "x": ""})
    padded = body.replace('"x": ""', '"x": "' + "y" * (16384 - len(body)) + '"').encode()
    assert len(padded) == 16384
    assert (await site.call("POST", PATH, data=padded))[0] == 200


async def test_a_body_that_does_not_come_is_given_up(open_site, make_world):
    """A caller who sends headers and then nothing is told so in time, and holds nothing up."""
    site = await open_site(make_world(body_timeout=0.2))
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
    assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"HTTP/1.1 408 ")
    assert b'"error":"timeout"' in await asyncio.wait_for(reader.readuntil(b"}"), 5)
    writer.close()
    assert (await site.call("GET", "/healthz"))[0] == 200


async def test_the_vendors_word_counts_at_the_next_request(site, world):
    """Entries, deactivations and revocations are seen at once."""
    key = world.key()
    assert (await site.verify(key))[0] == 200
    assert (await site.verify(key, "b.example"))[0] == 403
    world.services.licenses.allow(key, "*.example")
    assert (await site.verify(key, "b.example"))[0] == 200
    world.services.licenses.deactivate(key, "a.example")
    assert (await site.verify(key, "b.other"))[0] == 200
    world.services.licenses.revoke(key)
    assert (await site.verify(key))[0] == 403


async def test_one_environment_at_once_from_many_connections_takes_one_slot(site, world):
    """Forty callers in the same moment: forty times yes, one slot."""
    key = world.key()
    answers = await asyncio.gather(*(site.verify(key) for _ in range(40)))
    assert [status for status, _ in answers] == [200] * 40
    assert len(world.held(key)) == 1
