"""The headers of a download, read as the standards say, and file names that do no harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licclient._core.download_headers import (
    MAX_ENDING_BYTES,
    MAX_NAME_BYTES,
    add_promises,
    body_length,
    file_digest_of,
    file_name,
    is_encoded,
    is_page,
    numbered_name,
    read_content_range,
    read_length,
    read_sha256,
    safe_name,
    strong_etag,
)
from licclient._core.responses import read_retry_after

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
DIGEST = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ('attachment; filename="a b.zip"', "a b.zip"),
        ("attachment; filename=a.zip; size=3", "a.zip"),
        (r'attachment; filename="say \"hi\".zip"', "say _hi_.zip"),
        ("attachment; filename=\"plain.zip\"; filename*=UTF-8''%E2%82%AC.zip", "€.zip"),
        ("attachment; filename*=iso-8859-1'en'%A3.zip", "£.zip"),
        ("attachment; filename*=UTF-8''%FF.zip", "\ufffd.zip"),
        ("attachment", "fallback"),
        (None, "fallback"),
    ],
)
def test_names_are_read_as_rfc_6266_says(header, name):
    """Quoted, bare and extended names, the extended one first."""
    assert file_name(header, "fallback") == name


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("C:evil.exe", "evil.exe"),
        ("con", "_con"),
        ("Nul.tar.gz", "_Nul.tar.gz"),
        ("COM¹.zip", "_COM¹.zip"),
        ("LPT9 .txt", "_LPT9 .txt"),
        (".bashrc", "bashrc"),
        ("name. . ", "name"),
        ("X-Ray.zipX", "X-Ray.zipX"),
        ("a\x00b\r\nc.zip", "abc.zip"),
        ("gpj\u202eexe.zip", "gpjexe.zip"),
        ('<a>:"|?*.zip', "_____.zip".replace("_____", "____")),
        ("", ""),
        ("...", ""),
        ("/", ""),
    ],
)
def test_names_are_made_harmless(raw, name):
    """No folders, drives, devices, hidden files or invisible characters."""
    assert safe_name(raw) == name


@given(st.text(max_size=400))
def test_any_name_is_one_legal_component(raw):
    """Whatever comes in, what goes out names one plain file, and is stable."""
    name = safe_name(raw)
    assert not set(name) & set('/\\:<>"|?*\0')
    assert name not in (".", "..")
    assert not name.startswith(".")
    assert not name.endswith((".", " "))
    assert len(name.encode()) <= MAX_NAME_BYTES + 1
    assert file_name(raw, "x")
    assert safe_name(name) == name


@pytest.mark.parametrize(
    ("header", "digest"),
    [
        (f"sha-256=:{DIGEST}:", EMPTY),
        (f"sha-512=:AAAA:, sha-256=:{DIGEST}:", EMPTY),
        (f"sha-256=:{DIGEST}:;q=1, md5=:AAAA:", EMPTY),
        (f"sha-256={DIGEST}", None),
        ("sha-256=:AAAA:", None),
        ("sha-256=:====:", None),
        (f"sha-256=:{DIGEST}AAAA:", None),
        (f"xsha-256=:{DIGEST}:", None),
        ("", None),
        (None, None),
    ],
)
def test_digests_are_read_as_rfc_9530_says(header, digest):
    """The sha-256 member of the dictionary, as a byte sequence of 32 bytes; everything else is none."""
    assert read_sha256(header) == digest


@pytest.mark.parametrize(
    ("header", "read"),
    [
        ("bytes 5-9/10", (5, 9, 10)),
        ("bytes 9-9/10", (9, 9, 10)),
        ("bytes 5-10/10", None),
        ("bytes 9-5/10", None),
        ("bytes 5-9/*", None),
        ("items 5-9/10", None),
        (None, None),
    ],
)
def test_content_ranges(header, read):
    """First, last and total, when they make sense."""
    assert read_content_range(header) == read


@pytest.mark.parametrize(("value", "length"), [("0", 0), ("12", 12), ("-1", None), ("1e3", None), ("", None)])
def test_lengths(value, length):
    """Plain digits only."""
    assert read_length(value) == length


@pytest.mark.parametrize(
    ("value", "tag"), [('"a~"', '"a~"'), ('W/"a"', None), ("a", None), ('"a"b"', None), (None, None)]
)
def test_only_strong_tags_resume(value, tag):
    """A weak tag does not promise the same bytes."""
    assert strong_etag(value) == tag


@pytest.mark.parametrize(
    ("content_type", "page"),
    [
        ("text/html; charset=utf-8", True),
        ("Application/XHTML+xml", True),
        ("application/zip", False),
        ("text/htmlx", False),
        (None, False),
    ],
)
def test_a_web_page_is_no_file(content_type, page):
    """What a proxy sends in place of the file, by its type (D-55)."""
    assert is_page(content_type) is page


def test_the_first_header_along_redirects_counts():
    """Along several redirects the first word on digest and name wins, and nothing else is kept (D-34)."""
    promised: dict[str, str] = {}
    add_promises(promised, {"Repr-Digest": "first", "ETag": "x"})
    add_promises(promised, {"Repr-Digest": "second", "Content-Disposition": "name"})
    add_promises(promised, {"Content-Disposition": "other"})
    assert promised == {"Repr-Digest": "first", "Content-Disposition": "name"}


DATE = "Sat, 21 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("retry_after", "date", "seconds"),
    [
        ("0", "", 0.0),
        (" 120 ", "", 120.0),
        ("999999999", "", 999_999_999.0),
        ("9999999999", "", None),
        ("-1", "", None),
        ("1.5", "", None),
        ("soon", DATE, None),
        ("", DATE, None),
        ("Sat, 21 Nov 2026 12:01:30 GMT", DATE, 90.0),
        (" Sat, 21 Nov 2026 12:01:30 GMT ", f" {DATE} ", 90.0),
        ("Fri, 20 Nov 2026 12:00:00 GMT", DATE, 0.0),
        ("Sat, 21 Nov 2026 12:01:30 GMT", "", None),
        ("Sat, 21 Foo 2026 12:01:30 GMT", DATE, None),
        ("Sat, 31 Nov 2026 12:01:30 GMT", DATE, None),
        ("Saturday, 21-Nov-26 12:01:30 GMT", DATE, 90.0),
        ("Sat, 21 Nov 99999 12:01:30 GMT", DATE, None),
        ("Sat, 21 Nov 2026 12:01:30 -0000", DATE, 90.0),
        ("Sat Nov 21 12:01:30 2026", DATE, 90.0),
    ],
)
def test_when_to_ask_again(retry_after, date, seconds):
    """Seconds, or a date that is read against the server's own (RFC 9110 10.2.3); else there is no value."""
    headers = {"Retry-After": retry_after, "Date": date}
    assert read_retry_after({name: value for name, value in headers.items() if value}) == seconds


