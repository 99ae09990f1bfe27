"""License files on a machine without a network: which are accepted, and what ends them."""

import json
import pickle
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from hmac import digest
from queue import Queue
from time import sleep
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from licclient import LicenseClient, LicenseState, LicenseStatus, Reason, Source, Trust, explain
from licclient._cli import main
from licclient._core.public_keys import PublicKey, read_public_key
from licclient._core.settings import ClientSettings, read_settings
from licclient._offline.license_files import LicenseFile, check_file, key_digest, unwrap, write_request
from licclient.errors import (
    FileFlaw,
    LicenseFileError,
    LicenseRefusedError,
    NotActivatedError,
    ServiceUnavailableError,
)
from licclient.testing import LicenseService, MemoryStorage

SERVER = "https://licenses.example.com"
KEY, DOMAIN = "CP-" + "-".join(["AAAAAA"] * 5), "0123456789abcdef0123456789abcdef"
NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
OWN, OTHER = (Ed25519PrivateKey.from_private_bytes(seed * 32) for seed in (b"\1", b"\2"))
PIN = PublicKey(OWN.public_key().public_bytes_raw())
HEAD = {"alg": "EdDSA", "kid": PIN.id, "typ": "license-file+json"}
CONTENT = {
    "valid": True,
    "product": "Photo Lab",
    "slug": "photo-lab",
    "license": "CP-AA…AAAA",
    "key_digest": key_digest(KEY, DOMAIN),
    "domain": DOMAIN,
    "issued_at": "2026-06-15T12:00:00Z",
    "ends_at": "2027-06-15T12:00:00Z",
    "expiry": "2027-12-31",
    "lifetime": False,
    "support_until": None,
}


def b64(raw: bytes) -> str:
    """Encode as base64url without padding."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def to_json(value: Any) -> bytes:
    """Encode a value; bytes stay as they are."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def wrap(text: str) -> bytes:
    """Put a text between the two lines."""
    return f"-----BEGIN LICENSE FILE-----\n{text}\n-----END LICENSE FILE-----\n".encode()


def jws(head: Any = HEAD, content: Any = CONTENT, key: Ed25519PrivateKey = OWN) -> str:
    """Sign whatever it is."""
    signed = f"{b64(to_json(head))}.{b64(to_json(content))}"
    return f"{signed}.{b64(key.sign(signed.encode()))}"


def signed_file(**changed: Any) -> bytes:
    """Return a well signed file with changed fields."""
    return wrap(jws(content={**CONTENT, **changed}))


def headed(**changed: Any) -> bytes:
    """Return a well signed file with another header."""
    return wrap(jws({**HEAD, **changed}))


def without(name: str) -> bytes:
    """Return a well signed file without one field."""
    return wrap(jws(content={name_: value for name_, value in CONTENT.items() if name_ != name}))


GOOD = jws()
FIRST, MIDDLE, LAST = GOOD.split(".")
HMAC_HEAD = b64(to_json({**HEAD, "alg": "HS256"}))
JWK = {"kty": "OKP", "crv": "Ed25519", "x": b64(OTHER.public_key().public_bytes_raw())}
FLIPPED = b64(bytes([urlsafe_b64decode(LAST + "==")[0] ^ 1]) + urlsafe_b64decode(LAST + "==")[1:])
LOOSE = GOOD[:-1] + chr(ord(GOOD[-1]) + 1)  # the same bytes, spelt differently
GENERAL = {"payload": MIDDLE, "signatures": [{"protected": FIRST, "signature": LAST}]}

