"""Licenses as lines (D-103): what is written reads back as it was; errors name the line."""

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.transfer import ASSUMED
from licserver.protocol import license_files
from licserver.protocol.conversion import Conversion
from licserver.protocol.license_files import (
    FIELDS,
    FORMATS,
    ActivationRow,
    InvalidLine,
    LicenseRow,
    read_lines,
    read_rows,
    write_head,
    write_row,
)

WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)
FORMULAS = st.sampled_from(
    ["=cmd|' /C calc'!A0", "@SUM(1)", "+1", "-1", "'=1", "''=1", "' =1", "'x", " =1", "x;=1", "x;'\"=1"]
)
TEXTS = st.none() | WORDS | FORMULAS
INSTANTS = st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1))  # noqa: DTZ001 - Hypothesis adds it
DAYS = st.none() | st.dates()
ENTRIES = st.sampled_from(["a.example", "*.b.example", "192.0.2.0/24", "my laptop", "=x"])
ACTIVATIONS = st.builds(ActivationRow, WORDS | FORMULAS, WORDS, st.none() | INSTANTS, st.none() | INSTANTS)
ROWS = st.builds(
    LicenseRow,
    product=st.sampled_from(["app", "other-app"]),
    license_key=st.none() | st.just("CP-AAAAAA"),
    product_name=TEXTS,
    issued_at=st.none() | INSTANTS,
    expires_on=DAYS,
    lifetime=st.booleans(),
    slots=st.none() | st.integers(0, 2**31 - 1),
    allowed=st.lists(ENTRIES, max_size=3).map(tuple),
    subscription_id=TEXTS,
    subscription_ended_at=st.none() | INSTANTS,
    support_until=DAYS,
    revoked_at=st.none() | INSTANTS,
    revoked_reason=TEXTS,
    customer_email=TEXTS,
    note=TEXTS,
    activations=st.lists(ACTIVATIONS, max_size=3).map(tuple),
)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
@given(rows=st.lists(ROWS, max_size=4))
def test_what_is_written_reads_back(form, rows):
    """Every row comes back to the letter, whatever stands in it: formulas, apostrophes, line breaks."""
    text = write_head(form) + "".join(write_row(form, row) for row in rows)
    assert [row for _, row in read_rows(form, io.StringIO(text, newline=""))] == rows


@pytest.mark.slow
@given(row=ROWS)
def test_no_cell_is_a_formula(row):
    """A spreadsheet runs nothing of an export (CSV injection), at whatever it splits the lines."""
    for delimiter in ",;\t":
        lines = csv.reader(io.StringIO(write_row("csv", row), newline=""), delimiter=delimiter)
        starts = {cell.lstrip(' "\t')[:1] for line in lines for cell in line}
        assert not starts & set("=+-@")


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_not_given_is_as_for_a_new_license(form):
    """A product is enough: one slot, no end, a key to be drawn."""
    text = {"csv": "product\napp\n", "jsonl": '{"product": "app"}\n'}[form]
    ((_, row),) = read_rows(form, text.splitlines(keepends=True), ASSUMED)
    assert row == LicenseRow(product="app")
    assert (row.slots, row.license_key) == (1, None)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("end", ["expires_on", "lifetime", "subscription"])
def test_a_file_without_a_decisive_column_is_refused(form, end):
    """How many slots a license has, and when it ends, is not assumed unless an option says it (D-103)."""

    def read(names, **options: Any):
        text = {
            "csv": ",".join(["product", *names]) + "\napp" + "," * len(names) + "\n",
            "jsonl": json.dumps({"product": "app", **dict.fromkeys(names)}),
        }[form]
        conversion = replace(Conversion(now=datetime(2026, 1, 1, tzinfo=UTC)), **options)
        ((_, row),) = read_rows(form, text.splitlines(keepends=True), conversion)
        return row

    assert read(["slots", end]) == LicenseRow(product="app")  # a blank cell has the default
    assert "no column 'slots'; add --slots N" in read([end]).message
    assert "no column 'expires_on' or 'lifetime' or 'subscription'; add --expires" in read(["slots"]).message
    assert read([end], slots="unlimited").slots is None
    assert read(["slots"], expires="never") == LicenseRow(product="app")
    assert read(["slots", end], expires="2027-01-31").expires_on == date(2027, 1, 31)
    supported = {"supported": {"app"}}
    assert "'support_until'; add --support-until" in read(["slots", end], **supported).message
    assert read(["slots", end, "support_until"], **supported).support_until is None
    assert read(["slots", end], **supported, support_until="never").support_until is None
    assert read(["slots", end], **supported, support_until="2027-01-31").support_until == date(2027, 1, 31)


