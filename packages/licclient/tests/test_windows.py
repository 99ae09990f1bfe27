"""The dialogs as a person uses them, in both toolkits: real windows, a real service on a real socket."""

import asyncio
import threading
from dataclasses import replace
from datetime import date
from functools import partial

import pytest

from licclient import LicenseClient, Pages
from licclient._core.texts import LANGUAGES
from licclient.dialogs._states import Action

pytestmark = pytest.mark.window
KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
ENGLISH = {"language": "en"}


@pytest.fixture
def client(service, clock, tmp_path):
    """An app's client; patient, so that nothing ends here but what is ended."""
    urls = {"pages": Pages(buy="https://x.example/buy", manage="https://x.example/me")}
    options = {"storage": tmp_path / "state", "clock": clock, "timeout": 60, **urls}
    with LicenseClient(service.url, product="Notes", slug="notes", version="1.0", **options) as client:
        yield client


@pytest.fixture
def gate(store, service):
    """A store whose files stop after the first third until they are let through."""
    opened = threading.Event()

    def reply(request):
        raw = store.reply(request)
        if not request.path.endswith("update-download"):
            return raw
        head = len(raw) - 200_000

        def pieces():
            yield raw[:head]
            opened.wait(20)
            yield raw[head:]

        return pieces()

    service.script = reply
    yield opened
    opened.set()


# --- activation -------------------------------------------------------------------------------


def test_a_key_is_entered_with_the_keyboard_alone(hands, client, service):
    """A slip is explained without a call; Enter asks about the mended key, and a second one closes."""
    service.grants(expiry="2027-12-31")
    hands.open(hands.kit.ActivationDialog(client, hands.parent, **ENGLISH))
    assert hands.heading() == "Activate Notes"
    assert hands.focus() == "body"
    hands.type(KEY[:-2].lower())
    hands.enter()
    assert hands.message() == "⚠\u00a0The license key is incomplete. Characters missing: 2"
    assert hands.colour() == "#b3261e"
    hands.type("45")
    assert hands.message() == ""
    assert service.count() == 0
    hands.enter()
    hands.until(lambda: hands.message().startswith("✓"))
    assert hands.message() == "✓\u00a0Thank you. Your license is active until Dec 31, 2027."
    assert (hands.body(), hands.buttons(), hands.bar()) == (KEY, ["Close"], None)
    hands.enter()
    hands.until(lambda: not hands.is_open())
    assert hands.dialog.license.checked_at == client.verify().checked_at
    assert service.count() == 1


def test_a_key_is_pasted_and_the_mouse_does_the_rest(hands, client, service):
    """Look-alike dashes and all; a refusal is shown, and another key takes its place."""
    service.refuses(403, "License has been revoked.")
    hands.open(hands.kit.ActivationDialog(client, hands.parent, **ENGLISH))
    hands.paste(f"  “{KEY.replace('-', '–')}”. ")
    hands.click(Action.GO)
    hands.until(lambda: hands.message() == "⚠\u00a0This license has been revoked. Please contact support.")
    assert hands.body() == KEY
    service.grants()
    hands.click(Action.GO)
    hands.until(lambda: hands.message() == "✓\u00a0Thank you. Your license is active.")
    hands.click(Action.GO)
    hands.until(lambda: not hands.is_open())
    assert hands.dialog.license is not None


def test_a_trial_is_started_with_its_button(hands, client, service):
    """A refusal is shown; when the trial has begun, the window says how long it lasts."""
    hands.open(hands.kit.ActivationDialog(client, hands.parent, trial=True, **ENGLISH))
    assert sorted(hands.buttons()) == ["Activate", "Not now", "Start trial"]
    service.responds(403, {"error": "too_many_trials", "message": "no"})
    hands.click(Action.SKIP)
    hands.until(lambda: "No more trials" in hands.message())
    fields = {"valid": True, "product": "Notes", "expiry": "2027-12-31", "lifetime": False, "trial": True}
    service.responds(200, {**fields, "license_key": KEY})  # one answer for both requests
    hands.click(Action.SKIP)
    hands.until(lambda: hands.message().startswith("✓"))
    assert hands.heading() == "Your trial has begun"
    assert hands.message() == "✓\u00a0The trial ends on Dec 31, 2027."
    hands.enter()
    hands.until(lambda: not hands.is_open())
    assert (hands.dialog.license.is_trial, client.verify().is_trial) == (True, True)


