"""Whether the vendor signed a version: each clause (D-67, D-68). `test_releases` tests it over sockets."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.releases import ALICE, BOB, CONTENT, EVE, document, manifest_payload, word
from stage.rules import settings

from licclient import Trust, Update
from licclient._core.kinds import InstallationKind
from licclient._core.policy import is_at_least
from licclient._core.public_keys import read_public_key
from licclient._core.records import record_name, unseal
from licclient._core.storage import StateFolder
from licclient._core.update_model import Listing, Manifest
from licclient._updates.signed_releases import (
    MAX_HEADER,
    Highest,
    RequestedFile,
    SignedReleases,
    check_manifest,
    raise_highest,
    read_manifest,
)
from licclient.errors import UntrustedResponseError

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEYS = [read_public_key(BOB.pin), read_public_key(ALICE.pin)]
ENDS = datetime(2027, 5, 20, 10, tzinfo=UTC)
SIGNED = Manifest(
    "notes", "2.0", len(CONTENT), sha256(CONTENT).hexdigest(), datetime(2026, 11, 20, 10, tzinfo=UTC), ENDS
)

NONE = "The response has no manifest that the vendor signed."
UNREADABLE = "The manifest cannot be read."
UNSIGNED = "No pinned key has signed the manifest."
NOT_A_RELEASE = "What the vendor signed is not about a release."
OTHER_VERSION = "The vendor signed another version than the service reports."
STEP_BACK = (
    "The vendor signed a higher version before, {}, and has not signed this one since: the service shows an"
    " old answer, or the vendor withdrew the higher one and must renew the signature of this one."
)
OVER = (
    "The vendor signed this version until 2027-05-20 10:00 UTC: the service shows an old answer, the vendor"
    " has not renewed it, or the clock of this computer is wrong."
)


def judged(header: str | None, *, highest: Highest | None = None, now: datetime = NOW) -> Manifest | str:
    """What becomes of notes 2.0 with this header: what was signed, or what is wrong."""
    found = check_manifest(header, "notes", "2.0", KEYS, highest, now)
    return str(found) if isinstance(found, UntrustedResponseError) else found


def signatures(*signed: Any, payload: Any = None) -> str:
    """A manifest with these signatures, which are no good ones all of them."""
    return word({"payload": payload or word(manifest_payload()), "signatures": list(signed)})


GOOD = ALICE.sign(word(manifest_payload()))


HOLDS = {
    "by one key": word(document()),
    "by another": word(document(BOB)),
    "by a stranger first": word(document(EVE, ALICE)),
    "after rubbish": signatures(None, 1, {}, {"protected": "!", "signature": 1}, GOOD),
    "after a broken one": signatures(GOOD | {"signature": "AAAA"}, GOOD),
    "after one under a wrong name": signatures(
        BOB.sign(word(manifest_payload())) | {"signature": GOOD["signature"]}, GOOD
    ),
    "by the algorithm's newer name": signatures(ALICE.sign(word(manifest_payload()), alg="Ed25519")),
    "with more around it": word(document() | {"more": 1}),
    "saying more": word(document(more=1)),
}


@pytest.mark.parametrize("header", HOLDS.values(), ids=HOLDS)
def test_what_a_pinned_key_signed_is_believed(header):
    """One good signature is enough, whatever stands beside it; and all that is signed is read."""
    assert judged(header) == SIGNED


@pytest.mark.parametrize("highest", ["1.9", "2.0", "2.0.0", "2.0rc1"])
def test_what_is_no_step_back_is_taken(highest):
    """The highest version that was ever signed, whenever that was (D-68)."""
    assert judged(word(document()), highest=Highest(highest, NOW)) == SIGNED


def test_a_lower_version_signed_after_the_highest_one_is_taken():
    """The vendor withdrew the higher one and renewed this one's signature (D-178)."""
    before = SIGNED.published_at - timedelta(seconds=1)
    assert judged(word(document()), highest=Highest("2.1", before)) == SIGNED


