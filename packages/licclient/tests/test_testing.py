"""`licclient.testing`, used as an app's developer would: with the app's own settings."""

import asyncio
import re
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from stage.flavours import both

import licclient
from licclient import ClientSettings, LicenseClient, Quota, Source, Trust, Updates
from licclient.errors import LicenseRefusedError
from licclient.testing import LicenseClock, LicenseService, MemoryStorage, Misbehaviour

SETTINGS = ClientSettings(
    "https://licenses.example.com/shop", product="Notes Pro", slug="notes-pro", version="1.4.0"
)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """Whoever reaches for the network here has lost."""
    connect = socket.socket.connect

    def refuse(*_args: object, **_kwargs: object):
        raise AssertionError("a test of an app reached for the network")

    def refuse_but_pipes(self, address):
        # An event loop of Windows wakes itself by a connection to itself.
        if sys._getframe(1).f_code is not socket.socketpair.__code__:
            refuse()
        connect(self, address)

    is_windows = sys.platform == "win32"
    monkeypatch.setattr(socket.socket, "connect", refuse_but_pipes if is_windows else refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def app(flavour, drive, license_service):
    """The app's client, driven the same way whatever its class."""
    make = license_service.client if flavour is LicenseClient else license_service.async_client
    return drive(make(SETTINGS))


@both
async def test_an_app_is_activated(app, license_service):
    """The ten-second test: issue, activate, use."""
    key = license_service.issue("Notes Pro")
    with pytest.raises(licclient.errors.NotActivatedError):
        await app.verify()
    assert (await app.activate(key.lower())).product == "Notes Pro"
    assert (await app.verify()).source is Source.CACHE
    assert license_service.count("verify") == 1
    assert license_service.requests[0].license_key == key


async def test_an_app_that_was_activated_earlier(app, license_service):
    """Most tests of a feature begin with a license that is there already."""
    license_service.issue("Notes Pro", activated=True)
    assert (await app.verify()).product == "Notes Pro"
    await app.forget_key()
    with pytest.raises(licclient.errors.NotActivatedError):
        await app.verify()


async def test_the_first_call_of_an_activated_app_may_count_a_use(app, license_service):
    """Its computer took the slot when the key was entered; after a deactivation it has none."""
    key = license_service.issue("Notes Pro", entitlements={"exports": Quota(2, "month")}, activated=True)
    assert await app.uses.consume("exports") == 1
    await app.deactivate()
    license_service.storage.key = key
    with pytest.raises(LicenseRefusedError):
        await app.uses.consume("exports")


@pytest.mark.parametrize("round_", [1, 2])
async def test_tests_do_not_see_each_other(app, license_service, license_clock, round_):
    """A computer starts fresh in every test: no activation, no cache, the same time."""
    assert (await app.status()).state is licclient.LicenseState.NOT_ACTIVATED
    license_service.issue("Notes Pro", activated=True)
    assert (await app.verify()).source is Source.SERVER
    license_clock.move(days=9)


async def test_an_outage_is_played_to_its_end(app, license_service, license_clock):
    """Cache, grace, over, and back again, without waiting for any of it."""
    license_service.issue("Notes Pro", activated=True)
    await app.verify()
    with license_service.offline():
        license_clock.move(hours=25)
        assert (await app.verify()).source is Source.GRACE
        assert (await app.status()).state is licclient.LicenseState.GRACE
        license_clock.move(timedelta(hours=72))
        with pytest.raises(licclient.errors.ServiceUnavailableError):
            await app.verify()
    assert (await app.verify()).source is Source.SERVER


@pytest.mark.parametrize("how", [Misbehaviour.SLOW, "error", "busy", "login_page", "redirect", "garbage"])
async def test_no_misbehaviour_is_an_answer(app, license_service, how):
    """Whatever stands in the service's place locks nobody out, and lets nobody in."""
    key = license_service.issue("Notes Pro")
    license_service.misbehave(how)
    with pytest.raises(licclient.errors.ServiceUnavailableError):
        await app.activate(key)
    license_service.come_back()
    assert (await app.activate(key)).source is Source.SERVER


async def test_a_report_for_support_looks_at_nothing_real(app, license_service, monkeypatch, tmp_path):
    """An app tests its button "Copy diagnosis" without a network, and without its developer's own state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    license_service.issue("Notes Pro", activated=True)
    await app.verify()
    report = await app.diagnose()
    assert "ok service:       responds" in report
    assert "ok license:       valid; key CP-TE…" in report
    for name in ("name", "proxy", "tls"):
        assert f"   {name + ':':14} not checked: the app has its own transport" in report
    assert "   state folder:  none: the app has its own storage" in report
    assert "   keyring:       not used" in report
    assert report.endswith("Nothing wrong was found.")
    assert list(tmp_path.iterdir()) == []


@both
async def test_an_update_is_offered_and_downloaded(app, license_service, license_clock, tmp_path):
    """With changelog and file; the link runs out after an hour, and nobody notices."""
    license_service.issue("Notes Pro", slug="notes-pro", activated=True)
    assert not await app.check_for_update()
    license_service.publish("1.5.0", changelog="Faster.", content=b"1.5" * 1000, filename="notes.zip")
    update = (await app.check_for_update(force=True)).update
    assert (update.version, update.changelog, update.name) == ("1.5.0", "Faster.", "Notes Pro")
    license_clock.move(hours=2)
    path = (await app.download(update, tmp_path)).path
    assert (path.name, path.read_bytes()) == ("notes.zip", b"1.5" * 1000)


async def test_each_platform_is_offered_its_own_file(drive, license_service, tmp_path):
    """One key for all; a platform without a file of its own gets the default."""
    license_service.issue("Notes Pro", slug="notes-pro", activated=True)
    for platform in ("", "windows-x86_64"):
        license_service.publish("1.5.0", content=f"for {platform}".encode(), platform=platform)
    for platform, content in [("windows-x86_64", b"for windows-x86_64"), ("haiku", b"for "), (None, b"for ")]:
        app = drive(license_service.client(replace(SETTINGS, updates=Updates(platform=platform))))
        done = await app.download((await app.check_for_update(force=True)).update, tmp_path)
        assert done.path.read_bytes() == content


async def test_a_download_is_cut_and_goes_on(app, license_service, tmp_path):
    """Half of it comes each time; and a file with other bytes is refused."""
    license_service.issue("Notes Pro", activated=True)
    license_service.publish("1.5.0", content=b"abcdefgh")
    update = (await app.check_for_update(force=True)).update
    license_service.misbehave("wrong_file")
    with pytest.raises(licclient.errors.UntrustedResponseError):
        await app.download(update, tmp_path)
    license_service.misbehave("cut")
    assert (await app.download(update, tmp_path)).path.read_bytes() == b"abcdefgh"
    ranges = [request.headers.get("range") for request in license_service.requests]
    assert ranges[-3:] == ["bytes=4-", "bytes=6-", "bytes=7-"]


async def test_a_server_may_send_no_digest(app, license_service, tmp_path):
    """As those of the plain protocol: what the app makes of an unverified file can be tested."""
    license_service.issue("Notes Pro", activated=True)
    license_service.publish("1.5.0", content=b"abcdefgh")
    update = (await app.check_for_update(force=True)).update
    license_service.misbehave("no_digest")
    assert (await app.download(update, tmp_path)).is_verified is False
    license_service.come_back()
    assert (await app.download(update, tmp_path)).is_verified is True


# --- apps that pin keys -----------------------------------------------------------------------

VENDOR, RELEASES = (f"ed25519:{letter * 42}A" for letter in "vr")  # whose private halves nobody here has


@pytest.fixture
def pinned(drive, license_service):
    """An app that pins the vendor's keys, as it ships."""
    return drive(
        license_service.client(replace(SETTINGS, trust=Trust(public_keys=[VENDOR], release_keys=[RELEASES])))
    )


async def test_an_app_that_pins_keys_is_tested_as_it_is(pinned, license_service, license_clock, tmp_path):
    """License, cache, grace, offer and file are all authenticated, and refusals are believed."""
    key = license_service.issue("Notes Pro", activated=True)
    license_service.publish("1.5.0", content=b"new")
    for source in (Source.SERVER, Source.CACHE):
        found = await pinned.verify()
        assert (found.source, found.is_authenticated) == (source, True)
    update = (await pinned.check_for_update()).update
    assert update.is_authenticated
    assert (await pinned.download(update, tmp_path)).path.read_bytes() == b"new"
    license_clock.move(hours=30)
    with license_service.offline():
        assert (await pinned.verify()).source is Source.GRACE
    license_service.revoke(key)
    with pytest.raises(licclient.errors.LicenseRefusedError):
        await pinned.verify()


async def test_an_app_that_pins_keys_sees_through_what_is_not_signed(pinned, license_service):
    """Nothing that is unsigned is a license or an update; an app without pins sees no difference."""
    license_service.issue("Notes Pro", activated=True)
    license_service.publish("1.5.0")
    license_service.misbehave("unsigned")
    with pytest.raises(licclient.errors.UntrustedResponseError):
        await pinned.verify()
    assert not await pinned.check_for_update(force=True)
    assert not license_service.client(SETTINGS, trust=Trust(release_keys=[RELEASES])).check_for_update(
        force=True
    )
    plain = license_service.client(SETTINGS)
    assert not plain.verify().is_authenticated
    assert plain.check_for_update(force=True).update.version == "1.5.0"


async def test_what_a_vendor_does_later(app, license_service):
    """Revoked and reinstated, expired, out of support: what the app has noticed of it by now."""
    key = license_service.issue("Notes Pro", slots=1, activated=True)
    license_service.publish("1.5.0")
    await app.verify()
    license_service.end_support(key)
    assert not await app.check_for_update(force=True)
    for spoil, reason in ((license_service.revoke, "revoked"), (license_service.expire, "expired")):
        license_service.reinstate(key)
        spoil(key)
        with pytest.raises(licclient.errors.LicenseRefusedError) as caught:
            await app.verify(force=True)
        assert caught.value.reason == reason


def test_a_key_must_look_like_one(license_service):
    """A mistake in the test is reported at once."""
    with pytest.raises(ValueError, match="five groups"):
        license_service.issue("Notes Pro", key="CP-123")


def test_clients_share_a_computer_unless_they_are_given_one(license_service):
    """What one remembers the others find, of both kinds; another storage is another computer."""
    key = license_service.issue("Notes Pro", slots=1)
    license_service.client(SETTINGS).activate(key)
    assert asyncio.run(license_service.async_client(SETTINGS).verify()).source is Source.CACHE
    with pytest.raises(licclient.errors.LicenseRefusedError):
        license_service.client(SETTINGS, storage=MemoryStorage()).activate(key)


APP = LicenseClient(SETTINGS)  # a module's client, made long before any test


@APP.licensed
def export():
    """What the module gates."""
    return "exported"


def test_a_client_that_exists_already_is_led_here_and_back(license_service, monkeypatch):
    """So that a module's decorated functions can be tested; afterwards the client is as it was."""
    before = vars(APP).copy()
    with LicenseService() as service:
        service.attach(APP)
        with pytest.raises(licclient.errors.NotActivatedError):
            export()
        service.issue("Notes Pro", activated=True)
        assert export() == "exported"
    assert vars(APP) == before


def test_services_side_by_side_do_not_see_each_other():
    """Threads with a service each, as of a parallel test run, find what is theirs."""

    def play(product, found):
        with LicenseService(LicenseClock()) as service:
            client = service.client(SETTINGS, product=product)
            service.issue(product, activated=True)
            for _ in range(20):
                service.clock.move(days=2)
                found.append(client.verify().product == product)
            found.append(service.count("verify") == 20)

    found = []
    threads = [threading.Thread(target=play, args=(f"P{number}", found)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [True] * 84


def test_the_plugin_costs_nothing_until_it_is_asked_for():
    """A pytest run that uses no fixture of it loads neither httpx nor the fakes."""
    code = (
        "import sys; import licclient.pytest_plugin\n"
        "print(sorted({'httpx', 'licclient.testing', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


README = Path(__file__).parents[1] / "README.md"


def test_the_readmes_example_runs_as_it_stands(license_service, tmp_path):
    """Nothing has to be added: refused, activated, gated, and no update is an end without words."""
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    app = {}
    exec(compile(example, "README.md", "exec"), app)  # noqa: S102 - ours
    license_service.attach(app["client"])
    assert app["export"]("A note") is None
    key = license_service.issue("Notes Pro")
    assert "Notes Pro" not in app["enter_key"]("CP-")
    assert app["enter_key"](key.lower()) == "Licensed for Notes Pro"
    assert app["export"]("A note") == "A note exported"
    app["update"](tmp_path / "downloads", tmp_path / "app")
    assert license_service.count("update-check") == 1


WRONG = [
    (
        lambda service: service.misbehave("slwo"),
        ValueError,
        "one of slow, error, busy, .* unsigned; not 'slwo'",
    ),
    (lambda service: service.count("verfy"), ValueError, "one of verify, deactivate, .* other; not 'verfy'"),
    (lambda service: service.issue("Notes", seats="x"), TypeError, r"seats must be int \| None, not str"),
    (lambda service: service.issue("Notes", slots=-1), ValueError, "slots must not be negative"),
    (lambda service: service.issue("Notes", expires="2030-02-01"), TypeError, "expires must be .*date"),
    (
        lambda service: service.issue("Notes", expires=service.clock()),
        TypeError,
        "expires must be .*datetime",
    ),
    (lambda service: service.issue("Notes", lifetime="no"), TypeError, "lifetime must be bool, not str"),
    (lambda service: service.issue("Notes", slug="Notes Pro"), ValueError, "slug must be the product's slug"),
    (lambda service: service.issue("Notes", channels="beta"), TypeError, "channels must be list"),
    (lambda service: service.issue("Notes", entitlements={"exports": 1.5}), ValueError, r"not \['exports'\]"),
    (
        lambda service: service.offer_trials("Notes", slug="Notes Pro"),
        ValueError,
        "slug must be the product's slug",
    ),
    (lambda service: service.publish("1.5", content="new"), TypeError, "content must be bytes, not str"),
    (lambda service: service.publish("new"), ValueError, "new"),
]


@pytest.mark.parametrize(("act", "error", "message"), WRONG, ids=range(len(WRONG)))
def test_a_slip_is_an_error_where_it_is_made(license_service, act, error, message):
    """Not later in the app, where it would look like a fault of the server."""
    with pytest.raises(error, match=message):
        act(license_service)


@pytest.mark.parametrize(
    "act", ["revoke", "reinstate", "expire", "end_support", "convert", "take_back_seats"]
)
def test_a_key_that_was_not_issued_is_named_beside_the_issued_ones(license_service, act):
    """All are masked: the message ends up in a log."""
    key = license_service.issue("Notes")
    with pytest.raises(LookupError, match=r"issued no license CP-AB…O345; issued: CP-TE…0001$") as caught:
        getattr(license_service, act)("CP-ABC123-DEF456-GHI789-JKL012-MNO345")
    assert key not in str(caught.value)
    with pytest.raises(LookupError, match="issued no license …; issued: CP-TE"):
        license_service.entitle("nope", {})


@both
async def test_an_app_that_was_activated_earlier_works_offline(app, license_service, license_clock):
    """It asked when the key was entered: as on a real computer, cache and grace count from then."""
    license_service.issue("Notes Pro", activated=True, entitlements={"export": True})
    with license_service.offline():
        assert (await app.require("export")).source is Source.CACHE
        assert (await app.status()).state is licclient.LicenseState.VALID
        license_clock.move(hours=30)
        assert (await app.verify()).source is Source.GRACE
        license_clock.move(days=4)
        with pytest.raises(licclient.errors.ServiceUnavailableError):
            await app.verify()
    assert {request.kind for request in license_service.requests} == {"verify"}


@pytest.mark.parametrize("pins", [None, ()])
@pytest.mark.parametrize("how", ["slow", "error", "busy", "login_page", "redirect", "garbage"])
def test_an_app_that_was_activated_earlier_survives_misbehaviour(license_service, how, pins):
    """In whatever order: the key, the client and the outage; with pinned keys as well."""
    settings = replace(SETTINGS, trust=Trust(public_keys=pins))
    license_service.misbehave(how)
    license_service.issue("Notes Pro", activated=True)
    assert license_service.client(settings).require().source is Source.CACHE
    assert license_service.count() == 0


def test_an_app_that_asked_gets_no_other_answer_offline(license_service, license_clock):
    """Going offline confirms nothing again, and a refusal stays one."""
    key = license_service.issue("Notes Pro", activated=True)
    client = license_service.client(SETTINGS)
    client.verify()
    license_clock.move(hours=30)
    license_service.revoke(key)
    with pytest.raises(LicenseRefusedError):
        client.verify()
    license_service.reinstate(key)
    with license_service.offline(), pytest.raises(licclient.errors.ServiceUnavailableError):
        client.verify()
