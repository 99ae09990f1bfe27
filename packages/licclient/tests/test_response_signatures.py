"""Whether an answer is signed for a call by a pinned key: each clause. `test_pins` tests it over sockets."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from stage.rules import settings

from harness.oracle import COVERED, HttpRequest, HttpResponse, Signer, digest
from licclient._core.model import CachedLicense, Verified
from licclient._core.public_keys import read_public_key
from licclient._core.requests import Call, verify_call
from licclient._core.responses import Reply
from licclient._core.signed_responses import (
    Signed,
    check_signature,
    check_time,
    read_signed_success,
    read_trusted_verify,
    request_signature,
    write_signed_success,
)
from licclient.errors import ServiceUnavailableError, UntrustedResponseError

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
URL = "https://x.example/api/v1/licenses/verify"
BODY = b'{"valid": true}'
SIGNER, SPARE = Signer(), Signer()
KEYS = [read_public_key(SPARE.text), read_public_key(SIGNER.text)]
CALL = Call("POST", URL, {"Accept": "application/json"}, b"{}", 1000)

NONE = (
    "The response has no signature of a pinned key: the service has none of these keys, or a proxy removed"
    " it."
)
CHANGED = "The response was changed in transit: its digest differs."
UNREADABLE = "The answer's signature cannot be read, or is not by a pinned key."
UNCOVERED = "The answer's signature does not cover what it must cover."
OTHER_PURPOSE = "The answer's signature is for another purpose."
OTHER_CALL = "The answer was signed for another call."
NO_TIME = "The answer's signature does not say when it was made and for how long."
UNFIT = (
    "The answer's signature does not fit what was asked at https://x.example. One of them was changed on"
    " the way, or the service takes itself for another address (its LICSERVER_BASE_URL)."
)


def signed(*, by: Signer = SIGNER, content_type: str = "application/json", **bent: Any) -> dict[str, str]:
    """The headers of an answer to CALL, as the oracle signs it."""
    signed_request = HttpRequest(
        CALL.method, URL, {"Content-Digest": digest(CALL.body or b"")}, CALL.body or b""
    )
    answered = HttpResponse(signed_request, 200, {"Content-Type": content_type}, BODY)
    by.sign(answered, **{"nonce": "n", "created": NOON, "label": "sig", **bent})
    return {name.lower(): value for name, value in answered.headers.items()}


def read(headers: Mapping[str, str], *, nonce: str | None = "n", call: Call = CALL) -> Any:
    """What becomes of an answer with these headers: when it was signed, or what is wrong."""
    found = check_signature(call, Reply(200, BODY, headers), KEYS, nonce)
    return found.created_at if isinstance(found, Signed) else str(found)


def both(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """One answer that carries the signatures of two."""
    joined = {name: f"{first[name]}, {second[name]}" for name in ("signature", "signature-input")}
    return {**first, **joined}


def changed(name: str, old: str, new: str) -> dict[str, str]:
    """The good headers, with one of them changed."""
    good = signed()
    assert old in good[name]
    return {**good, name: good[name].replace(old, new)}


GOOD = signed()
SHUFFLED = tuple(reversed(COVERED))


HOLDS = {
    "as asked for": (GOOD, "n"),
    "remembered": (GOOD, None),
    "by another pinned key": (signed(by=SPARE), "n"),
    "components in another order": (signed(covered=SHUFFLED), "n"),
    "for no time": (signed(lifetime=timedelta(0)), "n"),
    "white space around headers": (
        {**GOOD, "content-type": " application/json\t", "content-digest": f" {GOOD['content-digest']} "},
        "n",
    ),
    "beside a stranger's": (both(signed(by=Signer(), label="a"), GOOD), "n"),
    "beside one for another call": (both(signed(by=SPARE, label="a", nonce="m"), GOOD), "n"),
    "beside one over less": (both(signed(by=SPARE, label="a", covered=COVERED[1:]), GOOD), "n"),
    "beside one that does not fit": (both(signed(by=SPARE, label="a", content_type="text/plain"), GOOD), "n"),
    "beside one that is announced and missing": (
        both(signed(by=SPARE, label="a"), GOOD) | {"signature": GOOD["signature"]},
        "n",
    ),
}


@pytest.mark.parametrize(("headers", "nonce"), HOLDS.values(), ids=HOLDS)
def test_what_a_pinned_key_signed_for_this_call_holds(headers, nonce):
    """One good signature is enough, whatever stands before it; it says when the service made it."""
    assert read(headers, nonce=nonce) == NOON


def test_it_says_from_when_until_when_it_was_meant():
    """Both instants are the service's own."""
    signed_ = check_signature(CALL, Reply(200, BODY, GOOD), KEYS, "n")
    assert signed_ == Signed(NOON, NOON + timedelta(minutes=5))


