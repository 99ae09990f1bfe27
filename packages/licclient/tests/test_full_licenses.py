"""All computers of a license are in use: what the dialog decides, without a window (D-325)."""

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from licclient import ClientSettings, License, Outage, Pages, Reason, Source
from licclient._computers.protocol import Computer, ComputerList, MovedTo
from licclient._core.texts import LANGUAGES, TABLES
from licclient.dialogs._driver import split_mnemonic
from licclient.dialogs._full_license import FullLicense
from licclient.dialogs._states import (
    Action,
    ActivationState,
    Bar,
    Chosen,
    Command,
    Ended,
    Opened,
    Pressed,
    Tone,
    Typed,
)
from licclient.errors import LicenseRefusedError, MoveError, MoveObstacle, ServiceUnavailableError

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
HINT = "CP-…MNO345"
AT = datetime(2026, 12, 1, 12, tzinfo=UTC)
NOTES = ClientSettings(
    "https://licenses.example.com",
    product="Notes",
    pages=Pages(buy="https://x/buy", manage="https://x/me"),
)
FULL = LicenseRefusedError(Reason.ENVIRONMENT, "Max activations exceeded or unrecognized environment.")
REVOKED = LicenseRefusedError(Reason.REVOKED, "License has been revoked.")
GO, LEAVE, SKIP, CLOSE = (Pressed(action) for action in Action)
DAY = date(2026, 11, 20)
MACBOOK = Computer("aa" * 16, "Anna's MacBook", "9f1c…d7e8", DAY, is_this=False, is_movable=True)
NAMELESS = Computer("bb" * 16, None, "2602…ea84", None, is_this=False, is_movable=True)
HELD = Computer("cc" * 16, "Hut " + "x" * 90, "1…", DAY, is_this=True, is_movable=False, retry_at=AT)
LIST = ComputerList(3, 3, (MACBOOK, NAMELESS, HELD), 2)
LICENSE = License("Notes", None, is_lifetime=True, checked_at=AT, source=Source.SERVER)
OUTAGE = ServiceUnavailableError(outage=Outage.TIMED_OUT)


def play(state, *events: object):
    """Let things happen one after the other; returns where the dialog stands, and what it wanted last."""
    command = None
    for event in events:
        state, command = state.step(event)
    return state, command


def typed():
    """A dialog in which the key of a full license was typed, and what it wanted."""
    state = ActivationState.begin("en", None, hint=None, offers_trial=True, settings=NOTES)
    return play(state, Typed(KEY), GO, Ended(FULL))


def listed(computers=LIST):
    """The same, once the computers are known."""
    return play(typed()[0], Ended(computers))[0]


def test_a_license_is_moved_in_two_clicks():
    """The list comes by itself; one click chooses, another one moves; thanks name the computer."""
    state, command = typed()
    assert command == Command.LIST_COMPUTERS
    assert (state.asked, state.view().bar, state.view().message) == (KEY, Bar(), "Checking the license key …")
    view = listed().view()
    assert (view.heading, view.label) == ("All computers are in use", "&Computers that use this license:")
    assert view.intro == (
        "Choose the computer from which to move the license to this one."
        " If this computer was set up anew, choose its earlier entry: it is the same computer."
    )
    assert [choice.text for choice in view.choices] == [
        "Anna's MacBook · last seen Nov 20, 2026",
        "Computer 2602…ea84",
        "Hut " + "x" * 36 + "… · this computer · last seen Nov 20, 2026 · has a license file",
    ]
    assert [choice.is_enabled for choice in view.choices] == [True, True, False]
    assert [link.text for link in view.links] == ["Manage your computers", "Buy a license"]
    state, _ = play(listed(), Chosen(0))
    assert [choice.is_chosen for choice in state.view().choices] == [True, False, False]
    moving, command = play(state, GO)
    assert command == Command.MOVE
    assert (moving.view().bar, moving.view().message) == (Bar(), "Moving the license …")
    assert not any(choice.is_enabled for choice in moving.view().choices)
    assert not moving.view().go.is_enabled
    done, command = play(moving, Ended(LICENSE))
    assert (done.outcome, command) == (LICENSE, None)
    view = done.view()
    assert (view.heading, view.tone) == ("Notes is activated", Tone.GOOD)
    assert (
        view.message == "The license was moved here from Anna's MacBook. Thank you. Your license is active."
    )
    assert view.choices == ()
    assert FullLicense(LIST).thanks("en") == "", "nothing was moved"
    assert play(done, GO)[1] == Command.CLOSE


