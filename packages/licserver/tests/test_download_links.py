"""A download link says one thing, for one hour, and nothing else (D-30, D-31)."""

from datetime import UTC, datetime, timedelta
from itertools import permutations
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licserver.domain.decisions import DownloadRefusal
from licserver.protocol.downloads import (
    CLOCK_TOLERANCE,
    LINK_LIFETIME,
    LinkSecret,
    LinkSubject,
    accepted_secrets,
    current_secret,
    read_link,
    sign_link,
)

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
BASE = "https://licenses.example/api/v1/update-download"
SUBJECT = LinkSubject(bytes(range(16)), 42)
OLD, NEW = LinkSecret("old1", b"o" * 32), LinkSecret("new1", b"n" * 32)
INVALID = DownloadRefusal.INVALID_LINK


def query(secret=NEW, now=NOW):
    """A fresh link's query."""
    address, _, found = sign_link(BASE, SUBJECT, secret, now).partition("?")
    assert address == BASE
    return found


def test_a_fresh_link_gives_what_it_was_signed_for():
    """What comes out of a link is what went in, also of one that an older licserver has signed."""
    assert read_link(query(), [NEW], NOW) == SUBJECT
    assert query().endswith("&signature=5k6oY6bq2wHuFFS_N6rLeA-33vWXBO9OrPNaceMmUaA")


def test_a_link_says_nothing_of_the_secret_and_all_its_parameters_once():
    """A link holds a license's opaque id, a release, its end, a secret's id and a signature: no more."""
    names = [name for name, _ in parse_qsl(query())]
    assert sorted(names) == ["expires", "key", "license", "release", "signature"]
    assert "nnnn" not in query()
    assert "n" * 32 not in repr(NEW)


EDGES = {
    "at once": (NOW, NOW, True),
    "the last microsecond": (NOW, NOW + LINK_LIFETIME - TICK, True),
    "after exactly one hour": (NOW, NOW + LINK_LIFETIME, False),
    "a year later": (NOW, NOW + timedelta(365), False),
    "signed within a second: the hour is full": (NOW + TICK, NOW + LINK_LIFETIME, True),
    "signed within a second: and ends with the next": (
        NOW + TICK,
        NOW + LINK_LIFETIME + timedelta(seconds=1),
        False,
    ),
    "a clock set back": (NOW, NOW - timedelta(1), True),
}


@pytest.mark.parametrize(("signed", "now", "good"), EDGES.values(), ids=EDGES.keys())
def test_a_link_lives_one_hour(signed, now, good):
    """The hour is never shorter, and no more than the rest of a second longer."""
    assert read_link(query(now=signed), [NEW], now) == (SUBJECT if good else DownloadRefusal.LINK_EXPIRED)


PAIRS = parse_qsl(query())


@pytest.mark.parametrize("name", [name for name, _ in PAIRS])
@pytest.mark.parametrize(
    "change",
    [
        lambda value: value + "0",
        lambda value: value[:-1],
        lambda value: "",
        lambda value: value.upper() + " ",
        lambda value: ("0" if value[0] != "0" else "1") + value[1:],
        lambda value: value + "\xff",
        lambda value: "9" * 5000,
    ],
    ids=["longer", "shorter", "empty", "other case", "other first", "non-ASCII", "endless"],
)
def test_a_changed_parameter_breaks_the_link(name, change):
    """Every single parameter is signed."""
    changed = [(other, change(value) if other == name else value) for other, value in PAIRS]
    assert read_link(urlencode(changed), [NEW], NOW) is INVALID


@pytest.mark.parametrize("name", [name for name, _ in PAIRS])
def test_a_missing_repeated_or_renamed_parameter_breaks_the_link(name):
    """No parameter can be left out, repeated, or renamed."""
    value = dict(PAIRS)[name]
    without = [pair for pair in PAIRS if pair[0] != name]
    for changed in (
        without,
        [*PAIRS, (name, value)],
        [(name, "1"), *PAIRS],
        [*without, (name.upper(), value)],
    ):
        assert read_link(urlencode(changed), [NEW], NOW) is INVALID


def test_an_added_parameter_breaks_the_link():
    """Not even a tracker's mark may be added."""
    for more in ("&utm_source=x", "&x", "&x=", "&=", "&signature="):
        assert read_link(query() + more, [NEW], NOW) is INVALID


def test_the_order_of_the_parameters_is_free():
    """A proxy that sorts the query does no harm."""
    for order in permutations(PAIRS):
        assert read_link(urlencode(order), [NEW], NOW) == SUBJECT


