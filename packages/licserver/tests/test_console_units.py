"""What the console decides without a request: cells of CSV, cookies and forms, file names, plots, words."""

import csv
import io
import time
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from licserver.errors import InvalidInputError
from licserver.protocol.license_files import to_line, unescape_formulas
from licserver.security.passwords import check_password
from licserver.web.console import formatting, sessions
from licserver.web.console.formatting import parse_form
from licserver.web.console.pages.overview import Plot, Series, round_up
from licserver.web.console.responses import load_templates

DAYS = [date(2026, 6, 13), date(2026, 6, 14), date(2026, 6, 15)]
TOKEN, OTHER = "t" * 43, "o" * 43

# --- CSV --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        " =1",
        "＝1",
        "＋1",
        "－1",
        "＠x",
        '=cmd|" /C calc"!A0',
    ],
)
def test_a_cell_that_would_be_a_formula_is_text(text):
    """Whatever a spreadsheet would run has an apostrophe in front, and is otherwise as it was."""
    ((cell, _),) = csv.reader(io.StringIO(to_line([text, "next"]), newline=""))
    assert cell[0] == "'"
    assert unescape_formulas(cell) == text


FORMULA = "laptop;=cmd|'/c calc'!a0;x"
FREE_TEXTS = st.lists(
    st.text(st.sampled_from("=+-@\uff1dx;,|\t\r\n \xa0\"'") | st.characters(exclude_categories=["Cs"]))
    | st.just(FORMULA),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@given(FREE_TEXTS)
def test_any_text_stays_in_its_cell(cells):
    """Quotes, commas and line breaks end no cell, and what was guarded can be had back."""
    (read,) = csv.reader(io.StringIO(to_line(cells), newline=""))
    assert [unescape_formulas(cell) for cell in read] == cells


@pytest.mark.sampled(2, "delimiter", "quoting")
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_NONE])
@pytest.mark.parametrize("delimiter", list(",;\t|"))
@example([FORMULA, "x", FORMULA])
@given(FREE_TEXTS)
def test_no_cell_begins_with_a_formula_wherever_a_spreadsheet_splits_the_line(delimiter, quoting, cells):
    """A domain is free text, and spreadsheets of some countries split at semicolons, not at commas."""
    text = io.StringIO(to_line(["app", *cells]), newline="")
    read = csv.reader(text, delimiter=delimiter, quoting=quoting)
    starts = {cell.lstrip(' \t\r\n\xa0"')[:1] for line in read for cell in line}
    assert not starts & set("=+-@\uff1d")


def test_numbers_and_dates_are_not_text():
    """A negative number stays one; instants and dates are written so that they sort."""
    noon = datetime(2026, 6, 15, 12, tzinfo=UTC)
    written = '"-1","","yes","2026-06-15 12:00:00","2026-06-15"\r\n'
    assert to_line([-1, None, True, noon, noon.date()]) == written


# --- sessions ---------------------------------------------------------------------------------


def test_a_forms_token_is_good_for_its_session_alone():
    """It is not the session's own token, and another session's is not taken."""
    token = sessions.csrf_token(TOKEN)
    assert TOKEN not in token
    assert sessions.is_own_form(TOKEN, {"csrf": token})
    assert not sessions.is_own_form(OTHER, {"csrf": token})
    assert not sessions.is_own_form(TOKEN, {})
    assert not sessions.is_own_form(TOKEN, {"csrf": "ö"})


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://shop.example"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),  # another host of the same company
        ({"Origin": "https://SHOP.example"}, True),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "https://shop.example.evil.example"}, False),
        ({"Origin": "null"}, False),
        ({}, True),  # no browser: nobody to be tricked
    ],
)
def test_whose_page_sent_a_form(headers, is_ours):
    """What browsers say of themselves is believed; a form from another site is not taken."""
    assert sessions.is_same_origin(headers, "shop.example") is is_ours


@pytest.mark.parametrize(
    "path",
    [
        *("https://evil.example", "//evil.example", "/\\evil.example", "/console//evil.example"),
        *("/api", "/consoles", "", "/console/\r\nSet-Cookie: a=b", "javascript:alert(1)"),
        *("/console@evil.example", "/console/../account", "/console/%2e%2E/account", "/console/a/.."),
    ],
)
def test_signing_in_leads_nowhere_else(path):
    """Where to go afterwards comes from the address, so anybody may have written it."""
    assert sessions.own_path(path) == "/console"


def test_cookies():
    """Over https the cookie is bound to the host; scripts see neither, and a strange value is none."""
    assert sessions.write_cookie(TOKEN, is_https=True, seconds=60) == (
        f"__Host-licserver={TOKEN}; Path=/; Secure; Max-Age=60; HttpOnly; SameSite=Lax"
    )
    assert sessions.write_cookie("", is_https=False, seconds=0) == (
        "licserver=; Path=/console; Max-Age=0; HttpOnly; SameSite=Lax"
    )
    assert sessions.read_token(f"licserver={TOKEN}") == TOKEN
    assert sessions.read_token(f"a=1; licserver={OTHER};__Host-licserver={TOKEN}; b") == TOKEN
    assert sessions.read_token(f"licserver={TOKEN}x") is None
    assert sessions.read_token(f"xlicserver={TOKEN}; my licserver={TOKEN}; licserver ={TOKEN}") is None
    assert sessions.read_token("") is None


