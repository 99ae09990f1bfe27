"""Signed releases: what a vendor says of a file, for a time, and any JWS library reads it (D-67)."""

import json
import warnings
from base64 import urlsafe_b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.errors import BadSignatureError, SecurityWarning

from harness.manifests import oracle, oracle_reads, unpacked
from licserver.errors import InvalidInputError
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.release_manifests import (
    MAX_DOCUMENT,
    TYPE,
    Manifest,
    add_signature,
    read,
    sign,
    sign_with_keys,
    to_header,
    use_signed,
)

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
KEY, OTHER = PrivateKey(b"1" * 32), PrivateKey(b"2" * 32)
FILE = b"zip"
MANIFEST = Manifest("app", "1.0", len(FILE), sha256(FILE).digest(), NOW, NOW + timedelta(days=180))
PLACED = replace(MANIFEST, platform="linux-x86_64", kind="folder")


# --- both ways with another library -------------------------------------------------------------


@pytest.mark.slow
@given(
    st.builds(
        Manifest,
        slug=st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True),
        version=st.sampled_from(["1.0", "2.0rc1", "1!3.4.post5"]),
        size=st.integers(0, 2**53),
        sha256=st.binary(min_size=32, max_size=32),
        published_at=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
        expires_at=st.just(datetime(2150, 1, 1, tzinfo=UTC)),
        platform=st.sampled_from(["", "linux-x86_64", None]),
        kind=st.sampled_from(["folder", "msi", None]),
    ),
    st.lists(st.sampled_from([KEY, OTHER]), min_size=1, max_size=2, unique_by=lambda key: key.public.id),
)
def test_another_library_reads_what_we_sign(manifest, keys):
    """Every signature of every manifest verifies there, and says the same."""
    signed = sign(manifest, keys)
    assert oracle_reads(signed.document, KEY, OTHER) == {
        "slug": manifest.slug,
        "version": manifest.version,
        "size": manifest.size,
        "sha256": manifest.sha256.hex(),
        "published_at": f"{manifest.published_at:%Y-%m-%dT%H:%M:%SZ}",
        "expires_at": "2150-01-01T00:00:00Z",
    } | {name: value for name in ("platform", "kind") if (value := getattr(manifest, name)) is not None}
    assert signed.key_ids == tuple(key.public.id for key in keys)
    assert read(signed.document) == signed
    assert signed.manifest == replace(manifest, published_at=manifest.published_at.replace(microsecond=0))