def test_a_question_without_a_body_is_signed_as_one_of_no_bytes():
    """An update check has none; its address is covered to the last letter of the query."""
    url = "https://x.example/api/v1/update-check?license_key=k&domain=a%20b"
    signed_request = HttpRequest("GET", url, {"Content-Digest": digest(b"")})
    answered = HttpResponse(signed_request, 200, {"Content-Type": "application/json"}, BODY)
    SIGNER.sign(answered, "n", NOON)
    headers = {name.lower(): value for name, value in answered.headers.items()}
    call = Call("GET", url, {}, None, 1000)
    assert read(headers, call=call) == NOON
    assert read(headers, call=call._replace(url=url.replace("%20", "+"))) == UNFIT


def without(name: str) -> dict[str, str]:
    """The good headers without one of them."""
    return {header: value for header, value in GOOD.items() if header != name}


BAD: dict[str, tuple[dict[str, str], str]] = {
    **{f"no {name}": (without(name), NONE) for name in GOOD},
    "another body's digest": ({**GOOD, "content-digest": digest(b"{}")}, CHANGED),
    "a digest of another kind": ({**GOOD, "content-digest": "sha-512=:AAAA:"}, CHANGED),
    "nothing that can be read": ({**GOOD, "signature-input": "sig"}, UNREADABLE),
    "an empty input": ({**GOOD, "signature-input": ""}, UNREADABLE),
    "an input that breaks off": ({**GOOD, "signature-input": GOOD["signature-input"] + ", x"}, UNREADABLE),
    "a comma too many": ({**GOOD, "signature-input": GOOD["signature-input"] + ", "}, UNREADABLE),
    "a text that is not closed": (changed("signature-input", 'nonce="n"', 'nonce="n'), UNREADABLE),
    "no ASCII in the input": (changed("signature-input", 'nonce="n"', 'nonce="é"'), UNREADABLE),
    "another label": (changed("signature", "sig=", "sag="), UNREADABLE),
    "no byte sequence": (changed("signature", "=:", "="), UNREADABLE),
    "no key's name": (changed("signature-input", "keyid=", "kid="), UNREADABLE),
    "a stranger": (signed(by=Signer()), UNREADABLE),
    "a key's name that is no text": (
        changed("signature-input", f'"{SIGNER.id}"', SIGNER.id.replace("_", "-")),
        UNREADABLE,
    ),
    "one component more": (signed(covered=(*COVERED, '"@query";req')), UNCOVERED),
    "a tab between components": (
        changed("signature-input", '" "content-type', '"\t"content-type'),
        UNCOVERED,
    ),
    "no components": (signed(covered=()), UNCOVERED),
    "no algorithm": (signed(include_alg=False), OTHER_PURPOSE),
    "another algorithm": (changed("signature-input", '"ed25519"', '"hmac-sha256"'), OTHER_PURPOSE),
    "another purpose": (signed(tag="link"), OTHER_PURPOSE),
    "no purpose": (signed(tag=None), OTHER_PURPOSE),
    "another nonce": (signed(nonce="m"), OTHER_CALL),
    "no nonce": (signed(nonce=None), OTHER_CALL),
    "the nonce, and another after it": (
        changed("signature-input", 'nonce="n"', 'nonce="n";nonce="m"'),
        OTHER_CALL,
    ),
    "no beginning": (changed("signature-input", "created", "crested"), NO_TIME),
    "no end": (changed("signature-input", "expires", "expired"), NO_TIME),
    "a beginning that is no number": (changed("signature-input", "created=1", "created=-1"), NO_TIME),
    "an end in a text": (changed("signature-input", "expires=1", 'expires="1";x=1'), NO_TIME),
    "an end beyond all calendars": (changed("signature-input", "expires=1", "expires=999999"), NO_TIME),
    "an end before its beginning": (signed(lifetime=timedelta(seconds=-1)), NO_TIME),
    "an end that was moved": (changed("signature-input", "expires=1", "expires=2"), UNFIT),
    "the other pinned key's name": (signed(by=SIGNER, key_id=SPARE.id), UNFIT),
    "bits of a signature": (changed("signature", "sig=:", "sig=:AAAA"), UNFIT),
    "bytes behind a signature": (changed("signature", "==:", "==AAAA:"), UNFIT),
    "no base64": (changed("signature", "sig=:", "sig=:A"), UNFIT),
    "another content type": ({**GOOD, "content-type": "text/html"}, UNFIT),
    "another spelling of the digest": (
        {**GOOD, "content-digest": GOOD["content-digest"] + ", md5=:AAAA:"},
        UNFIT,
    ),
    "no ASCII where a question mark was signed": (
        {**signed(content_type="text/plain; a=?"), "content-type": "text/plain; a=é"},
        UNFIT,
    ),
    "half a surrogate pair": ({**GOOD, "content-type": "\ud800"}, UNFIT),
}