def of_size(length: int) -> str:
    """A good manifest in a header of just this length."""
    empty = word({**document(), "more": ""})
    header = word({**document(), "more": "x" * ((length - len(empty)) * 3 // 4)})
    assert len(header) == length
    return header


def test_the_longest_header_that_is_read():
    """Up to the limit it is read, beyond it not even looked at."""
    assert judged(of_size(MAX_HEADER)) == SIGNED
    assert judged(of_size(MAX_HEADER + 2)) == UNREADABLE


PAYLOAD = word(manifest_payload())
BAD: dict[str, tuple[str | None, str]] = {
    "nothing": (None, NONE),
    "an empty header": ("", UNREADABLE),
    "no base64url": ("=!", UNREADABLE),
    "base64 of the other kind": (word(b"\xfb\xff") + "+/", UNREADABLE),
    "base64url of no length": ("AAAAA", UNREADABLE),
    "no JSON": (word(b"{"), UNREADABLE),
    "nested without end": (word(b"[" * 4000), UNREADABLE),
    "a list": (word([]), UNREADABLE),
    "no signatures": (word({"payload": PAYLOAD}), UNREADABLE),
    "no payload": (word({"signatures": [GOOD]}), UNREADABLE),
    "a payload that is none": (word({"payload": 1, "signatures": [GOOD]}), UNREADABLE),
    "signatures that are no list": (word({"payload": PAYLOAD, "signatures": GOOD}), UNREADABLE),
    "signed by nobody": (signatures(), UNSIGNED),
    "signed by a stranger": (word(document(EVE)), UNSIGNED),
    "a stranger in her name": (signatures(EVE.sign(PAYLOAD, kid=ALICE.id)), UNSIGNED),
    "a name that is none": (signatures(ALICE.sign(PAYLOAD, kid=1)), UNSIGNED),
    "no algorithm": (signatures(ALICE.sign(PAYLOAD, alg="none")), UNSIGNED),
    "another purpose": (signatures(ALICE.sign(PAYLOAD, typ="JWT")), UNSIGNED),
    "an extension": (signatures(ALICE.sign(PAYLOAD, crit=["b64"], b64=False)), UNSIGNED),
    "an empty signature": (signatures(GOOD | {"signature": ""}), UNSIGNED),
    "a signature of no length": (signatures(GOOD | {"signature": "AAAAA"}), UNSIGNED),
    "another payload": (signatures(GOOD, payload=word(manifest_payload(version="2.1"))), UNSIGNED),
    "another head": (signatures(GOOD | {"protected": BOB.sign(PAYLOAD)["protected"]}), UNSIGNED),
    "a list as payload": (word(document(payload=[1])), NOT_A_RELEASE),
    **{
        f"no {name}": (
            word(
                document(
                    payload={field: value for field, value in manifest_payload().items() if field != name}
                )
            ),
            NOT_A_RELEASE,
        )
        for name in manifest_payload()
    },
    **{
        f"a {name} that is a list": (word(document(**{name: []})), NOT_A_RELEASE)
        for name in manifest_payload()
    },
    "less than nothing": (word(document(size=-1)), NOT_A_RELEASE),
    "a size that is a truth": (word(document(size=True)), NOT_A_RELEASE),
    "more than a petabyte": (word(document(size=10**15 + 1)), NOT_A_RELEASE),
    "a digest in capitals": (word(document(sha256="A" * 64)), NOT_A_RELEASE),
    "a digest cut": (word(document(sha256="a" * 63)), NOT_A_RELEASE),
    "a beginning without a zone": (word(document(published_at="2026-11-20T10:00:00")), NOT_A_RELEASE),
    "an end without a zone": (word(document(expires_at="2027-05-20T10:00:00")), NOT_A_RELEASE),
    "an end that is no day": (word(document(expires_at="2027-02-30T10:00:00Z")), NOT_A_RELEASE),
    "another product": (word(document(slug="paint")), OTHER_VERSION),
    "another version": (word(document(version="2.1")), OTHER_VERSION),
    "the same version, spelt otherwise": (word(document(version="2.0.0")), OTHER_VERSION),
}


@pytest.mark.parametrize(("header", "words"), BAD.values(), ids=BAD)
def test_what_is_not_believed_says_why(header, words):
    """Each clause of a good manifest, broken alone."""
    assert judged(header) == words


MSI, NSIS = InstallationKind.MSI, InstallationKind.NSIS
PLACES = {
    "its own": ("linux-x86_64", "msi", RequestedFile("linux-x86_64", MSI), None),
    "of all platforms": ("", "folder", RequestedFile("linux-x86_64", None), None),
    "of all, for an app that names none": ("", "folder", RequestedFile(None, None), None),
    "of any kind, for an app that names none": ("a", "nsis", RequestedFile("a", None), None),
    "from before kinds were signed": ("a", None, RequestedFile("a", MSI), None),
    "from before platforms were signed": (None, "msi", RequestedFile("a", MSI), None),
    "another platform": (
        "linux-arm64",
        "folder",
        RequestedFile("linux-x86_64", None),
        "The vendor signed this file for linux-arm64, not for linux-x86_64.",
    ),
    "a platform, for an app that names none": (
        "linux-arm64",
        "folder",
        RequestedFile(None, None),
        "The vendor signed this file for linux-arm64, and this app has requested no platform.",
    ),
    "another kind": (
        "a",
        "folder",
        RequestedFile("a", MSI),
        "The vendor signed a file of the kind folder, and this app has requested msi.",
    ),
}


@pytest.mark.parametrize(("platform", "kind", "requested", "words"), PLACES.values(), ids=PLACES)
def test_a_file_for_another_installation_is_not_taken(platform, kind, requested, words):
    """Platform and kind are signed; where they are not, they are the server's word (D-406)."""
    place = {"platform": platform, "kind": kind}
    header = word(document(**{name: value for name, value in place.items() if value is not None}))
    found = check_manifest(header, "notes", "2.0", KEYS, None, NOW, requested)
    expected = replace(SIGNED, platform=platform, kind=kind)
    assert (str(found) if words else found) == (words or expected)
    assert check_manifest(header, "notes", "2.0", KEYS, None, NOW) == expected


@pytest.mark.parametrize(
    ("signed", "requested", "sent", "kind"),
    [("msi", MSI, None, MSI), ("msi", MSI, NSIS, MSI), ("msi", None, None, None), (None, MSI, None, None)],
)
def test_an_offer_has_the_kind_that_was_signed(state, signed, requested, sent, kind):
    """If the check has named it; what the service says of it counts only where it was not signed."""
    header = word(document(**({} if signed is None else {"kind": signed})))
    offered = replace(listing(), manifest=header, kind=sent)
    checked = SignedReleases(PINNED, state).check(offered, NOW, CHECKS, RequestedFile(None, requested))
    assert checked.kind == kind


@pytest.mark.parametrize("name", ["platform", "kind"])
@pytest.mark.parametrize("value", [1, [], True])
def test_a_place_that_is_no_text_is_not_about_a_release(name, value):
    """Rather than taken for one that was not signed."""
    assert judged(word(document(**{name: value}))) == NOT_A_RELEASE


@pytest.mark.parametrize("size", [0, 10**15])
def test_sizes_from_nothing_to_a_petabyte(size):
    """An empty file is a file, too."""
    found = judged(word(document(size=size)))
    assert isinstance(found, Manifest)
    assert found.size == size


def test_it_is_over_at_its_very_end():
    """Freeze: good until `expires_at`, and not in that instant any more (D-68)."""
    assert judged(word(document()), now=ENDS - timedelta(microseconds=1)) == SIGNED
    assert judged(word(document()), now=ENDS) == OVER


@pytest.mark.parametrize("highest", ["2.0.post1", "2.1", "10", "banana"])
@pytest.mark.parametrize("signed_at", [SIGNED.published_at, NOW])
def test_a_step_back_is_not_taken(highest, signed_at):
    """An old version that was not signed again; a record that cannot be read is above everything."""
    assert judged(word(document()), highest=Highest(highest, signed_at)) == STEP_BACK.format(highest)


def test_versions_of_thousands_of_digits_are_no_versions():
    """Python refuses to read such numbers, with an error of its own."""
    assert not is_at_least("1" * 5000, "1")
    assert not is_at_least("banana", "banana")


@pytest.mark.parametrize("version", ["banana", ""])
def test_a_version_that_cannot_be_compared_is_not_taken(version):
    """Remembered as the highest, a vendor's slip would lock customers out of all that comes after it."""
    found = check_manifest(word(document(version=version)), "notes", version, KEYS, None, NOW)
    assert str(found) == "The vendor signed a version that cannot be compared with others."


def test_every_single_change_of_a_manifest_is_found():
    """One character changed, anywhere: never what somebody else would want it to say."""
    good = word(document())
    for at, other in itertools.product(range(len(good)), "A_"):
        found = read_manifest(good[:at] + other + good[at + 1 :], KEYS)
        assert found == SIGNED or isinstance(found, UntrustedResponseError)


@given(
    st.text(max_size=300)
    | st.binary(max_size=300).map(word)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["payload", "signatures", "protected", "signature"]), inner)
        ),
        max_leaves=12,
    ).map(word)
)
def test_rubbish_is_not_trusted_and_raises_nothing(header):
    """Whatever stands in the header."""
    assert isinstance(read_manifest(header, KEYS), UntrustedResponseError)