@pytest.mark.parametrize("way", ["escape", "alt", "click", "close", "tab and space", "tab and enter"])
def test_it_can_be_closed_without_a_license(hands, client, service, way):
    """By Escape, by letter, by mouse, by the window's own button, and by Tab."""
    hands.open(hands.kit.ActivationDialog(client, hands.parent, **ENGLISH))
    match way:
        case "escape":
            hands.escape()
        case "alt":
            hands.alt("n")
        case "click":
            hands.click(Action.LEAVE)
        case "close":
            hands.close_window()
        case "tab and space" | "tab and enter":
            while hands.focus() != "Not now":
                hands.tab()
            hands.space() if "space" in way else hands.enter()
    hands.until(lambda: not hands.is_open())
    assert hands.dialog.license is None
    assert service.count() == 0


def test_tab_goes_through_everything_and_back(hands, client):
    """The field first, and nothing but what can be used."""
    hands.open(hands.kit.ActivationDialog(client, hands.parent, **ENGLISH))
    seen = [hands.focus()]
    assert seen == ["body"]
    while hands.tab() or hands.focus() != "body":
        seen.append(hands.focus())
        assert len(seen) < 9
    assert sorted(set(seen)) == ["Activate", "Not now", "body", "links"]


def test_the_window_lives_while_the_service_is_asked(hands, client, service, http_answer):
    """The call runs on another thread; closing does not wait for it, and its result still counts (D-85)."""
    requested, answered = threading.Event(), threading.Event()

    def slow(_):
        requested.set()
        answered.wait(20)
        return http_answer(200, {"valid": True, "product": "Notes", "expiry": None, "lifetime": False})

    service.script = slow
    hands.open(hands.kit.ActivationDialog(client, hands.parent, **ENGLISH))
    hands.paste(KEY)
    hands.enter()
    hands.until(requested.is_set)
    hands.until(lambda: hands.bar() is not None)
    assert hands.message() == "Checking the license key …"
    hands.type("X")
    hands.enter()
    assert hands.body() == KEY
    hands.escape()
    hands.until(lambda: not hands.is_open())
    assert hands.dialog.license is None
    answered.set()
    hands.until(lambda: client.status().state == "valid")
    assert service.count() == 1


def test_a_mistake_does_not_leave_a_dead_window(hands, client, monkeypatch):
    """An unexpected error is shown in general words and passed to the app's hook, and nothing is stuck."""
    exceptions = []
    monkeypatch.setattr(threading, "excepthook", lambda args: exceptions.append(args.exc_type))
    monkeypatch.setattr(client, "activate", lambda _: 1 / 0)
    hands.open(hands.kit.ActivationDialog(client, hands.parent, **ENGLISH))
    hands.paste(KEY)
    hands.enter()
    hands.until(lambda: hands.message().startswith("⚠\u00a0An unexpected problem"))
    assert exceptions == [ZeroDivisionError]
    assert hands.buttons()


# --- update -----------------------------------------------------------------------------------


def _offer(hands, client, folder):
    client.activate(KEY)
    update = client.check_for_update(force=True).update
    assert update is not None
    hands.open(hands.kit.UpdateDialog(client, update, folder, hands.parent, **ENGLISH))
    return update


@pytest.fixture
def shop(service, store, http_answer):
    """The store, behind a service that knows the key."""
    inner = service.script

    def reply(request):
        if request.path.endswith("verify"):
            return http_answer(200, {"valid": True, "product": "Notes", "expiry": None, "lifetime": False})
        return inner(request)

    service.script = reply
    return store


def test_an_update_is_downloaded_with_the_keyboard_alone(hands, client, shop, folder):
    """Enter downloads, the changelog is text, and the verified file is handed over."""
    _offer(hands, client, folder)
    assert hands.heading() == "Notes 2.0 is available"
    assert hands.body() == "Faster."
    assert sorted(hands.buttons()) == ["Download", "Later", "Skip this version"]
    hands.enter()
    hands.until(lambda: hands.message() == "✓\u00a0Downloaded and verified.")
    assert (hands.buttons(), hands.bar()) == (["Continue"], 1.0)
    hands.enter()
    hands.until(lambda: not hands.is_open())
    assert hands.dialog.file.path.read_bytes() == shop.content
    assert [path.name for path in folder.iterdir()] == ["notes-2.0.zip"]


def test_a_download_is_cancelled_and_taken_up_again(hands, client, gate, shop, folder):
    """Escape stops it and leaves the offer; the next try goes on where it stopped."""
    _offer(hands, client, folder)
    hands.click(Action.GO)
    hands.until(lambda: 0 < (hands.bar() or 0) < 1)
    assert hands.buttons() == ["Cancel"]
    assert hands.focus() == "Cancel"
    assert " of 300.0 kB" in hands.message()
    hands.escape()
    hands.until(lambda: hands.message() == "The download was cancelled.")
    assert hands.is_open()
    assert hands.focus() == "body"
    gate.set()
    hands.click(Action.GO)
    hands.until(lambda: hands.message() == "✓\u00a0Downloaded and verified.")
    assert len(shop.requested_ranges) == 2
    assert shop.requested_ranges[1] is not None
    hands.escape()
    assert hands.dialog.file is not None


