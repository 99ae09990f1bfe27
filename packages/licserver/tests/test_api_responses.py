"""Answers, byte for byte (spec 2, spec 7)."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licserver.domain.characters import shows_as_written
from licserver.domain.decisions import DownloadRefusal, Offer, UpdateRefusal, Valid
from licserver.domain.records import Artifact, LicenseSnapshot, Product, Release, SecurityNotice
from licserver.protocol import public_api
from licserver.protocol.downloads import download_headers, redirect_headers

NOW = datetime(2026, 6, 15, 9, 5, 3, 999999, tzinfo=UTC)
RELEASE = Release(
    5, 1, "1.10", "<b>Größer & „besser“</b>\n\t\u2028", NOW, Artifact("app.zip", 3, b"\x00" * 32)
)


def a_license(expires_on=None, *, lifetime=False):
    """A license named with quotes and an umlaut."""
    return LicenseSnapshot(b"i" * 16, 1, 'Möbel "Pro"', expires_on=expires_on, lifetime=lifetime)


SUCCESS = {
    "dated": (a_license(date(2027, 1, 5)), '"expiry":"2027-01-05","lifetime":false'),
    "no expiry": (a_license(), '"expiry":null,"lifetime":false'),
    "lifetime": (a_license(lifetime=True), '"expiry":null,"lifetime":true'),
    "lifetime over a date": (a_license(date(2027, 1, 5), lifetime=True), '"expiry":null,"lifetime":true'),
}


@pytest.mark.parametrize(("license_", "rest"), SUCCESS.values(), ids=SUCCESS.keys())
@pytest.mark.parametrize("takes_slot", [False, True])
def test_a_valid_key_is_answered_with_four_fields(license_, rest, takes_slot):
    """The body does not tell whether a slot was taken."""
    answer = public_api.verify_response(Valid(license_, takes_slot=takes_slot))
    assert answer.status == 200
    assert answer.content.decode() == '{"valid":true,"product":"Möbel \\"Pro\\"",' + rest + "}"


def test_an_update_is_answered_in_the_order_of_the_specification():
    """Name, slug, version, link, changelog, date, and two nulls; the changelog goes out as it was written."""
    offer = Offer(Product(1, "app", "App"), RELEASE, a_license(), downloadable=True)
    answer = public_api.update_response(offer, "https://x.example/?a=1&b=2")
    assert answer.status == 200
    assert answer.content.decode() == (
        '{"name":"App","slug":"app","version":"1.10","download_url":"https://x.example/?a=1&b=2",'
        '"sections":{"changelog":"<b>Größer & „besser“</b>\\n\\t\u2028"},'
        '"last_updated":"2026-06-15 09:05:03","requires":null,"tested":null}'
    )


def test_extensions_of_licenses_and_releases_are_in_the_response():
    """Entitlements and a trial of a license; channel, lowest version and importance of a release."""
    license_ = a_license()._replace(plan='{"export":true}', overrides='{"sync":1}', trial=True)
    body = json.loads(public_api.verify_response(Valid(license_, takes_slot=False)).content)
    assert (body["entitlements"], body["trial"]) == ({"export": True, "sync": 1}, True)
    product = Product(1, "app", "App", minimum_version="1.4")
    release = RELEASE._replace(channel="beta")
    offer = Offer(product, release, a_license(), downloadable=True, is_critical=True)
    body = json.loads(public_api.update_response(offer, None).content)
    assert (body["channel"], body["minimum_version"], body["critical"]) == ("beta", "1.4", True)


@pytest.mark.parametrize(
    ("until", "shown"), [(None, "null"), (date(2026, 6, 1), '"2026-06-01"')], ids=["no-end", "a-day"]
)
def test_what_a_license_covers_follows_the_specified_fields(until, shown):
    """The end of its updates, a newer version, and what the offered version fixes (D-330, D-331)."""
    license_ = a_license()._replace(support_until=until, has_updates_until=True)
    body = public_api.verify_response(Valid(license_, takes_slot=False)).content.decode()
    assert body.endswith(f'"lifetime":false,"updates_until":{shown}}}')
    fix = RELEASE._replace(security=SecurityNotice(None, ("CVE-2026-1234",)))
    offer = Offer(Product(1, "app", "App"), fix, license_, downloadable=True, latest_version="2.0")
    more = f'"tested":null,"updates_until":{shown},"latest_version":"2.0"'
    notice = ',"security":{"advisory":null,"cves":["CVE-2026-1234"]}'
    link = "https://x.example"
    for url, installed, rest in ((link, "1.9", notice), (link, "1.10", ""), (None, "1.9", "")):
        answer = public_api.update_response(offer, url, installed)
        assert answer.content.decode().endswith(more + rest + "}")


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (UpdateRefusal.INVALID_LICENSE, 401, "invalid_license"),
        (UpdateRefusal.LICENSE_EXPIRED, 401, "license_expired"),
        (UpdateRefusal.PRODUCT_MISMATCH, 403, "product_mismatch"),
        (UpdateRefusal.PRODUCT_NOT_FOUND, 404, "product_not_found"),
        (UpdateRefusal.NO_VERSIONS, 404, "no_versions"),
        (DownloadRefusal.INVALID_LINK, 403, "invalid_link"),
        (DownloadRefusal.LINK_EXPIRED, 403, "link_expired"),
        (DownloadRefusal.LICENSE_REVOKED, 403, "license_revoked"),
        (DownloadRefusal.RELEASE_WITHDRAWN, 404, "release_withdrawn"),
        (None, 404, "not_signed"),
    ],
)
def test_each_refusal_has_a_code(refusal, status, code):
    """And a sentence (spec 7)."""
    match refusal:
        case UpdateRefusal():
            answer = public_api.update_response(refusal, None)
        case DownloadRefusal():
            answer = public_api.download_refusal_response(refusal)
        case _:
            answer = public_api.no_manifest_response()
    body = json.loads(answer.content)
    assert (answer.status, body["error"], body["message"][-1]) == (status, code, ".")


def test_a_malformed_request_gets_the_error_format_of_its_endpoint():
    """Only an update check has a code beside message and errors."""
    wrong = public_api.InvalidRequest({"slug": ["No."]})
    body = {"message": "No.", "errors": {"slug": ["No."]}}
    assert json.loads(public_api.invalid_verify_response(wrong).content) == body
    assert json.loads(public_api.invalid_update_response(wrong).content) == {"error": "validation"} | body


def test_without_support_the_link_is_absent_and_not_null():
    """Nothing but the one field is missing (D-25)."""
    offer = Offer(Product(1, "app", "App"), RELEASE, a_license(), downloadable=False)
    with_link, without = (json.loads(public_api.update_response(offer, link).content) for link in ("x", None))
    assert set(with_link) - set(without) == {"download_url"}


def test_last_updated_is_utc():
    """An instant noted in another zone is shown in UTC (D-26)."""
    local = NOW.astimezone(timezone(timedelta(hours=14)))
    release = Release(5, 1, "1.0", "", local, RELEASE.artifact)
    offer = Offer(Product(1, "app", "App"), release, a_license(), downloadable=True)
    assert (
        json.loads(public_api.update_response(offer, None).content)["last_updated"] == "2026-06-15 09:05:03"
    )


def test_a_file_goes_with_its_headers():
    """Digest, validator and name of the file are sent, and that it can be had in parts (D-32)."""
    assert download_headers(RELEASE) == {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private",
        "Content-Disposition": 'attachment; filename="app.zip"',
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
        "Content-Type": "application/octet-stream",
        "ETag": '"' + "00" * 32 + '"',
        "Repr-Digest": "sha-256=:" + "A" * 43 + "=:",
        "X-Content-Type-Options": "nosniff",
    }


def test_a_file_in_a_bucket_is_redirected_to_with_name_and_digest():
    """The bucket's address is private to the request, and kept by nobody (D-34)."""
    found = redirect_headers(RELEASE, "https://bucket.example/x?signature=y")
    same = ("Content-Disposition", "Repr-Digest")
    assert {name: found[name] for name in same} == {name: download_headers(RELEASE)[name] for name in same}
    assert (found["Location"], found["Cache-Control"]) == ("https://bucket.example/x?signature=y", "no-store")


