"""An app starts a trial: what the service may answer, what names the computer, and what is remembered."""

import errno
import itertools
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import httpx
import pytest

from licclient import AsyncLicenseClient, LicenseClient, Reason, Trust, explain
from licclient._core import computer as machines
from licclient._core.responses import Reply
from licclient._trials.protocol import read_trial
from licclient.dialogs._driver import begin_activation
from licclient.dialogs._states import Action, ActivationState, Command, Ended, Pressed
from licclient.errors import (
    InvalidRequestError,
    LicenseRefusedError,
    ServiceUnavailableError,
    StateUnreadableError,
    UntrustedResponseError,
)
from licclient.testing import LicenseService, MemoryStorage, Misbehaviour

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b'{"license_key": "KEY"}', str),
        (200, b'{"license_key": " KEY"}', ServiceUnavailableError),
        (200, b'{"license_key": ""}', ServiceUnavailableError),
        (200, b'{"license_key": 7}', ServiceUnavailableError),
        (200, b"<html>", ServiceUnavailableError),
        (403, b"<html>", ServiceUnavailableError),
        (403, b'{"error": "something_new", "message": "no"}', ServiceUnavailableError),
        (403, b'{"error": "trial_ended"}', LicenseRefusedError),
        (404, b'{"error": "product_not_found", "message": "no"}', LicenseRefusedError),
        (422, b'{"message": "no", "errors": {"slug": ["no"]}}', InvalidRequestError),
        (429, b'{"error": "too_many_requests", "message": "no"}', ServiceUnavailableError),
        (503, b"", ServiceUnavailableError),
    ],
)
def test_what_the_service_answers(status, body, kind):
    """Only the service's own words are a key or a refusal."""
    assert isinstance(read_trial(Reply(status, body.replace(b"KEY", KEY.encode()))), kind)


def test_a_refusal_keeps_the_words_of_the_service():
    """If there are any."""
    words = {"error": "trial_ended", "message": "It has ended."}
    assert read_trial(Reply(403, json.dumps(words).encode())).message == "It has ended."
    assert read_trial(Reply(403, b'{"error": "trial_ended"}')).message == ""


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (403, "trial_ended", Reason.TRIAL_ENDED),
        (403, "trials_not_offered", Reason.TRIAL_NOT_OFFERED),
        (403, "too_many_trials", Reason.TRIAL_LIMIT),
        (404, "product_not_found", Reason.TRIAL_NOT_OFFERED),
        (404, "not_found", Reason.TRIAL_NOT_OFFERED),  # a server without trials
        (405, "", Reason.TRIAL_NOT_OFFERED),
        (501, "", Reason.TRIAL_NOT_OFFERED),
    ],
)
def test_a_refusal_has_a_reason_and_leaves_everything_as_it_was(tmp_path, status, code, reason):
    """A key that was there stays, and people get a message in their language."""
    verified = {"valid": True, "product": "App", "expiry": None, "lifetime": False}
    answers = {"verify": httpx.Response(200, json=verified)}
    answers["trial"] = httpx.Response(status, json={"error": code, "message": "no"})
    transport = httpx.MockTransport(lambda request: answers[request.url.path.rpartition("/")[2]])
    options = {"slug": "app", "storage": tmp_path, "transport": transport}
    with LicenseClient("https://licenses.example", **options) as client:
        client.activate(KEY)
        with pytest.raises(LicenseRefusedError) as refused:
            client.start_trial()
        assert refused.value.reason is reason
        assert not client.require().is_trial
    assert len({explain(refused.value, language) for language in ("en", "de", "fr", "es", "ja", "zh")}) == 6


@pytest.fixture
def shop(license_service: LicenseService) -> LicenseService:
    """A service with trials."""
    license_service.offer_trials("App", slug="app", days=14)
    return license_service


