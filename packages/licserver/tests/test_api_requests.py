"""Requests are read, or every faulty field is named (D-11, D-21)."""

import json
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licserver.domain.records import Machine
from licserver.limits import MAX_TARGET_CHARS
from licserver.protocol.public_api import (
    InvalidRequest,
    UpdateRequest,
    VerifyRequest,
    decode_escapes,
    parse_query,
    parse_update_check,
    parse_verify,
    read_object,
)

GOOD = {"license_key": "CP-X", "domain": "https://A.example/", "ip": "192.0.2.1"}
REQUIRED = {
    "license_key": "The license key field is required.",
    "domain": "The domain field is required.",
    "ip": "The ip field is required.",
}
ALL_THREE = {name: [sentence] for name, sentence in REQUIRED.items()}


def faults(**fields: object):
    """What is wrong with a body that differs from a good one in these fields; ``...`` leaves one out."""
    body = {name: value for name, value in {**GOOD, **fields}.items() if value is not ...}
    call = parse_verify(json.dumps(body).encode())
    return dict(call.errors) if isinstance(call, InvalidRequest) else call


def test_a_good_body_becomes_a_call():
    """The key is kept to the letter, the domain in its normal form; the body's ip is only checked (D-05)."""
    call = faults()
    assert isinstance(call, VerifyRequest)
    assert (call.license_key, call.domain) == ("CP-X", "a.example")
    assert "CP-X" not in repr(call)


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("value", [..., None, "", "  \t"], ids=["missing", "null", "empty", "blank"])
def test_a_field_that_says_nothing_is_required(name, value):
    """Missing, null, empty and blank are one fault, reported for the field alone."""
    assert faults(**{name: value}) == {name: [REQUIRED[name]]}


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("value", [True, False, 0, 7, 1.5, [], ["x"], {}, {"a": "b"}], ids=repr)
def test_a_field_of_another_type_must_be_a_string(name, value):
    """No number, boolean, list or object is taken for text."""
    assert faults(**{name: value}) == {name: [f"The {name.replace('_', ' ')} field must be a string."]}


