"""What the two dialogs decide, without any window: `licclient.dialogs` but for its driver."""

import itertools
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.errors import ERRORS

from licclient import (
    ClientSettings,
    Downloaded,
    License,
    Outage,
    Pages,
    Reason,
    Source,
    Trust,
    Update,
    dialogs,
    explain,
)
from licclient._core.kinds import InstallationKind
from licclient._core.lazy import PROGRAM_GONE
from licclient._core.model import InstallObstacle
from licclient._core.texts import LANGUAGES, TABLES, amount, format_date, span, text_of
from licclient.dialogs._driver import colour_of, marked, split_mnemonic
from licclient.dialogs._states import (
    Action,
    ActivationState,
    Bar,
    Button,
    Command,
    Ended,
    Link,
    OfferState,
    Opened,
    Pressed,
    Progressed,
    Tone,
    Typed,
    View,
    links_for,
    say_problem,
    without_browser,
)
from licclient.errors import (
    DownloadCancelledError,
    InvalidRequestError,
    KeyFlaw,
    LicenseRefusedError,
    MistypedKeyError,
    MoveError,
    MoveObstacle,
    NoSeatError,
    NotActivatedError,
    NotEntitledError,
    ServiceUnavailableError,
    StateUnreadableError,
)
from licclient.install import UpdatePlan

NOTES = ClientSettings("https://licenses.example.com", product="Notes", version="1.0.0")
URLS = replace(NOTES, pages=Pages(buy="https://x/buy", support="mailto:help@x", manage="https://x/me"))
KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
LICENSE = License("Notes", date(2027, 12, 31), is_lifetime=False, checked_at=AT, source=Source.SERVER)
UPDATE = Update("Notes", "notes", "1.1.0", "<ul><li>Export.</li></ul>", AT, size=4_200_000)
FILE = Downloaded(Path("notes.zip"), 4_200_000, "0" * 64, "2.0", is_verified=True)
REFUSED = LicenseRefusedError(Reason.REVOKED, "License has been revoked.")
GO, LEAVE, SKIP, CLOSE = (Pressed(action) for action in Action)


NO_LIST = MoveError(MoveObstacle.NOT_SUPPORTED, "")


def refuse(state, *events: object):
    """As `play`, by a service that lists no computers of a full license; return the state."""
    state, command = play(state, *events)
    return play(state, Ended(NO_LIST))[0] if command == Command.LIST_COMPUTERS else state


def play(state, *events: object):
    """Let things happen one after the other; returns where the dialog stands, and what it wanted last."""
    command = None
    for event in events:
        state, command = state.step(event)
    return state, command


def shown(view):
    """The enabled buttons, and the message."""
    return {
        action.value for action, button in view.buttons().items() if button and button.is_enabled
    }, view.message


# --- the key ----------------------------------------------------------------------------------


def test_a_key_is_repaired_asked_about_and_thanked_for():
    """The story of a good key: the field shows what was understood, one question, thanks, and the end."""
    state, command = play(
        ActivationState("en", settings=NOTES), Typed(f" {KEY.lower().replace('-', '–')}"), GO
    )
    assert command == Command.ACTIVATE
    assert (state.view().body, state.view().is_editable) == (KEY, False)
    assert shown(state.view()) == ({"leave"}, "Checking the license key …")
    assert state.view().bar == Bar()
    state, command = play(state, Ended(LICENSE))
    assert (state.outcome, command) == (LICENSE, None)
    assert shown(state.view()) == ({"go"}, "Thank you. Your license is active until Dec 31, 2027.")
    assert state.view().tone is Tone.GOOD
    assert play(state, GO)[1] == play(state, LEAVE)[1] == play(state, CLOSE)[1] == Command.CLOSE
    endless = replace(state, outcome=replace(LICENSE, expiry=None))
    assert endless.view().message == "Thank you. Your license is active."


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "Please enter your license key."),
        ("ABC", "Not a valid license key. Enter it exactly as you received it; most keys begin with CP-."),
        ("CP-ABC123", "The license key is incomplete. Characters missing: 24"),
        (f"{KEY}9", "The license key is too long. Characters too many: 1"),
        ("CP-ABC12é", "A license key holds only the letters A to Z and digits, not: É"),
    ],
    ids=["nothing", "no key", "too short", "too long", "a letter of another alphabet"],
)
def test_a_wrong_shape_is_shown_before_any_call(typed, message):
    """Nobody is asked about what cannot be a key (D-57), and no message is shown before Enter (D-86)."""
    state, _ = play(ActivationState("en"), Typed(typed))
    assert shown(state.view()) == ({"go", "leave"}, "")
    state, command = play(state, GO)
    assert command is None
    assert (state.view().message, state.view().tone, state.view().body) == (message, Tone.BAD, typed)