def test_a_trial_is_used_until_it_ends_and_then_a_key_is_bought(shop):
    """It works without the network as a key does, ends with a sentence, and a purchased key replaces it."""
    with shop.client(product="App", slug="app") as client:
        trial = client.start_trial()
        assert (trial.is_trial, (trial.expiry - shop.clock().date()).days) == (True, 14)
        assert client.start_trial().expiry == trial.expiry
        with shop.offline():
            shop.clock.move(days=2)
            assert client.require().is_trial
        shop.clock.move(days=13)
        with pytest.raises(LicenseRefusedError) as ended:
            client.require()
        assert ended.value.reason is Reason.EXPIRED
        with pytest.raises(LicenseRefusedError) as again:
            client.start_trial()
        assert "has ended" in explain(again.value, "en")
        bought = client.activate(shop.issue("App", slug="app"))
        assert (bought.is_trial, client.require().is_trial) == (False, False)
        domains = {request.fields["domain"] for request in shop.requests if request.kind == "verify"}
    assert len(domains) == 1, "the installation keeps its id"


def test_a_trial_that_was_bought_goes_on_with_its_key(shop):
    """The vendor converts it, and the next verify says so."""
    with shop.client(product="App", slug="app") as client:
        client.start_trial()
        shop.convert(shop.requests[-1].license_key or "")
        assert client.require().is_trial
        assert not client.verify(force=True).is_trial
        assert client.require().expiry is None


def test_an_app_that_was_installed_again_has_its_trial(shop):
    """Its state is gone, the computer is the same; what was installed before is refused from then on."""
    first, second = MemoryStorage(), MemoryStorage()
    second.machine_id = first.machine_id
    with shop.client(slug="app", storage=first) as before, shop.client(slug="app", storage=second) as again:
        started = before.start_trial()
        assert again.start_trial().expiry == started.expiry
        with pytest.raises(LicenseRefusedError):
            before.verify(force=True)


async def test_the_asynchronous_client_has_trials(shop):
    """Another computer has another one."""
    async with shop.async_client(slug="app") as client:
        assert isinstance(client, AsyncLicenseClient)
        assert (await client.start_trial()).is_trial
    with shop.client(slug="app", storage=MemoryStorage()) as other:
        other.start_trial()
    assert len({request.license_key for request in shop.requests if request.kind == "verify"}) == 2


def test_a_trial_is_believed_only_if_it_was_signed(shop):
    """With pinned keys an unsigned answer is refused, and what is remembered is checked again."""
    storage = MemoryStorage()
    options = {"slug": "app", "trust": Trust(public_keys=[shop.public_key]), "storage": storage}
    with shop.client(**options) as client:
        shop.misbehave(Misbehaviour.UNSIGNED)
        with pytest.raises(UntrustedResponseError):
            client.start_trial()
        shop.come_back()
        assert client.start_trial().is_authenticated
    with shop.client(**options) as started, shop.offline():
        assert (started.require().is_trial, started.require().is_authenticated) == (True, True)


def test_without_a_slug_there_is_no_trial(shop):
    """It is a mistake of the app."""
    with shop.client() as client, pytest.raises(ValueError, match="slug"):
        client.start_trial()


# --- what names the computer ------------------------------------------------------------------


def test_two_products_cannot_be_linked_by_the_machine():
    """The hash is another one for each product, and always the same for one."""
    first, again, other = (machines.hash_machine(slug, "4f8a1c0e") for slug in ("app", "app", "other"))
    assert first == again != other
    assert len(first) == 64


def test_the_id_of_a_linux_machine(tmp_path, monkeypatch):
    """The first file with an id counts; an empty one, and one of a system on its first start, do not."""
    files = [tmp_path / name for name in ("missing", "empty", "new", "id")]
    for file, content in zip(files[1:], ("", "uninitialized\n", "4F8A\n"), strict=True):
        file.write_text(content)
    monkeypatch.setattr(machines, "LINUX_FILES", [str(file) for file in files])
    monkeypatch.setattr(sys, "platform", "linux")
    assert machines.read_machine_id() == "4f8a"
    monkeypatch.setattr(machines, "LINUX_FILES", [str(file) for file in files[:3]])
    assert machines.read_machine_id() is None


