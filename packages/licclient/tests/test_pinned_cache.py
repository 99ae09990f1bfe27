"""What a client with pinned keys remembers: valid only while its signature is, at every read (D-62)."""

import json
from base64 import b64decode, b64encode
from datetime import timedelta
from time import process_time
from typing import Any

import pytest
from stage.flows import recalled
from stage.signing import SIGNER, grants_signed

from harness.oracle import HttpRequest, HttpResponse, Signer, digest
from licclient import LicenseClient, Trust
from licclient._core import public_keys
from licclient._core.model import CachedLicense, Verified
from licclient._core.records import _sum, seal, unseal
from licclient._core.requests import verify_call
from licclient._core.responses import Reply
from licclient._core.session import with_nonce
from licclient._core.signed_responses import Signed, check_signature, write_signed_success

OTHER_KEY = "CP-ZZZZZZ-DEF456-GHI789-JKL012-MNO345"


@pytest.fixture
def signing(service, http_answer, clock):
    """A service that signs; its answers name the product `Notes` and a day."""
    grants_signed(service, http_answer, clock)
    return service


@pytest.fixture
def make(signing, clock, tmp_path):
    """Make a client on the folder, for one installation unless `domain` is passed."""

    def make(**settings: Any):
        options = {
            "storage": tmp_path,
            "clock": clock,
            "domain": "d",
            "trust": Trust(public_keys=[SIGNER.text]),
        }
        url = settings.pop("url", signing.url)
        return LicenseClient(url, **{**options, **settings})

    return make


@pytest.fixture
def record(make, key, tmp_path):
    """The file in which a signed success is remembered."""
    with make() as client:
        client.verify(key)
    [path] = tmp_path.glob("signed-*")
    assert recalled(make(), key).is_authenticated
    return path


def test_the_record_says_nothing_by_itself(record, key, signing):
    """Nothing but the signed bytes says what the license is; no key, and no answer in the clear to edit."""
    content = json.loads(record.read_bytes().split(b"\n", 1)[1])
    assert sorted(content) == ["body", "headers", "ip", "schema", "seen_at"]
    assert sorted(content["headers"]) == ["content-digest", "content-type", "signature", "signature-input"]
    assert key not in record.read_text()
    assert key.encode() not in b64decode(content["body"])


def test_another_label_makes_nothing_unbelievable(make, key, tmp_path):
    """A success stays good when its label is changed or taken away; it is signed as it was sent."""
    with make(label="Anna's Mac", version="1.4") as client:
        client.verify(key)
    [path] = tmp_path.glob("signed-*")
    content = json.loads(path.read_bytes().split(b"\n", 1)[1])
    assert (content["label"], content["app_version"]) == ("Anna's Mac", "1.4")
    for changed in ({}, {"label": "Bob's PC"}):
        assert recalled(make(**changed), key).is_authenticated


# --- forgers, who know how a record is sealed -------------------------------------------------


@pytest.fixture
def forge(record, make, key):
    """Change the record as somebody does who reads this source, sum and all; then ask a new client."""
    name, good = record.stem, record.read_bytes()

    def forge(edit):
        document = unseal(name, good)
        assert document is not None
        document = {field: value for field, value in document.items() if field != "schema"}
        edit(document)
        record.write_bytes(seal(name, document))
        return recalled(make(), key)

    return forge


def body_of(document):
    """Read the remembered answer."""
    return json.loads(b64decode(document["body"]))


def rewrite(document, **changes: Any):
    """Change the remembered answer."""
    document["body"] = b64encode(json.dumps({**body_of(document), **changes}).encode()).decode()


def redigest(document, **changes: Any):
    """Change the remembered answer, and its digest with it."""
    rewrite(document, **changes)
    document["headers"]["content-digest"] = digest(b64decode(document["body"]))


EDITS = {
    "another product": lambda document: rewrite(document, product="Studio"),
    "another day": lambda document: rewrite(document, expiry="2099-12-31"),
    "for life": lambda document: rewrite(document, expiry=None, lifetime=True),
    "another day, its digest mended": lambda document: redigest(document, expiry="2099-12-31"),
    "another address of ours": lambda document: document.update(ip="192.0.2.99"),
    "a label that was not sent": lambda document: document.update(label="Bob's PC"),
    "a label that is a list": lambda document: document.update(label=["Bob's PC"]),
    "signed later": lambda document: document["headers"].update(
        {"signature-input": document["headers"]["signature-input"].replace("created=1", "created=2")}
    ),
    "another content type": lambda document: document["headers"].update({"content-type": "text/plain"}),
    "no signature": lambda document: document["headers"].pop("signature"),
    "no input": lambda document: document["headers"].pop("signature-input"),
    "no digest": lambda document: document["headers"].pop("content-digest"),
    "a header that is a number": lambda document: document["headers"].update({"signature": 7}),
    "headers that are a list": lambda document: document.update(headers=[]),
    "no headers": lambda document: document.pop("headers"),
    "no body": lambda document: document.pop("body"),
    "a body that is no base64": lambda document: document.update(body="!"),
    "half a surrogate pair": lambda document: document.update(ip="\ud800"),
    "a mark that is no instant": lambda document: document.update(seen_at="noon"),
    "a mark without a zone": lambda document: document.update(seen_at="2026-11-21T12:00:00"),
    "a mark before the signature": lambda document: document.update(seen_at="2026-11-21T11:59:59+00:00"),
    "a mark that is a number": lambda document: document.update(seen_at=7),
}


