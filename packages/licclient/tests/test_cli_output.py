"""What the command line prints: where an answer is from, and how far a download is."""

import io
from datetime import UTC, datetime, timedelta

import pytest

from licclient import License, Source
from licclient._cli._output import bar_line, format_origin, format_term, progress_bar


@pytest.mark.parametrize(
    ("source", "age", "words"),
    [
        (Source.CACHE, timedelta(minutes=3, seconds=50), "from the cache, checked 3 minutes ago"),
        (Source.CACHE, timedelta(minutes=61), "from the cache, checked 1 hour ago"),
        (Source.CACHE, timedelta(seconds=-5), "from the cache, checked less than a minute ago"),
        (Source.GRACE, timedelta(days=2, hours=5), "in the grace period: last checked 2 days ago"),
    ],
)
def test_people_read_how_old_an_answer_is(source, age, words):
    """The source in words, with the largest unit that fits; and a license without an end."""
    now = datetime(2026, 11, 21, tzinfo=UTC)
    found = License("Notes", None, is_lifetime=True, checked_at=now - age, source=source)
    assert (format_origin(found, now), format_term(found)) == (words, "lifetime license")


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        ((0, 200_000_000, 0.0), "  0% [........................] 0 B of 200.0 MB"),
        (
            (50_000_000, 200_000_000, 10_000_000.0),
            " 25% [######..................] 50.0 MB of 200.0 MB, 10.0 MB/s, 0:15 left",
        ),
        (
            (1_500, 5_000_000_000, 1000.0),
            "  0% [........................] 1.5 kB of 5.00 GB, 1.0 kB/s, days left",
        ),
        (
            (1_000_000, 20_000_000, 2_000.0),
            "  5% [#.......................] 1.0 MB of 20.0 MB, 2.0 kB/s, 2:38:20 left",
        ),
        ((7, 7, 7.0), "100% [########################] 7 B of 7 B, 7 B/s, 0:00 left"),
        ((0, 0, 0.0), "100% [########################] 0 B of 0 B"),
    ],
)
def test_the_bar_in_words(progress, line):
    """How far, how much, how fast, and how much longer."""
    assert bar_line(*progress) == line


def test_a_terminal_shows_a_bar(monkeypatch):
    """It grows in one line, and is gone at the end."""
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar(stream, shown=True) as progress:
        for done in (0, 150_000, 300_000):
            progress(done, 300_000, 1e6)
    drawn = stream.getvalue()
    assert drawn.count("\r") == 4
    assert "\n" not in drawn
    assert "100% [########################] 300.0 kB of 300.0 kB" in drawn
    assert drawn.endswith("\r\x1b[K")


@pytest.mark.parametrize(
    ("shown", "is_terminal", "term"), [(False, True, "xterm"), (True, True, "dumb"), (True, False, "xterm")]
)
def test_no_bar_where_none_can_be_used(monkeypatch, shown, is_terminal, term):
    """With `--json`, on a terminal that cannot go back in a line, in a pipe or a file: nothing is written."""
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setenv("TERM", term)
    with progress_bar(stream, shown=shown) as progress:
        assert progress is None
    assert stream.getvalue() == ""
