import json
from datetime import UTC, date, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stage.answers import GOOD, LISTINGS, OFFER, REFUSAL, REPLIES
from stage.rules import settings

from licclient import LicclientError, Reason, Updates
from licclient._core.model import Verified
from licclient._core.requests import shown_ip, tidy_key, update_call, verify_call
from licclient._core.responses import (
    DOWNLOAD_REFUSALS,
    UPDATE_REFUSALS,
    Reply,
    is_foreign,
    note_origin,
    read_deactivate,
    read_refusal,
    read_update,
    read_verify,
)
from licclient._core.update_model import Listing
from licclient._seats.protocol import is_released, read_seat, seat_call
from licclient._updates.rollbacks import MAX_REPORTS, is_settled, note_report, read_reports, report_call
from licclient.errors import (
    DeactivationError,
    InvalidRequestError,
    LicenseRefusedError,
    NoSeatError,
    ServiceUnavailableError,
)

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
SETTINGS = settings()
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
days = st.dates().map(date.isoformat)


def reply(status, body, **headers: str):
    """Return what came back; a body that is not bytes is written as JSON."""
    return Reply(status, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)


@pytest.mark.parametrize(("status", "body"), REPLIES.values(), ids=REPLIES)
def test_a_hostile_answer_is_no_answer(status, body):
    """It neither grants, refuses nor offers (D-40)."""
    assert type(read_verify(reply(status, body), KEY)) is ServiceUnavailableError
    assert type(read_update(reply(status, body), SETTINGS, "notes", KEY)) is ServiceUnavailableError


@pytest.mark.parametrize("changes", LISTINGS.values(), ids=LISTINGS)
def test_a_hostile_offer_is_no_answer(changes):
    """With one field that is not what it should be, or missing, nothing is offered (D-25, D-40)."""
    assert isinstance(read_update(reply(200, OFFER), SETTINGS, "notes", KEY), Listing)
    assert type(read_update(reply(200, OFFER | changes), SETTINGS, "notes", KEY)) is ServiceUnavailableError


@pytest.mark.parametrize(
    ("status", "words", "reason"),
    [
        (403, "Invalid license format.", Reason.INVALID_FORMAT),
        (404, "License not found.", Reason.NOT_FOUND),
        (403, "License has been revoked.", Reason.REVOKED),
        (403, "License expired.", Reason.EXPIRED),
        (403, "Max activations exceeded or unrecognized environment.", Reason.ENVIRONMENT),
        (403, "Something new.", Reason.OTHER),
    ],
)
def test_each_sentence_has_its_reason(status, words, reason):
    """Unknown sentences are `other` (spec 7)."""
    refused = read_verify(reply(status, REFUSAL | {"reason": words}), KEY)
    assert (refused.reason, refused.message, str(refused)) == (reason, words, words)


def test_a_malformed_request_names_the_fields():
    """A 422 says what is wrong with which field (spec 4.1), for both endpoints."""
    malformed = reply(422, {"message": "No.", "errors": {"ip": ["Bad.", "Very bad."]}})
    for read in (read_verify(malformed, KEY), read_update(malformed, SETTINGS, "notes", KEY)):
        assert read.errors == {"ip": ["Bad.", "Very bad."]}


@pytest.mark.parametrize(
    ("status", "body", "no_claim"),
    [
        (500, GOOD, True),
        (503, {"error": "unavailable", "message": "no"}, True),
        (302, b"", True),
        (400, {"error": "bad_digest"}, True),
        (200, b"<html>Log in</html>", True),
        (404, b"", True),
        (403, {"message": "Forbidden"}, True),  # gateways of AWS and Kong
        (401, {"message": "Unauthorized"}, True),
        (404, {"detail": "Not Found"}, True),  # a framework's, behind a proxy that lost its way
        (401, {"error": "invalid_license", "message": "no"}, True),  # an update check's word, not a verify's
        (200, GOOD, False),
        (404, REFUSAL, False),
        (422, {"message": "no", "errors": {}}, False),
    ],
)
def test_what_claims_to_be_the_services_word(status, body, no_claim):
    """A gateway's page does not; with a signature everything does that has one of the service's statuses."""
    for headers in ({}, {"signature": "x"}):
        came = reply(status, body, **headers)
        expected = no_claim if not headers else status not in {200, 401, 403, 404, 422}
        assert is_foreign(came, read_verify(came, KEY)) is expected


