"""Everything that is not the service's word: each row is an outage, quickly, and leaves nothing behind."""

import itertools
import threading
import time
from functools import partial
from time import monotonic

import pytest
from stage.answers import ANSWERS, GOOD_RAW
from stage.flavours import both
from stage.meters import bounded, crash_report
from stage.scripts import RESET, drip, http, silence

import licclient
from harness.standstill import Standstill
from harness.threads import call_at_once
from licclient.errors import ServiceUnavailableError

TIMEOUT = 0.5


def play(service, script):
    """Give a service its script, whatever it is asked."""
    service.script = script if callable(script) else lambda _: script


@pytest.mark.sampled(11, "flavour")
@both
@pytest.mark.parametrize("script", ANSWERS.values(), ids=ANSWERS.keys())
async def test_a_hostile_answer_is_an_outage(make_client, service, script, key, tmp_path):
    """No license, no refusal, nothing on the disk, in time and with little memory (D-40)."""
    play(service, script)
    client = make_client(timeout=TIMEOUT)
    with bounded(TIMEOUT), pytest.raises(ServiceUnavailableError) as caught:
        await client.verify(key)
    assert not [word for word in (key, "httpx", "httpcore") if word in crash_report(caught.value)]
    assert not list((tmp_path / "state").glob("license-*"))


async def test_the_rows_are_hostile_and_not_the_harness(make_client, service, key):
    """The answer that the rows are made from, left as it is, is a license."""
    play(service, GOOD_RAW)
    assert (await make_client().verify(key)).product == "Notes"


async def test_endpoints_are_never_redirected(make_client, service, key):
    """Not even to a place that would say yes (D-40)."""
    service.script = lambda request: GOOD_RAW if "yes" in request.path else http(307, b"", Location="/yes")
    with pytest.raises(ServiceUnavailableError):
        await make_client().verify(key)
    assert service.count() == 1


# --- time -------------------------------------------------------------------------------------

SLOW = {
    "silence": lambda: silence(seconds=15),
    "a byte a second": lambda: drip(GOOD_RAW, pause=1),
    "a body at a byte a second": lambda: itertools.chain([GOOD_RAW[:-30]], drip(GOOD_RAW[-30:], pause=1)),
    "a byte each four seconds": lambda: drip(GOOD_RAW, pause=4),
}


@pytest.mark.slow  # ten seconds: the default time limit
def test_the_slowest_servers_end_within_twelve_seconds(service, key, tmp_path, clock):
    """With the limits that an app gets when it sets none; all at once, told apart by who asks."""

    def ask(name):
        with licclient.LicenseClient(
            service.url, storage=tmp_path / name, clock=clock, domain=name
        ) as client:
            began = monotonic()
            with pytest.raises(ServiceUnavailableError):
                client.verify(key)
            return monotonic() - began

    service.script = lambda request: SLOW[request.json["domain"]]()
    assert max(call_at_once([partial(ask, name) for name in SLOW])) < 12


def test_nothing_goes_on_behind_our_back(service, key, tmp_path):
    """When time is up the connection is cut, and the thread that waited for it ends."""
    service.script = lambda _: drip(GOOD_RAW)
    with licclient.LicenseClient(service.url, storage=tmp_path, timeout=0.3) as client:
        with pytest.raises(ServiceUnavailableError):
            client.verify(key)
        with Standstill() as machine:
            began = monotonic()
            while any(thread.name == "licclient-call" for thread in threading.enumerate()):
                assert monotonic() - began - machine.within(began, monotonic()) < 2
                time.sleep(0.02)  # longer than between two looks of the other one


# --- asking again (D-54) ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        http(429, b""), http(502, b""), http(503, b"", Retry_After="0"), http(504, b""), b"",
        lambda _: [RESET], GOOD_RAW[:-5],
    ],
    ids=["429", "502", "503", "504", "hung up", "reset", "cut"],
)  # fmt: skip
async def test_what_passes_is_asked_again(make_client, service, key, script):
    """A server that restarts, or is too busy, is asked again twice; the third answer counts."""
    play(service, script)
    hostile, tries = service.script, itertools.count()
    service.script = lambda request: GOOD_RAW if next(tries) == 2 else hostile(request)
    assert (await make_client().verify(key)).product == "Notes"
    assert service.count() == 3


async def test_retries_end_with_the_deadline(make_client, service, key, monkeypatch):
    """The time limit holds for all tries together."""
    monkeypatch.setattr("licclient._core.pace.RETRY_SECONDS", 0.4)
    service.goes_down()
    with bounded(0.5), pytest.raises(ServiceUnavailableError):
        await make_client(timeout=0.5).verify(key)
    assert service.count() <= 2


@pytest.mark.parametrize("name", ["a login page", "status 500", "a redirect", "gzip", "status 429 for years"])
async def test_what_will_not_pass_is_asked_once(make_client, service, key, name):
    """A login page will be one in a second as well; and who says "in years" is not asked sooner."""
    play(service, ANSWERS[name])
    with pytest.raises(ServiceUnavailableError):
        await make_client().verify(key)
    assert service.count() == 1


async def test_the_app_learns_when_to_come_back(make_client, service, key):
    """What the server asked for is on the error."""
    service.responds(503, b"", Retry_After="120")
    with pytest.raises(ServiceUnavailableError) as caught:
        await make_client().verify(key)
    assert caught.value.retry_after == 120
