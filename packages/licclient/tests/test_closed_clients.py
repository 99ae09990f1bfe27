"""A closed client raises, whatever is called, and sends nothing; closing it again is fine."""

import inspect
from operator import attrgetter
from pathlib import Path

import pytest
from stage.flavours import both

from licclient import AsyncLicenseClient, LicenseClient
from licclient._core.requests import verify_call
from licclient._seats.client import create
from licclient.errors import ServiceUnavailableError
from licclient.types import AsyncSeat, Seat

ARGUMENTS = {
    "activate": ("CP-ABC123-DEF456-GHI789-JKL012-MNO345",),
    "uses.consume": ("exports",),
    "download": (None, "/nonexistent"),
    "license_file.install": (b"",),
    "install_update": (None,),
    "is_skipped": (None,),
    "computers.move_here": (None,),
    "skip_update": (None,),
}
WORKS = {"close", "aclose", "stop", "settings", "state_folder", "licensed"}
"""Nothing is read or sent by these; what `licensed` decorates is called below."""


FEATURES = {
    "computers": ("list", "move_here"),
    "uses": ("consume",),
    "seats": ("take",),
    "license_file": ("request", "install"),
}


def _methods(kind):
    for name, _ in inspect.getmembers(kind):
        if name in FEATURES:
            yield from (f"{name}.{method}" for method in FEATURES[name])
        elif not name.startswith("_") and name not in WORKS:
            yield name


CASES = [(kind, name) for kind in (LicenseClient, AsyncLicenseClient) for name in _methods(kind)]


@pytest.fixture
async def closed(service, key, drive, tmp_path):
    """Return a client of a class that was used, and closed twice."""
    service.grants()

    async def make(kind):
        client = kind(service.url, slug="notes", version="1.0", storage=tmp_path)
        driven = drive(client)
        await driven.activate(key)
        seat = create(Seat if kind is LicenseClient else AsyncSeat, client._access(), None, None, None)
        await driven.close()
        await driven.close()
        service.requests.clear()
        return client, seat

    return make


@pytest.mark.sampled(21)
@pytest.mark.parametrize(("kind", "name"), CASES)
async def test_each_method_of_a_closed_client_raises(closed, service, kind, name):
    """Derived from the class; nothing is sent, and nothing opened again."""
    client, _ = await closed(kind)
    with pytest.raises(RuntimeError, match="closed"):
        await _call(lambda: attrgetter(name)(client)(*ARGUMENTS.get(name, ())))
    assert service.count() == 0


@both
async def test_what_a_closed_client_made_raises_too(closed, service, flavour):
    """A decorated function, a seat, and the client as a context manager."""
    client, seat = await closed(flavour)

    async def export():
        return "exported"

    with pytest.raises(RuntimeError, match="closed"):
        await client.licensed(export)()
    with pytest.raises(RuntimeError, match="closed"):
        await _call(seat.take)
    with pytest.raises(RuntimeError, match="closed"):
        async with _either(client):
            pass
    assert client.settings.slug == "notes"
    assert isinstance(client.state_folder, Path)
    assert service.count() == 0


async def _call(act):
    done = act()
    return await done if inspect.isawaitable(done) else done


def _either(client):
    if isinstance(client, AsyncLicenseClient):
        return client
    client.__enter__()
    raise AssertionError("it was entered")


@both
async def test_what_was_under_way_sends_nothing_any_more(service, flavour, drive, tmp_path, key):
    """A thread that is still at work when the client is closed gets no new connection."""
    service.grants()
    client = flavour(service.url, storage=tmp_path)
    await drive(client).close()
    transport = client._transport()
    call = verify_call(client._own_session.settings, key, "d", "0.0.0.0", None)  # noqa: S104 - no address
    attempt = (
        transport.send(call, 5, lambda: False) if flavour is LicenseClient else await transport.send(call, 5)
    )
    assert isinstance(attempt.result, ServiceUnavailableError)
    assert attempt.was_closed
    assert service.count() == 0