def test_a_flaw_is_followed_until_it_is_mended():
    """Once shown, the message keeps up with the typing, and is gone with the last missing letter (D-86)."""
    state, _ = play(ActivationState("en"), Typed(KEY[:-2]), GO)
    assert state.view().message.endswith("missing: 2")
    state, _ = play(state, Typed(KEY[:-1]))
    assert state.view().message.endswith("missing: 1")
    state, _ = play(state, Typed(KEY))
    assert (state.view().message, state.view().tone) == ("", Tone.PLAIN)
    assert play(state, Typed(KEY[:-1]))[0].view().message == ""


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (REFUSED, "This license has been revoked. Please contact support."),
        (
            ServiceUnavailableError(),
            "The license service could not be reached. Please go online and try again.",
        ),
        (
            InvalidRequestError({}),
            "The license service did not accept the request. Please contact support.",
        ),
        (ZeroDivisionError(KEY), "An unexpected problem occurred. Please contact support."),
    ],
)
def test_a_refusal_is_shown_and_the_key_can_be_changed(problem, message):
    """What went wrong stays until something else is typed; the same key can be tried again."""
    state, _ = play(ActivationState("en"), Typed(KEY), GO, Ended(problem))
    assert shown(state.view()) == ({"go", "leave"}, message)
    assert (state.view().is_editable, state.view().tone) == (True, Tone.BAD)
    assert play(state, Typed(KEY))[0] == state  # a field that is set again is not a person who types
    assert play(state, Typed("CP-"))[0].view().message == ""
    assert play(state, GO)[1] == Command.ACTIVATE


@pytest.mark.parametrize("language", LANGUAGES)
def test_who_is_never_online_is_led_to_a_license_file(language):
    """After an outage alone, and only if the app pins the keys that files are signed with."""
    hint = text_of("activation.never_online", language)
    for problem, takes_files in itertools.product((ServiceUnavailableError(), REFUSED), (True, False)):
        settings = replace(NOTES, trust=Trust(public_keys=["key"] if takes_files else None))
        view = ActivationState(language, problem, settings=settings).view()
        assert (hint in view.message) is (takes_files and problem is not REFUSED)


def test_why_the_app_asks_is_shown_unless_it_is_plain():
    """A refusal that made the app ask is shown; that no key has been entered is not."""
    assert (
        ActivationState("de", problem=REFUSED).view().message
        == "Diese Lizenz wurde widerrufen. Bitte wenden Sie sich an den Support."
    )
    assert ActivationState("de", problem=NotActivatedError()).view().message == ""


def test_the_product_is_in_the_title_if_it_is_known():
    """Whatever characters are in it."""
    assert (
        ActivationState("en", settings=replace(NOTES, product="R&D {0}")).view().title == "Activate R&D {0}"
    )
    assert ActivationState("en").view().title == "License activation"


# --- the key that is there --------------------------------------------------------------------

HINT = "CP-…MNO345"
PENDING = ServiceUnavailableError(outage=Outage.PENDING)
OFFLINE = ServiceUnavailableError()


