"""Entitlements: their values, how plan and license make them, and how people write them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from licserver.domain.entitlements import (
    MAX_BYTES,
    MAX_NAMES,
    MAX_NUMBER,
    MAX_TEXT,
    InvalidEntitlementError,
    dump,
    format_grants,
    load,
    parse_grants,
    resolve,
    resolve_stored,
    validate,
)

MONTHLY = {"limit": 100, "per": "month"}


def test_a_license_overrides_its_plan():
    """What the license has counts; None takes away what the plan grants, and what it does not grant."""
    plan = {"export": True, "projects": 50}
    assert resolve(plan, {"projects": 80, "export": None, "sync": None}) == {"projects": 80}
    assert resolve(plan, None) == plan
    assert resolve(None, {"b": 1, "a": False}) == {"a": False, "b": 1}


def test_without_plan_and_overrides_there_are_none():
    """That is something else than an empty plan."""
    assert resolve_stored(None, None) is None
    assert resolve_stored("{}", None) == {}
    assert resolve_stored('{"a":1}', None) == {"a": 1}
    assert resolve_stored('{"a":1,"c":3}', '{"a":null,"b":2}') == {"b": 2, "c": 3}


def test_they_are_stored_as_one_short_line():
    """The same entitlements are always the same line: changes are found by comparing them."""
    assert dump({"b": "ü", "a": MONTHLY}) == '{"a":{"limit":100,"per":"month"},"b":"ü"}'
    assert load('{"b":"ü"}') == {"b": "ü"}
    assert (dump(None), load(None)) == (None, None)


@pytest.mark.parametrize("value", [True, False, 0, MAX_NUMBER, "x", "eu", "x" * 200, MONTHLY])
def test_values(value):
    """The four types."""
    assert validate({"a": value}, removable=False) == {"a": value}


@pytest.mark.parametrize(
    "value",
    [
        *(-1, MAX_NUMBER + 1, 1.0, "", " ", "x" * 201, "a\nb", [], [1]),
        *({"limit": 1}, {"limit": True, "per": "day"}, {"limit": -1, "per": "day"}),
        *({"limit": 1, "per": "week"}, {"limit": 1, "per": "day", "more": 1}),
    ],
)
def test_values_that_cannot_be(value):
    """The message names the entitlement."""
    with pytest.raises(InvalidEntitlementError, match="a: must be"):
        validate({"a": value}, removable=True)


def test_only_a_license_takes_away():
    """A plan has nothing to take away from."""
    assert validate({"a": None}, removable=True) == {"a": None}
    with pytest.raises(InvalidEntitlementError):
        validate({"a": None}, removable=False)


def test_the_answer_stays_small():
    """Names, their number and the bytes in all are limited."""
    most = {str(number): True for number in range(MAX_NAMES)}
    assert validate(most, removable=True) == most
    long = {str(number): "x" * MAX_TEXT for number in range(10, 49)}
    rest = {"rest": "x" * (MAX_BYTES - len(dump(long) or "") - len(',"rest":""'))}
    assert validate({**long, **rest}, removable=True) == {**long, **rest}
    with pytest.raises(InvalidEntitlementError, match=str(MAX_BYTES)):
        validate({**long, "rest": rest["rest"] + "x"}, removable=True)
    for name in ("", "A", "a b", "x" * 41):
        with pytest.raises(InvalidEntitlementError, match="not a valid entitlement name"):
            validate({name: True}, removable=True)
    with pytest.raises(InvalidEntitlementError, match="at most 50"):
        validate({str(number): True for number in range(MAX_NAMES + 1)}, removable=True)
    with pytest.raises(InvalidEntitlementError, match=str(MAX_BYTES)):
        validate({str(number): "😀" * 60 for number in range(40)}, removable=True)


@pytest.mark.parametrize(
    ("written", "name", "value"),
    [
        *(("export", "export", True), (" export = true ", "export", True), ("a=false", "a", False)),
        *(("a=none", "a", None), ("a=50", "a", 50), ("a=0050", "a", 50), ("a=100/month", "a", MONTHLY)),
        *(("a=eu", "a", "eu"), ('a="50"', "a", "50"), ("a=x=y", "a", "x=y"), ("a=24/7", "a", "24/7")),
        *(('a="', "a", '"'), ('a=""', "a", "")),
    ],
)
def test_what_people_write(written, name, value):
    """A flag is its name alone; quotes make a text of anything."""
    assert parse_grants([written]) == {name: value}


@pytest.mark.parametrize("word", ["no", "yes", "On", "off", "False", "TRUE", "None"])
def test_a_word_that_may_be_a_flag_is_asked_about(word):
    """As a text, "no" would be granted; who means a text quotes it, as it is shown then."""
    with pytest.raises(InvalidEntitlementError, match=f'true, false or none; .* "{word}" in double quotes'):
        parse_grants([f" export = {word} "])
    (shown,) = format_grants({"region": word})
    assert (shown, parse_grants([shown])) == (f'region="{word}"', {"region": word})


def test_a_number_of_another_period_is_asked_about():
    """As a text, "100/week" would be granted without a limit."""
    with pytest.raises(InvalidEntitlementError, match=r'100/month; .* "100/week" in double quotes'):
        parse_grants(["exports=100/week"])
    (shown,) = format_grants({"exports": "100/week"})
    assert parse_grants([shown]) == {"exports": "100/week"}


@pytest.mark.parametrize(
    "text",
    [
        *(
            "-1",
            "+5",
            "1.5",
            "1,5",
            ".5",
            "5.",
            "1,000",
            "1.000.000",
            "1 000",
            "1\u00a0000",
            "1'000",
            "1\u2019000",
        ),
        *(
            "1_000",
            "10/",
            "/month",
            "1e3",
            "1E+3",
            "0x10",
            "0b1",
            "inf",
            "-Infinity",
            "NaN",
            "\u221e",
            "\u22121",
        ),
        *("\uff11\uff10", "\u0661\u0660", "10k", "1.5M", "50%", "10 / month", "10/Month", "10 per month"),
        *(
            "10/months",
            "-1/month",
            "1,000/month",
            "1e3/day",
            "100/30 days",
            "10/month/",
            "\u0661/month",
            "~10",
        ),
    ],
)
def test_almost_a_number_is_asked_about(text):
    """As a text it would be granted without a limit."""
    with pytest.raises(InvalidEntitlementError, match="in double quotes"):
        parse_grants([f"projects={text}"])
    (shown,) = format_grants({"projects": text})
    assert parse_grants([shown]) == {"projects": text}


@pytest.mark.parametrize("text", ["5/month/day", "5//day", "5 / each month", "5/2 years"])
def test_almost_a_quota_is_asked_about(text):
    """A second slash or a word too many makes no text of a quota."""
    with pytest.raises(InvalidEntitlementError, match="like 100/month"):
        parse_grants([f"exports={text}"])


@pytest.mark.parametrize("text", ["unlimited", "Unlimited", "infinite", "NULL", "n/a"])
def test_what_others_write_for_no_limit_is_asked_about(text):
    """An app that compares it with a number would fail."""
    with pytest.raises(InvalidEntitlementError, match="its name alone"):
        parse_grants([f"projects={text}"])
    assert parse_grants(format_grants({"projects": text})) == {"projects": text}


QUOTA = "a number per day, month or year, like 100/month"


@pytest.mark.parametrize(
    ("text", "valid", "shown"),
    [
        ("1,000", "a whole number from 0, written with the digits 0 to 9 alone", "1,000"),
        ("5 per month", QUOTA, "5 per month"),
        ("5 PER Month", QUOTA, "5 PER Month"),
        ("5 / month", QUOTA, "5 / month"),
        ("unlimited", "a flag, written as its name alone, if it has no limit", "unlimited"),
        ("1\t000", "a whole number from 0, written with the digits 0 to 9 alone", r"'1\t000'"),
        ("no\u200b", "true, false or none", r"'no\u200b'"),
        ("5\u200e", "a whole number from 0, written with the digits 0 to 9 alone", r"'5\u200e'"),
    ],
)
def test_the_error_says_what_to_write(text, valid, shown):
    """For either meaning; what does not print is shown as its code."""
    with pytest.raises(InvalidEntitlementError) as caught:
        parse_grants([f"projects={text}"])
    assert str(caught.value) == (
        f'an entitlement is {valid}; for the text {shown}, write "{shown}" in double quotes'
    )


@pytest.mark.parametrize("grant", ["projects=", "projects = ", "="])
def test_an_empty_value_grants_nothing(grant):
    """browser-use/browser-use#5837: a variable of a shell that is not set switched a flag on."""
    with pytest.raises(
        InvalidEntitlementError,
        match=r"^an entitlement has a value after its =; leave the = out for a flag that is granted$",
    ):
        parse_grants([grant])
    assert parse_grants(["projects"]) == {"projects": True}


@pytest.mark.parametrize(
    "text",
    ["24/7", "2026-11-05", "1.5.2", "10.0.0.1", "v1", "eu-1", "10GB", "1 of 3", "fan", "/", "-", "e", "per"],
)
def test_what_is_no_number_is_a_text(text):
    """Dates, versions and addresses need no quotes."""
    assert parse_grants([f"a={text}"]) == {"a": text}


def test_a_number_of_any_length_is_read():
    """It is too large, which `validate` says; Python itself refuses to read thousands of digits."""
    for text in ("9" * 5_000, "9" * 5_000 + "/day"):
        with pytest.raises(InvalidEntitlementError):
            validate(parse_grants([f"a={text}"]), removable=True)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, MAX_NUMBER),
    st.text(max_size=200),
    st.fixed_dictionaries({"limit": st.integers(0, 9), "per": st.sampled_from(["day", "month", "year"])}),
)


@given(VALUES)
@example("50")
@example(" a")
def test_what_is_shown_can_be_typed(value):
    """Every valid value reads back as it was."""
    try:
        valid = validate({"a.b-c_1": value}, removable=True)
    except InvalidEntitlementError:
        return
    assert parse_grants(format_grants(valid)) == valid
    assert load(dump(valid)) == valid