def test_computers_of_one_name_are_told_apart():
    """One that was set up anew keeps its name; the two rows were the same, down to the day."""
    earlier = replace(MACBOOK, id="dd" * 16, masked_id="77ab…01c2")
    texts = [
        choice.text for choice in listed(replace(LIST, computers=(MACBOOK, earlier, HELD))).view().choices
    ]
    assert texts[:2] == [
        "Anna's MacBook · 9f1c…d7e8 · last seen Nov 20, 2026",
        "Anna's MacBook · 77ab…01c2 · last seen Nov 20, 2026",
    ]
    assert "1…" not in texts[2]


def test_nothing_is_moved_without_a_choice():
    """Enter that was pressed once too often moves nothing; what cannot be chosen says until when."""
    state, command = play(listed(), GO)
    assert command is None
    assert (state.view().message, state.view().tone) == ("Please choose a computer.", Tone.BAD)
    state, command = play(state, Chosen(1))
    assert (state.view().message, command) == ("", None)
    state, command = play(listed(), Chosen(2), GO)
    assert command is None
    assert state.view().message == (
        "The computer that you chose has a license file. The license can be moved from it on Dec 1, 2026."
    )
    for index in (-1, 3):
        assert play(listed(), Chosen(index)) == (listed(), None)
    assert play(listed(), Typed("x")) == (listed(), None)


def test_the_key_that_is_there_is_moved_as_well():
    """A click without a license opens the dialog with the refusal: it lists at once, for that key."""
    state = ActivationState.begin("en", FULL, hint=HINT, offers_trial=False, settings=NOTES)
    assert (state.view().heading, state.view().body, state.view().bar) == ("License check", HINT, Bar())
    state, command = play(state, Opened())
    assert (state.asked, command) == ("", Command.LIST_COMPUTERS)
    away = replace(LIST, moved_to=MovedTo("Anna's laptop", "9f…", DAY))
    state, _ = play(state, Ended(away))
    assert state.view().heading == "The license was moved"
    assert state.view().intro == (
        "This license was moved to Anna's laptop on Nov 20, 2026."
        " Choose the computer from which to move the license to this one."
    )
    assert play(state, Chosen(0), GO)[1] == Command.MOVE


def test_a_check_that_finds_it_full_lists_as_well():
    """As after a click when the license is no longer confirmed; "Try again" asks about the same key."""
    pending = ServiceUnavailableError(outage=Outage.PENDING)
    state = ActivationState.begin("en", pending, hint=HINT, offers_trial=False, settings=NOTES)
    state, command = play(state, Opened(), Ended(FULL))
    assert (state.asked, command) == ("", Command.LIST_COMPUTERS)
    state, command = play(state, Ended(OUTAGE), SKIP)
    assert command == Command.CHECK_AGAIN
    assert play(state, Ended(FULL))[1] == Command.LIST_COMPUTERS


@pytest.mark.parametrize(
    "outcome",
    [
        MoveError(MoveObstacle.NOT_SUPPORTED, "no"),
        MoveError(MoveObstacle.NOT_ALLOWED, "no"),
        OUTAGE,
        ZeroDivisionError(),
        replace(LIST, computers=()),
    ],
)
def test_without_a_list_the_refusal_is_shown(outcome):
    """As for all services before: another key may be typed, and the links lead to the account page."""
    state, command = play(typed()[0], Ended(outcome))
    assert command is None
    view = state.view()
    assert view.message == TABLES["en"]["reason.environment"]
    assert (view.is_editable, view.body, view.choices) == (True, KEY, ())
    assert [link.text for link in view.links] == ["Manage your computers", "Buy a license"]


def test_a_license_that_ended_meanwhile_is_said_to():
    """By the list, and by the move."""
    for state in (play(typed()[0], Ended(REVOKED))[0], play(listed(), Chosen(0), GO, Ended(REVOKED))[0]):
        assert state.view().message == TABLES["en"]["reason.revoked"]
        assert state.view().is_editable