@pytest.mark.parametrize("algorithm", ["EdDSA", "Ed25519"])
def test_we_read_what_another_library_signs(algorithm):
    """A vendor may sign with whatever makes a general JWS; the document comes out as ours would."""
    ours = sign(MANIFEST, [KEY, OTHER])
    members = [{"protected": {"alg": algorithm, "kid": key.public.id, "typ": TYPE}} for key in (KEY, OTHER)]
    payload = unpacked(json.loads(ours.document)["payload"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)
        theirs = jws.serialize_json(members, payload, oracle(KEY, OTHER), algorithms=["EdDSA", "Ed25519"])
    found = read(json.dumps({**theirs, "more": 1}, indent=2))
    assert (found.manifest, found.key_ids) == (ours.manifest, ours.key_ids)
    assert (found == ours) == (algorithm == "EdDSA")


def test_another_library_refuses_what_another_key_signed():
    """The oracle does verify."""
    document = json.loads(sign(MANIFEST, [OTHER]).document)
    document["signatures"][0]["protected"] = json.loads(sign(MANIFEST, [KEY]).document)["signatures"][0][
        "protected"
    ]
    with pytest.raises(BadSignatureError):
        oracle_reads(json.dumps(document), KEY)


def test_signatures_are_added_without_touching_what_is_there():
    """One vendor, two keys, two machines; who has signed already does not sign twice."""
    manifest = sign(MANIFEST, [KEY])
    two = add_signature(manifest, OTHER)
    assert two.key_ids == (KEY.public.id, OTHER.public.id)
    assert add_signature(two, OTHER) == two
    assert json.loads(two.document)["signatures"][0] == json.loads(manifest.document)["signatures"][0]
    assert oracle_reads(two.document, KEY, OTHER) == oracle_reads(manifest.document, KEY)


def test_a_header_stays_small():
    """One signature takes well below a kilobyte; what would trouble a proxy is refused."""
    longest = replace(MANIFEST, platform="x" * 40, kind="appimage")
    assert len(to_header(sign(longest, [KEY]).document)) < 900
    many = [PrivateKey(bytes([number]) * 32) for number in range(5)]
    assert len(to_header(sign(longest, many).document)) < 2800
    with pytest.raises(InvalidInputError, match=f"a header takes {MAX_DOCUMENT}: sign it with fewer keys"):
        sign(MANIFEST, [PrivateKey(bytes([number]) * 32) for number in range(12)])


def changed(**head: object):
    """A document whose signature has another head."""
    document = json.loads(sign(MANIFEST, [KEY]).document)
    kept = {"alg": "EdDSA", "kid": KEY.public.id, "typ": TYPE} | head
    text = json.dumps({name: value for name, value in kept.items() if value is not None})
    document["signatures"][0]["protected"] = urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return json.dumps(document)


def saying(**changes: object):
    """A document that says something else."""
    document = json.loads(sign(MANIFEST, [KEY]).document)
    payload = json.loads(unpacked(document["payload"])) | changes
    text = json.dumps({name: value for name, value in payload.items() if value is not None})
    document["payload"] = urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return json.dumps(document)


NONE = "not a signed release manifest"
NOT_SAID = f"{NONE}: it must have slug, version, size, sha256, published_at and expires_at"
NO_INSTANT = f"{NONE}: its times must look like 2026-06-15T12:00:00Z"
NO_PLACE = f"{NONE}: its platform and kind must be texts"
DOCUMENT = sign(MANIFEST, [KEY]).document
FLAWS = {
    "nothing": ("", NONE),
    "no object": ("[]", f"{NONE}: not a JSON object"),
    "a compact JWS": ("eyJ.eyJ.AAA", NONE),
    "deep": ("[" * 100_000, NONE),
    "no signatures": (
        json.dumps({**json.loads(DOCUMENT), "signatures": []}),
        "the manifest has no signature",
    ),
    "signatures of another kind": (json.dumps({"payload": "e30", "signatures": [1]}), NONE),
    "another algorithm": (changed(alg="HS256"), f"{NONE}: its alg must be EdDSA"),
    "another type": (changed(typ="JWT"), f"{NONE}: its typ must be release-manifest+json"),
    "no type": (changed(typ=None), f"{NONE}: its typ must be release-manifest+json"),
    "no key": (changed(kid=None), f"{NONE}: it has no kid"),
    "an extension": (changed(crit=["exp"]), f"{NONE}: it requires extensions"),
    "a payload that is not in base64": (changed(b64=False), f"{NONE}: it requires extensions"),
    "a signature of another length": (
        DOCUMENT.replace('"signature":"', '"signature":"AAAA'),
        f"{NONE}: a signature is not an Ed25519 signature",
    ),
    "padded": (DOCUMENT.replace('","signatures', '=","signatures'), NONE),
    "no version": (saying(version=None), NOT_SAID),
    "a size that is none": (saying(size=True), NOT_SAID),
    "a size below nothing": (saying(size=-1), NOT_SAID),
    "a digest that is none": (saying(sha256="x"), NOT_SAID),
    "a platform that is a number": (saying(platform=1), NO_PLACE),
    "a kind that is a list": (saying(kind=["msi"]), NO_PLACE),
    "another instant": (saying(expires_at="tomorrow"), NO_INSTANT),
    "no instant": (saying(expires_at="2026-02-30T00:00:00Z"), NONE),
}


@pytest.mark.parametrize(("document", "message"), FLAWS.values(), ids=FLAWS)
def test_what_is_no_manifest_is_refused_with_the_reason(document, message):
    """A slip is found when it is published, not by customers."""
    with pytest.raises(InvalidInputError) as refused:
        read(document)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slug": "other"}, "its slug is 'app', expected 'other'"),
        ({"version": "1.0.0"}, "its version is '1.0', expected '1.0.0'"),
        ({"size": 4}, "its size is 3, expected 4"),
        ({"sha256": bytes(32)}, f"its sha256 is {MANIFEST.sha256.hex()}, expected {bytes(32).hex()}"),
        (
            {"platform": "linux-arm64"},
            "its platform is 'linux-x86_64', expected 'linux-arm64'; sign the file again with this platform",
        ),
        ({"platform": ""}, "its platform is 'linux-x86_64', expected ''"),
        ({"kind": "msi"}, "its kind is 'folder', expected 'msi'; sign the file again with this kind"),
        ({"published_at": MANIFEST.expires_at}, "expired at 2026-12-12T12:00:00Z; sign the file again"),
    ],
)
def test_a_manifest_of_another_release_is_refused(change, message):
    """What was signed elsewhere must say what is published, and be good still."""
    with pytest.raises(InvalidInputError, match=message):
        use_signed(sign(PLACED, [KEY]).document)(replace(PLACED, **change))


def test_a_manifest_from_before_platforms_were_signed_is_taken():
    """For each platform and kind, as it was when it was signed (D-406)."""
    earlier = sign(MANIFEST, [KEY])
    assert (earlier.manifest.platform, earlier.manifest.kind) == (None, None)
    assert use_signed(earlier.document)(PLACED) == earlier


def test_a_manifest_that_is_good_for_no_time_is_not_signed():
    """An end before the beginning would be nobody's update."""
    with pytest.raises(InvalidInputError, match=r"^a manifest must expire after its publication$"):
        sign(replace(MANIFEST, expires_at=NOW), [KEY])


def test_instants_are_written_as_utc():
    """Whatever zone the vendor's clock is set to."""
    east = timezone(timedelta(hours=9))
    there = replace(MANIFEST, published_at=MANIFEST.published_at.astimezone(east))
    assert sign(there, [KEY]) == sign(MANIFEST, [KEY])


def test_keys_at_hand_sign_for_half_a_year_by_default():
    """From the instant of publication on, whatever end was there before."""
    later = replace(MANIFEST, published_at=NOW + timedelta(days=9))
    assert sign_with_keys([KEY])(later).manifest.expires_at == NOW + timedelta(days=189)
    month = sign_with_keys([KEY, OTHER], timedelta(days=30))(later)
    assert month.manifest.expires_at == NOW + timedelta(days=39)
    assert month.key_ids == (KEY.public.id, OTHER.public.id)


def test_what_was_signed_elsewhere_is_taken_as_it_is():
    """Who signed it, and until when, is what it says itself."""
    elsewhere = sign(replace(MANIFEST, expires_at=NOW + timedelta(seconds=1)), [OTHER])
    assert use_signed(elsewhere.document)(MANIFEST) == elsewhere
