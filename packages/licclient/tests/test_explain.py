import errno
import os
import pickle
import plistlib
import re
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.errors import ERRORS, NOON, kinds

from licclient import (
    Downloaded,
    LicclientError,
    LicenseState,
    LicenseStatus,
    Outage,
    Reason,
    Trust,
    Update,
    UpdateCheck,
    explain,
)
from licclient._computers import texts as computer_texts
from licclient._core.computer import require_space
from licclient._core.texts import LANGUAGES, TABLES, format_date, join_sentences, pick_language, text_of
from licclient._offline import texts as file_texts
from licclient._seats import texts as seat_texts
from licclient._uses import texts as quota_texts
from licclient.errors import (
    DeactivationError,
    DownloadCancelledError,
    FileFlaw,
    KeyFlaw,
    LicenseFileError,
    LicenseRefusedError,
    NoSeatError,
    NotActivatedError,
    QuotaExceededError,
    ServiceUnavailableError,
)
from licclient.testing import LicenseService

EVERYTHING = [
    *Reason,
    *ERRORS,
    OSError(28, "No space left on device"),
    FileNotFoundError(2, "No such file or directory"),
    OSError(),
    UpdateCheck(None, "Version 2.0 is up to date."),
    UpdateCheck(None, "Not now.", NotActivatedError()),
    *(
        LicenseStatus(
            *(state, None, None, None, False, days, NOON, None, NOON, NOON),
            is_trial=is_trial,
            outage=outage,
        )
        for state in LicenseState
        for days in (None, -1, 0, 1, 14)
        for is_trial in (False, True)
        for outage in (None, *Outage)
    ),
]


@pytest.mark.parametrize("language", LANGUAGES)
def test_everything_that_can_happen_has_words_in_every_language(language):
    """Each error, reason, flaw and state is explained in a sentence, with nothing left to fill in."""
    for what in EVERYTHING:
        text = explain(what, language)
        assert text.strip() == text != ""
        assert "{" not in text
        assert "–" not in text
        english = explain(what, "en")
        assert language == "en" or text != english
        if getattr(what, "is_trial", False):
            assert not english.startswith("Licensed")
            assert "renew it" not in english or what.reason is not Reason.EXPIRED


def test_everything_is_everything():
    """No kind of error, and none of the values that a sentence depends on, is missing above."""
    assert {type(error) for error in ERRORS} == kinds()


@pytest.mark.parametrize("language", LANGUAGES)
def test_translations_are_complete(language):
    """No language is missing a text, or has other places to fill; no sentence is left in English."""
    table, english = TABLES[language], TABLES["en"]
    assert list(table) == list(english)
    for code, text in table.items():
        assert text == text.strip() != ""
        assert sorted(re.findall(r"\{.*?\}", text)) == sorted(re.findall(r"\{.*?\}", english[code]))
        assert language == "en" or text != english[code] or code == "update.progress"


def _tables():
    """Return the tables of the features: one of texts by code for each language."""
    quota = {language: {"exceeded": text} for language, text in quota_texts.TEXTS.items()}
    shared = {"seats": seat_texts.TEXTS, "license files": file_texts.TEXTS, "uses": quota}
    return shared | {"computers": computer_texts.TEXTS}


@pytest.mark.parametrize("feature", _tables())
def test_the_texts_of_a_feature_are_complete(feature):
    """Each language has all of them with the same places."""
    tables = _tables()[feature]
    english = tables["en"]
    assert set(tables) == set(LANGUAGES)
    for language, texts in tables.items():
        assert list(texts) == list(english)
        for code, text in texts.items():
            assert text == text.strip() != ""
            assert sorted(re.findall(r"\{.*?\}", text)) == sorted(re.findall(r"\{.*?\}", english[code]))
            assert language == "en" or text != english[code]