@pytest.mark.parametrize(
    ("sent", "platform"),
    [
        ("linux-arm64", "linux-arm64"),
        ("Linux", ""),
        ("a b", ""),
        ("a" * 41, ""),
        ("\0", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_a_malformed_platform_counts_as_none(sent, platform):
    """A client that sends one gets the default file, and no error (D-187)."""
    fields = {"license_key": "CP-X", "slug": "app", "current_version": "1", "domain": "a.example"}
    call = parse_update_check(urlencode(fields if sent is None else {**fields, "platform": sent}))
    assert isinstance(call, UpdateRequest)
    assert call.platform == platform


A = "Anna's Mac, 書斎"
LABELS = {
    "a label": ({"label": A}, Machine(A)),
    "both": ({"label": A, "app_version": "1.4"}, Machine(A, "1.4")),
    "a version": ({"app_version": "1.4"}, Machine(None, "1.4")),
    "none": ({}, None),
    "null": ({"label": None}, None),
    "blank": ({"label": " \t"}, None),
    "control characters": ({"label": "\x00 A\x1b\u2028\ud800B\u3000C\n"}, Machine("AB\u3000C")),
    "as long as may be": ({"label": "x" * 80, "app_version": "1" * 64}, Machine("x" * 80, "1" * 64)),
    "too long": ({"label": "x" * 81, "app_version": "1" * 65}, None),
    "other types": ({"label": {"a": 1}, "app_version": 1.4}, None),
}


@pytest.mark.parametrize(("fields", "machine"), LABELS.values(), ids=LABELS.keys())
def test_a_label_that_cannot_be_used_is_ignored(fields, machine):
    """What a client sends about its machine never makes a request malformed (D-195)."""
    call = faults(**fields)
    assert isinstance(call, VerifyRequest)
    assert call.machine == machine


CONTROL = "The domain field must not contain control characters."
FAULTY = {
    "ip": ({"ip": "192.0.2"}, {"ip": ["The ip field must be a valid IP address."]}),
    "ip with a zone": ({"ip": "fe80::1%eth0"}, {"ip": ["The ip field must be a valid IP address."]}),
    "ip with blanks": ({"ip": " 192.0.2.1 "}, {"ip": ["The ip field must be a valid IP address."]}),
    "ip of surrogates": ({"ip": "\ud800"}, {"ip": ["The ip field must be a valid IP address."]}),
    "NUL": ({"domain": "a\x00"}, {"domain": [CONTROL]}),
    "surrogate": ({"domain": "a\udfff"}, {"domain": [CONTROL]}),
    "long": ({"domain": "x y" * 99}, {"domain": ["The domain field must be at most 253 characters long."]}),
    "all": (
        {"license_key": 1, "domain": "\x00x", "ip": "x"},
        {
            "license_key": ["The license key field must be a string."],
            "domain": [CONTROL],
            "ip": ["The ip field must be a valid IP address."],
        },
    ),
}


@pytest.mark.parametrize(("fields", "errors"), FAULTY.values(), ids=FAULTY.keys())
def test_all_faulty_fields_are_named_at_once(fields, errors):
    """A caller learns of everything that is wrong from one answer."""
    assert faults(**fields) == errors


@pytest.mark.parametrize("key", ["\x00", "\ud800", "x" * 9000, "😀", "cp-lower"], ids=repr)
def test_any_text_is_a_key_until_the_rules_say_otherwise(key):
    """A strange key is not malformed: it is refused in its turn, by shape (D-01)."""
    assert isinstance(faults(license_key=key), VerifyRequest)


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (1, "The license key field is required."),
        (2, "The license key field is required. (and 1 more error)"),
        (3, "The license key field is required. (and 2 more errors)"),
    ],
)
def test_the_message_is_the_first_problem_and_the_number_of_the_others(count, message):
    """The one sentence for people says how much more there is."""
    call = parse_verify(json.dumps(dict(list(GOOD.items())[count:])).encode())
    assert isinstance(call, InvalidRequest)
    assert call.message == message


TEXT = json.dumps(GOOD)
NO_OBJECT = {
    "nothing": b"",
    "blanks": b"  \n",
    "no JSON": b"license_key=CP-X&domain=a&ip=b",
    "cut off": TEXT[:-1].encode(),
    "two objects": (TEXT + TEXT).encode(),
    "trailing comma": TEXT.replace("}", ",}").encode(),
    "single quotes": TEXT.replace('"', "'").encode(),
    "null": b"null",
    "list": f"[{TEXT}]".encode(),
    "text": b'"CP-X"',
    "number": b"7",
    "true": b"true",
    "NaN": b"NaN",
    "NaN within": TEXT.replace("}", ', "x": NaN}').encode(),
    "Infinity within": TEXT.replace("}", ', "x": [-Infinity]}').encode(),
    "deep lists": b"[" * 16384,
    "deep objects": b'{"a":' * 3000,
    "deep and closed": b'{"license_key":' + b"[" * 8000 + b"]" * 8000 + b"}",
    "endless number": b'{"x": ' + b"9" * 16000 + b"}",
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-16 without a mark": TEXT.encode("utf-16-le"),
    "UTF-32": TEXT.encode("utf-32"),
    "Latin-1": TEXT.replace("A.example", "ä").encode("latin-1"),
    "overlong UTF-8": TEXT.encode().replace(b"/", b"\xc0\xaf"),
    "surrogate in UTF-8": TEXT.encode().replace(b"A", b"\xed\xa0\x80"),
    "raw newline in text": TEXT.replace("A.", "A\n.").encode(),
    "NUL behind": TEXT.encode() + b"\x00",
    "gzip": b"\x1f\x8b\x08\x00",
    "a comment": TEXT.replace("}", "/* */}").encode(),
    "an escape that is none": TEXT.replace("A.", "A\\x.").encode(),
    "two byte order marks": b"\xef\xbb\xbf" * 2 + TEXT.encode(),
    "UTF-7": b"+ACI-" + TEXT.encode(),
    "text of an object": json.dumps(TEXT).encode(),
    "XML": b"<license_key>CP-X</license_key>",
}


@pytest.mark.parametrize("body", NO_OBJECT.values(), ids=NO_OBJECT.keys())
def test_a_body_that_is_no_json_object_lacks_every_field(body):
    """Nothing in a body makes reading fail: what is no JSON object has none of the fields."""
    call = parse_verify(body)
    assert isinstance(call, InvalidRequest)
    assert call.errors == ALL_THREE


TOLERATED = {
    "byte order mark": b"\xef\xbb\xbf" + TEXT.encode(),
    "blanks around": b"\r\n\t " + TEXT.encode() + b"\n",
    "unknown fields": TEXT.replace("}", ', "x": {"y": [1e999, -0, null]}}').encode(),
    "escaped": TEXT.replace("CP-X", "\\u0043P-X").encode(),
    "sent twice: the last counts": TEXT.replace("{", '{"license_key": 1, ').encode(),
}


@pytest.mark.parametrize("body", TOLERATED.values(), ids=TOLERATED.keys())
def test_harmless_oddities_are_read(body):
    """What another JSON writer may do is no fault."""
    call = parse_verify(body)
    assert isinstance(call, VerifyRequest)
    assert call.license_key == "CP-X"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.one_of(st.binary(), JSON.map(json.dumps).map(str.encode)))
def test_reading_a_body_never_fails(body):
    """Every body is a call or a list of faults."""
    assert isinstance(parse_verify(body), VerifyRequest | InvalidRequest)


@pytest.mark.slow
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(GOOD, JSON)))
def test_a_field_is_named_exactly_when_it_is_faulty(body):
    """Good fields are never named, whatever stands beside them."""
    call = parse_verify(json.dumps(body).encode())
    errors = call.errors if isinstance(call, InvalidRequest) else {}
    for name in GOOD:
        value = body.get(name)
        if not isinstance(value, str) or not value.strip():
            assert name in errors
        elif name == "license_key":
            assert name not in errors