def test_an_end_of_its_own_is_not_replaced():
    """`--expires` is for lines without a day, a lifetime or a subscription."""
    text = "product,slots,expires_on,lifetime,subscription\n"
    text += "app,1,2030-01-01,,\napp,1,,yes,\napp,1,,,sub\napp,1,,no,\n"
    conversion = Conversion(now=datetime(2026, 1, 1, tzinfo=UTC), expires="2027-01-31")
    rows = [row for _, row in read_rows("csv", text.splitlines(keepends=True), conversion)]
    assert [row.expires_on for row in rows] == [date(2030, 1, 1), None, None, date(2027, 1, 31)]


BLANK = [
    ("csv", "product,note,expires_on\n\napp, ,\n"),
    ("jsonl", '{"product": "app", "note": " ", "issued_at": " ", "expires_on": "", "license_key": null}'),
]


@pytest.mark.parametrize(("form", "text"), BLANK)
def test_what_is_blank_is_not_given(form, text):
    """A blank line is none, and a blank field is as if it were not there."""
    ((_, row),) = read_rows(form, text.splitlines(keepends=True), ASSUMED)
    assert row == LicenseRow(product="app")


def test_a_key_is_taken_as_people_write_it():
    """Blanks around a key and small letters are mended, as the client does (D-02)."""
    ((_, row),) = read_rows("jsonl", ['{"product": "app", "license_key": " cp-aaaaaa "}'], ASSUMED)
    assert row.license_key == "CP-AAAAAA"


BAD_CSV = {
    "slug,name\n": (1, "the first line must name the fields"),
    "product,slug,name\n": (1, "there are no fields 'slug', 'name'"),
    "product,product,slug\n": (1, "there is no field 'slug'; map other names with --map COLUMN=FIELD"),
    "license_key\n": (1, "the first line must name the fields"),
    "": (1, "the first line must name the fields"),
    "\n\n": (1, "the first line must name the fields"),
    "product,product\n": (1, "occurs twice"),
    'product,note\napp,"two\nlines"\napp\n': (4, "expected 2 cells, found 1"),
    'product\n"app\n': (2, "invalid CSV"),
    "product,slots\napp,many\n": (2, "slots: must be a whole number"),
    "product,slots\napp,-1\n": (2, "slots: must be a whole number"),
    "product,expires_on\napp,31.12.2026\n": (2, "expires_on: must be a date"),
    "product,expires_on\napp,2027-01-31/12\n": (2, "expires_on: must be a date"),
    "product,issued_at\napp,yesterday\n": (2, "issued_at: must be a date and time"),
    "product,lifetime\napp,perhaps\n": (2, "lifetime: must be yes or no"),
    "product,note\n,x\n": (2, "product: is required"),
    "product,slots,expires_on\n,many,soon\n": (2, "2027-01-31; product: is required"),
    "product,activations\napp,here\n": (2, "activations: must be JSON"),
    'product,activations\napp,"[{""domain"": ""x""}]"\n': (2, "activations.0.ip: is required"),
}


@pytest.mark.parametrize("text", BAD_CSV)
def test_what_is_wrong_with_csv(text):
    """The line on which it begins, and what would be right."""
    line, message = BAD_CSV[text]
    rows = read_rows("csv", io.StringIO(text, newline=""), ASSUMED)
    problems = [row for _, row in rows if isinstance(row, InvalidLine)]
    assert problems[0].line == line
    assert message in problems[0].message