NAMES = {
    "blank": ("my app.zip", 'attachment; filename="my app.zip"'),
    "umlaut": ("möbel.zip", "attachment; filename=\"m_bel.zip\"; filename*=UTF-8''m%C3%B6bel.zip"),
    "quote": ('a"b.zip', "attachment; filename=\"a_b.zip\"; filename*=UTF-8''a%22b.zip"),
    "backslash": ("a\\b.zip", "attachment; filename=\"a_b.zip\"; filename*=UTF-8''a%5Cb.zip"),
    "percent": ("100%.zip", 'attachment; filename="100%.zip"'),
    "emoji": ("🎁.zip", "attachment; filename=\"_.zip\"; filename*=UTF-8''%F0%9F%8E%81.zip"),
    "line break": ("a\r\nX: y", 'attachment; filename="a__X: y"'),
}


@pytest.mark.parametrize(("name", "header"), NAMES.values(), ids=NAMES.keys())
def test_a_file_name_is_sent_to_old_clients_and_new(name, header):
    """Plain ASCII stands first, the real name beside it, and nothing breaks out of the header."""
    release = Release(5, 1, "1.0", "", NOW, Artifact(name, 3, b""))
    assert download_headers(release)["Content-Disposition"] == header


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_file_name_survives_the_header(name):
    """Whatever the file is called, the header is plain ASCII on one line, and gives the visible name back."""
    header = download_headers(Release(5, 1, "1.0", "", NOW, Artifact(name, 3, b"")))["Content-Disposition"]
    assert header.isascii()
    assert header.isprintable()
    _, _, extended = header.partition("; filename*=UTF-8''")
    shown = "".join(character if shows_as_written(character) else "_" for character in name)
    assert (unquote(extended, errors="strict") if extended else json.loads(header.partition("=")[2])) == shown
