"""A license whose computers are all in use, as a person meets it in the windows of both toolkits."""

import threading

import pytest

from licclient._core.texts import LANGUAGES
from licclient.dialogs._states import Action
from licclient.errors import LicenseRefusedError
from licclient.testing import LicenseService, MemoryStorage, answer_dialog

pytestmark = pytest.mark.window
SETTINGS = {"product": "Notes", "slug": "notes", "version": "1.0"}


@pytest.fixture
def desk(license_service: LicenseService):
    """A service, a key whose two slots are in use, and the client of a third computer."""
    key = license_service.issue("Notes", slots=2)
    for label in ("Anna's MacBook", None):
        license_service.client(storage=MemoryStorage(), label=label, **SETTINGS).activate(key)
        license_service.clock.move(days=1)
    client = license_service.client(storage=MemoryStorage(), label="Anna's laptop", **SETTINGS)
    return license_service, key, client


def _enter_key(hands, client, key, language="en"):
    hands.open(hands.kit.ActivationDialog(client, hands.parent, language=language))
    hands.paste(key)
    hands.enter()
    hands.until(hands.choices)


def test_a_license_is_moved_in_two_clicks(hands, desk):
    """The list comes by itself, with names and days; one click chooses, the next one moves."""
    service, key, client = desk
    _enter_key(hands, client, key)
    assert hands.heading() == "All computers are in use"
    nameless, macbook = hands.choices()
    assert macbook == "Anna's MacBook · last seen Jan 15, 2030"
    assert nameless.startswith("Computer ")
    assert sorted(hands.buttons()) == ["Enter another key", "Move the license here", "Not now"]
    hands.choose(1)
    hands.until(hands.chosen)
    assert hands.chosen() == [macbook]
    hands.click(Action.GO)
    hands.until(lambda: hands.message().startswith("✓"))
    assert "moved here from Anna's MacBook" in hands.message()
    assert (hands.choices(), hands.body(), hands.buttons()) == ([], key, ["Close"])
    hands.enter()
    hands.until(lambda: not hands.is_open())
    assert hands.dialog.license is not None
    assert service.count("move") == 1


def test_the_keyboard_is_enough(hands, desk):
    """The list has the focus; arrows choose, Enter moves, and nothing is moved without a choice."""
    service, key, client = desk
    _enter_key(hands, client, key)
    hands.enter()
    hands.until(lambda: hands.message() == "⚠\u00a0Please choose a computer.")
    assert (service.count("move"), hands.chosen()) == (0, [])
    hands.key("Down")
    hands.until(lambda: hands.chosen() == hands.choices()[:1])
    hands.key("Down")
    hands.until(lambda: hands.chosen() == hands.choices()[1:])
    assert hands.message() == ""
    hands.enter()
    hands.until(lambda: hands.message().startswith("✓"))
    assert service.count("move") == 1


def test_another_key_takes_the_place_of_the_list(hands, desk):
    """The field is there again and has the focus."""
    service, key, client = desk
    _enter_key(hands, client, key)
    hands.click(Action.SKIP)
    hands.until(lambda: not hands.choices())
    assert hands.message().startswith("⚠\u00a0All computers")
    assert (hands.body(), hands.focus()) == (key, "body")
    hands.control_a()
    hands.paste(service.issue("Notes"))
    hands.enter()
    hands.until(lambda: hands.message() == "✓\u00a0Thank you. Your license is active.")


def test_a_service_without_lists_shows_what_it_showed(hands, client_of_another_service):
    """The refusal, beside the field."""
    client, key = client_of_another_service
    hands.open(hands.kit.ActivationDialog(client, hands.parent, language="en"))
    hands.paste(key)
    hands.enter()
    hands.until(lambda: hands.message().startswith("⚠\u00a0All computers"))
    assert (hands.body(), sorted(hands.buttons())) == (key, ["Activate", "Not now"])


@pytest.fixture
def client_of_another_service(make_client, service, key, http_answer):
    """A client of a service without the extension."""
    full = {"valid": False, "reason": "Max activations exceeded or unrecognized environment."}

    def reply(request):
        return http_answer(403, full) if request.path.endswith("verify") else http_answer(404, {})

    service.script = reply
    return make_client().client, key


def test_the_window_lives_while_a_license_is_moved(hands, desk, monkeypatch):
    """Closing does not wait; the move that was sent counts."""
    _, key, client = desk
    sent, answered = threading.Event(), threading.Event()
    move_here = type(client.computers).move_here

    def slow(computers, computer, key):
        sent.set()
        answered.wait(20)
        return move_here(computers, computer, key)

    monkeypatch.setattr(type(client.computers), "move_here", slow)
    _enter_key(hands, client, key)
    hands.choose(0)
    hands.click(Action.GO)
    hands.until(sent.is_set)
    hands.until(lambda: hands.message() == "Moving the license …")
    hands.choose(1)
    hands.escape()
    hands.until(lambda: not hands.is_open())
    answered.set()
    hands.until(lambda: client.status().state == "valid")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_is_cut_off(hands, desk, language):
    """In each language."""
    _, key, client = desk
    _enter_key(hands, client, key, language)
    assert len(hands.buttons()) == 3
    hands.rest()  # Qt widens the window in its event loop
    assert hands.cut_off() == []


def test_the_computer_that_lost_its_license_takes_it_back(hands, desk):
    """It reads where the license is, and moves it back in the same way; as tests of apps do it."""
    service, key, client = desk
    client.computers.move_here(client.computers.list(key).computers[0], key)
    other = service.client(storage=MemoryStorage(), label="Office", **SETTINGS)
    other.computers.move_here(next(iter(other.computers.list(key).computers)), key)
    with pytest.raises(LicenseRefusedError):
        client.verify(force=True)

    def ask(problem):
        return hands.kit.ask_for_key(client, hands.parent, problem=problem, language="en")

    @client.licensed(otherwise=ask)
    def export():
        return "exported"

    with answer_dialog("Move the license here", "Close", computer="Office") as messages:
        assert export() == "exported"
    assert messages[-1] == "The license was moved here from Office. Thank you. Your license is active."