def begin(problem, hint=HINT, *, trial=False, language="en", settings=NOTES):
    """The dialog for a problem, on a computer with a key."""
    return ActivationState.begin(language, problem, hint=hint, offers_trial=trial, settings=settings)


def test_the_key_that_is_there_is_checked_at_once_and_the_dialog_goes_on_by_itself():
    """Nobody was asked yet: the window asks as soon as it is shown, and closes with the license."""
    state, command = play(begin(PENDING), Opened())
    assert command == Command.CHECK
    view = state.view()
    assert shown(view) == ({"leave"}, "Checking the license key …")
    assert (view.heading, view.intro) == ("License check", "This license key was entered on this computer.")
    assert (view.body, view.is_editable, view.bar) == (HINT, False, Bar())
    state, command = play(state, Ended(LICENSE))
    assert (state.outcome, command) == (LICENSE, Command.CLOSE)


def test_after_an_outage_the_same_key_can_be_checked_again():
    """Whether the app or the dialog has met it; another key can be entered as well."""
    for state in (begin(OFFLINE), play(begin(PENDING), Opened(), Ended(OFFLINE))[0]):
        view = state.view()
        assert shown(view) == (
            {"go", "leave", "skip"},
            "The license service could not be reached. Please go online and try again.",
        )
        assert (view.go.text, view.skip.text) == ("&Try again", "&Enter another key")
        assert (view.body, view.is_editable, view.heading) == (HINT, False, "License check")
        again, command = play(state, GO)
        assert (command, shown(again.view())) == (
            Command.CHECK_AGAIN,
            ({"leave"}, "Checking the license key …"),
        )
        assert play(again, Ended(LICENSE))[1] == Command.CLOSE
        assert play(again, Ended(OFFLINE))[0] == state
        other, command = play(state, SKIP)
        assert (command, shown(other.view())) == (None, ({"go", "leave"}, ""))
        assert (other.view().body, other.view().intro) == (
            "",
            "To use another license, please enter its key.",
        )
        assert play(state, LEAVE)[1] == play(state, CLOSE)[1] == Command.CLOSE


def test_a_check_that_ends_in_a_refusal_asks_for_another_key():
    """With the reason; and the same key can be checked again, after it was renewed."""
    state, command = play(begin(PENDING), Opened(), Ended(REFUSED))
    assert command is None
    assert shown(state.view()) == (
        {"go", "leave", "skip"},
        "This license has been revoked. Please contact support.",
    )
    assert state.view().is_editable
    assert state.view().skip.text == "&Try again"
    assert play(state, SKIP)[1] == Command.CHECK_AGAIN
    typed, _ = play(state, Typed(KEY), GO, Ended(REFUSED))
    assert typed.view().skip is None


def test_without_a_key_an_outage_is_one_of_the_key_that_is_typed():
    """There is nothing to check again."""
    for problem in (PENDING, OFFLINE):
        state, command = play(begin(problem, hint=None), Opened())
        assert (command, shown(state.view())[0]) == (None, {"go", "leave"})


@pytest.mark.parametrize(
    ("reason", "is_trial", "heading"),
    [
        (Reason.EXPIRED, True, "Your trial has ended"),
        (Reason.TRIAL_ENDED, False, "Your trial has ended"),
        (Reason.EXPIRED, False, "Your license has expired"),
        (Reason.REVOKED, True, "Activate Notes"),
    ],
)
def test_what_has_ended_stands_in_the_heading(reason, is_trial, heading):
    """A trial is bought and not renewed, and no second one is offered."""
    problem = LicenseRefusedError(reason, "", is_trial=is_trial)
    view = begin(problem, trial=True, settings=URLS).view()
    assert view.heading == heading
    if "trial" in heading:
        assert "renew" not in view.message
        assert view.links[0].text == "Buy a license"
        assert "trial" not in view.skip.text