def test_a_name_occurs_once_in_a_document():
    """The last value counted, of two columns of CSV none; the licenses before it are read."""
    rows = read_rows("json", ['{"product": "app"}', '{"product": "app", "slots": 1, "slots": 99}'], ASSUMED)
    (_, first), (line, problem) = rows
    assert isinstance(first, LicenseRow)
    assert (line, problem.message) == (2, "occurs twice: slots")


def test_all_problems_of_a_header_are_shown_at_once():
    """Unknown fields, a field that occurs twice, and the terms for which there is no column."""
    ((_, problem),) = read_rows("csv", ["product,slug,product\n"], Conversion(now=ASSUMED.now))
    for part in ("no field 'slug'", "occurs twice: product", "add --slots N", "add --expires YYYY-MM-DD"):
        assert part in problem.message


def test_a_file_without_a_header_shows_no_key():
    """Its first line is a license."""
    ((_, problem),) = read_rows("csv", ["app,Pro-1a2B-3c4D\n"], ASSUMED)
    assert "1a2B" not in problem.message


BAD_JSON = {
    "app": "not a JSON object",
    "[]": "not a JSON object",
    "[" * 100_000: "not a JSON object",
    '{"slug": "app"}': "there is no field 'slug'",
    '{"product": 1}': "product: must be text",
    '{"product": "app", "license_key": 7}': "license_key: must be text",
    '{"product": "app", "slots": 1, "slots": 99}': "occurs twice: slots",
    '{"product": "app", "CP-A": 1, "CP-A": 2}': "occurs twice: a name in an object",
    '{"product": "app", "activations": [{"ip": "x", "ip": "y"}]}': "occurs twice: a name in an object",
    '{"product": "app", "slots": "10000000000"}': "slots: must be a whole number",
    '{"product": "app", "floating_seats": "unlimited"}': "floating_seats: must be a whole number from 1",
    '{"product": "app", "slots": true}': "slots: must be a whole number",
    '{"product": "app", "slots": 1.5}': "slots: must be a whole number",
    '{"product": "app", "allowed": "x"}': "allowed: must be a list",
    '{"product": "app", "allowed": [1]}': "allowed.0: must be text",
    '{"product": "app", "activations": {}}': "activations: must be a list",
    '{"product": "app", "activations": [{"domain": 1, "ip": "x"}]}': "activations.0.domain: must be text",
    '{"product": "app", "activations": ["x"]}': "activations.0: must be an object",
    '{"product": "app", "activations": [{"domain": "x", "ip": "y", "z": 1}]}': "activations.0.z: is not",
    '{"product": "app", "lifetime": 2}': "lifetime: must be yes or no",
    '{"product": "app", "expires_on": 20261231}': "expires_on: must be a date",
    '{"product": "app", "issued_at": "9999-12-31T23:59-23:00"}': "issued_at: must be a date and time",
}


@pytest.mark.parametrize("text", BAD_JSON, ids=lambda text: text[:40])
def test_what_is_wrong_with_json_lines(text):
    """The number of the line, blank ones counted; the good lines around it are read all the same."""
    good = '{"product": "app"}\n'
    found = list(read_rows("jsonl", [good, "\n", text + "\n", good], ASSUMED))
    assert [line for line, _ in found] == [1, 3, 4]
    assert isinstance(found[1][1], InvalidLine)
    assert BAD_JSON[text] in found[1][1].message


@pytest.mark.parametrize(
    "lines",
    [
        ["\ufeffproduct;note\n", "app;a,b\n"],
        ["product\tnote\n", "app\ta,b\n"],
        ["product,note\n", 'app,"a,b"\n'],
    ],
)
def test_a_spreadsheet_of_any_country_is_read(lines):
    """With its delimiter, and with the mark that it begins a file with (D-148)."""
    ((line, row),) = read_rows("csv", lines, ASSUMED)
    assert (line, row.product, row.note) == (2, "app", "a,b")


