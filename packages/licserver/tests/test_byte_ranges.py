"""Which bytes a Range asks for (D-32, RFC 9110 section 14)."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licserver.domain.records import Artifact, Release
from licserver.protocol.downloads import Span, content_md5, is_unmodified, parse_range

ETAG = '"abc"'
NONE = Span(10, 0)  # cannot be satisfied
RANGES = {
    "absent": (None, None),
    "empty": ("", None),
    "first bytes": ("bytes=0-3", Span(0, 4)),
    "one byte": ("bytes=9-9", Span(9, 1)),
    "from the middle on": ("bytes=4-", Span(4, 6)),
    "all": ("bytes=0-", Span(0, 10)),
    "longer than the file": ("bytes=4-99", Span(4, 6)),
    "the last bytes": ("bytes=-3", Span(7, 3)),
    "more last bytes than there are": ("bytes=-99", Span(0, 10)),
    "no last bytes": ("bytes=-0", NONE),
    "from the end on": ("bytes=10-", NONE),
    "past the end": ("bytes=99-100", NONE),
    "unit in capitals": ("Bytes=0-3", Span(0, 4)),
    "blanks around": (" bytes=0-3 ", Span(0, 4)),
    "leading zeros": ("bytes=000-003", Span(0, 4)),
    "backwards": ("bytes=5-4", None),
    "several": ("bytes=0-1,4-5", None),
    "no numbers": ("bytes=-", None),
    "other unit": ("lines=0-3", None),
    "negative": ("bytes=--3", None),
    "letters": ("bytes=a-b", None),
    "other digits": ("bytes=٠-٣", None),
    "endless": ("bytes=0-" + "9" * 5000, None),
    "hexadecimal": ("bytes=0x0-0x3", None),
    "blank within": ("bytes=0 - 3", None),
}


@pytest.mark.parametrize(("header", "span"), RANGES.values(), ids=RANGES.keys())
def test_a_range_is_read_or_the_whole_file_is_meant(header, span):
    """What is malformed, or more than one range, is answered with the whole file."""
    assert parse_range(header, None, ETAG, 10) == span


IF_RANGE = {
    "our validator": (ETAG, Span(4, 6)),
    "blanks around": (f" {ETAG} ", Span(4, 6)),
    "another validator": ('"abd"', None),
    "weak": (f"W/{ETAG}", None),
    "without quotes": ("abc", None),
    "a date": ("Mon, 15 Jun 2026 12:00:00 GMT", None),
    "empty": ("", None),
}


@pytest.mark.parametrize(("if_range", "span"), IF_RANGE.values(), ids=IF_RANGE.keys())
def test_a_resumed_download_is_of_the_same_file_or_starts_over(if_range, span):
    """Only our own strong validator lets a part be sent."""
    assert parse_range("bytes=4-", if_range, ETAG, 10) == span


@pytest.mark.parametrize("header", ["bytes=0-", "bytes=0-0", "bytes=-1", "bytes=-0"])
def test_an_empty_file_has_no_parts(header):
    """Of nothing, no range can be satisfied; the whole of it can."""
    assert parse_range(header, None, ETAG, 0) == Span(0, 0)
    assert parse_range(None, None, ETAG, 0) is None


NUMBERS = st.none() | st.integers(0, 30) | st.integers(0, 10**17)


@given(NUMBERS, NUMBERS, st.integers(0, 20))
def test_a_range_gives_what_slicing_gives(first, last, size):
    """For every pair of numbers, the span is what a plain list of the bytes would hold."""
    header = f"bytes={'' if first is None else first}-{'' if last is None else last}"
    span = parse_range(header, None, ETAG, size)
    everything = list(range(size))
    if (first is None and last is None) or (first is not None and last is not None and last < first):
        assert span is None
        return
    if first is None:
        wanted = everything[max(0, size - last) :] if last else []
    else:
        wanted = everything[first : None if last is None else last + 1]
    assert span is not None
    assert everything[span.start : span.start + span.length] == wanted
    assert span.length == len(wanted)


@given(st.text(max_size=30), st.none() | st.text(max_size=10), st.integers(0, 2**40))
def test_no_header_makes_reading_fail(header, if_range, size):
    """Whatever is asked, the span lies within the file."""
    span = parse_range(header, if_range, ETAG, size)
    assert span is None or 0 <= span.start <= span.start + span.length <= size


@pytest.mark.parametrize(
    ("values", "unmodified"),
    [([], False), ([ETAG], True), (['"x", W/"abc"'], True), (["*"], True), (['"x"', '"abcd"'], False)],
)
def test_a_file_that_the_client_has_is_unmodified(values, unmodified):
    """Whichever of the tags that it names; weak and strong are compared alike (RFC 9110, 13.1.2)."""
    assert is_unmodified(values, ETAG) == unmodified


def test_the_md5_of_a_file_is_sent_where_it_is_known():
    """Of files that were published before digests were computed it is not."""
    file = Artifact("app.zip", 1, b"0" * 32)
    release = Release(1, 7, "1.0", "", datetime(2026, 6, 15, tzinfo=UTC), file)
    assert content_md5(release) == {}
    assert content_md5(release._replace(artifact=file._replace(md5=bytes(16)))) == {
        "Content-MD5": "AAAAAAAAAAAAAAAAAAAAAA=="
    }
