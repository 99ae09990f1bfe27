"""What a window shows of texts that have no end: a changelog of a megabyte must not hold the app up."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from licclient import LicenseClient, Reason, Update, explain
from licclient.dialogs._driver import LONGEST_LINE, MOST_LETTERS, begin_offer, in_short_lines
from licclient.dialogs._states import (
    MOST_WORDS,
    Action,
    Ended,
    OfferState,
    Pressed,
    Progressed,
)
from licclient.errors import LicenseRefusedError

MEGABYTE = 1024 * 1024
UPDATE = Update("Notes", "notes", "1.1.0", "Faster.", datetime(2026, 11, 21, tzinfo=UTC))


@pytest.mark.parametrize("text", ["x" * MEGABYTE, "word " * 200_000, "\n" * MEGABYTE, "a line\n" * 150_000])
def test_a_long_changelog_comes_in_lines_that_a_window_can_lay_out(text):
    """Tk and Qt take minutes for one line of a million letters; so there is none, and there is an end."""
    shown = in_short_lines(text)
    assert max(map(len, shown.split("\n"))) <= LONGEST_LINE
    assert len(shown) <= MOST_LETTERS + MOST_LETTERS // LONGEST_LINE + 2
    assert shown.endswith("\n…")


@pytest.mark.parametrize("text", ["", "One line.", "a\n\n\tb\n", "x" * LONGEST_LINE])
def test_what_is_not_long_is_shown_as_it_is(text):
    """To the letter, empty lines included."""
    assert in_short_lines(text) == text


def test_a_changelog_is_read_once_and_not_at_each_step(monkeypatch, tmp_path):
    """A download redraws its window twenty times a second; reading a megabyte of HTML takes longer."""
    reads = []
    monkeypatch.setattr("licclient._core.changelog.to_text", lambda text: reads.append(text) or "Faster.")
    client = LicenseClient("https://store.invalid", slug="notes", version="1.0", storage=tmp_path)
    offer, _ = begin_offer(client, UPDATE, "en").step(Pressed(Action.GO))
    for done in range(100):
        offer, _ = offer.step(Progressed(done, 100, 1.0))
        assert offer.view().body == "Faster."
    assert len(reads) == 1


def test_names_and_sentences_of_the_service_fit_the_screen():
    """A heading or a message without end would push the buttons off it."""
    named = OfferState("en", replace(UPDATE, name="N" * MEGABYTE)).view()
    assert len(named.heading) < MOST_WORDS + 50
    refused = LicenseRefusedError(Reason.OTHER, "because " * 10_000)
    coming, _ = OfferState("en", UPDATE).step(Pressed(Action.GO))
    failed, _ = coming.step(Ended(refused))
    assert failed.view().message == explain(refused, "en")[:MOST_WORDS] + "…"