@pytest.mark.parametrize("whole_app", [False, True])
def test_closing_the_window_cancels_the_download(
    hands, client, gate, shop, folder, eventually_gone, whole_app
):
    """The dialog's own or the app's: the thread ends soon, and what has come stays for the next time."""
    _offer(hands, client, folder)
    hands.enter()
    hands.until(lambda: 0 < (hands.bar() or 0) < 1)
    if whole_app:
        hands.end()
    else:
        hands.close_window()
        assert not hands.is_open()
        assert hands.dialog.file is None
    eventually_gone("licclient-dialog")
    assert any(path.suffix == ".part" for path in folder.iterdir())


@pytest.fixture
def eventually_gone():
    """Wait until no thread of that name is left."""

    def wait(name: str) -> None:
        for thread in threading.enumerate():
            if thread.name == name:
                thread.join(10)
                assert not thread.is_alive()

    return wait


def test_a_skipped_version_is_offered_no_more_unasked(hands, client, shop, folder):
    """Skipping is remembered for this version alone, and who asks sees it again (D-87)."""
    update = _offer(hands, client, folder)
    hands.alt("s")
    hands.until(lambda: not hands.is_open())
    assert hands.dialog.file is None
    assert client.is_skipped(update)
    assert hands.kit.offer_update(client, update, folder, hands.parent) is None, "no window: this would hang"


def test_a_security_update_is_read_about_and_postponed(hands, client, service, shop, folder, monkeypatch):
    """Its advisory opens in the browser; nothing skips it, and it is offered again (D-323)."""
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    listing = service.listing
    members = {"security": {"advisory": "https://x.example/advisory", "cves": ["CVE-2026-1234"]}}
    members |= {"latest_version": "3.0", "updates_until": "2026-06-30"}
    service.listing = lambda version, **changes: listing(version, **changes) | members
    update = _offer(hands, client, folder)
    assert hands.message() == (
        "This is a security update. Please install it soon."
        " Your license does not cover the newest version, 3.0. To get it, please renew the license."
    )
    assert sorted(hands.buttons()) == ["Download", "Remind me later"]
    hands.follow("Security advisory")
    hands.follow("Renew the license")
    hands.until(lambda: len(opened) == 2)
    assert opened == ["https://x.example/advisory", "https://x.example/buy"]
    hands.alt("r")
    hands.until(lambda: not hands.is_open())
    assert hands.dialog.file is None
    assert not client.is_skipped(update)


def test_an_update_without_words_shows_no_empty_box(hands, client, service, shop, folder):
    """There is no changelog to show."""
    listing = service.listing
    service.listing = lambda version, **changes: listing(version, **changes) | {"sections": {"changelog": ""}}
    _offer(hands, client, folder)
    assert hands.body() == ""
    if hasattr(hands.dialog, "_box"):
        assert not hands.dialog._box.winfo_ismapped()
    else:
        assert not hands.dialog._body.isVisible()


def test_a_client_without_a_slug_cannot_offer(hands, service, shop, client, folder):
    """As everywhere: a mistake of the app's is raised in the app."""
    client.activate(KEY)
    update = client.check_for_update(force=True).update
    with LicenseClient(service.url) as other, pytest.raises(ValueError, match="slug="):
        hands.kit.UpdateDialog(other, update, folder, hands.parent)


# --- both -------------------------------------------------------------------------------------


def test_dialogs_queue(hands, client, shop, folder):
    """An update that arrives while a key is entered waits until that window is closed; then it is shown."""
    client.activate(KEY)
    update = client.check_for_update(force=True).update
    hands.open(hands.kit.ActivationDialog(client, hands.parent, **ENGLISH))
    first, waiting = hands.dialog, []
    for _ in range(2):
        waiting.append(hands.kit.UpdateDialog(client, update, folder, hands.parent, **ENGLISH))
        hands.show(waiting[-1])
    hands.rest()
    assert [hands.is_shown(dialog) for dialog in (first, *waiting)] == [True, False, False]
    hands.close(waiting[0])  # before its turn
    hands.close_window()
    hands.until(lambda: hands.is_shown(waiting[1]))
    hands.close(waiting[1])


