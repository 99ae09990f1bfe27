"""What is remembered, as bytes: what was written is read, and nothing else is (D-41)."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licclient import ClientSettings
from licclient._core import records as _records
from licclient._core.model import CachedLicense, Entitlements, Reason, Verified
from licclient._core.records import (
    SCHEMA,
    UPGRADES,
    find_flaw,
    folder_name,
    places_for,
    read_cached_license,
    read_instant,
    read_update_check,
    record_name,
    seal,
    unseal,
    write_cached_license,
    write_update_check,
)
from licclient._core.settings import read_settings
from licclient._core.update_model import Listing, UpdateCheckRecord

NAME = record_name("license", "https://store.example", "key", "domain")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
instants = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(texts, st.none() | st.dates(), instants, st.timedeltas(timedelta(0), timedelta(days=9)))
def test_a_success_survives_the_disk(product, expiry, checked_at, later):
    """What is written is what is read."""
    held = CachedLicense(Verified(product, expiry, expiry is None), checked_at, checked_at + later)
    assert read_cached_license(unseal(NAME, seal(NAME, write_cached_license(held)))) == held


@given(
    instants,
    st.floats(0, 0.1),
    st.booleans(),
    st.none() | st.builds(Listing, texts, texts, texts, texts, instants, st.none()),
    st.none() | instants,
)
def test_a_round_survives_the_disk(checked_at, spread, answered, listing, before):
    """What is written is what is read."""
    done = UpdateCheckRecord(checked_at, spread, answered, listing, answered_before=before)
    assert read_update_check(unseal(NAME, seal(NAME, write_update_check(done)))) == done


@given(st.binary(max_size=300))
def test_foreign_bytes_are_no_record(raw):
    """Nothing but what was sealed under this name is read."""
    assert unseal(NAME, raw) is None


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"schema": 1.0},
        {"product": 7},
        {"expiry": "2026-02-30"},
        {"lifetime": True},
        {"checked_at": "2026-11-21T12:00:00"},
        {"checked_at": "noon"},
        {"seen_at": "2026-11-20T12:00:00+00:00"},
    ],
)
def test_a_record_that_makes_no_sense_is_a_miss(change):
    """A sealed record of another schema, or one that contradicts itself, is not used."""
    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    document = {
        "schema": 1,
        **write_cached_license(CachedLicense(Verified("Notes", date(2027, 1, 1), lifetime=False), at, at)),
    }
    assert read_cached_license(unseal(NAME, seal(NAME, document))) is not None
    assert read_cached_license(unseal(NAME, seal(NAME, document | change))) is None


def test_a_record_of_the_schema_before_is_read_in_todays(monkeypatch):
    """Under the same name, so that no key and no id is lost when the schema is raised."""
    name = record_name("activation", "https://store.example")
    raw = seal(name, {"hint": "23"})
    monkeypatch.setattr(_records, "SCHEMA", 3)
    monkeypatch.setitem(UPGRADES, 1, lambda kind, document: {"kind": kind, "end": document["hint"]})
    monkeypatch.setitem(UPGRADES, 2, lambda _, document: {**document, "more": None})
    assert unseal(name, raw) == {"kind": "activation", "end": "23", "more": None, "schema": 3}
    assert record_name("activation", "https://store.example") == name


def test_names_tell_nothing_and_never_collide():
    """A name is a digest; moving text from one part to the next makes another name."""
    assert record_name("license", "ab", "c") != record_name("license", "a", "bc")
    assert "store" not in NAME
    assert NAME.replace("-", "").isalnum()


# --- to the letter ----------------------------------------------------------------------------

CONTENT = (
    b'{"checked_at": "2026-11-21T12:00:00+00:00", "expiry": "2027-01-01", "lifetime": false,'
    b' "product": "Notes", "schema": 1, "seen_at": "2026-11-21T13:00:00+00:00"}'
)


def sealed(content: bytes, name: str = NAME) -> bytes:
    """A record with a good sum over any content."""
    return sha256(name.encode() + b"\0" + content).hexdigest().encode() + b"\n" + content + b"\n"


def test_what_an_earlier_version_wrote_is_read():
    """Names and bytes are the same in all versions: an app that was updated need not ask again."""
    assert record_name("license", "https://store.example", "key", "domain") == NAME
    assert NAME == "license-603f0a8cfe2c2059b86f510d4518d045b930b6aa"
    held = CachedLicense(Verified("Notes", date(2027, 1, 1), lifetime=False), NOON, NOON + timedelta(hours=1))
    assert seal(NAME, write_cached_license(held)) == sealed(CONTENT)
    assert read_cached_license(unseal(NAME, sealed(CONTENT))) == held


NO_RECORDS = {
    "no end": sealed(CONTENT)[:-1],
    "two ends": sealed(CONTENT) + b"\n",
    "of another": sealed(CONTENT, "license-another"),
    "no JSON": sealed(b"{"),
    "no text": sealed(b"\xff"),
    "deep": sealed(b"[" * 100_000),
    "a list": sealed(b"[1]"),
    "newer": sealed(b'{"schema": 2}'),
    "bare": sealed(b"{}"),
    "empty": b"",
    "blank": b"\n",
}


@pytest.mark.parametrize("raw", NO_RECORDS.values(), ids=NO_RECORDS)
def test_what_is_no_record_of_this_name_and_schema_reads_as_nothing(raw):
    """Also with a good sum over it."""
    assert unseal(NAME, raw) is None


@pytest.mark.parametrize("field", ["product", "lifetime", "checked_at", "seen_at", "expiry"])
def test_a_success_lacks_nothing(field):
    """Each field is needed, and of its own type."""
    good = json.loads(CONTENT)
    assert read_cached_license(good) is not None
    assert read_cached_license({name: value for name, value in good.items() if name != field}) is None
    assert read_cached_license(good | {field: []}) is None
    assert read_cached_license(None) is None


def test_the_latest_instant_seen_may_be_the_first():
    """A success that was just confirmed; not one that was seen before it was confirmed."""
    good = json.loads(CONTENT)
    assert read_cached_license(good | {"seen_at": good["checked_at"]}) is not None
    assert read_cached_license(good | {"seen_at": "2026-11-21T11:59:59.999999+00:00"}) is None


LISTING = {
    "name": "Notes",
    "slug": "notes",
    "version": "2.0",
    "changelog": "Faster.",
    "last_updated": "2026-11-21T12:00:00+00:00",
    "manifest": "word",
}
ROUND = {"checked_at": "2026-11-21T12:00:00+00:00", "spread": 0.5, "answered": True, "listing": LISTING}


def test_what_a_trial_includes_survives_the_disk():
    """A success with everything that it may have."""
    granted = Entitlements({"export": True})
    held = CachedLicense(
        Verified("Notes", None, lifetime=True, entitlements=granted, is_trial=True), NOON, NOON
    )
    assert read_cached_license(write_cached_license(held)) == held


def test_a_check_is_read_with_its_offer_and_without_a_link():
    """All that an offer shows, and what the vendor signed of it; a whole number is a spread as well."""
    listing = Listing("Notes", "notes", "2.0", "Faster.", NOON, None, "word")
    assert read_update_check(ROUND) == UpdateCheckRecord(NOON, 0.5, answered=True, listing=listing)
    assert write_update_check(UpdateCheckRecord(NOON, 0.5, answered=True, listing=listing)) == ROUND
    of_use = replace(listing, is_critical=True, is_manual=True, channel="beta")
    done = UpdateCheckRecord(NOON, 0.5, answered=True, listing=of_use, minimum_version="1.5")
    assert read_update_check(write_update_check(done)) == done
    refused = UpdateCheckRecord(NOON, 0.5, answered=True, listing=None, refusal=(Reason.REVOKED, "Revoked."))
    assert read_update_check(write_update_check(refused)) == refused
    for spread in (0, 1):
        found = read_update_check(ROUND | {"spread": spread})
        assert found is not None
        assert type(found.spread) is float


@pytest.mark.parametrize("field", ROUND)
def test_a_check_that_makes_no_sense_is_a_miss(field):
    """It is due then."""
    assert read_update_check({name: value for name, value in ROUND.items() if name != field}) is None
    assert read_update_check(None) is None


@pytest.mark.parametrize(
    "change",
    [
        *({field: []} for field in (*ROUND, "minimum_version")),
        {"checked_at": "noon"},
        {"spread": -0.001},
        {"spread": 1.001},
        {"spread": float("nan")},
    ],
)
def test_a_check_of_wrong_values_is_a_miss(change):
    """Sealed by a person, or by another version."""
    assert read_update_check(ROUND | change) is None


@pytest.mark.parametrize("field", LISTING)
def test_an_offer_lacks_nothing(field):
    """Else the check is due; only what was signed may be missing."""
    incomplete = {name: value for name, value in LISTING.items() if name != field}
    assert (read_update_check(ROUND | {"listing": incomplete}) is None) == (field != "manifest")


@pytest.mark.parametrize(
    "change", [*({field: []} for field in (*LISTING, "channel")), {"last_updated": "yesterday"}]
)
def test_an_offer_of_wrong_values_is_a_miss(change):
    """With all of the check."""
    assert read_update_check(ROUND | {"listing": LISTING | change}) is None


def test_instants_have_a_zone_and_are_read_as_utc():
    """Whatever zone they were written in."""
    there = NOON.astimezone(timezone(timedelta(hours=-5)))
    found = read_instant(there.isoformat())
    assert found == NOON
    assert found is not None
    assert found.tzinfo is UTC
    assert [read_instant(text) for text in ("noon", "", "2026-11-21T12:00:00")] == [None] * 3


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:00-14:00"])
def test_an_instant_that_only_its_own_zone_can_tell_reads_as_nothing(text):
    """The first and the last day of all have no place in UTC."""
    assert read_instant(text) is None


def test_a_key_activated_before_the_app_named_its_product_is_found():
    """Under the name of its slug alone, in that folder of the vendor."""
    both = places_for(read_settings(ClientSettings("https://store.example", product="Notes", slug="notes")))
    before = places_for(read_settings(ClientSettings("https://store.example", slug="notes")))
    name = record_name("activation", "https://store.example", "", "notes")
    assert both.elsewhere[name] == before.app
    assert name not in before.elsewhere


def test_what_is_wrong_with_a_record_is_said_in_words():
    """One of a later version is not damaged, and is not to be thrown away."""
    good = seal(NAME, {})
    body = good.partition(b"\n")[2].replace(b'"schema": %d' % SCHEMA, b'"schema": %d' % (SCHEMA + 1)).strip()
    later = _records._sum(NAME, body) + b"\n" + body + b"\n"
    assert find_flaw(NAME, good) is None
    assert find_flaw(NAME, later) == "was written by a later version of this app"
    assert find_flaw(NAME, good[:-3]) == find_flaw("other", good) == "is damaged"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Photo Lab 2", "photo-lab-2"),
        ("../../etc", "etc"),
        ("nul", "_nul"),
        ("COM1.x", "_com1.x"),
        ("写真", "app-9c3250ff"),
        ("音楽", "app-14b31fd9"),
        ("Photo Läb", "photo-l-b-f49a00d5"),
        ("Photo La\u0308b", "photo-l-b-f49a00d5"),
        (".", "app-cdb4ee2a"),
        ("a" * 80, "a" * 60),
        ("[::1]:8080", "1-8080"),
    ],
)
def test_a_folders_name_is_one_that_every_file_system_takes(text, name):
    """No way up, no device of Windows, and not too long."""
    assert folder_name(text) == name
