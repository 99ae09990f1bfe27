"""`licclient.testing.answer_dialog`, used as an app's developer would: with the app's own calls."""

import threading

import pytest

from licclient import ClientSettings, Downloaded
from licclient.testing import MemoryStorage, answer_dialog

pytestmark = pytest.mark.window
SETTINGS = ClientSettings("https://licenses.example.com", product="Notes", slug="notes", version="1.0")
THANKS = "Thank you. Your license is active."


@pytest.fixture
def client(license_service):
    """The client of an app."""
    return license_service.client(SETTINGS)


@pytest.fixture
def export(hands, client):
    """A function that asks for a key."""

    def ask(problem):
        return hands.kit.ask_for_key(client, hands.parent, problem=problem, trial=True, language="en")

    return client.licensed(otherwise=ask)(lambda: "exported")


@pytest.fixture
def offer(hands, client, license_service, tmp_path):
    """A function that offers an update."""
    license_service.issue("Notes", activated=True)
    license_service.publish("2.0")
    update = client.check_for_update().update
    return lambda: hands.kit.offer_update(client, update, tmp_path, hands.parent)


def test_a_key_is_typed_and_the_function_runs(export, license_service):
    """The call that opened the dialog returns within the block, without any loop of the test's."""
    key = license_service.issue("Notes")
    with answer_dialog("Activate", "Close", key=key.lower()) as messages:
        assert export() == "exported"
    assert messages == [THANKS]
    assert export() == "exported"
    assert license_service.count("verify") == 1


def test_a_refusal_is_read_and_the_dialog_closed(export, license_service):
    """What the dialog says can be compared."""
    key = license_service.issue("Notes")
    license_service.revoke(key)
    with answer_dialog("Activate", "Not now", key=key) as messages:
        assert export() is None
    assert messages == ["This license has been revoked. Please contact support."]


def test_a_license_is_moved_here(export, license_service):
    """The computer is named by how its entry begins; one that is not listed fails the test."""
    key = license_service.issue("Notes", slots=1)
    license_service.client(SETTINGS, storage=MemoryStorage(), label="Anna's MacBook").activate(key)
    missing = "the dialog lists no computer 'Office'; its computers: .\"Anna's MacBook"
    with pytest.raises(AssertionError, match=missing), answer_dialog("Activate", key=key, computer="Office"):
        assert export() is None
    with answer_dialog("Activate", "Move the license here", "Close", key=key, computer="Anna") as messages:
        assert export() == "exported"
    assert messages == [f"The license was moved here from Anna's MacBook. {THANKS}"]


def test_a_trial_is_started(export, license_service):
    """Its button is named by the English text, like all of them."""
    license_service.offer_trials("Notes", slug="notes")
    with answer_dialog("Start trial", "Close"):
        assert export() == "exported"


@pytest.mark.parametrize("language", ["en", "ja"])
def test_an_update_is_downloaded_in_any_language(hands, client, offer, language, monkeypatch):
    """The names of the buttons are the same."""
    monkeypatch.setattr("licclient.dialogs._driver.system_languages", lambda: [language])
    with answer_dialog("Download", "Continue"):
        assert isinstance(offer(), Downloaded)
    with answer_dialog("Later"):
        assert offer() is None
    with answer_dialog("Skip this version"):
        assert offer() is None
    assert offer() is None, "no window: this would hang"


def test_two_dialogs_are_answered_in_their_order(export, offer, client, license_service):
    """One block, one answer a dialog."""
    client.forget_key()
    key = license_service.issue("Notes")
    with answer_dialog("Activate", "Close", key=key), answer_dialog("Later"):
        assert export() == "exported"
        assert offer() is None


def test_what_does_not_go_as_planned_fails_the_test_and_hangs_nothing(hands, client, export):
    """Fail for no dialog, a missing button, a dialog that stays open, or a second one; close what is open."""
    with pytest.raises(AssertionError, match="no dialog was shown"), answer_dialog("Close"):
        pass
    message = "has no button 'Close'; its buttons: Activate, Not now, Start trial; its message: 'Not a valid"
    with pytest.raises(AssertionError, match=message), answer_dialog("Activate", "Close", key="AB"):
        assert export() is None
    with pytest.raises(AssertionError, match="is still open"), answer_dialog():
        assert export() is None
    with (
        pytest.raises(AssertionError, match="another dialog was shown: 'Activate Notes'"),
        answer_dialog("Not now"),
    ):
        assert (export(), export()) == (None, None)
    with pytest.raises(ValueError, match="no dialog has a button 'OK', but Activate, Move the license here"):
        answer_dialog("OK").__enter__()


def test_a_block_that_ends_too_early_closes_its_dialog(hands, client, monkeypatch):
    """An app that does not wait for the dialog needs a test that does."""
    requested, answered = threading.Event(), threading.Event()
    monkeypatch.setattr(client, "activate", lambda _: requested.set() or answered.wait(20))

    def open_dialog():
        with answer_dialog("Activate", "Close", key="CP-TEST00-TEST00-TEST00-TEST00-TEST00"):
            hands.open(hands.kit.ActivationDialog(client, hands.parent))
            hands.until(requested.is_set)

    with pytest.raises(AssertionError, match="run the event loop within it"):
        open_dialog()
    assert not hands.is_open()
    answered.set()


def test_an_error_of_the_test_comes_through():
    """It is not hidden by an answer that was not used."""
    with pytest.raises(KeyError), answer_dialog("Close"):
        raise KeyError
