"""The highest version that was found to be signed, as it is remembered on the disk (D-68)."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from stage.releases import ALICE, EVE, document, word
from stage.rules import settings

from licclient import UntrustedResponseError, Update
from licclient._model import Listing, Manifest
from licclient._records import record_name, unseal
from licclient._signatures.releases import SignedReleases
from licclient._storage import StateFolder

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SERVER = "https://x.example"
PINNED, UNPINNED = settings(SERVER, release_keys=[ALICE.pin]), settings(SERVER)


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
    vouched = releases.check(listing(), NOW)
    assert vouched == replace(listing(), vouched=vouched.vouched)
    assert (vouched.vouched.version, vouched.vouched.slug) == ("2.0", "notes")
    assert highest(tmp_path) == "2.0"
    assert isinstance(releases.check(listing("2.1"), NOW), Listing)
    assert highest(tmp_path) == "2.1"
    assert isinstance(releases.check(listing("1.0", "paint"), NOW), Listing)
    assert (highest(tmp_path), highest(tmp_path, "paint")) == ("2.1", "1.0")


@pytest.mark.parametrize(
    "offered", [listing("1.9"), listing("3.0", signer=EVE), replace(listing(), manifest=None)]
)
def test_what_is_not_taken_changes_nothing(state, tmp_path, offered):
    """Neither a step back nor what nobody signed."""
    releases = SignedReleases(PINNED, state)
    releases.check(listing(), NOW)
    assert isinstance(releases.check(offered, NOW), UntrustedResponseError)
    assert highest(tmp_path) == "2.0"


def test_the_same_version_again_costs_no_write(state, monkeypatch):
    """Nobody waits for the lock when there is nothing to remember."""
    releases = SignedReleases(PINNED, state)
    releases.check(listing(), NOW)
    monkeypatch.setattr(state, "change", None)
    assert isinstance(releases.check(listing(), NOW), Listing)


def test_without_pins_nothing_is_judged(state, tmp_path):
    """The answer is passed on as it is."""
    offered = listing(signer=EVE)
    assert SignedReleases(UNPINNED, state).check(offered, NOW) is offered
    assert list(tmp_path.iterdir()) == []


def test_what_another_process_has_seen_meanwhile_counts():
    """Two processes check at once: the one that learns of the higher version first is not forgotten."""

    class Racing:
        """A state that another process changes between our look at it and our lock."""

        def load(self, name) -> None:
            """Nothing yet."""

        def change(self, name, edit):
            """By now it is there, and stays."""
            assert name == record_name("release", SERVER, "notes")
            held = {"version": "3.0"}
            assert edit(held) is held

    assert isinstance(SignedReleases(PINNED, Racing()).check(listing(), NOW), UntrustedResponseError)


def update(version: str = "2.0", signer=ALICE) -> Update:
    """What an app hands back to have it downloaded."""
    manifest = listing(version, signer=signer).manifest
    return Update("Notes", "notes", version, "", NOW, "key", manifest=manifest)


def test_what_is_to_be_downloaded_is_judged_again(state, tmp_path):
    """By now a higher one may have been seen, its time may be over, or it was never signed."""
    releases = SignedReleases(PINNED, state)
    expected = releases.expected(update(), NOW)
    assert isinstance(expected, Manifest)
    assert expected.version == "2.0"
    assert list(tmp_path.iterdir()) == []
    assert releases.expected(update(signer=EVE), NOW) is None
    assert releases.expected(update(), expected.expires_at) is None
    releases.check(listing("2.1"), NOW)
    assert releases.expected(update(), NOW) is None
    assert SignedReleases(UNPINNED, state).expected(update(), NOW) is None