HOSTILE: dict[str, tuple[FileFlaw, bytes]] = {
    "empty": (FileFlaw.DAMAGED, b""),
    "a license key": (FileFlaw.DAMAGED, b"CP-"),
    "only the lines": (FileFlaw.DAMAGED, wrap("")),
    "no lines": (FileFlaw.DAMAGED, GOOD.encode()),
    "cut off": (FileFlaw.DAMAGED, wrap(GOOD)[:400]),
    "no begin": (FileFlaw.DAMAGED, wrap(GOOD)[10:]),
    "not ASCII": (FileFlaw.DAMAGED, wrap(GOOD).replace(b"e", "é".encode())),
    "not UTF-8": (FileFlaw.DAMAGED, wrap(GOOD).replace(b"e", b"\xff")),
    "UTF-16": (FileFlaw.DAMAGED, wrap(GOOD).decode().encode("utf-16")),
    "zeros": (FileFlaw.DAMAGED, b"\0" * 1000),
    "huge": (FileFlaw.DAMAGED, wrap(GOOD) + b" " * 70_000),
    "two files in one": (FileFlaw.UNTRUSTED, wrap(GOOD + "." + GOOD)),
    "another part": (FileFlaw.UNTRUSTED, wrap(GOOD + ".")),
    "no signature part": (FileFlaw.UNTRUSTED, wrap(f"{FIRST}.{MIDDLE}")),
    "empty parts": (FileFlaw.DAMAGED, wrap("..")),
    "an empty signature": (FileFlaw.UNTRUSTED, wrap(f"{FIRST}.{MIDDLE}.")),
    "a short signature": (FileFlaw.UNTRUSTED, wrap(GOOD[:-8])),
    "a long signature": (FileFlaw.UNTRUSTED, wrap(GOOD + "AAAA")),
    "a changed signature": (FileFlaw.UNTRUSTED, wrap(f"{FIRST}.{MIDDLE}.{FLIPPED}")),
    "a changed payload": (FileFlaw.UNTRUSTED, wrap(GOOD.replace(MIDDLE, b64(b"{}")))),
    "another one's signature": (FileFlaw.UNTRUSTED, wrap(f"{FIRST}.{MIDDLE}.{jws(HEAD, {}).split('.')[2]}")),
    "padding": (FileFlaw.UNTRUSTED, wrap(GOOD + "==")),
    "plain base64": (FileFlaw.UNTRUSTED, wrap(f"{FIRST}.{MIDDLE}.{b64encode(b'>>>???' * 11)[:86].decode()}")),
    "other characters": (FileFlaw.UNTRUSTED, wrap(GOOD[:-5] + "!" + GOOD[-5:])),
    "loose last bits": (FileFlaw.UNTRUSTED, wrap(LOOSE)),
    "signed by another key": (FileFlaw.UNTRUSTED, wrap(jws(key=OTHER))),
    "names another key": (FileFlaw.UNTRUSTED, headed(kid="AAAA")),
    "alg none": (FileFlaw.DAMAGED, wrap(f"{b64(to_json({**HEAD, 'alg': 'none'}))}.{MIDDLE}.")),
    "HMAC with the public key": (
        FileFlaw.DAMAGED,
        wrap(f"{HMAC_HEAD}.{MIDDLE}.{b64(digest(PIN.raw, f'{HMAC_HEAD}.{MIDDLE}'.encode(), 'sha256'))}"),
    ),
    "RS256": (FileFlaw.DAMAGED, headed(alg="RS256")),
    "ES256": (FileFlaw.DAMAGED, headed(alg="ES256")),
    "Ed448": (FileFlaw.DAMAGED, headed(alg="Ed448")),
    "alg in other letters": (FileFlaw.DAMAGED, headed(alg="eddsa")),
    "a list of algs": (FileFlaw.DAMAGED, headed(alg=["EdDSA"])),
    "a manifest": (FileFlaw.DAMAGED, headed(typ="release-manifest+json")),
    "a token": (FileFlaw.DAMAGED, headed(typ="JWT")),
    "no typ": (FileFlaw.DAMAGED, wrap(jws({"alg": "EdDSA", "kid": PIN.id}))),
    "no kid": (FileFlaw.DAMAGED, wrap(jws({"alg": "EdDSA", "typ": HEAD["typ"]}))),
    "kid is no text": (FileFlaw.DAMAGED, headed(kid=7)),
    "brings its key": (FileFlaw.DAMAGED, wrap(jws({**HEAD, "jwk": JWK}, key=OTHER))),
    "brings a certificate": (FileFlaw.DAMAGED, headed(x5c=["MIIB"])),
    "names an address of the key": (FileFlaw.DAMAGED, headed(jku="https://evil.example/keys")),
    "an extension": (FileFlaw.DAMAGED, headed(crit=["exp"], exp=0)),
    "payload not encoded": (FileFlaw.DAMAGED, headed(b64=False, crit=["b64"])),
    "compressed": (FileFlaw.DAMAGED, headed(zip="DEF")),
    "the general serialization": (FileFlaw.DAMAGED, wrap(json.dumps(GENERAL))),
    "header is another": (FileFlaw.DAMAGED, wrap(f"{b64(to_json({'typ': HEAD['typ']}))}.{MIDDLE}.{LAST}")),
    "lifetime with an expiry": (FileFlaw.DAMAGED, signed_file(lifetime=True)),
    "header is a list": (FileFlaw.DAMAGED, wrap(jws([HEAD]))),
    "header is no JSON": (FileFlaw.DAMAGED, wrap(jws(b"{"))),
    "a name twice in the header": (
        FileFlaw.DAMAGED,
        wrap(jws(b'{"alg":"none",' + to_json(HEAD)[1:])),
    ),
    "deep header": (FileFlaw.DAMAGED, wrap(jws(b"[" * 20_000))),
    "deep payload": (FileFlaw.DAMAGED, wrap(jws(content=b'{"a":' * 6_000))),
    "payload is a list": (FileFlaw.DAMAGED, wrap(jws(content=[CONTENT]))),
    "payload is no JSON": (FileFlaw.DAMAGED, wrap(jws(content=b"\xff\xfe"))),
    "a name twice": (FileFlaw.DAMAGED, wrap(jws(content=to_json(CONTENT)[:-1] + b',"lifetime":true}'))),
    "a number too long": (FileFlaw.DAMAGED, wrap(jws(content=b'{"a":' + b"9" * 5_000 + b"}"))),
    "not valid": (FileFlaw.DAMAGED, signed_file(valid=False)),
    "no product": (FileFlaw.DAMAGED, without("product")),
    "no domain": (FileFlaw.DAMAGED, without("domain")),
    "no end": (FileFlaw.DAMAGED, without("ends_at")),
    "an end that is null": (FileFlaw.DAMAGED, signed_file(ends_at=None)),
    "an end without a zone": (FileFlaw.DAMAGED, signed_file(ends_at="2027-06-15T12:00:00")),
    "an end in no calendar": (FileFlaw.DAMAGED, signed_file(ends_at="2027-02-30T12:00:00Z")),
    "ends before it begins": (FileFlaw.DAMAGED, signed_file(ends_at="2026-06-15T11:00:00Z")),
    "issued at no time": (FileFlaw.DAMAGED, signed_file(issued_at="now")),
    "lifetime is a number": (FileFlaw.DAMAGED, signed_file(lifetime=1)),
    "an expiry in no calendar": (FileFlaw.DAMAGED, signed_file(expiry="2027-02-30")),
    "another computer's": (FileFlaw.OTHER_MACHINE, signed_file(domain="f" * 32)),
    "the computer in other letters": (FileFlaw.OTHER_MACHINE, signed_file(domain=DOMAIN.upper())),
    "another product's": (FileFlaw.OTHER_PRODUCT, signed_file(product="Photo Press")),
    "another slug's": (FileFlaw.OTHER_PRODUCT, signed_file(slug="photo-press")),
    "issued in the future": (FileFlaw.CLOCK, signed_file(issued_at="2026-06-15T12:06:00Z")),
    "ended": (FileFlaw.ENDED, signed_file(issued_at="2026-05-01T00:00:00Z", ends_at="2026-06-15T12:00:00Z")),
    "the license has expired": (FileFlaw.ENDED, signed_file(expiry="2026-06-14")),
}  # fmt: skip


