"""POST /api/v1/licenses/verify over a real socket (spec 4.1)."""

import asyncio
import json

import pytest

PATH = "/api/v1/licenses/verify"


async def test_the_content_type_is_nobodys_business(site, world):
    """A body is read as what it is, whatever it is called, and the answer is never cached."""
    body = json.dumps({"license_key": world.key(), "domain": "a.example", "ip": "::1"})
    for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded", "", "a/b; charset=x"):
        status, headers, _ = await site.call("POST", PATH, data=body.encode(), headers={"Content-Type": kind})
        assert status == 200
        assert headers["Content-Type"] == "application/json"
        assert headers["Cache-Control"] == "no-store"


SIZES = {16383: 422, 16384: 422, 16385: 413, 16386: 413, 100_000: 413}


@pytest.mark.sampled(5, "chunked")
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


async def test_one_environment_at_once_from_many_connections_takes_one_slot(site, world):
    """Forty callers in the same moment: forty times yes, one slot."""
    key = world.key()
    answers = await asyncio.gather(*(site.verify(key) for _ in range(40)))
    assert [status for status, _ in answers] == [200] * 40
    assert len(world.held(key)) == 1