def test_a_trial_that_has_begun_is_no_license():
    """The window names its end, and thanks nobody for a purchase."""
    trial = replace(LICENSE, is_trial=True)
    state, _ = play(begin(None, hint=None, trial=True), SKIP, Ended(trial))
    view = state.view()
    assert (view.heading, view.intro, view.message) == (
        "Your trial has begun",
        "",
        "The trial ends on Dec 31, 2027.",
    )


@pytest.mark.sampled(15, "trial", "hint")
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("hint", [None, HINT])
@pytest.mark.parametrize("trial", [False, True])
def test_each_problem_leads_on_in_each_language(language, hint, trial):
    """Each error in each dialog: a sentence, a next step, and nothing in the heading that contradicts it."""
    texts = TABLES[language]
    for problem in (*ERRORS, OSError(28, "Platz"), ValueError("?")):
        for state in (
            begin(problem, hint, trial=trial, language=language),
            refuse(begin(None, hint, trial=trial, language=language), Typed(KEY), GO, Ended(problem)),
            refuse(begin(PENDING, hint, trial=trial, language=language), Opened(), Ended(problem)),
        ):
            view = state.view()
            assert "{" not in f"{view.heading}{view.intro}{view.message}"
            assert view.leave is not None
            is_checking = view.bar is not None
            assert is_checking or (view.go is not None and view.go.is_enabled)
            assert view.message or isinstance(problem, NotActivatedError)
            if view.is_editable:
                assert view.go.text == texts["button.activate"]
                assert view.intro in (texts["activation.intro"], texts["activation.intro_other"])
            else:
                assert view.intro not in (texts["activation.intro"], texts["activation.intro_other"])
                assert view.heading == texts["activation.check_title"]
        assert play(OfferState(language, UPDATE), GO, Ended(problem))[0].view().message
    thanks, _ = play(begin(None, hint, language=language), Typed(KEY), GO, Ended(LICENSE))
    assert (thanks.view().intro, thanks.view().heading) == (
        "",
        texts["activation.done_title"].format("Notes"),
    )


# --- the update -------------------------------------------------------------------------------


def test_an_update_is_offered_downloaded_and_handed_over():
    """The story of a download: facts, changelog as text, how far it is, and the file however it is closed."""
    offer = OfferState("en", UPDATE, changelog="- Export.", settings=NOTES)
    view = offer.view()
    assert view.heading == "Notes 1.1.0 is available"
    assert view.intro == "Installed: 1.0.0 · Published: Nov 21, 2026 · Size: 4.2 MB"
    assert (view.body, view.is_editable) == ("- Export.", False)
    assert shown(view) == ({"go", "leave", "skip"}, "")
    coming, command = play(offer, GO)
    assert command == Command.DOWNLOAD
    assert shown(coming.view()) == ({"leave"}, "Connecting …")
    assert coming.view().bar == Bar(None)
    half, _ = play(coming, Progressed(2_100_000, 4_200_000, 700_000.0))
    assert half.view().message == "2.1 MB of 4.2 MB · 700.0 kB/s · 0:03 left"
    assert half.view().bar == Bar(0.5)
    here, command = play(half, Ended(FILE))
    assert (here.outcome, command) == (FILE, None)
    assert shown(here.view()) == ({"go"}, "Downloaded and verified.")
    assert play(here, GO)[1] == play(here, LEAVE)[1] == play(here, CLOSE)[1] == Command.CLOSE


def test_a_file_that_could_not_be_verified_is_not_called_verified():
    """The app gets it, marked; the person sees what was checked, without a tick (D-55)."""
    here, _ = play(OfferState("en", UPDATE), GO, Ended(replace(FILE, is_verified=False)))
    assert here.outcome.is_verified is False
    assert shown(here.view()) == ({"go"}, "Downloaded. Only its size could be verified.")
    assert here.view().tone is Tone.PLAIN