def test_a_link_without_a_browser_shows_the_address(hands, client, service, monkeypatch):
    """A person can write it down, or open it elsewhere; the next click goes on as before."""
    monkeypatch.setattr("licclient.dialogs._driver.open_page", lambda _: False)
    service.refuses(404, "License not found.")
    hands.open(hands.kit.ActivationDialog(client, hands.parent, **ENGLISH))
    hands.paste(KEY)
    hands.enter()
    hands.until(hands.links)
    hands.follow("Buy a license")
    address = "No browser could be opened. The address is: https://x.example/buy"
    hands.until(lambda: address in hands.message())
    assert (hands.body(), hands.links()) == (KEY, ["Buy a license"])
    service.grants()
    hands.click(Action.GO)
    hands.until(lambda: hands.message().startswith("✓"))


def test_links_open_in_the_browser(hands, client, service, monkeypatch):
    """When all slots are taken, the first link leads to where one is freed; with mouse and keyboard."""
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    service.refuses(403, "Max activations exceeded or unrecognized environment.")
    hands.open(hands.kit.ActivationDialog(client, hands.parent, **ENGLISH))
    assert hands.links() == ["Buy a license"]
    hands.paste(KEY)
    hands.enter()
    hands.until(lambda: hands.message().startswith("⚠"))
    assert hands.links() == ["Manage your computers", "Buy a license"]
    hands.follow("Manage your computers")
    hands.until(lambda: opened)
    assert opened == ["https://x.example/me"]


def test_control_a_selects_all(hands, client):
    """What is typed then replaces the key."""
    hands.open(hands.kit.ActivationDialog(client, hands.parent, **ENGLISH))
    hands.paste(KEY)
    hands.control_a()
    hands.type("CP")
    assert hands.body() == "CP"


@pytest.mark.parametrize("hands", ["tk"], indirect=True)
def test_tk_keys_work_with_caps_lock(hands, client):
    """Tk then calls a letter by its capital."""
    hands.open(hands.kit.ActivationDialog(client, hands.parent, **ENGLISH))
    hands.paste(KEY)
    hands.dialog.focus_get().event_generate("<Control-Lock-a>")
    hands.type("CP")
    assert hands.body() == "CP"
    hands.alt("Lock-n")
    hands.until(lambda: not hands.is_open())


@pytest.mark.parametrize("hands", ["qt"], indirect=True)
def test_no_coroutine_waits_for_a_window_of_qt(hands, client):
    """With asyncio in Qt's loop (qasync) its other tasks, as the worker's, would hang for good."""
    dialog = hands.kit.ActivationDialog(client, hands.parent, **ENGLISH)

    async def wait():
        hands.core.QTimer.singleShot(200, dialog.close)  # if it waits after all
        with pytest.raises(RuntimeError, match=r"deliver = to_qt\(\)"):
            dialog.run()

    asyncio.run(wait())
    assert not dialog.isVisible()


@pytest.mark.parametrize("hands", ["tk"], indirect=True)
@pytest.mark.parametrize("dark", [False, True])
def test_tk_can_be_dark(hands, client, dark):
    """Where the app has chosen no theme."""
    dialog = hands.kit.ActivationDialog(client, hands.parent, dark=dark)
    assert (dialog.winfo_rgb(dialog["background"])[0] < 0x8000) is dark


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_is_cut_off_in_any_language(hands, client, shop, folder, language):
    """Each button is as wide as its text wants it, and the window as its buttons."""
    client.activate(KEY)
    update = client.check_for_update(force=True).update
    covered = replace(update, latest_version="3.0", updates_until=date(2027, 12, 31))
    pressing = replace(covered, is_security=True, is_required=True, advisory="https://x.example/advisory")
    for make in (
        lambda: hands.kit.ActivationDialog(client, hands.parent, language=language),
        *(
            partial(hands.kit.UpdateDialog, client, offer, folder, hands.parent, language=language)
            for offer in (update, covered, pressing)
        ),
    ):
        hands.open(make())
        assert hands.buttons()
        assert hands.cut_off() == []
        hands.close_window()
        hands.until(lambda: not hands.is_open())


def test_text_that_no_key_typed_counts(hands, client, service):
    """Dictation, form fillers and screen readers set the field's text."""
    service.grants()
    hands.open(hands.kit.ActivationDialog(client, hands.parent, **ENGLISH))
    field = hands.dialog._field
    if hasattr(field, "setText"):
        field.setText(KEY)
    else:
        field.insert(0, KEY)
    hands.click(Action.GO)
    hands.until(lambda: hands.message().startswith("✓"))
    assert hands.body() == KEY