class Clock:
    """A clock that is moved by hand."""

    now = NOW

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of the computer."""
    return Clock()


@pytest.fixture
def client(clock: Clock) -> LicenseClient:
    """An app that pins the vendor's key, on a computer without a network."""
    app = {
        "product": "Photo Lab",
        "slug": "photo-lab",
        "domain": DOMAIN,
        "trust": Trust(public_keys=[PIN.text]),
    }
    return LicenseClient(SERVER, **app, clock=clock, storage=MemoryStorage(), transport=None)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_other_file_is_accepted(client: LicenseClient, name: str) -> None:
    """Whatever it is: one kind of error, with a message, also in a language; and nothing is licensed."""
    flaw, raw = HOSTILE[name]
    with pytest.raises(LicenseFileError) as refused:
        client.license_file.install(raw)
    assert refused.value.flaw is flaw
    assert refused.value.message.endswith(".")
    assert explain(refused.value, "de") != explain(refused.value, "en")
    assert client.status().state is LicenseState.NOT_ACTIVATED
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)  # noqa: S301 - our own


def test_there_are_forty_kinds() -> None:
    """The table does not shrink unseen."""
    assert len(HOSTILE) >= 40


@pytest.mark.parametrize("alg", ["EdDSA", "Ed25519"])
def test_both_names_of_the_algorithm_are_read(client: LicenseClient, alg: str) -> None:
    """RFC 8037 and RFC 9864; broken into lines and quoted with text by a mail program."""
    lines = wrap("\r\n ".join(jws({**HEAD, "alg": alg})[at : at + 60] for at in range(0, 900, 60)))
    found = client.license_file.install(b"Dear Anna,\r\nhere it is:\r\n" + lines + b"\r\n--\r\nVendor\r\n")
    assert (found.product, found.source, found.is_authenticated) == ("Photo Lab", Source.FILE, True)