def test_little_is_known_of_some_updates():
    """Without size, installed version, speed or end, nothing is made up."""
    offer = OfferState("en", replace(UPDATE, size=None))
    assert offer.view().intro == "Published: Nov 21, 2026"
    coming, _ = play(offer, GO)
    assert play(coming, Progressed(5, 10, 0.0))[0].view().message == "5 B of 10 B"
    assert play(coming, Progressed(5, 10**12, 1.0))[0].view().message == "5 B of 1000.00 GB · 1 B/s"
    assert play(coming, Progressed(0, 0, 0.0))[0].view().bar == Bar(None)
    more = play(coming, Progressed(11, 10, 0.01))[0].view()  # than was announced
    assert (more.bar, more.message) == (Bar(1.0), "11 B of 10 B · 0 B/s · 0:00 left")


def test_cancelling_goes_back_to_the_offer():
    """The button that Escape presses stops the download first, and only then leaves (D-85)."""
    stopping, command = play(OfferState("en", UPDATE), GO, LEAVE)
    assert command == Command.STOP
    assert shown(stopping.view()) == (set(), "Cancelling …")
    assert play(stopping, Progressed(1, 2, 3.0))[0] == stopping
    offered, _ = play(stopping, Ended(DownloadCancelledError("")))
    assert shown(offered.view()) == ({"go", "leave", "skip"}, "The download was cancelled.")
    assert offered.view().tone is Tone.PLAIN
    assert play(stopping, LEAVE)[1] == Command.CLOSE
    assert play(stopping, Ended(FILE))[0].outcome == FILE  # it was quicker


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            ServiceUnavailableError(),
            "The download was interrupted. Please go online and try again; it goes on where it stopped.",
        ),
        (REFUSED, "This license has been revoked. Please contact support."),
        (
            OSError(28, "No space left on device", "/x"),
            "The file could not be saved. No space left on device",
        ),
        (OSError(), "The file could not be saved."),
    ],
)
def test_a_download_that_failed_can_be_tried_again(problem, message):
    """It says why, and offers to try again, to leave it, or to skip the version."""
    state, _ = play(OfferState("en", UPDATE), GO, Ended(problem))
    assert shown(state.view()) == ({"go", "leave", "skip"}, message)
    assert (state.view().tone, state.view().go.text) == (Tone.BAD, "&Try again")
    again, command = play(state, GO)
    assert (command, again.view().message) == (Command.DOWNLOAD, "Connecting …")


def test_skipping_closes_when_it_is_remembered():
    """The window waits for the disk, and nothing can be pressed meanwhile but its closing."""
    state, command = play(OfferState("en", UPDATE), SKIP)
    assert command == Command.SKIP
    assert shown(state.view()) == (set(), "")
    assert play(state, GO) == (state, None)
    assert play(state, Ended(None))[1] == Command.CLOSE
    assert play(state, CLOSE)[1] == Command.CLOSE


# --- both -------------------------------------------------------------------------------------

ENDS = [
    LICENSE,
    FILE,
    REFUSED,
    ServiceUnavailableError(),
    DownloadCancelledError(""),
    OSError(),
    ValueError(),
    None,
]
EVENTS = st.one_of(
    st.sampled_from([GO, LEAVE, SKIP, CLOSE, Opened()]),
    st.sampled_from([Ended(what) for what in ENDS]),
    st.builds(Progressed, st.integers(0, 10**12), st.integers(0, 10**12), st.floats(0, 1e9)),
    st.sampled_from([Typed(text) for text in ("", "CP-", KEY, KEY[:-1], f"{KEY}A")]),
)