def test_without_a_pin_nothing_is_signed():
    """No key, no trust."""
    assert str(read_manifest(word(document()), [])) == UNSIGNED


# --- the highest version, as it is remembered (D-68) --------------------------------------------

SERVER = "https://x.example"
CHECKS = record_name("update", SERVER, "one key", "notes")
OTHERS = record_name("update", SERVER, "another key", "notes")
PINNED, UNPINNED = settings(SERVER, trust=Trust(release_keys=[ALICE.pin])), settings(SERVER)


def listing(version: str = "2.0", slug: str = "notes", signer=ALICE) -> Listing:
    """An answer that carries a manifest."""
    header = word(document(signer, version=version, slug=slug))
    return Listing("Notes", slug, version, "", NOW, "https://x.example/f", header)


@pytest.fixture
def state(tmp_path):
    """A folder of its own."""
    return StateFolder(tmp_path)


def highest(folder, slug="notes"):
    """What the disk says, or None."""
    name = record_name("release", SERVER, slug)
    path = folder / f"{name}.state"
    return unseal(name, path.read_bytes())["version"] if path.exists() else None


def test_what_was_signed_is_vouched_for_and_remembered(state, tmp_path):
    """With all that was signed; a higher one takes its place, one for each product."""
    releases = SignedReleases(PINNED, state)
    signed = releases.check(listing(), NOW, CHECKS)
    assert signed == replace(listing(), signed=signed.signed)
    assert (signed.signed.version, signed.signed.slug) == ("2.0", "notes")
    assert highest(tmp_path) == "2.0"
    assert isinstance(releases.check(listing("2.1"), NOW, CHECKS), Listing)
    assert highest(tmp_path) == "2.1"
    assert isinstance(releases.check(listing("1.0", "paint"), NOW, CHECKS), Listing)
    assert (highest(tmp_path), highest(tmp_path, "paint")) == ("2.1", "1.0")