def test_the_signature_of_rfc_8037() -> None:
    """Appendix A.4 verifies; it is no license file, because nothing in it says so."""
    key = read_public_key("ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
    signed = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
    signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
    assert key.verify(urlsafe_b64decode(signature + "=="), signed.encode())
    settings = read_settings(ClientSettings(SERVER, trust=Trust(public_keys=[key.text])))
    found = check_file(unwrap(wrap(f"{signed}.{signature}")), settings, DOMAIN)
    assert isinstance(found, LicenseFileError)
    assert found.flaw is FileFlaw.DAMAGED


def test_an_app_without_names_takes_any_product() -> None:
    """Like verify, it compares only what the app passed."""
    settings = read_settings(ClientSettings(SERVER, trust=Trust(public_keys=[PIN.text])))
    assert isinstance(check_file(GOOD, settings, DOMAIN), LicenseFile)


def test_a_request_is_short() -> None:
    """An installation's own id takes half the letters of another text of its length."""
    assert len(write_request(DOMAIN, "photo-lab", "1.2.0")) < 75
    assert write_request("büro", "", "").startswith("REQ-A")


def test_public_keys_are_needed() -> None:
    """An app that pins none gets that error, whatever the file."""
    client = LicenseClient(SERVER, storage=MemoryStorage())
    for call in (client.license_file.request, lambda: client.license_file.install(wrap(GOOD))):
        with pytest.raises(ValueError, match="public_keys"):
            call()


# --- what it is good for ----------------------------------------------------------------------


def test_a_file_needs_no_network_until_its_end(client: LicenseClient, clock: Clock, tmp_path: Any) -> None:
    """It is read from the disk, holds for every call, and then is over; a damaged one changes nothing."""
    file = tmp_path / "photo.lic"
    with pytest.raises(FileNotFoundError):
        client.license_file.install(file)
    file.write_bytes(wrap(GOOD))
    client.license_file.install(file)
    with pytest.raises(LicenseFileError):
        client.license_file.install(b"")
    clock.now = NOW + timedelta(days=364)
    for found in (client.verify(), client.require(), client.verify(KEY.lower()), client.verify(force=True)):
        assert (found.source, found.checked_at) == (Source.FILE, NOW)
    status = client.status()
    assert (status.state, status.source, status.days_left) == (LicenseState.VALID, Source.FILE, 1)
    assert (status.key_hint, status.grace_ends_at) == ("CP-AA…AAAA", NOW + timedelta(days=365))
    clock.now = NOW + timedelta(days=365)
    for call in (client.verify, client.require):
        with pytest.raises(LicenseRefusedError, match="ended on 2027-06-15 12:00 UTC") as refused:
            call()
        assert refused.value.reason is Reason.EXPIRED
    assert (client.status().state, client.status().reason) == (LicenseState.REFUSED, Reason.EXPIRED)


def test_a_clock_that_was_set_back_brings_nothing_back(client: LicenseClient, clock: Clock) -> None:
    """Neither an ended file, nor after it was forgotten and installed again; a later file heals it."""
    client.license_file.install(wrap(GOOD))
    clock.now = NOW + timedelta(days=400)
    with pytest.raises(LicenseRefusedError):
        client.verify()
    clock.now = NOW + timedelta(days=10)
    with pytest.raises(ServiceUnavailableError, match="clock"):
        client.verify()
    assert client.status().state is LicenseState.UNCONFIRMED
    client.forget_key()
    with pytest.raises(NotActivatedError):
        client.verify()
    with pytest.raises(LicenseFileError) as refused:
        client.license_file.install(wrap(GOOD))
    assert refused.value.flaw is FileFlaw.CLOCK
    later = signed_file(issued_at="2026-06-24T12:00:00Z", ends_at="2027-01-01T12:00:00Z")
    assert client.license_file.install(later).source is Source.FILE
    clock.now = datetime(2027, 5, 1, tzinfo=UTC)
    client.license_file.install(wrap(GOOD))  # that one lasts longer
    clock.now = NOW + timedelta(days=10)
    with pytest.raises(LicenseFileError):  # the later one is not later than itself
        client.license_file.install(later)


def test_a_record_that_was_changed_is_not_believed(client: LicenseClient, clock: Clock) -> None:
    """The signature is checked again with each change of the record; another key's app finds nothing."""
    client.license_file.install(wrap(GOOD))
    storage = client._session.storage
    (name,) = (name for name in storage._records if name.startswith("file-"))
    storage.change(name, lambda found: {**found, "file": jws(key=OTHER)})
    with pytest.raises(NotActivatedError):
        client.verify()
    storage.change(name, lambda found: {**found, "file": GOOD, "seen_at": 7})
    assert client.verify().source is Source.FILE


def test_the_command_line(tmp_path: Any, capsys: Any) -> None:
    """It prints the request, installs a file, and verifies by it; a wrong file is a status of its own."""
    file = tmp_path / "photo.lic"
    app = ["--server", SERVER, "--state-dir", str(tmp_path), "--public-key", PIN.text]

    def run(*arguments: str) -> tuple[int, str]:
        status, captured = main([*app, *arguments, "--domain", DOMAIN]), capsys.readouterr()
        return status, captured.out + captured.err

    status, output = run("request-file", "--slug", "photo-lab")
    assert (status, output.strip()) == (0, write_request(DOMAIN, "photo-lab", ""))
    file.write_bytes(
        signed_file(ends_at="2999-01-01T00:00:00Z", expiry=None, issued_at="2020-01-01T00:00:00Z")
    )
    assert run("install-file", str(file)) == (
        0,
        "Installed: Photo Lab, valid without a network until 2999-01-01 00:00 UTC.\n",
    )
    status, output = run("verify", KEY)
    assert (status, "from the license file, issued" in output) == (0, True)
    file.write_bytes(signed_file(domain="other"))
    assert run("install-file", str(file)) == (
        3,
        "licclient: This license file is for another computer. Send the request of this one.\n",
    )
    assert run("install-file", str(tmp_path / "none"))[0] == 2


# --- beside a service -------------------------------------------------------------------------


@pytest.fixture
def service() -> Any:
    """A service, and an app on a computer that reaches it at times."""
    with LicenseService() as service:
        yield service


def app(service: LicenseService, **more: Any) -> LicenseClient:
    """Return the app."""
    return service.client(
        product="Photo Lab", slug="photo-lab", version="1.0", trust=Trust(public_keys=[]), **more
    )


def test_a_revocation_ends_the_file(service: LicenseService) -> None:
    """At the next contact, and it says so; it cannot be installed again, until the license is reinstated."""
    client, key = app(service), service.issue("Photo Lab", slug="photo-lab", activated=True)
    file = service.issue_file(key, client.license_file.request())
    client.license_file.install(file)
    service.revoke(key)
    assert "ok license file:  of key CP-" in client.diagnose()
    service.requests.clear()
    assert client.verify().source is Source.FILE  # nobody was asked
    assert service.count() == 0
    with pytest.raises(LicenseRefusedError) as refused:
        client.verify(force=True)
    assert refused.value.reason is Reason.REVOKED
    with service.offline():
        with pytest.raises(LicenseRefusedError, match="kept, but not used"):
            client.verify()
        assert "!! license file:" in client.diagnose()
        with pytest.raises(LicenseFileError) as again:
            client.license_file.install(file)
        assert again.value.flaw is FileFlaw.REVOKED
    service.reinstate(key)
    assert client.verify().source is Source.SERVER
    with service.offline():
        assert client.verify().source is Source.FILE


def test_the_worker_learns_of_a_revocation(service: LicenseService) -> None:
    """It asks the service beside a file, and reports that this is over; an outage it does not report."""
    client, key = app(service), service.issue("Photo Lab", slug="photo-lab", activated=True)
    client.license_file.install(service.issue_file(key, client.license_file.request()))
    reported: Queue[LicenseStatus] = Queue()
    service.go_offline()
    with client.start(on_status=reported.put):
        assert reported.get(timeout=10).source is Source.FILE
        service.come_back()
        service.revoke(key)
        while client.status().reason is not Reason.REVOKED:
            service.clock.move(hours=1)  # again: the worker may just have tried in vain
            sleep(0.02)
        while reported.get(timeout=10).reason is not Reason.REVOKED:
            pass


def test_only_a_signed_revocation_of_this_license_does(service: LicenseService) -> None:
    """No other refusal, no other key and no unsigned answer ends it; another activated key replaces it."""
    client, key = app(service), service.issue("Photo Lab", slug="photo-lab", slots=1, activated=True)
    other = service.issue("Photo Lab", slug="photo-lab")
    client.license_file.install(service.issue_file(key, client.license_file.request(), days=9))
    service.revoke(other)
    with pytest.raises(LicenseRefusedError):
        client.verify(other)
    with pytest.raises(ValueError, match="Max activations"):
        service.issue_file(key, app(service, storage=MemoryStorage()).license_file.request())
    service.expire(key)
    assert client.verify(force=True).source is Source.FILE
    service.misbehave("unsigned")
    service.revoke(key)
    with pytest.raises(Exception, match="signature"):
        client.verify(force=True)
    service.come_back()
    assert client.verify().source is Source.FILE
    service.reinstate(other)
    assert client.activate(other).source is Source.SERVER
    assert client.verify().source is not Source.FILE


def test_giving_the_slot_up_gives_the_file_up(service: LicenseService) -> None:
    """A slot that is free must not leave a file behind; forgetting the key takes it as well."""
    client, key = app(service), service.issue("Photo Lab", slug="photo-lab")
    for give_up in (lambda: client.deactivate(key), client.forget_key):
        client.license_file.install(service.issue_file(key, client.license_file.request()))
        give_up()
        with pytest.raises(NotActivatedError):
            client.verify()


async def test_the_other_client_does_the_same(service: LicenseService) -> None:
    """A request, a file of an app without an id of its own, and a license."""
    async with service.async_client(
        product="Photo Lab", domain="büro", trust=Trust(public_keys=[])
    ) as client:
        key = service.issue("Photo Lab", expires=service.clock().date(), entitlements={"projects": 50})
        file = service.issue_file(key, await client.license_file.request())
        await client.license_file.install(file)
        service.go_offline()
        found = await client.verify()
        assert (found.source, found.expiry) == (Source.FILE, service.clock().date())
        assert found.entitlements["projects"] == 50
        service.clock.move(days=1)
        with pytest.raises(LicenseRefusedError):
            await client.verify()


def test_to_forget_a_file_that_is_not_there_changes_nothing():
    """Also twice."""
    storage = MemoryStorage()
    client = LicenseClient(SERVER, slug="photo-lab", trust=Trust(public_keys=[PIN.text]), storage=storage)
    client.forget_key()
    client.forget_key()
    assert client.status().state is LicenseState.NOT_ACTIVATED


@pytest.mark.parametrize("changed", [{"ends_at": CONTENT["issued_at"]}, {"issued_at": "today"}], ids=range(2))
def test_a_file_that_ends_before_it_begins_is_none(changed):
    """Also if the vendor signed it."""
    settings = read_settings(
        ClientSettings(base_url=SERVER, slug="photo-lab", trust=Trust(public_keys=[PIN.text]))
    )
    found = check_file(unwrap(signed_file(**changed)), settings, DOMAIN)
    assert isinstance(found, LicenseFileError)