def test_another_key_may_be_entered():
    """The refusal is shown beside the field."""
    state, command = play(listed(), Chosen(0), SKIP)
    assert (command, state.view().is_editable, state.view().choices) == (None, True, ())
    assert state.view().message == TABLES["en"]["reason.environment"]
    asking, command = play(state, GO)
    assert command == Command.ACTIVATE
    assert play(asking, Ended(LICENSE))[0].view().message == "Thank you. Your license is active."


def test_without_moves_people_see_when_it_can_be_moved():
    """Nothing can be chosen then; "Try again" asks whether a computer was freed."""
    for retry_at, message in ((AT, "It can be moved again on Dec 1, 2026."), (None, "Only support can move")):
        state = listed(replace(LIST, moves_left=0, retry_at=retry_at))
        view = state.view()
        assert message in view.message
        assert (view.tone, view.intro) == (Tone.BAD, "")
        assert not any(choice.is_enabled for choice in view.choices)
        assert (view.go.text, view.go.is_enabled) == ("&Try again", True)
        asking, command = play(state, Chosen(0), GO)
        assert (command, asking.typed, asking.asked) == (Command.ACTIVATE, KEY, KEY)
        assert play(asking, Ended(LICENSE))[0].view().message == "Thank you. Your license is active."
    state = ActivationState.begin("en", FULL, hint=HINT, offers_trial=False, settings=NOTES)
    state, command = play(state, Opened(), Ended(replace(LIST, moves_left=0)), GO)
    assert command == Command.CHECK_AGAIN
    assert state.view().heading == "License check"


def test_a_move_that_fails_leaves_the_list():
    """Why is shown until another computer is chosen; a stale entry is listed again."""
    moving, _ = play(listed(), Chosen(0), GO)
    often = MoveError(MoveObstacle.TOO_MANY_MOVES, "no", AT)
    for problem in (OUTAGE, often, ZeroDivisionError()):
        state, command = play(moving, Ended(problem))
        assert command is None
        assert (state.view().tone, bool(state.view().message), len(state.view().choices)) == (
            Tone.BAD,
            True,
            3,
        )
        assert play(state, Chosen(1))[0].view().message == ""
        assert play(state, GO)[1] == Command.MOVE
    stale = MoveError(MoveObstacle.COMPUTER_NOT_FOUND, "no")
    state, command = play(moving, Ended(stale))
    assert command == Command.LIST_COMPUTERS
    state, _ = play(state, Ended(LIST))
    assert state.view().message.endswith("does not use this license any more. Please choose again.")
    assert not any(choice.is_chosen for choice in state.view().choices)
    assert play(moving, Ended(FULL))[1] == Command.LIST_COMPUTERS


def test_a_trial_lists_nothing():
    """There is no key whose computers could be listed."""
    state = ActivationState.begin("en", None, hint=None, offers_trial=True, settings=NOTES)
    state, command = play(state, Typed(KEY), SKIP, Ended(FULL))
    assert command is None
    assert state.view().message == TABLES["en"]["reason.environment"]
    alone = ActivationState.begin("en", FULL, hint=None, offers_trial=False, settings=NOTES)
    assert (alone.view().is_editable, play(alone, Opened())[1]) == (True, None)


@pytest.mark.parametrize("phase", ["list", "choice", "move"])
def test_it_can_be_closed_at_any_time(phase):
    """A move that was sent goes on (D-85); anything else changes nothing."""
    state = {"list": typed()[0], "choice": listed(), "move": play(listed(), Chosen(0), GO)[0]}[phase]
    for event in (LEAVE, CLOSE):
        assert play(state, event)[1] == Command.CLOSE
    assert play(state, Opened())[1] == (Command.LIST_COMPUTERS if phase == "list" else None)
    if phase != "choice":
        assert play(state, GO) == (state, None)


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_letter_is_there_twice(language):
    """Of the list, its buttons and its label, in both of their states."""
    state = replace(listed(), language=language)
    for shown in (state, replace(state, full=FullLicense(replace(LIST, moves_left=0, retry_at=AT)))):
        view = shown.view()
        texts = [view.label, *(button.text for button in view.buttons().values() if button)]
        letters = [text[0][text[1]].lower() for text in map(split_mnemonic, texts) if text[1] is not None]
        assert len(letters) == len(set(letters)) == len(texts)
        assert "{" not in f"{view.heading}{view.intro}{view.message}{view.choices}"