@pytest.mark.parametrize(
    "offered", [listing("1.9"), listing("3.0", signer=EVE), replace(listing(), manifest=None)]
)
def test_what_is_not_taken_changes_nothing(state, tmp_path, offered):
    """Neither a step back nor what nobody signed."""
    releases = SignedReleases(PINNED, state)
    releases.check(listing(), NOW, CHECKS)
    assert isinstance(releases.check(offered, NOW, CHECKS), UntrustedResponseError)
    assert highest(tmp_path) == "2.0"


def test_the_same_version_again_costs_no_write(state, monkeypatch):
    """Nobody waits for the lock when there is nothing to remember."""
    releases = SignedReleases(PINNED, state)
    releases.check(listing(), NOW, CHECKS)
    monkeypatch.setattr(state, "change", None)
    assert isinstance(releases.check(listing(), NOW, CHECKS), Listing)


def test_what_another_process_has_seen_meanwhile_counts():
    """Two processes check at once: the one that learns of the higher version first is not forgotten."""

    class Racing:
        """A state that another process changes between our look at it and our lock."""

        def load(self, name) -> None:
            """Nothing yet."""

        def change(self, name, edit):
            """By now it is there, and stays."""
            assert name == record_name("release", SERVER, "notes")
            held = {"version": "3.0", "signed_at": NOW.isoformat()}
            assert edit(held) is held

    assert isinstance(SignedReleases(PINNED, Racing()).check(listing(), NOW, CHECKS), UntrustedResponseError)


def update(version: str = "2.0", signer=ALICE) -> Update:
    """What an app hands back to have it downloaded."""
    manifest = listing(version, signer=signer).manifest
    return Update("Notes", "notes", version, "", NOW, "key", manifest=manifest)


def test_what_is_to_be_downloaded_is_judged_again(state, tmp_path):
    """By now a higher one may have been seen, its time may be over, or it was never signed."""
    releases = SignedReleases(PINNED, state)
    expected = releases.expected(update(), NOW, CHECKS)
    assert isinstance(expected, Manifest)
    assert expected.version == "2.0"
    assert list(tmp_path.iterdir()) == []
    assert releases.expected(update(signer=EVE), NOW, CHECKS) is None
    assert releases.expected(update(), expected.expires_at, CHECKS) is None
    releases.check(listing("2.1"), NOW, CHECKS)
    assert releases.expected(update(), NOW, CHECKS) is None
    assert SignedReleases(UNPINNED, state).expected(update(), NOW, CHECKS) is None
    assert SignedReleases(UNPINNED, state).check(listing(signer=EVE), NOW, CHECKS) == listing(signer=EVE)


@pytest.mark.parametrize("name", ["published_at", "expires_at"])
def test_a_manifest_without_an_instant_is_none(name):
    """Its text must be one in UTC."""
    header = signatures(ALICE.sign(payload := word(manifest_payload(**{name: "today"}))), payload=payload)
    assert judged(header) == NOT_A_RELEASE