def test_of_a_thousand_cookies_only_ours_is_parsed():
    """Parsing all of them took 7 ms; a header that aiohttp accepts has room for them."""
    header = ";".join(["a=1"] * 1000 + [f"licserver={OTHER}", f"licserver={TOKEN}"])
    assert sessions.read_cookie(header, "licserver") == TOKEN
    assert sessions.read_cookie(header, "b") is None


# --- forms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"\xff", b"a=%ff", b"&".join(b"a=1" for _ in range(400))])
def test_a_form_that_cannot_be_read(body):
    """Bytes that are no form are rejected as such, and are no failure."""
    with pytest.raises(InvalidInputError):
        parse_form(body)


def test_a_form():
    """Of a name that comes twice, the last counts; line breaks are ours."""
    assert parse_form(b"a=1&a=2&b=%0D%0A&c=") == {"a": "2", "b": "\n", "c": ""}


# --- plots and words --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "top"), [(0, 0), (1, 1), (7, 8), (9, 10), (10, 10), (11, 12), (41, 50), (99, 100), (1040, 1200)]
)
def test_where_a_scale_ends(value, top):
    """At a number that people read at a glance."""
    assert round_up(value) == top


def draw(plot):
    """Return the shapes of a plot as its page has them."""
    parts = load_templates().get_template("parts.html")
    return parts.make_module({"csrf": "", "now": None}).bars(plot)


def test_a_plot_says_the_same_twice():
    """Every number of the table is in the shapes; a label is text there, whatever it holds."""
    plot = Plot("Calls", DAYS, [Series("good", "one", [1, 0, 4]), Series("<bad>", "four", [0, 0, 2])])
    assert plot.total == 7
    assert plot.rows == [(DAYS[2], (4, 2)), (DAYS[0], (1, 0))]
    assert plot.top == 6
    assert "Mon 15 Jun: good 4, &lt;bad&gt; 2" in draw(plot)
    assert 'height="66.67"' in draw(plot)  # 4 of 6
    assert "style=" not in draw(plot)  # the content security policy would drop it


@pytest.mark.parametrize(
    ("before", "change"), [(0, ""), (7, "as many"), (4, "75 % more"), (14, "50 % less"), (7000, "100 % less")]
)
def test_a_plot_is_compared_with_the_days_before(before, change):
    """Seven calls beside those of as many days before; without any there is nothing to compare with."""
    assert Plot("Calls", DAYS, [Series("good", "one", [1, 2, 4])], before).change == change


def test_a_plot_of_nothing():
    """Days without a number, and no days at all, are drawn as well."""
    assert Plot("Calls", DAYS, [Series("good", "one", [0, 0, 0])]).rows == []
    assert "<svg" in draw(Plot("Calls", [], [Series("good", "one", [])]))


@pytest.mark.parametrize(
    ("past", "text"),
    [
        (timedelta(seconds=-5), "just now"),
        (timedelta(minutes=2), "2 minutes ago"),
        (timedelta(hours=1, minutes=40), "2 hours ago"),
        (timedelta(hours=30), "30 hours ago"),
        (timedelta(days=2), "2 days ago"),
        (timedelta(days=90), "3 months ago"),
        (timedelta(days=1000), "3 years ago"),
    ],
)
def test_how_long_ago(past, text):
    """Roughly, as people say it."""
    now = datetime(2026, 6, 15, 12, tzinfo=UTC)
    assert formatting.ago(now - past, now) == text


def test_sizes():
    """Bytes as people read them."""
    assert [formatting.file_size(size) for size in (0, 999, 1000, 2_500_000, 2 * 10**12)] == [
        "0 bytes", "999 bytes", "1.0 kB", "2.5 MB", "2000.0 GB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "password",
    [
        *("short", "alice-smith-1", "aaaaaaaaaaaaaaaa", "x" * 2000, "password1234", "Password123!"),
        *("qwertyuiop12", "123456789012", "licserver2026"),
    ],
)
def test_a_password_that_would_be_guessed(password):
    """Too short, too long, common or derived from the name; the error does not repeat the password."""
    with pytest.raises(InvalidInputError) as refused:
        check_password("alice-smith-1", password)
    assert password not in str(refused.value)


@pytest.mark.parametrize(
    "password", ["four words of a sentence", "vK3-wq8Lz0pR", "4@8({[<369&#!|1/0$5+7%2x" * 40]
)
def test_a_good_password(password):
    """Passwords that are hard to guess are accepted, in bounded time."""
    began = time.process_time()
    check_password("alice", password)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("typed", ["0027-01-31", "0207-01-31", "27-01-31", "31.01.2027"])
def test_a_day_that_no_license_ends_on_is_refused(typed):
    """CareTogether/CareTogetherCMS#971, ustaxcourt/ef-cms-flexion#9570: a browser makes 0027 of 27."""
    with pytest.raises(InvalidInputError, match="write"):
        formatting.parse_day(typed)


def test_a_day():
    """An empty field means that there is no date."""
    assert formatting.parse_day("") is None
    assert formatting.parse_day("2027-01-31") == date(2027, 1, 31)