def test_lines_are_short():
    """Text as it is, and no blanks; ten digits are a number of slots."""
    assert '"note":"é"' in write_row("jsonl", LicenseRow(product="app", note="é"))
    ((_, row),) = read_rows("jsonl", ['{"product": "app", "slots": " 4294967295 "}'], ASSUMED)
    assert row.slots == 4294967295


def test_seats_and_entitlements_are_read_as_they_are_written():
    """Seats from 1, never unlimited; an entitlement a line."""
    line = {"product": "app", "floating_seats": "5", "overrides": "export\n\nprojects=80"}
    ((_, row),) = read_rows("jsonl", [json.dumps(line)], ASSUMED)
    assert (row.floating_seats, row.overrides) == (5, {"export": True, "projects": 80})
    for wrong in ("unlimited", None, ""):
        rows = read_rows("jsonl", [json.dumps({"product": "app", "floating_seats": wrong})], ASSUMED)
        ((_, row),) = rows
        assert (isinstance(row, InvalidLine), wrong == "unlimited") in {(True, True), (False, False)}


def test_the_fields_are_those_of_a_row():
    """No field of a row is left out of the files."""
    assert tuple(json.loads(write_row("jsonl", LicenseRow(product="app")))) == FIELDS


@pytest.mark.parametrize("form", FORMATS)
def test_an_example_reads_back(form):
    """With lists, activations and text that a spreadsheet would take for a formula."""
    at = datetime(2026, 6, 15, 12, tzinfo=UTC)
    row = LicenseRow(
        product="app",
        license_key="CP-AAAAAA",
        slots=3,
        allowed=("a.example", "192.0.2.0/24"),
        note="=x",
        activations=(ActivationRow("pc1", "192.0.2.1", at, None),),
    )
    rows = [row, replace(row, slots=None, activations=())]
    text = write_head(form) + "".join(write_row(form, row) for row in rows)
    assert [row for _, row in read_rows(form, io.StringIO(text, newline=""))] == rows


def test_a_number_of_slots_is_no_boolean():
    """JSON has numbers, CSV only text."""
    lines = [f'{{"product": "app", "slots": {slots}}}\n' for slots in ("3", '" 3 "', "true")]
    three, text, invalid = (row for _, row in read_rows("jsonl", lines, ASSUMED))
    assert three == text
    assert isinstance(invalid, InvalidLine)
    assert "slots" in str(invalid)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_line_without_an_end_is_not_read_whole(form, monkeypatch):
    """Such as a device, or a database that was named by mistake: 19 GB in two minutes."""
    monkeypatch.setattr(license_files, "MAX_LINE", 1_000)
    endless = io.StringIO("product\napp\n" if form == "csv" else "\n\n")
    sizes = []

    class Endless(io.StringIO):
        """Two short lines, then one that never ends."""

        def readline(self, size: int | None = -1, /) -> str:
            text = endless.readline(size) or "\0" * size
            sizes.append(len(text))
            return text

    line, problem = list(read_rows(form, read_lines(Endless()), ASSUMED))[-1]
    assert (line, problem) == (3, InvalidLine(3, "longer than 1000 characters"))
    assert sizes == [*sizes[:2], 1_001]


def test_a_file_of_documents_may_be_a_single_line(monkeypatch):
    """The bound of a line is not that of a document."""
    monkeypatch.setattr(license_files, "MAX_LINE", 30)
    content = json.dumps([{"product": "app", "lifetime": True, "slots": 1}])
    ((_, row),) = read_rows("json", read_lines(io.StringIO(content)))
    assert isinstance(row, LicenseRow)


def test_a_header_has_at_most_a_thousand_columns():
    """Two million names of 14 MB took 355 MB."""
    for count, message in ((1_000, "the first line must name"), (1_001, "more than 1000 columns")):
        header = ",".join(f"c{number}" for number in range(count)) + "\n"
        ((line, problem),) = read_rows("csv", [header])
        assert (line, problem.message[: len(message)]) == (1, message)