@pytest.mark.parametrize(
    ("output", "expected"),
    [(b'  "IOPlatformUUID" = "AB-12"\n', "ab-12"), (b'"IOPlatformUUID" = ""', None), (b"", None)],
)
def test_the_id_of_a_mac(monkeypatch, output, expected):
    """It is what ioreg prints."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: SimpleNamespace(stdout=output))
    assert machines.read_machine_id() == expected


def test_a_mac_that_does_not_answer_is_no_other_computer(monkeypatch):
    """Named by the installation it would get a second trial; so the trial is asked for again."""

    def hang(command, **_: object):
        raise subprocess.TimeoutExpired(command, 5)

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("subprocess.run", hang)
    with pytest.raises(StateUnreadableError, match="ioreg"):
        machines.read_machine_id()


@pytest.mark.parametrize(
    ("error", "lasts", "found"),
    [
        (errno.EACCES, False, "4f8a"),
        (errno.EMFILE, False, "4f8a"),
        (errno.EACCES, True, None),  # in a sandbox, always
        (errno.EMFILE, True, StateUnreadableError),
        (errno.EIO, True, StateUnreadableError),
    ],
)
def test_an_id_that_cannot_be_read_is_not_replaced(tmp_path, monkeypatch, error, lasts, found):
    """A computer that was named otherwise for a moment would get a second trial."""
    file, real, failures = tmp_path / "id", os.open, itertools.count()
    file.write_text("4f8a\n")

    def fail(path, *args: object) -> int:
        if str(path) == str(file) and (next(failures) == 0 or lasts):
            raise OSError(error, os.strerror(error), str(path))
        return real(path, *args)

    monkeypatch.setattr("licclient._core.storage.sleep", lambda _: None)
    monkeypatch.setattr(machines, "LINUX_FILES", [str(file)])
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "open", fail)
    if found is StateUnreadableError:
        with pytest.raises(StateUnreadableError):
            machines.read_machine_id()
    else:
        assert machines.read_machine_id() == found


@pytest.mark.parametrize("is_there", [True, False])
def test_the_id_of_a_windows_machine(monkeypatch, is_there):
    """It is in the registry, in the half for 64 bits, or cannot be read."""

    def find(_, name):
        if not is_there:
            raise FileNotFoundError(name)
        return "4F8A", 1

    def open_key(root, path, options, access):
        assert (root, path, options, access) == ("machine", r"SOFTWARE\Microsoft\Cryptography", 0, 3)
        return nullcontext()

    names = {"KEY_READ": 1, "KEY_WOW64_64KEY": 2, "HKEY_LOCAL_MACHINE": "machine"}
    registry = SimpleNamespace(**names, OpenKey=open_key, QueryValueEx=find)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "winreg", registry)
    assert machines.read_machine_id() == ("4f8a" if is_there else None)


def test_a_computer_without_an_id_is_named_by_its_installation(monkeypatch, tmp_path, shop):
    """So a container has trials as well; a new installation is a new one."""
    monkeypatch.setattr("licclient._trials.flow.read_machine_id", lambda: None)
    for folder in ("a", "a", "b"):
        with LicenseClient(
            "https://licenses.example.com", slug="app", storage=tmp_path / folder, transport=shop.transport
        ) as client:
            client._session.now = shop.clock
            client.start_trial()
    machines = [request.fields["machine"] for request in shop.requests if request.kind == "trial"]
    assert machines[0] == machines[1] != machines[2]


# --- the dialog -------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [Reason.TRIAL_ENDED, Reason.TRIAL_LIMIT])
def test_the_dialog_starts_a_trial(reason):
    """A button beside the others, if the app wants it; after a refusal a key can be typed.

    Only a trial that is over is not offered again.
    """
    assert ActivationState("en").view().skip is None
    assert ActivationState("en").step(Pressed(Action.SKIP)) == (ActivationState("en"), None)
    asking, command = ActivationState("en", offers_trial=True).step(Pressed(Action.SKIP))
    assert command is Command.START_TRIAL
    refusal = LicenseRefusedError(reason, "no")
    shown = asking.step(Ended(refusal))[0].view()
    assert (shown.message != "", shown.is_editable) == (True, True)
    assert (shown.skip is None) == (reason is Reason.TRIAL_ENDED)


def test_the_button_needs_a_slug(shop):
    """A window that cannot work does not open."""
    with shop.client() as client, pytest.raises(ValueError, match="slug"):
        begin_activation(client, None, "en", trial=True)