@given(st.integers(100, 599), st.binary(max_size=200))
@example(200, b"")
def test_any_bytes_come_to_a_known_error(status, body):
    """Bytes that are no JSON object are never a license, and never an exception."""
    assert isinstance(read_verify(Reply(status, body), KEY), LicclientError)
    assert isinstance(read_update(Reply(status, body), SETTINGS, "notes", KEY), LicclientError)


@pytest.mark.slow
@given(
    st.sampled_from([200, 201, 401, 403, 404, 422, 500]),
    st.fixed_dictionaries(
        {},
        optional={
            "valid": st.booleans() | json_values,
            "product": st.text() | json_values,
            "expiry": st.none() | days | st.text(max_size=12) | json_values,
            "lifetime": st.booleans() | json_values,
            "reason": st.text() | json_values,
            "message": st.text(),
            "errors": json_values,
        },
    ),
)
def test_only_a_well_formed_success_is_a_license(status, body):
    """Of everything that resembles an answer, only the specified one grants (D-40)."""
    read = read_verify(Reply(status, json.dumps(body).encode()), KEY)
    if not isinstance(read, Verified):
        assert isinstance(read, LicclientError)
        assert isinstance(read, ServiceUnavailableError) or status in (403, 404, 422)
        return
    assert status == 200
    assert body["valid"] is True
    assert isinstance(body["product"], str)
    assert isinstance(body["lifetime"], bool)
    assert body["expiry"] is None or (
        not body["lifetime"] and date.fromisoformat(body["expiry"]) == read.expiry
    )


@pytest.mark.slow
@given(json_values)
def test_any_json_is_read_without_a_crash(body):
    """Whatever JSON an update check answers with, it comes to a value."""
    for status in (200, 401, 422):
        assert isinstance(
            read_update(Reply(status, json.dumps(body).encode()), SETTINGS, "notes", KEY),
            Listing | LicclientError,
        )


@given(st.text())
def test_tidying_twice_changes_nothing(typed):
    """What was repaired stays as it is."""
    key = tidy_key(typed)
    if isinstance(key, str):
        assert tidy_key(key) == key or key.upper() != key  # some letters have no stable upper case
        assert not any(letter.isspace() for letter in key)


def test_a_key_is_a_string():
    """Anything else is the app's bug."""
    with pytest.raises(TypeError, match="string"):
        tidy_key(7)


def test_calls_hide_the_key():
    """Neither repr of a call shows what it carries; the longest body that is read is set for each."""
    calls = verify_call(SETTINGS, KEY, "d", "0.0.0.0"), update_call(SETTINGS, KEY, "notes", "1.0", "d")  # noqa: S104
    assert KEY not in repr(calls)
    assert [call.max_bytes for call in calls] == [64 * 1024, 1024 * 1024]


def test_an_update_check_names_the_platform_if_there_is_one():
    """Without one the request is that of the specification, to the letter (D-187)."""
    calls = [update_call(SETTINGS, KEY, "notes", "1.0", "d", platform) for platform in (None, "linux-arm64")]
    assert [call.url.partition("&domain=d")[2] for call in calls] == ["", "&platform=linux-arm64"]


def test_an_update_check_names_the_kind_of_file_if_there_is_one():
    """Without one nothing is said, and older servers see no difference."""
    calls = [update_call(SETTINGS, KEY, "notes", "1.0", "d", None, kind=kind) for kind in (None, "msi")]
    assert [call.url.partition("&domain=d")[2] for call in calls] == ["", "&kind=msi"]


def test_an_update_check_names_channels_and_who_asked():
    """If there are any, and if a person did (D-227, D-230)."""
    sent = settings(updates=Updates(channels=["beta", "nightly"]))
    url = update_call(sent, KEY, "notes", "1.0", "d", is_manual=True).url
    assert url.partition("&domain=d")[2] == "&channels=beta%2Cnightly&manual=1"


@pytest.mark.parametrize(
    ("typed", "flaw"),
    [
        (" \t", "is empty"),
        ("a\ud800", "is not readable text"),
        ("a" * 1025, "is too long"),
        (" " * 20_000 + "a", "is too long"),
    ],
)
def test_what_cannot_be_sent_is_no_key(typed, flaw):
    """No request is made for it."""
    read = tidy_key(typed)
    assert isinstance(read, InvalidRequestError)
    assert flaw in str(read)