RUBBISH = [
    "",
    "&",
    "=",
    "?",
    "license",
    "%",
    "%%%",
    "%ff=%fe",
    "é=1",
    "a=1;b=2",
    "signature=",
    "key=new1",
    "\udcff",
]


@pytest.mark.parametrize("text", [*RUBBISH, query() + "\udcff", query().replace("=", "＝")])
def test_rubbish_is_no_link(text):
    """Whatever stands in the query is read without failing."""
    assert read_link(text, [NEW], NOW) is INVALID


@given(
    st.one_of(
        st.text(max_size=80),
        st.lists(st.tuples(st.sampled_from([*dict(PAIRS), "x"]), st.text())).map(urlencode),
    )
)
def test_no_made_up_query_is_a_link(text):
    """Without the secret there is no link, and no way to make reading fail."""
    assert read_link(text, [NEW, OLD], NOW) is INVALID


def test_rotated_secrets_are_good_for_the_links_that_they_signed():
    """A new secret signs while links of the old one live on; once it is dropped they are dead (D-30)."""
    assert read_link(query(OLD), [NEW, OLD], NOW) == SUBJECT
    assert read_link(query(NEW), [NEW, OLD], NOW) == SUBJECT
    assert read_link(query(OLD), [NEW], NOW) is INVALID
    assert read_link(query(OLD), [], NOW) is INVALID
    to_come = [LinkSecret(ring_secret.id, ring_secret.secret, NOW + TICK) for ring_secret in (NEW, OLD)]
    assert current_secret(to_come, NOW).id == "old1"  # with no secret due, the oldest signs


def test_a_link_cannot_be_passed_off_as_anothers():
    """The secret's id is signed too: naming the other good secret breaks the link."""
    assert read_link(query(OLD).replace("old1", "new1"), [NEW, OLD], NOW) is INVALID
    same_id = LinkSecret("new1", b"x" * 32)
    assert read_link(query(NEW), [same_id], NOW) is INVALID


# --- several secrets, of which the newest one signs (D-66) --------------------------------------

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
FIRST = LinkSecret("first", b"1" * 32)
SECOND_ONE = LinkSecret("second", b"2" * 32, NOW + MINUTE)
THIRD = LinkSecret("third", b"3" * 32, NOW + timedelta(days=1))
KNOWN = (THIRD, SECOND_ONE, FIRST)
END = NOW + MINUTE + LINK_LIFETIME + CLOCK_TOLERANCE

TURNS = {
    "before the second one's time": (NOW, FIRST, KNOWN),
    "a moment before it": (NOW + MINUTE - SECOND, FIRST, KNOWN),
    "in its time": (NOW + MINUTE, SECOND_ONE, KNOWN),
    "while links of the first may be out": (END - SECOND, SECOND_ONE, KNOWN),
    "when they have run out": (END, SECOND_ONE, KNOWN[:2]),
    "in the third one's time": (NOW + timedelta(days=1), THIRD, KNOWN[:2]),
    "a year later": (NOW + timedelta(days=365), THIRD, KNOWN[:1]),
    "by a clock that is set back": (NOW - timedelta(days=365), FIRST, KNOWN),
}


@pytest.mark.parametrize(("now", "signs", "believed"), TURNS.values(), ids=TURNS)
def test_who_signs_and_who_is_believed(now, signs, believed):
    """The newest whose time has come signs; an older one is believed for an hour and five minutes more."""
    assert current_secret(KNOWN, now) == signs
    assert accepted_secrets(KNOWN, now) == believed


def test_secrets_without_instants_are_all_believed():
    """What an older licserver wrote, or a vendor by hand: the first signs, and none is dropped unasked."""
    plain = (LinkSecret("b", b"2" * 32), LinkSecret("a", b"1" * 32))
    assert current_secret(plain, NOW).id == "b"
    assert accepted_secrets(plain, NOW) == plain


@given(st.integers(0, 7200), st.integers(-300, 300), st.integers(0, 3599), st.integers(60, 7200))
def test_a_link_meets_no_server_that_does_not_believe_it(signed_after, skew, age, lead):
    """Whenever it was signed, every server that has the file believes it for its hour, by any clock."""
    secrets = (LinkSecret("new", b"n" * 32, NOW + timedelta(seconds=lead)), LinkSecret("old", b"o" * 32))
    signed_at = NOW + timedelta(seconds=signed_after)
    link = sign_link("x", SUBJECT, current_secret(secrets, signed_at), signed_at).partition("?")[2]
    other = signed_at + timedelta(seconds=min(age + skew, 3599))
    assert read_link(link, accepted_secrets(secrets, other), other) == SUBJECT
