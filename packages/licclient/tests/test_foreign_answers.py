"""What a gateway answers is no refusal, whatever its shape: each status and each body, at each endpoint."""

import itertools
from importlib import import_module
from pathlib import Path

import pytest
from stage.flavours import both
from stage.gateways import BODIES, STATUSES, written
from stage.operations import SEAT, USAGE, serve_all
from stage.rules import settings

import licclient
from licclient import LicenseState, Source
from licclient._computers.protocol import read_computers, read_move
from licclient._core import requests
from licclient._core.responses import (
    DOWNLOAD_REFUSALS,
    UNKNOWN_ENDPOINT,
    Reply,
    read_deactivate,
    read_refusal,
    read_update,
    read_verify,
)
from licclient._seats.protocol import read_seat
from licclient._trials.protocol import read_trial
from licclient._updates import rollbacks
from licclient._uses.protocol import read_consume
from licclient.errors import DeactivationError, NoSeatError, ServiceUnavailableError

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"

ENDPOINTS = {
    "verify": lambda reply, _: read_verify(reply, KEY),
    "update-check": lambda reply, _: read_update(reply, settings(), "notes", KEY),
    "deactivate": lambda reply, _: read_deactivate(reply, KEY),
    "computers": lambda reply, _: read_computers(reply, KEY),
    "move": lambda reply, _: read_move(reply, KEY),
    "consume": lambda reply, _: read_consume(reply, KEY, "exports"),
    "seat": lambda reply, now: read_seat(reply, KEY, now),
    "trial": lambda reply, _: read_trial(reply),
    "download": lambda reply, _: read_refusal(reply, KEY, DOWNLOAD_REFUSALS) or ServiceUnavailableError("no"),
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_no_answer_of_a_gateway_is_the_services(endpoint, clock):
    """It is an outage; at the path of an extension that some services lack, maybe that (D-40)."""
    wrong = []
    for status, (name, body) in itertools.product(STATUSES, BODIES.items()):
        read = ENDPOINTS[endpoint](Reply(status, written(body)), clock())
        lacks_it = endpoint == "deactivate" and status in UNKNOWN_ENDPOINT
        if type(read) is not (DeactivationError if lacks_it else ServiceUnavailableError):
            wrong.append((status, name, read))
    assert not wrong


def test_each_endpoint_is_tried():
    """One that is new must be added; for a report of a rollback, statuses alone decide."""
    folders = Path(licclient.__file__).parent.glob("_*/protocol.py")
    protocols = [import_module(f"licclient.{path.parent.name}.protocol") for path in folders]
    paths = {
        value.rpartition("/")[2]
        for module in (requests, rollbacks, *protocols)
        for name, value in vars(module).items()
        if name.endswith("_PATH")
    }
    assert paths == {*ENDPOINTS, "rolled-back"} - {"download"}


@pytest.mark.parametrize("status", STATUSES)
def test_a_report_is_settled_by_its_status(status):
    """As the protocol says; whatever a gateway says otherwise, it is sent again later (D-232)."""
    settles = status in {401, 403, 404, 405, 422, 501}
    assert {rollbacks.is_settled(Reply(status, written(body))) for body in BODIES.values()} == {settles}


GATEWAYS = [
    pytest.param(status, body, id=f"{status} {name}", marks=() if (status, name) == (403, "NestJS") else slow)
    for slow in [pytest.mark.slow]
    for status in (401, 403, 404, 405, 422)
    for name, body in BODIES.items()
]


@both
@pytest.mark.parametrize(("status", "body"), GATEWAYS)
async def test_behind_a_gateway_a_customer_keeps_what_he_has(
    make_client, service, store, clock, key, status, body, monkeypatch, flavour
):
    """The cached license, a known offer, uses within the allowance; and a floating seat is not lost."""
    monkeypatch.setattr("licclient._seats.seat.RELEASE_SECONDS", 0.2)
    serve_all(store)
    client, lost = make_client(), []
    await client.activate(key)
    update = (await client.check_for_update()).update
    assert await client.uses.consume("exports") == USAGE["remaining"]
    seat = client.client.seats.take(on_lost=lost.append)
    await _call(lambda: seat)
    through = service.script
    service.script = lambda _: store.answer(status, body if isinstance(body, bytes) else written(body))

    with pytest.raises(ServiceUnavailableError):
        await make_client().verify("CP-OTHER1-DEF456-GHI789-JKL012-MNO345")
    clock.move(hours=25)
    assert (await client.verify()).source is Source.GRACE
    assert not await client.check_for_update(force=True)
    assert (await client.status()).update.version == update.version
    assert (await client.status()).state is LicenseState.GRACE
    assert await client.uses.consume("exports") == USAGE["remaining"] - 1
    with pytest.raises((ServiceUnavailableError, NoSeatError)) as caught:
        await _call(client.client.seats.take)
    # At the path of an extension, 404 and 405 say that the service has none.
    assert isinstance(caught.value, NoSeatError) is (status in UNKNOWN_ENDPOINT)
    assert seat.is_held
    assert not lost
    service.script = through
    await _call(seat.release)


@pytest.mark.slow
async def test_a_seat_is_renewed_through_a_gateways_refusals(
    make_client, store, key, eventually, monkeypatch
):
    """While it is held, nothing but the service's own codes ends it; the next renewal succeeds."""
    monkeypatch.setitem(SEAT, "lease_seconds", 3)
    serve_all(store)
    client, lost = make_client(), []
    await client.activate(key)
    seat = client.client.seats.take(on_lost=lost.append)
    through, refused = store.service.script, []
    store.service.script = lambda request: refused.append(request) or store.answer(403, BODIES["NestJS"])
    await eventually(lambda: refused)
    store.service.script = through
    renewed = store.service.count("seat")
    await eventually(lambda: store.service.count("seat") > renewed + 1)
    assert seat.is_held
    assert not lost
    seat.release()


async def _call(method):
    done = method()
    if done is not None and hasattr(done, "__await__"):
        await done