@pytest.mark.parametrize(("headers", "words"), BAD.values(), ids=BAD)
def test_what_does_not_hold_says_why(headers, words):
    """Each clause of a good signature, broken alone; the sentence is what a vendor's support will be sent."""
    assert read(headers) == words


@pytest.mark.parametrize(
    "other",
    [{"method": "PUT"}, {"url": f"{URL}?license_key=CP-SECRET"}, {"body": b"{} "}, {"body": None}],
    ids=["method", "address", "body", "no body"],
)
def test_an_answer_to_another_request_does_not_fit(other):
    """The request is what *we* sent, whatever the answer says about it; its query is not repeated."""
    assert read(GOOD, call=CALL._replace(**other)) == UNFIT


def test_the_status_is_part_of_it():
    """A refusal that was signed is no success."""
    found = check_signature(CALL, Reply(403, BODY, GOOD), KEYS, "n")
    assert isinstance(found, UntrustedResponseError)


def test_no_key_no_trust():
    """With no key at all nothing holds."""
    found = check_signature(CALL, Reply(200, BODY, GOOD), [], "n")
    assert str(found) == UNREADABLE


def test_a_request_names_each_key_and_its_digest():
    """The headers that the protocol page shows, beside those that were there; a GET has no bytes."""
    asking = request_signature(CALL, KEYS, "n")
    covered = " ".join(COVERED)
    members = [
        f'sig{at}=({covered});created;expires;nonce="n";alg="ed25519";tag="licensing-answer";keyid="{key.id}"'
        for at, key in enumerate(KEYS)
    ]
    assert asking == CALL._replace(
        headers={
            "Accept": "application/json",
            "Accept-Signature": ", ".join(members),
            "Content-Digest": digest(b"{}"),
        },
        nonce="n",
    )
    empty = request_signature(CALL._replace(body=None), KEYS, "n")
    assert empty.headers["Content-Digest"] == digest(b"")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-86_401, "The answer was signed at 2026-11-21 12:00 UTC, and the clock of this computer says"),
        (-86_400, None),
        (86_700, None),
        (86_701, "2026-11-22 12:05: one of the two clocks is wrong."),
    ],
)
def test_a_signature_has_a_day_on_both_sides(seconds, words):
    """From a day before `created` to a day after `expires`, and not a second more (D-63)."""
    found = check_time(Signed(NOON, NOON + timedelta(minutes=5)), NOON + timedelta(seconds=seconds))
    assert (found is None) if words is None else (words in str(found))