# --- what a license covers (D-322) ------------------------------------------------------------------


def covered(version: str, signer=ALICE) -> Listing:
    """An offer beside a newer version that the license does not cover."""
    return replace(listing(version, signer=signer), latest_version="3.0")


def test_a_covered_version_may_be_below_what_another_license_was_offered(state, tmp_path):
    """The memory of all keys is not lowered by it: what names no newer version is a step back as before."""
    releases = SignedReleases(PINNED, state)
    releases.check(listing("3.0"), NOW, OTHERS)
    assert isinstance(releases.check(covered("1.9"), NOW, CHECKS), Listing)
    offered = replace(update("1.9"), latest_version="3.0")
    assert isinstance(releases.expected(offered, NOW, CHECKS), Manifest)
    assert highest(tmp_path) == "3.0"
    assert isinstance(releases.check(listing("1.9"), NOW, CHECKS), UntrustedResponseError)
    assert releases.expected(update("1.9"), NOW, CHECKS) is None


FIX = replace(covered("2.0"), is_security=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (covered("2.0"), covered("1.9")),
        (FIX, replace(covered("1.9"), is_security=True)),
        (covered("2.0"), listing("1.9")),
        (FIX, listing("1.9")),
        (listing("2.0"), listing("1.9")),
    ],
    ids=["covered", "security", "covered, then the newest", "security, then the newest", "the newest"],
)
def test_less_than_before_is_not_offered(state, before, after):
    """What is offered apart counts for the memory of all keys as well, so it cannot be bypassed."""
    releases = SignedReleases(PINNED, state)
    assert isinstance(releases.check(before, NOW, CHECKS), Listing)
    assert isinstance(releases.check(after, NOW, CHECKS), UntrustedResponseError)
    again = replace(update("1.9"), latest_version=after.latest_version, is_security=after.is_security)
    assert releases.expected(again, NOW, CHECKS) is None


@pytest.mark.parametrize("before", [listing("2.0"), covered("2.0")], ids=["the newest", "covered"])
def test_the_fix_of_an_older_line_is_offered_after_a_license_has_ended(state, before):
    """A higher version was offered while the license held, and was not installed."""
    releases = SignedReleases(PINNED, state)
    assert isinstance(releases.check(before, NOW, CHECKS), Listing)
    fix = replace(covered("1.4.3"), is_security=True)
    assert isinstance(releases.check(fix, NOW, CHECKS), Listing)


def test_each_key_has_a_memory_of_its_own(state):
    """A license that covers less than the one before it, on the same computer."""
    releases = SignedReleases(PINNED, state)
    assert isinstance(releases.check(covered("2.0"), NOW, OTHERS), Listing)
    assert isinstance(releases.check(covered("1.9"), NOW, CHECKS), Listing)


def test_what_is_covered_has_names_that_stay(state, monkeypatch):
    """A later version of the client must find them; and the same offer again costs no write."""
    releases = SignedReleases(PINNED, state)
    for offered, kind in (
        (covered("1.9"), "covered"),
        (replace(covered("1.4.3"), is_security=True), "security"),
    ):
        releases.check(offered, NOW, CHECKS)
        assert state.load(record_name("covered", CHECKS, kind))["version"] == offered.version
    monkeypatch.setattr(state, "change", None)
    assert isinstance(releases.check(covered("1.9"), NOW, CHECKS), Listing)


def test_a_covered_version_needs_a_signature_that_has_not_ended(state, tmp_path):
    """Like every other one; and what is not taken is not remembered."""
    releases = SignedReleases(PINNED, state)
    for wrong in (covered("1.9", signer=EVE), replace(covered("1.9"), manifest=None), covered("banana")):
        assert isinstance(releases.check(wrong, NOW, CHECKS), UntrustedResponseError)
    assert isinstance(releases.check(covered("1.9"), ENDS, CHECKS), UntrustedResponseError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("known", "version", "after"),
    [
        (None, "2.0", "2.0"),
        ("1.9", "2.0", "2.0"),
        ("2.0", "2.0", "2.0"),
        ("2.1", "2.0", "2.1"),
        ("banana", "2.0", "banana"),
    ],
)
def test_the_memory_of_all_keys_is_only_raised(known, version, after):
    """By versions that can be compared."""
    document = None if known is None else {"version": known, "signed_at": NOW.isoformat()}
    written = raise_highest(document, replace(SIGNED, version=version))
    assert written is not None
    assert written["version"] == after
    assert (written is document) == (after == known)
