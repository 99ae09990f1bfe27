import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licclient import (
    DownloadCancelledError,
    InvalidRequestError,
    KeyFlaw,
    LicenseRefusedError,
    LicenseState,
    LicenseStatus,
    MistypedKeyError,
    NotActivatedError,
    Reason,
    ServiceUnavailableError,
    UntrustedResponseError,
    UnusableArchiveError,
    UpdateCheck,
    explain,
)
from licclient._texts import LANGUAGES, TEXTS, pick_language, text_of
from licclient.dialogs._words import WORDS

EVERYTHING = [
    *Reason,
    *(MistypedKeyError(flaw, "3") for flaw in KeyFlaw),
    *(LicenseRefusedError(reason, "In the server's words.") for reason in Reason),
    NotActivatedError(),
    InvalidRequestError({}),
    ServiceUnavailableError(),
    UntrustedResponseError(),
    UnusableArchiveError(),
    DownloadCancelledError(),
    OSError(28, "No space left on device"),
    OSError(),
    UpdateCheck(None, "Version 2.0 is up to date."),
    UpdateCheck(None, "Not now.", NotActivatedError()),
    *(LicenseStatus(state) for state in LicenseState),
]


@pytest.mark.parametrize("language", LANGUAGES)
def test_everything_that_can_happen_has_words_in_every_language(language):
    """Each error, reason, flaw and state is explained in a sentence, with nothing left to fill in."""
    for what in EVERYTHING:
        told = explain(what, language)
        assert told.strip() == told != ""
        assert "{" not in told


@pytest.mark.parametrize("code", [*TEXTS, *WORDS])
def test_translations_are_complete(code):
    """No language is missing a line, or has other blanks to fill in; sentences are all translated."""
    row = (TEXTS | WORDS)[code]
    assert len(row) == len(LANGUAGES)
    assert code in WORDS or len(set(row)) == len(row)
    assert all(text == text.strip() != "" for text in row)
    blanks = {tuple(sorted(name for _, name, *_ in string.Formatter().parse(text) if name)) for text in row}
    assert len(blanks) == 1


def test_what_a_download_says_of_the_disk_is_explained_too():
    """`download` and `apply` raise `OSError` as it is, and an app shows it like everything else."""
    told = explain(OSError(28, "No space left on device", "/home/eva/secret"), "en")
    assert told == "The file could not be saved. No space left on device"


@pytest.mark.parametrize("what", [None, "revoked", ValueError("x")])
def test_what_cannot_be_explained_is_a_slip(what):
    """It was None, which a label shows as "None", or not at all."""
    with pytest.raises(TypeError, match="nothing that licclient says"):
        explain(what)


def test_who_cancels_is_not_told_of_an_outage():
    """A download that the app itself stopped went as it should."""
    assert explain(DownloadCancelledError(), "de") == "Der Download wurde abgebrochen."


def test_no_line_is_left_over():
    """Every line of the table belongs to a reason, a flaw, a kind of error or a state."""
    codes = {f"reason.{reason.value}" for reason in Reason} | {f"flaw.{flaw.value}" for flaw in KeyFlaw}
    kinds = ("not_activated", "invalid_request", "unavailable", "untrusted", "unusable_archive", "cancelled")
    codes |= {f"error.{kind}" for kind in kinds}
    assert set(TEXTS) == codes | {"state.valid", "state.grace", "update.none", "error.disk"}


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
    """The wire's sentence is untouched beside the translation, and stands in where there is none."""
    known = LicenseRefusedError(Reason.EXPIRED, "License expired.")
    assert explain(known, "de") == "Diese Lizenz ist abgelaufen."
    assert (known.message, str(known)) == ("License expired.", "License expired.")
    assert explain(LicenseRefusedError(Reason.OTHER, "Closed on Sundays."), "de") == "Closed on Sundays."
    assert text_of("reason.from_the_future", "fr") == "La licence a été refusée."


def test_without_a_language_the_system_is_asked(monkeypatch):
    """The person's environment decides."""
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "es_ES.UTF-8")
    assert explain(Reason.REVOKED) == "Esta licencia ha sido revocada."
    monkeypatch.setenv("LANGUAGE", "nl:ja:de")
    assert explain(Reason.REVOKED) == "このライセンスは取り消されました。"