def test_a_sentence_leads_to_each_text_of_a_feature():
    """No flaw is without a text, and none has another one's."""
    assert {*file_texts.SHARED, *file_texts.TEXTS["en"]} == set(FileFlaw)
    assert len({explain(LicenseFileError(flaw, ""), "fr") for flaw in FileFlaw}) == len(FileFlaw)
    errors = [NoSeatError("", None), NoSeatError("", 0), NoSeatError("", 5), NoSeatError("", 5, NOON)]
    assert len({explain(error, "ja") for error in errors}) == len(seat_texts.TEXTS["ja"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_full_disk_is_one_sentence_in_each_language(language, tmp_path, monkeypatch):
    """With megabytes, and where they are missing."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 0, 3_500_000))
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is compared
        require_space(tmp_path, 91_829_475, "the new version")
    assert caught.value.errno == errno.ENOSPC
    text = explain(caught.value, language)
    assert ("109 M" in text, str(tmp_path) in text, "No room" in text) == (True, True, False)
    assert "109 MB" in str(caught.value)


def test_disk_errors_of_a_download_are_explained_too():
    """`download` and `apply` raise `OSError` as it is, and an app shows it like everything else."""
    text = explain(OSError(28, "No space left on device", "/home/eva/secret"), "en")
    assert text == "The file could not be saved. No space left on device"


@pytest.mark.parametrize("what", [None, "revoked", ValueError("x")])
def test_what_cannot_be_explained_is_a_slip(what):
    """It was None, which a label shows as "None", or not at all."""
    with pytest.raises(TypeError, match="what must be an error, reason, status"):
        explain(what)


def test_an_update_that_failed_is_not_a_license_that_failed():
    """A download and an update check that got no response say nothing about the license."""
    problem = ServiceUnavailableError()
    assert explain(UpdateCheck(None, "", problem), "en").startswith("Updates could not be checked.")
    assert explain(problem, "en").startswith("The license service could not be reached.")
    nothing = LicenseRefusedError(Reason.NO_VERSION, "The product has no published version yet.")
    assert explain(UpdateCheck(None, "", nothing), "de").startswith("Zurzeit wird keine Version dieser App")
    assert explain(LicenseStatus(LicenseState.UNCONFIRMED), "en").startswith("The license could not be conf")


def test_a_locked_keyring_is_not_an_outage():
    """Whoever is online already is not sent there."""
    problem = ServiceUnavailableError(outage=Outage.KEYRING)
    for what in (problem, UpdateCheck(None, "", problem)):
        assert "unlock" in explain(what, "en")


def test_a_cancelled_call_is_not_explained_as_an_outage():
    """A download that the app itself stopped went as it should."""
    assert explain(DownloadCancelledError(), "de") == "Der Download wurde abgebrochen."


def test_no_line_is_left_over():
    """Every text belongs to a reason, a flaw, a kind of error or a state, or to the dialogs."""
    codes = {f"reason.{reason.value}" for reason in Reason} | {f"flaw.{flaw.value}" for flaw in KeyFlaw}
    kinds = (
        "not_activated",
        "invalid_request",
        "unavailable",
        "untrusted",
        "unusable_archive",
        "cancelled",
        "moved_often",
        "not_movable",
        "not_entitled",
        "state",
        "program_gone",
        *(outage.value for outage in Outage if outage is not Outage.UNREACHABLE),
    )
    others = ("disk", "no_room", "unreadable_file", "moved_often", "not_movable")
    codes |= {f"error.{kind}" for kind in (*kinds, *others)}
    codes |= {"reason.other_words", "reason.expired_trial", "state.valid", "state.unconfirmed"}
    codes |= {"state.updates_end"}
    codes |= {"state.grace", "state.grace_until", "state.trial_grace", "state.trial"}
    codes |= {f"state.trial_{when}" for when in ("days", "day", "today")}
    dialogs = ("activation.", "button.", "link.", "problem.", "update.")  # test_dialogs.py looks for these
    assert {code for code in TABLES["en"] if not code.startswith(dialogs)} == codes


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_number_of_one_has_its_own_words(language):
    """Days are the only noun with a number; all other counts stand apart, as in `Characters missing: 1`."""
    table = TABLES[language]
    singular, several = table["state.trial_day"], table["state.trial_days"]
    assert "{0}" in several
    assert "{" not in singular
    assert (singular == several.format(1)) == (language in {"ja", "zh"}), "these have no plural"
    counted = {"flaw.too_short": "3", "flaw.too_long": "3"}
    for code, number in counted.items():
        assert re.search(rf"[:：]\W*{number}\W*\w*\W*$", table[code].format(number)), table[code]


@pytest.mark.parametrize(
    ("tags", "language"),
    [
        (["de"], "de"),
        (["de_AT.UTF-8"], "de"),
        (["fr-CA"], "fr"),
        (["es_419"], "es"),
        (["ja_JP.eucJP@x"], "ja"),
        (["zh_CN"], "zh"),
        (["zh-Hans-SG"], "zh"),
        (["zh_TW"], "en"),  # the other script
        (["zh-Hant", "fr"], "fr"),
        (["nl", "de"], "de"),
        (["C"], "en"),
        ([""], "en"),
        ([], "en"),
    ],
)
def test_the_language_is_the_first_that_is_there(tags, language):
    """Tags of browsers, systems and environment variables are all understood."""
    assert pick_language(tags) == language


@given(st.lists(st.text()))
def test_any_tag_gives_some_language(tags):
    """Nonsense is English."""
    assert pick_language(tags) in LANGUAGES


def test_the_servers_words_stay(monkeypatch):
    """The server's sentence is unchanged beside the translation, and quoted without one."""
    known = LicenseRefusedError(Reason.EXPIRED, "License expired.")
    assert (
        explain(known, "de")
        == "Diese Lizenz ist abgelaufen. Bitte verlängern Sie sie oder geben Sie einen anderen Schlüssel ein."
    )
    assert (known.message, str(known)) == ("License expired.", "License expired.")
    assert explain(LicenseRefusedError(Reason.OTHER, "Closed on Sundays."), "de") == (
        "Die Lizenz wurde abgelehnt. Der Lizenzdienst meldet: Closed on Sundays."
    )
    assert (
        text_of("reason.from_the_future", "fr")
        == "La licence a été refusée. Veuillez contacter l’assistance."
    )


def test_without_a_language_the_system_is_asked(monkeypatch):
    """The person's environment decides."""
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "es_ES.UTF-8")
    assert explain(Reason.REVOKED) == "Esta licencia ha sido revocada. Póngase en contacto con el soporte."
    monkeypatch.setenv("LANGUAGE", "nl:ja:de")
    assert explain(Reason.REVOKED) == "このライセンスは取り消されました。サポートにお問い合わせください。"


@pytest.mark.parametrize(
    "problem", [problem_ for problem_ in EVERYTHING if isinstance(problem_, LicclientError)], ids=repr
)
def test_an_error_survives_pickling(problem):
    """From one process of an app to another, with all that it says."""
    same = pickle.loads(pickle.dumps(problem))  # noqa: S301 - our own
    assert (type(same), same.args, vars(same)) == (type(problem), problem.args, vars(problem))


@pytest.mark.parametrize(
    ("settings", "language"),
    [
        ({"AppleLanguages": ["fr-CA", "en-CA"]}, "fr"),
        ({"AppleLanguages": [7]}, "en"),
        (7, "en"),
        (None, "en"),
    ],
)
def test_a_mac_has_its_language_in_a_file(monkeypatch, tmp_path, settings, language):
    """An app that was started by a click has no variables for it; what cannot be read is English."""
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setenv("USERPROFILE" if os.name == "nt" else "HOME", str(tmp_path))
    file = tmp_path / "Library" / "Preferences" / ".GlobalPreferences.plist"
    file.parent.mkdir(parents=True)
    if settings is not None:
        file.write_bytes(plistlib.dumps(settings, fmt=plistlib.FMT_BINARY))
    assert explain(Reason.REVOKED) == explain(Reason.REVOKED, language)


def test_a_license_file_that_is_not_there_was_not_to_be_saved(tmp_path):
    """`license_file.install` raises what the system reports; the sentence is about reading."""
    with LicenseService() as service:
        client = service.client(trust=Trust(public_keys=[service.public_key]))
        with pytest.raises(FileNotFoundError) as missing:
            client.license_file.install(tmp_path / "none.lic")
    assert explain(missing.value, "en").startswith("The file could not be read. ")


def test_results_of_updates_speak_for_themselves():
    """A check is true if there is an update, which is named; a file is opened by its path."""
    update = Update("Notes", "notes", "2.0", "", NOON)
    assert not UpdateCheck(None, "Version 2.0 is up to date.")
    assert UpdateCheck(update, "")
    assert "Notes 2.0" in explain(UpdateCheck(update, ""), "en")
    file = Downloaded(Path("notes.zip"), 1, "00", "2.0")
    assert (str(file), os.fspath(file)) == ("notes.zip", "notes.zip")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("days", [None, -1, 0, 30, 31])
def test_the_end_of_updates_is_announced_thirty_days_before(language, days):
    """In a status that holds, and on the last day as well; in every language."""
    until = None if days is None else NOON.date() + timedelta(days=days)
    status = LicenseStatus(LicenseState.VALID, updates_until=until, updates_days_left=days)
    expected = text_of("state.valid", language)
    if days in (0, 30):
        announced = text_of("state.updates_end", language, format_date(until, language))
        expected = join_sentences(expected, announced, language)
    assert explain(status, language) == expected
    assert explain(replace(status, state=LicenseState.REFUSED), language) == text_of("reason.other", language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_check_names_what_the_license_does_not_cover(language):
    """Also when it offers something, and when the installed version is not supported any more."""
    uncovered = text_of("update.uncovered", language, "3.0")
    check = UpdateCheck(None, "", latest_version="3.0")
    assert explain(check, language) == uncovered
    ended = text_of("update.ended", language)
    assert explain(replace(check, is_ahead=True), language) == ended
    required = text_of("update.required", language)
    expected = join_sentences(required, uncovered, language)
    assert explain(replace(check, is_update_required=True), language) == expected
    update = Update("Notes", "notes", "1.9", "", NOON, latest_version="3.0", is_security=True)
    heading = text_of("update.heading", language, "Notes 1.9") + "."
    security, covered = text_of("update.security", language), text_of("update.covered", language, "3.0")
    expected = join_sentences(join_sentences(heading, security, language), uncovered, language)
    assert explain(UpdateCheck(update, "", latest_version="3.0"), language) == expected
    plain = UpdateCheck(replace(update, is_security=False), "", latest_version="3.0")
    assert explain(plain, language) == join_sentences(heading, covered, language)


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="a process on Windows has the system's zone")
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_the_last_instant_of_all_is_explained(monkeypatch, zone):
    """A server that says "never" so ended the sentence with an error in Tokyo."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    for problem in (
        DeactivationError("", last),
        NoSeatError("", 3, last),
        QuotaExceededError("exports", last),
    ):
        assert explain(problem, "en")
    monkeypatch.undo()
    time.tzset()