@given(
    st.sampled_from(
        [
            ActivationState("ja", settings=NOTES),
            OfferState("fr", UPDATE, settings=NOTES),
            *(begin(problem, trial=True) for problem in (PENDING, OFFLINE, REFUSED)),
        ]
    ),
    st.lists(EVENTS, max_size=12),
)
def test_nothing_leads_astray(state, events):
    """In whatever order: it can be closed, one thing is wanted at a time, and views make sense."""
    is_busy = False
    for event in events:
        was_busy = is_busy
        if isinstance(event, Ended):
            is_busy = False
        before, (state, command) = state, state.step(event)
        assert play(state, CLOSE)[1] == Command.CLOSE
        if command in {Command.ACTIVATE, Command.DOWNLOAD, Command.SKIP, Command.CHECK_AGAIN}:
            assert not was_busy or isinstance(event, Ended)
            is_busy = True
        if state.outcome is not before.outcome:
            assert isinstance(event, Ended)
            assert event.outcome is state.outcome
        view = state.view()
        assert view.title
        assert any(view.buttons().values())
        assert view.bar is None or view.bar.part is None or 0 <= view.bar.part <= 1
        assert KEY not in repr((state, command, view, event)), "a key is shown"
        if command == Command.CLOSE:
            return


VIEWS = [
    play(start, *events)[0]
    for start, stories in [
        (
            ActivationState("en", settings=NOTES),
            [(), (GO,), (Typed(KEY), GO), (Typed(KEY), GO, Ended(LICENSE))],
        ),
        (begin(PENDING), [(Opened(),), (Opened(), Ended(OFFLINE)), (Opened(), Ended(REFUSED))]),
        (begin(None, None, trial=True), [()]),
        (
            OfferState("en", UPDATE),
            [(), (GO,), (GO, LEAVE), (GO, Ended(REFUSED)), (GO, Ended(FILE)), (SKIP,)],
        ),
        (OfferState("en", replace(UPDATE, is_security=True)), [(), (GO, Ended(REFUSED))]),
    ]
    for events in stories
]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("state", VIEWS, ids=range(len(VIEWS)))
def test_no_two_things_answer_to_the_same_letter(state, language):
    """In every view of every language: each button has a letter of its own, and so has the label."""
    view = replace(state, language=language).view()
    texts = [view.label, *(button.text for button in view.buttons().values() if button)]
    letters = []
    for text in texts:
        plain, at = split_mnemonic(text)
        assert at is not None, text
        assert "&" not in plain
        assert plain[at].isascii(), "a letter that every keyboard has"
        assert plain[at].isalpha()
        letters.append(plain[at].lower())
    assert len(set(letters)) == len(letters), texts


def test_no_line_is_left_over():
    """Every text of the dialogs is used, and every one that they use is there."""
    modules = Path(dialogs.__file__).parent.glob("_*.py")
    source = "".join(module.read_text(encoding="utf-8") for module in modules)
    own = ("activation.", "button.", "link.", "problem.", "update.")
    used = set(re.findall(r'"((?:activation|button|link|problem|update)\.\w+)"', source))
    assert used == {code for code in TABLES["en"] if code.startswith(own)} - {
        "update.none",
        "update.ahead",
        "update.ended",
        "update.unavailable",
        "update.uncovered",
        "update.covered",
        "update.security",
    }


def test_problems_speak_the_language():
    """Also those that no error of licclient is made for; the unexpected is not quoted."""
    assert say_problem(REFUSED, "zh") == "此许可证已被吊销。请联系技术支持。"
    assert say_problem(OSError(28, "Kein Platz"), "de").endswith("gespeichert werden. Kein Platz")
    assert KEY not in say_problem(ValueError(KEY), "fr")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_program_that_is_gone_is_to_be_started_again(language):
    """An upgrade, or a cleaner of temporary folders, has removed its files: the disk is not the problem."""
    said = say_problem(StateUnreadableError(PROGRAM_GONE), language)
    assert said == text_of("error.program_gone", language)
    assert said != say_problem(StateUnreadableError("Permission denied"), language)


def test_the_address_is_shown_if_no_browser_opens_it():
    """So that a person can type it elsewhere."""
    shown = without_browser(ActivationState("en", settings=URLS).view(), "https://x/buy", "en")
    assert (shown.message, shown.tone) == (
        "No browser could be opened. The address is: https://x/buy",
        Tone.BAD,
    )