@pytest.mark.parametrize(
    ("options", "release", "more"),
    [
        ({}, False, {"slug": "notes"}),
        ({"slug": None}, False, {}),
        ({"label": "Desk 3"}, False, {"slug": "notes", "label": "Desk 3"}),
        ({"label": "Desk 3"}, True, {"release": True}),
    ],
)
def test_a_request_for_a_seat(options, release, more):
    """Taken with product and label, given up with neither."""
    own = settings(**{name: value for name, value in options.items() if name == "slug"})
    own = own._replace(machine={"label": options["label"]} if "label" in options else None)
    call = seat_call(own, KEY, "d", "0" * 32, release=release)
    assert (call.method, call.url) == ("POST", "https://store.example/api/v1/licenses/seat")
    assert json.loads(call.body) == {"license_key": KEY, "domain": "d", "seat": "0" * 32, **more}


@pytest.mark.parametrize(
    "more", [{}, {"platform": "linux-arm64"}, {"platform": "windows-x86_64", "exit_code": 1603}]
)
def test_a_report_of_a_version_that_was_rolled_back(more):
    """It names the version, and what is known of the platform and the set-up's end (D-232, D-393)."""
    call = report_call(SETTINGS, KEY, "notes", "1.5", "d", more.get("platform"), more.get("exit_code"))
    fields = {"license_key": KEY, "slug": "notes", "version": "1.5", "domain": "d"}
    assert (call.url, json.loads(call.body)) == (
        "https://store.example/api/v1/updates/rolled-back",
        fields | more,
    )


@pytest.mark.parametrize(
    ("status", "body", "settled"),
    [
        (200, {"counted": False}, True),
        (200, b"<html>", False),
        *((status, b"", True) for status in (401, 403, 404, 405, 422, 501)),
        *((status, b"", False) for status in (302, 400, 429, 500, 503)),
    ],
)
def test_a_report_is_repeated_until_a_service_has_answered_it(status, body, settled):
    """One that takes none, or not of this license, is not asked again."""
    assert is_settled(reply(status, body)) is settled


@pytest.mark.parametrize("damaged", [None, {}, {"versions": 3}, {"versions": [], "tries": {"2.0": "often"}}])
def test_a_report_that_never_arrives_is_given_up(damaged):
    """After a number of tries, counted for each version; a record of an earlier version has none."""
    record = {"versions": ["1.1"]} if damaged is None else damaged
    for _ in range(MAX_REPORTS):
        assert "2.0" not in read_reports(record).versions
        record = note_report(record, "2.0", ["2.0", "3.0"], is_settled=False)
    record = note_report(record, "3.0", ["2.0", "3.0"], is_settled=False)
    assert record["versions"][-1] == "2.0"
    assert record["tries"] == {"3.0": 1}
    assert note_report(record, "3.0", ["3.0"], is_settled=True)["versions"][-2:] == ["2.0", "3.0"]
    assert note_report(record, "4.0", ["4.0"], is_settled=False)["tries"] == {"4.0": 1}


NO_MOVE = {"error": "too_many_moves", "message": f"Not {KEY}.", "retry_at": "2026-11-22T02:00:00+02:00"}
FREED = [
    (200, {"deactivated": 1}, None, None),
    (403, NO_MOVE, DeactivationError, datetime(2026, 11, 22, tzinfo=UTC)),
    *((403, NO_MOVE | {"retry_at": at}, DeactivationError, None) for at in (None, 7, "soon", "2026-11-22")),
    (403, NO_MOVE | {"retry_at": "9999-12-31T23:59:59-01:00"}, DeactivationError, None),
    (403, NO_MOVE | {"error": "not_allowed"}, DeactivationError, datetime(2026, 11, 22, tzinfo=UTC)),
    (403, NO_MOVE | {"error": "news"}, ServiceUnavailableError, None),
    (401, {"error": "invalid_license", "message": "no"}, LicenseRefusedError, None),
    (401, {"error": "news", "message": "no"}, ServiceUnavailableError, None),
    (422, {"message": "no", "errors": {"domain": ["no"]}}, InvalidRequestError, None),
    *((status, b"", DeactivationError, None) for status in (404, 405, 501)),
    (200, b"<html>", ServiceUnavailableError, None),
    (503, b"", ServiceUnavailableError, None),
]


@pytest.mark.parametrize(("status", "body", "kind", "retry_at"), FREED)
def test_what_became_of_a_slot(status, body, kind, retry_at):
    """Free, not yet, not by the customer; anything else is no answer."""
    read = read_deactivate(reply(status, body), KEY)
    assert read is None if kind is None else type(read) is kind
    assert getattr(read, "retry_at", None) == retry_at
    assert KEY not in str(read)