# --- successes that are remembered ------------------------------------------------------------

PINNED = settings("https://x.example")._replace(public_keys=tuple(KEYS))
SUCCESS = json.dumps({"valid": True, "product": "Notes", "expiry": None, "lifetime": False}).encode()


def remembered(**machine: str) -> dict[str, Any]:
    """The record of a success, which was signed at noon and came ten seconds later."""
    call = request_signature(verify_call(PINNED, "k", "d", "192.0.2.1", machine), KEYS, "n")
    body = call.body or b""
    answered = HttpResponse(
        HttpRequest("POST", call.url, {"Content-Digest": digest(body)}, body),
        200,
        {"Content-Type": "application/json"},
        SUCCESS,
    )
    SIGNER.sign(answered, "n", NOON)
    reply = Reply(200, SUCCESS, {name.lower(): value for name, value in answered.headers.items()})
    verified = read_trusted_verify(call, reply, "k", PINNED, NOON)
    assert isinstance(verified, Verified)
    return write_signed_success(
        CachedLicense(verified, NOON, NOON + timedelta(seconds=10), timedelta(seconds=3))
    )


@pytest.mark.parametrize("machine", [{}, {"label": "Desk 3"}])
def test_a_remembered_success_holds_as_of_its_signature(machine):
    """With the label that it was asked for with, whatever it is today."""
    held = read_signed_success(remembered(**machine), "k", "d", PINNED)
    assert held is not None
    assert (held.checked_at, held.seen_at - NOON) == (NOON, timedelta(seconds=10))
    assert (held.slow_by, held.verified.proof.machine) == (timedelta(seconds=3), machine)


@pytest.mark.parametrize(
    "changed",
    [
        {"ip": 7},
        {"ip": "192.0.2.2"},
        {"seen_at": "soon"},
        {"seen_at": (NOON - timedelta(seconds=1)).isoformat()},
        {"headers": {"signature": 7}},
        {"headers": {}},
        {"body": "no base64"},
        {"body": "e30="},
        {"label": "Another desk"},
    ],
)
def test_a_record_that_was_changed_is_none(changed):
    """Nor is one for another key, domain or server; an edited lag is none."""
    record = remembered(label="Desk 3")
    assert read_signed_success(record | changed, "k", "d", PINNED) is None
    assert read_signed_success(None, "k", "d", PINNED) is None
    for key, domain, server in (("other", "d", PINNED), ("k", "other", PINNED), ("k", "d", ELSEWHERE)):
        assert read_signed_success(record, key, domain, server) is None
    for lag in (-1, 86_401, "3", None):
        held = read_signed_success(record | {"slow_by": lag}, "k", "d", PINNED)
        assert held is not None
        assert held.slow_by == timedelta(0)


ELSEWHERE = PINNED._replace(server="https://y.example")


def test_only_what_was_signed_is_remembered_as_signed():
    """And without pinned keys nothing is required."""
    unsigned = Reply(200, SUCCESS, {})
    call = verify_call(PINNED, "k", "d", "192.0.2.1", {})
    plain = read_trusted_verify(call, unsigned, "k", PINNED._replace(public_keys=()), NOON)
    assert isinstance(plain, Verified)
    with pytest.raises(ValueError, match="signed"):
        write_signed_success(CachedLicense(plain, NOON, NOON))
    refused = read_trusted_verify(call._replace(nonce="n"), unsigned, "k", PINNED, NOON)
    assert isinstance(refused, UntrustedResponseError)
    outage = read_trusted_verify(call, Reply(503, b"", {}), "k", PINNED, NOON)
    assert isinstance(outage, ServiceUnavailableError)