@pytest.mark.parametrize(
    ("language", "text"),
    [("en", "1.5 MB"), ("de", "1,5 MB"), ("fr", "1,5 Mo"), ("es", "1,5 MB"), ("ja", "1.5 MB")],
)
def test_amounts_are_written_as_people_write_them(language, text):
    """With a comma or a point, and in octets in French."""
    assert amount(1_500_000, language) == text


@pytest.mark.parametrize(
    ("language", "text"),
    [
        *[("en", "Jan 5, 2027"), ("en-us", "Jan 5, 2027"), ("en-gb", "5 Jan 2027"), ("de-at", "5.1.2027")],
        *[("fr", "05/01/2027"), ("es-mx", "05/01/2027"), ("ja", "2027年1月5日"), ("zh-cn", "2027年1月5日")],
    ],
)
def test_dates_are_written_as_people_write_them(language, text):
    """By language, and in English by region."""
    assert format_date(date(2027, 1, 5), language) == text


@pytest.mark.parametrize(
    ("problem", "texts"),
    [
        (NotActivatedError(), ["Buy a license", "Lost your key?"]),
        (MistypedKeyError(KeyFlaw.PREFIX), ["Buy a license", "Lost your key?"]),
        (LicenseRefusedError(Reason.NOT_FOUND, ""), ["Lost your key?", "Buy a license"]),
        (LicenseRefusedError(Reason.ENVIRONMENT, ""), ["Manage your computers", "Buy a license"]),
        (LicenseRefusedError(Reason.EXPIRED, ""), ["Buy a license", "Contact support"]),
        (NotEntitledError("export"), ["Buy a license", "Contact support"]),
        (NoSeatError("", 3), ["Buy a license", "Contact support"]),
        (ServiceUnavailableError(), []),
        (ZeroDivisionError(), ["Contact support"]),
        (None, []),
    ],
)
def test_links_lead_on(problem, texts):
    """What helps with a problem, and only if the app has a page for it."""
    assert [link.text for link in links_for(problem, URLS, "en")] == texts
    assert links_for(problem, NOTES, "en") == ()
    if texts[:1] == ["Manage your computers"]:
        of_support = replace(URLS, pages=replace(URLS.pages, manage=None))
        assert [link.text for link in links_for(problem, of_support, "en")] == ["Contact support", texts[1]]
    if problem is not None:
        refused = refuse(ActivationState("en", settings=URLS), Typed(KEY), GO, Ended(problem))
        assert [link.text for link in refused.view().links] == texts
        assert play(refused, GO)[0].view().links == ()


def test_spans():
    """Minutes and hours; nothing is shown for what takes days."""
    assert [span(seconds) for seconds in (0, 65, 7265, 360000, 1e300)] == [
        "0:00",
        "1:05",
        "2:01:05",
        None,
        None,
    ]


def test_messages_are_distinct_without_colours_too():
    """Good and bad have a mark each; what is plain has neither mark nor colour."""
    view = View("t", "h", "i", "l", "", message="Words.")
    assert marked(view) == "Words."
    assert marked(replace(view, tone=Tone.BAD)) == "⚠\u00a0Words."
    assert marked(replace(view, tone=Tone.BAD, message="")) == ""
    assert colour_of(Tone.PLAIN, on_dark=True) is None