@pytest.mark.sampled(15)
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_record_is_a_miss(forge, edit):
    """Whoever edits it and redoes the sum still has not got the vendor's key."""
    assert forge(lambda _: None) is not None
    assert forge(edit) is None


@pytest.mark.slow
def test_every_changed_byte_is_the_same_license_or_none(record, make, key):
    """Byte by byte, with the sum redone: never a license that was not granted."""
    name = record.stem
    granted = recalled(make(), key)
    content = record.read_bytes().split(b"\n", 1)[1].removesuffix(b"\n")
    hits, started = 0, process_time()
    for at in range(len(content)):
        forged = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        record.write_bytes(_sum(name, forged) + b"\n" + forged + b"\n")
        found = recalled(make(), key)
        assert found in (None, granted)
        hits += found is not None
    assert process_time() - started < 0.1 * len(content)
    assert hits < 40  # what is left are digits of the mark, which nobody signs


def test_signed_nonsense_is_a_miss(signing, make, key, clock, tmp_path, record):
    """A record whose signature holds and whose body is no success: nobody's license, and no crash."""
    client = make()
    settings = client._session.settings
    call = with_nonce(client._session, verify_call(settings, key, "d", "192.0.2.1"))
    for body in (b'{"valid": false, "reason": "License expired."}', b"[]"):
        signed_request = HttpRequest(
            call.method, call.url, {"Content-Digest": call.headers["Content-Digest"]}
        )
        answered = HttpResponse(signed_request, 200, {"Content-Type": "application/json"}, body)
        SIGNER.sign(answered, "n", clock())
        document = {
            "ip": "192.0.2.1",
            "headers": {name.lower(): value for name, value in answered.headers.items()},
            "body": b64encode(body).decode(),
            "seen_at": clock().isoformat(),
        }
        assert isinstance(check_signature(call, _reply(document), settings.public_keys, None), Signed)
        record.write_bytes(seal(record.stem, document))
        assert recalled(make(), key) is None


def _reply(document):
    return Reply(200, b64decode(document["body"]), document["headers"])


def test_only_what_was_signed_is_kept_as_signed(clock):
    """A success without proof cannot be written as one with it."""
    held = CachedLicense(Verified("Notes", None, lifetime=False), clock(), clock())
    with pytest.raises(ValueError, match=r"^only a success that was signed can be remembered as one$"):
        write_signed_success(held)


# --- records of others ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [{"domain": "another"}, {"key": OTHER_KEY}, {"url": "http://localhost:1"}],
    ids=["domain", "key", "server"],
)
def test_a_record_is_good_for_its_key_domain_and_server_only(record, make, key, tmp_path, other):
    """Copied to another's name, and its sum redone for it, a success is nobody's."""
    good = unseal(record.stem, record.read_bytes())
    client = make(**{name: value for name, value in other.items() if name != "key"})
    other_key = other.get("key", key)
    name = client._session.successes.subject(other_key, client._session.settings.domain).name
    assert name != record.stem
    record.with_name(f"{name}.state").write_bytes(record.read_bytes())
    assert recalled(client, other_key) is None
    copied = {field: value for field, value in good.items() if field != "schema"}
    record.with_name(f"{name}.state").write_bytes(seal(name, copied))
    assert recalled(make(**{k: v for k, v in other.items() if k != "key"}), other_key) is None


def test_a_record_of_a_key_that_is_pinned_no_more_is_a_miss(record, make, key):
    """The pin counts at every read; a list that still has the key keeps the record."""
    assert recalled(make(trust=Trust(public_keys=[Signer().text])), key) is None
    assert recalled(make(trust=Trust(public_keys=[Signer().text, SIGNER.text])), key) is not None


# --- clocks -----------------------------------------------------------------------------------


def test_a_signed_success_counts_from_the_services_clock(make, key, clock, signing):
    """Set back while asking, the clock gains nothing: the signature says when it was (D-63, D-116)."""
    real = clock()
    clock.move(hours=-20)
    script = signing.script

    def at_real_time(request):
        clock.now, wrong = real, clock.now
        try:
            return script(request)
        finally:
            clock.now = wrong

    signing.script = at_real_time
    with make() as client:
        assert client.verify(key).checked_at == real
    assert recalled(make(), key).checked_at == real
    clock.now = real + timedelta(hours=3, minutes=50)  # by the service's, 23 hours and 50 minutes later
    assert recalled(make(), key).checked_at == real
    clock.move(minutes=20)
    assert recalled(make(), key) is None
    clock.now = real - timedelta(hours=20)
    assert recalled(make(), key) is None, "set back once more"


# --- how often it is checked ------------------------------------------------------------------


def test_the_signature_is_checked_at_every_read_of_the_disk(record, make, key, monkeypatch):
    """Once per process and file: an unchanged file is not checked twice, a replaced one is."""
    checks = []
    verify = public_keys.PublicKey.verify

    def counted(self, *args: bytes):
        checks.append(1)
        return verify(self, *args)

    monkeypatch.setattr(public_keys.PublicKey, "verify", counted)
    with make() as client:
        for _ in range(5):
            assert recalled(client, key) is not None
        assert len(checks) == 1
        raw = record.read_bytes()
        record.unlink()
        record.write_bytes(raw)
        assert recalled(client, key) is not None
        assert len(checks) == 2
    assert recalled(make(), key) is not None
    assert len(checks) == 3