def test_a_manifest_is_read_if_keys_are_pinned():
    """From the header of the answer."""
    pinned = SETTINGS._replace(release_keys=("any",))
    came = reply(200, OFFER, **{"release-manifest": "signed"})
    assert [read_update(came, own, "notes", KEY).manifest for own in (SETTINGS, pinned)] == [None, "signed"]


def test_words_that_repeat_the_key_are_masked():
    """A server that echoes the key into its messages does not get it into our exceptions."""
    refused = read_verify(reply(403, {"valid": False, "reason": f"{KEY.lower()} is bad"}), KEY)
    invalid = read_verify(reply(422, {"message": KEY, "errors": {KEY: [f"x {KEY}"]}}), KEY)
    assert isinstance(refused, LicenseRefusedError)
    assert isinstance(invalid, InvalidRequestError)
    assert refused.message == "… is bad"
    assert KEY not in f"{refused!r} {invalid!r} {invalid}"


def test_words_are_left_alone_when_the_key_is_a_mere_word():
    """Somebody typed "license": the server's sentence about it stays readable."""
    refused = read_verify(Reply(403, b'{"valid": false, "reason": "Invalid license format."}'), "LICENSE")
    assert isinstance(refused, LicenseRefusedError)
    assert refused.reason is Reason.INVALID_FORMAT
    assert refused.message == "Invalid license format."


@pytest.mark.parametrize(
    ("address", "shown"),
    [("192.0.2.7", "192.0.2.7"), ("fe80::1%eth0", "fe80::1"), ("", "0.0.0.0"), ("x", "0.0.0.0")],  # noqa: S104
)
def test_our_address_is_a_plain_one(address, shown):
    """The server takes no zones; without an address it gets the one that stands for none (D-45)."""
    assert shown_ip(address) == shown


@pytest.mark.parametrize(
    ("refusals", "code", "reason"),
    [
        (DOWNLOAD_REFUSALS, "license_revoked", Reason.REVOKED),
        (UPDATE_REFUSALS, "license_expired", Reason.EXPIRED),
        (UPDATE_REFUSALS, "product_mismatch", Reason.OTHER_PRODUCT),
        (UPDATE_REFUSALS, "invalid_license", Reason.OTHER),
        (UPDATE_REFUSALS, "product_not_found", Reason.UNKNOWN_PRODUCT),
        (UPDATE_REFUSALS, "no_versions", Reason.NO_VERSION),
        (UPDATE_REFUSALS, "news", None),
        (UPDATE_REFUSALS, "license_revoked", None),
    ],
)
def test_codes_have_reasons(refusals, code, reason):
    """Those of an endpoint come to the enum of verify's sentences (spec 7, D-31); others are no answer."""
    refusal = read_refusal(Reply(401, json.dumps({"error": code, "message": "M"}).encode()), KEY, refusals)
    assert (refusal and (refusal.reason, refusal.message)) == (reason and (reason, "M"))


def test_a_byte_order_mark_before_json_is_no_content():
    """Some servers write their files with one, and a reader may ignore it (RFC 8259 8.1)."""
    assert isinstance(read_verify(Reply(200, b"\xef\xbb\xbf" + json.dumps(GOOD).encode()), KEY), Verified)


def test_an_outage_is_no_refusal_of_a_seat():
    """A proxy's error page says nothing about seats."""
    now = datetime(2026, 6, 15, tzinfo=UTC)
    assert type(read_seat(reply(502, b"<html>"), KEY, now)) is ServiceUnavailableError
    for code, seats in (("seat_lost", None), ("not_floating", 0)):
        lost = read_seat(reply(403, {"error": code, "message": "Ask."}), KEY, now)
        assert isinstance(lost, NoSeatError)
        assert lost.seats == seats
    assert [is_released(reply(200, {"released": value})) for value in (True, False)] == [True, False]


@pytest.mark.parametrize(
    ("request_id", "noted"), [("a-1", "a-1"), ("a b", None), (KEY, None), ("", None)], ids=range(4)
)
def test_an_error_names_its_response_but_never_the_key(request_id, noted):
    """A server that repeats the key as the id of the request gets it into no log."""
    response = reply(404, {}, **{"x-request-id": request_id})
    error = note_origin(LicclientError("gone"), response, KEY)
    assert (error.http_status, error.request_id) == (404, noted)
    assert note_origin(None, response, KEY) is None