@pytest.mark.parametrize("tone", [Tone.GOOD, Tone.BAD])
@pytest.mark.parametrize("on_dark", [False, True])
def test_messages_can_be_read_on_their_ground(tone, on_dark):
    """Their contrast is what accessibility guidelines ask for, 4.5, also on the greys that toolkits use."""

    def light(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    grounds = ["#000000", "#323232"] if on_dark else ["#ffffff", "#dcdad5"]
    for ground in grounds:
        a, b = sorted([light(colour_of(tone, on_dark=on_dark)), light(ground)])
        assert (b + 0.05) / (a + 0.05) >= 4.5


ADVISORY = "https://notes.example/advisory"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_security_update_says_so_and_can_be_postponed(language):
    """In every language: with its advisory, and without a button to skip it."""
    update = replace(UPDATE, is_security=True, advisory=ADVISORY)
    view = OfferState(language, update).view()
    assert view.message == text_of("update.security", language)
    assert view.links == (Link(text_of("link.advisory", language), ADVISORY),)
    assert view.leave == Button(text_of("button.remind", language))
    assert (view.skip, view.tone) == (None, Tone.PLAIN)
    assert OfferState(language, replace(update, is_critical=True)).view() == view
    assert OfferState(language, replace(update, advisory=None)).view().links == ()
    assert OfferState(language, replace(update, is_security=False)).view().links == ()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_covered_version_names_the_newest_one_and_the_way_to_it(language):
    """In every language; the link is there if the app has one. It can be skipped like others."""
    update = replace(UPDATE, latest_version="3.0", updates_until=date(2026, 6, 30))
    view = OfferState(language, update, settings=URLS).view()
    assert view.message == text_of("update.covered", language, "3.0")
    assert view.links == (Link(text_of("link.renew", language), URLS.pages.buy),)
    assert view.intro.endswith(text_of("update.until", language, format_date(date(2026, 6, 30), language)))
    assert view.skip is not None
    assert OfferState(language, update).view().links == ()
    assert OfferState(language, UPDATE, settings=URLS).view().links == ()


def test_what_is_to_be_said_of_an_update_comes_together():
    """The most pressing first; a problem takes the place of all of it, with its links."""
    update = replace(UPDATE, is_security=True, is_required=True, latest_version="3.0", advisory=ADVISORY)
    state = OfferState("en", update, settings=URLS)
    assert state.view().message == (
        "This version is no longer supported. Please update."
        " This is a security update. Please install it soon."
        " Your license does not cover the newest version, 3.0. To get it, please renew the license."
    )
    assert [link.text for link in state.view().links] == ["Security advisory", "Renew the license"]
    failed, _ = play(state, GO, Ended(REFUSED))
    assert failed.view().links == links_for(REFUSED, URLS, "en")
    assert state.step(LEAVE)[1] is Command.CLOSE


def test_an_update_that_is_required_says_so_and_cannot_be_skipped():
    """One that is critical is called important."""
    required = OfferState("en", replace(UPDATE, is_required=True)).view()
    critical = OfferState("en", replace(UPDATE, is_critical=True)).view()
    assert (required.message, required.skip) == ("This version is no longer supported. Please update.", None)
    assert (critical.message, critical.skip) == ("This is an important update. Please install it soon.", None)


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_another_program_updates_is_not_downloaded(language):
    """The window says who updates the app and what to type, and has no button for it (D-355)."""
    command = "flatpak update com.example.PhotoLab"
    plan = UpdatePlan(InstallationKind.FLATPAK, InstallObstacle.OTHER_UPDATER, "Flatpak", command)
    offer = OfferState(language, UPDATE, plan=plan)
    view = offer.view()
    assert view.go is None
    assert view.message == explain(plan, language)
    assert command in view.message
    assert view.leave is not None
    assert view.skip is not None
    assert offer.step(GO) == (offer, None)
    others = UpdatePlan(InstallationKind.UNKNOWN, InstallObstacle.NOT_REPLACEABLE)
    assert OfferState(language, UPDATE, plan=others).view().go == OfferState(language, UPDATE).view().go


def test_a_framework_with_windows_of_its_own_leaves_nothing_to_download():
    """The app calls it in place of the dialog; Velopack gets a file, and so the dialog fetches it (D-390)."""
    plan = UpdatePlan(InstallationKind.WINSPARKLE, updater="WinSparkle")
    offer = OfferState("en", UPDATE, plan=plan)
    assert offer.view().go is None
    assert offer.view().message.endswith("WinSparkle updates this app.")
    assert offer.step(GO) == (offer, None)
    plan = UpdatePlan(InstallationKind.VELOPACK, has_to_quit=True)
    assert OfferState("en", UPDATE, plan=plan).view().go == OfferState("en", UPDATE).view().go