QUERY = {"license_key": "CP-X", "slug": "app", "current_version": "1.0", "domain": "a.example"}


def test_a_good_query_becomes_a_call():
    """Key and slug are taken to the letter, and the installed version need not be readable (D-24)."""
    call = parse_update_check(urlencode({**QUERY, "current_version": "banana", "more": "x"}))
    assert isinstance(call, UpdateRequest)
    assert (call.license_key, call.slug) == ("CP-X", "app")
    assert "CP-X" not in repr(call)


@pytest.mark.parametrize(
    ("sent", "installed"),
    [
        ("1.0.0+5", "1.0.0+5"),
        ("1.0.0%2B5", "1.0.0+5"),
        ("2.1.0rc1+ubuntu.22-4_x", "2.1.0rc1+ubuntu.22-4_x"),
        ("1.0+beta", "1.0 beta"),
        ("1.0+RC2", "1.0 RC2"),
        ("1.0+beta.x", "1.0 beta.x"),
        ("1.0+g7.x", "1.0+g7.x"),
        ("1.0+5+6", "1.0 5 6"),
        ("one+5", "one 5"),
    ],
)
def test_a_plus_in_a_version_is_no_blank(sent, installed):
    """A query reads + as a blank, which no version has; a pre-release stays unreadable (D-24)."""
    call = parse_update_check(urlencode({**QUERY, "current_version": "?"}).replace("%3F", sent))
    assert isinstance(call, UpdateRequest)
    assert call.current_version == installed


@pytest.mark.parametrize("name", QUERY)
@pytest.mark.parametrize("value", [None, "", " ", "%09"], ids=["missing", "empty", "blank", "tab"])
def test_a_parameter_that_says_nothing_is_required(name, value):
    """A blank parameter is a missing one (D-21)."""
    given_ = {**QUERY, name: value}
    call = parse_update_check("&".join(f"{key}={text}" for key, text in given_.items() if text is not None))
    assert isinstance(call, InvalidRequest)
    assert call.errors == {name: [f"The {name.replace('_', ' ')} field is required."]}


@pytest.mark.parametrize("name", ["slug", "current_version", "domain"])
@pytest.mark.parametrize("value", ["a\x00", "a\x1b"], ids=repr)
def test_control_characters_are_refused_in_the_query_too(name, value):
    """No parameter that reaches the books may hold what a database or a terminal chokes on."""
    call = parse_update_check(urlencode({**QUERY, name: value}))
    assert isinstance(call, InvalidRequest)
    assert list(call.errors) == [name]


def test_nothing_at_all_names_all_four():
    """An empty query lacks every parameter, in the order of the specification."""
    call = parse_update_check("")
    assert isinstance(call, InvalidRequest)
    assert list(call.errors) == list(QUERY)


QUERIES = {
    "plus is a blank": ("a=b+c", {"a": "b c"}),
    "of a repeated one the first": ("a=1&a=2", {"a": "1"}),
    "a blank first one is still the first": ("a=&a=2", {"a": ""}),
    "without a value": ("a", {"a": ""}),
    "half an escape": ("a=%4", {"a": "%4"}),
    "no escape": ("a=%zz", {"a": "%zz"}),
    "bad UTF-8": ("a=%ff%fe", {"a": "��"}),
    "surrogate in UTF-8": ("a=%ed%a0%80", {"a": "���"}),
    "semicolon is no separator": ("a=1;b=2", {"a": "1;b=2"}),
    "equals within": ("a=b=c", {"a": "b=c"}),
}


@pytest.mark.parametrize(("query", "read"), QUERIES.values(), ids=QUERIES.keys())
def test_a_query_is_read_leniently(query, read):
    """Percent rubbish stays as it is, and never fails."""
    assert parse_query(query) == read


@given(st.text() | st.text("%+=&;23AFaf\xe9\ud800", max_size=12))
def test_a_query_reads_as_the_standard_library_reads_it(query):
    """Every query is a call or a list of faults, with the names and values of `parse_qsl`."""
    assert isinstance(parse_update_check(query), UpdateRequest | InvalidRequest)
    assert parse_query(query) == dict(reversed(parse_qsl(query, keep_blank_values=True, errors="replace")))


def test_a_body_of_thousands_of_values_and_a_long_query_are_not_read():
    """They cost more time than all else of the request (D-299)."""
    assert read_object(b"[" + b"1," * 1_001 + b"1]") == read_object(b'{"a": 1' + b"," * 1_001 + b"}") == {}
    invalid = parse_update_check("a" * (MAX_TARGET_CHARS + 1))
    assert isinstance(invalid, InvalidRequest)
    assert "must be at most" in str(invalid)


def test_a_strict_reader_refuses_a_lone_percent_sign():
    """As forms of browsers never have it; queries keep it as it is."""
    assert decode_escapes("100%") == "100%"
    with pytest.raises(ValueError, match="begins no escape"):
        decode_escapes("100%", errors="strict")