@pytest.mark.parametrize(
    ("stem", "ending", "kept"),
    [
        ("n" * (MAX_NAME_BYTES - 4), "zip", True),
        ("n" * 300, "e" * MAX_ENDING_BYTES, True),
        ("n" * 300, "e" * 21, False),
    ],
)
def test_a_name_is_cut_where_it_must(stem, ending, kept):
    """As long as file systems bear, to the byte; what is too long to be a file type is cut as well."""
    name = safe_name(f"{stem}.{ending}")
    assert len(name) == MAX_NAME_BYTES
    assert name.endswith(f"n.{ending}") is kept


def test_a_name_that_only_is_an_ending_is_cut_like_a_stem():
    """There is no stem to cut; a letter of several bytes is kept whole or not at all."""
    assert safe_name("n" + "ü" * 300) == "n" + "ü" * ((MAX_NAME_BYTES - 1) // 2)
    assert safe_name("a." + "n" * 300 + ".zip").endswith("n.zip")
    assert safe_name("n" * 300) == "n" * MAX_NAME_BYTES
    assert safe_name("ü" * 300 + ".tar") == "ü" * ((MAX_NAME_BYTES - 4) // 2) + ".tar"
    assert file_name("attachment; filename=...", "...") == "download"


@pytest.mark.parametrize(
    ("name", "number", "numbered"),
    [("notes.tar.gz", 0, "notes.tar.gz"), ("notes.zip", 1, "notes (1).zip"), ("notes", 2, "notes (2)")],
)
def test_a_name_that_is_taken_gets_a_number_before_its_ending(name, number, numbered):
    """So that the file is still opened by the same program."""
    assert numbered_name(name, number) == numbered


@pytest.mark.parametrize(
    ("headers", "length", "encoded"),
    [
        ({"Content-Length": "7"}, 7, False),
        ({"Content-Length": "7", "Transfer-Encoding": "chunked"}, None, False),
        ({"Content-Encoding": " Identity"}, None, False),
        ({"Content-Encoding": "dcz"}, None, False),
        ({"Content-Encoding": "gzip"}, None, True),
    ],
)
def test_how_a_body_is_framed_and_encoded(headers, length, encoded):
    """A length beside a transfer encoding does not count; an encoding counts if nobody asked for it."""
    assert body_length(headers) == length
    assert is_encoded(headers, "dcz") == encoded


def test_the_digest_of_a_file_is_that_without_an_encoding():
    """Else that of the representation."""
    for name in ("Unencoded-Digest", "Repr-Digest"):
        assert file_digest_of({name: f"sha-256=:{DIGEST}:"}) == EMPTY
    assert file_digest_of({}) is None
