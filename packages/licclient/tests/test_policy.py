"""Every decision of the client, by tables and by whatever hypothesis makes up."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.rules import settings

from licclient import License, Outage, Reason, Source, Trust
from licclient._core.model import CachedLicense, Verified
from licclient._core.policy import (
    CLOCK_TOLERANCE,
    MARK_EVERY,
    CacheState,
    apply_response,
    begin_update_check,
    end_update_check,
    evaluate,
    fall_back,
    from_cache,
    holds_until,
    is_alike,
    is_below,
    is_check_due,
    is_link_good,
    is_newer,
    is_offer,
    is_version,
    later,
    mark,
    next_verify_at,
    unless_unreadable,
    wrong_product,
)
from licclient._core.proof import Proof
from licclient._core.update_model import Listing, Manifest, UpdateCheckRecord
from licclient.errors import (
    InvalidRequestError,
    LicenseRefusedError,
    NotActivatedError,
    ServiceUnavailableError,
    StateUnreadableError,
    UntrustedResponseError,
)

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
OUTAGE = ServiceUnavailableError("No answer.")
HOUR = timedelta(hours=1)


spans = st.timedeltas(timedelta(0), timedelta(days=400))
# Anywhere, and close to the ends of cache and grace, where it matters.
close = st.builds(
    lambda end, off: end + off,
    st.sampled_from([24 * HOUR, 96 * HOUR]),
    st.timedeltas(-0.2 * HOUR, 0.2 * HOUR),
)
readings = st.lists(st.timedeltas(timedelta(days=-10), timedelta(days=20)) | close, min_size=1, max_size=25)
products = st.sampled_from(["Notes", "Paint"])


def live(held, now, rules):
    """One verify without a server, as the client does it: mark, from_cache, else apply_response an outage."""
    held = mark(held, now, rules)
    known = from_cache(held, now, rules) or apply_response(OUTAGE, held, now, rules)[0]
    return held, known if isinstance(known, License) else None


@pytest.mark.slow
@given(readings, spans, spans, st.none() | st.dates(date(2026, 11, 20), date(2026, 12, 20)))
def test_no_license_after_its_end_by_any_clock(moments, cache_for, grace, expiry):
    """Whatever the clock shows in turn: never past cache and grace, never past the expiry day."""
    rules = settings(trust=Trust(cache_for=max(cache_for, 24 * HOUR), grace=grace))
    held = CachedLicense(Verified("Notes", expiry, expiry is None), START, START)
    for moment in moments:
        now = START + moment
        held, license_ = live(held, now, rules)
        if license_ is not None:
            assert now - START < rules.cache_for + rules.grace
            assert expiry is None or now.date() <= expiry
            assert (license_.source is Source.CACHE) == (max(now, held.seen_at) - START < rules.cache_for)


@given(readings)
def test_a_clock_set_back_never_extends(moments):
    """Once a moment past the end was seen, and not only guessed, no later reading brings the license back."""
    rules, latest = settings(), START
    held = CachedLicense(Verified("Notes", None, lifetime=False), START, START)
    for moment in moments:
        now = START + moment
        held, license_ = live(held, now, rules)
        latest = max(latest, now)
        if license_ is not None:
            assert latest - START < rules.cache_for + rules.grace
            assert now >= latest - CLOCK_TOLERANCE - MARK_EVERY


@given(readings)
def test_the_mark_never_goes_back_without_a_server(moments):
    """The latest instant seen only grows, and is never far behind what was really seen."""
    rules = settings()
    held = CachedLicense(Verified("Notes", None, lifetime=False), START, START)
    latest = START
    for moment in moments:
        after = mark(held, START + moment, rules)
        latest = max(latest, START + moment)
        assert after.seen_at >= held.seen_at
        assert latest - after.seen_at <= MARK_EVERY
        held = after


@given(products, products, st.timedeltas(timedelta(0), timedelta(days=10)))
def test_a_license_is_always_for_the_expected_product(cached, expected, later):
    """Neither cache nor grace nor server passes off another product (D-44)."""
    rules = settings(product=expected)
    held = CachedLicense(Verified(cached, None, lifetime=True), START, START)
    now = START + later
    results = [
        from_cache(held, now, rules),
        apply_response(OUTAGE, held, now, rules)[0],
        apply_response(Verified(cached, None, lifetime=True), None, now, rules)[0],
    ]
    for result in results:
        if isinstance(result, License):
            assert result.product == expected
    if cached != expected:
        assert isinstance(results[2], LicenseRefusedError)
        assert results[2].reason is Reason.OTHER_PRODUCT


def test_a_success_resets_the_latest_instant_seen():
    """After the server's word a clock that had been ahead counts from now (D-43)."""
    ahead = CachedLicense(Verified("Notes", None, lifetime=False), START, START + timedelta(days=99))
    _, kept = apply_response(Verified("Notes", None, lifetime=False), ahead, START + HOUR, settings())
    assert kept == CachedLicense(Verified("Notes", None, lifetime=False), START + HOUR, START + HOUR)


# --- to the very instant ----------------------------------------------------------------------

TICK = timedelta(microseconds=1)
LAST_DAY = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "expiry", "standing"),
    [
        (START - CLOCK_TOLERANCE - TICK, None, CacheState.CLOCK_SET_BACK),
        (START - CLOCK_TOLERANCE, None, CacheState.FRESH),
        (START + 24 * HOUR - TICK, None, CacheState.FRESH),
        (START + 24 * HOUR, None, CacheState.GRACE),
        (START + 96 * HOUR - TICK, None, CacheState.GRACE),
        (START + 96 * HOUR, None, CacheState.OVER),
        (LAST_DAY + 11 * HOUR, LAST_DAY.date(), CacheState.FRESH),
        (LAST_DAY + 24 * HOUR - TICK, LAST_DAY.date(), CacheState.GRACE),
        (LAST_DAY + 24 * HOUR, LAST_DAY.date(), CacheState.OVER),
    ],
)
def test_each_end_is_where_it_is(now, expiry, standing):
    """Cache, grace, the key's own day and the tolerance of clocks, on both sides of each (D-41 to D-43)."""
    held = CachedLicense(Verified("Notes", expiry, lifetime=False), START, START)
    assert evaluate(held, now, settings()) is standing


def test_within_the_tolerance_the_latest_instant_seen_counts():
    """A clock that is a little behind brings nothing back."""
    held = CachedLicense(Verified("Notes", None, lifetime=False), START, START + 24 * HOUR)
    assert evaluate(held, START + 24 * HOUR - TICK, settings()) is CacheState.GRACE


@pytest.mark.parametrize(
    ("later", "moves"),
    [(timedelta(0), False), (-HOUR, False), (MARK_EVERY, False), (MARK_EVERY + TICK, True)],
)
def test_the_mark_moves_when_it_is_worth_a_write(later, moves):
    """After five minutes, and not before."""
    held = CachedLicense(Verified("Notes", None, lifetime=False), START, START)
    assert mark(held, START + later, settings()) == (held._replace(seen_at=START + later) if moves else held)


def test_the_mark_moves_when_an_end_was_crossed():
    """However little the clock has moved."""
    held = CachedLicense(Verified("Notes", None, lifetime=False), START, START + 24 * HOUR - TICK)
    assert mark(held, START + 24 * HOUR, settings()).seen_at == START + 24 * HOUR


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (START + 96 * HOUR, "No answer. The last confirmed license has run out."),
        (START - HOUR, "No answer. The clock of this computer has been set back."),
    ],
)
def test_an_outage_says_why_nothing_holds(now, words):
    """The error describes what became of the license that was remembered, and this stays remembered."""
    held = CachedLicense(Verified("Notes", None, lifetime=False), START, START)
    result, kept = apply_response(OUTAGE, held, now, settings())
    assert (str(result), kept) == (words, held)
    assert apply_response(OUTAGE, None, now, settings())[0] is OUTAGE
    assert apply_response(OUTAGE, held, START, settings(product="Paint"))[0] is OUTAGE


def test_each_answer_leaves_what_it_should():
    """A refusal forgets; another product, a malformed call and a forger do not; a success says all."""
    held = CachedLicense(Verified("Notes", None, lifetime=False), START, START)
    no = LicenseRefusedError(Reason.REVOKED, "Gone.")
    assert apply_response(no, held, START, settings()) == (no, None)
    for answer in (InvalidRequestError({}), UntrustedResponseError("Who?")):
        assert apply_response(answer, held, START, settings()) == (answer, held)
    other, kept = apply_response(
        Verified("Notes", None, lifetime=False), held, START, settings(product="Paint")
    )
    assert (str(other), kept) == ("This license is for Notes, not for Paint.", held)
    granted, kept = apply_response(
        Verified("Notes", LAST_DAY.date(), lifetime=False), None, START, settings()
    )
    assert granted == License("Notes", LAST_DAY.date(), False, START, Source.SERVER, False)  # noqa: FBT003
    assert from_cache(kept, START, settings()) == replace(granted, source=Source.CACHE)
    late = apply_response(OUTAGE, kept, START + 30 * HOUR, settings())[0]
    assert late == replace(granted, source=Source.GRACE)
    early = apply_response(OUTAGE, kept, START + HOUR, settings())[0]
    assert early == replace(granted, source=Source.CACHE)


@pytest.mark.parametrize(
    ("behind", "seen", "slow_by"), [(HOUR, HOUR, timedelta(0)), (-HOUR, timedelta(0), HOUR)]
)
def test_a_signed_success_counts_from_its_signature(behind, seen, slow_by):
    """Confirmed by the service's clock, never seen before that; a slow clock's lag is kept (D-63, D-116)."""
    proof = Proof("192.0.2.1", {}, b"", START)
    verified = Verified("Notes", None, lifetime=True, proof=proof)
    result, kept = apply_response(verified, None, START + behind, settings())
    assert kept == CachedLicense(verified, START, START + seen, slow_by)
    assert result.is_authenticated


def test_when_a_success_is_confirmed_next_and_until_when_it_holds():
    """After the cache; through cache and grace, and never past its last day (D-41)."""
    held = CachedLicense(Verified("Notes", None, lifetime=False), START, START)
    assert next_verify_at(held, settings()) == START + 24 * HOUR
    for expiry, end in [
        (None, START + 96 * HOUR),
        (date(2026, 12, 24), START + 96 * HOUR),
        (LAST_DAY.date(), datetime(2026, 11, 22, 23, 59, 59, tzinfo=UTC)),
    ]:
        assert holds_until(held._replace(verified=held.verified._replace(expiry=expiry)), settings()) == end
    last = datetime.max.replace(tzinfo=UTC)
    assert (later(last - HOUR, HOUR), later(last, HOUR)) == (last, last)


def test_a_key_that_has_become_another_products_is_forgotten():
    """The service's newest word counts: what was remembered for this app no longer holds (D-44)."""
    held = CachedLicense(Verified("Notes", None, lifetime=False), START, START)
    rules = settings(product="Notes")
    refused, kept = apply_response(Verified("Paint", None, lifetime=False), held, START, rules)
    assert (refused.reason, kept) == (Reason.OTHER_PRODUCT, None)


# --- cadence ----------------------------------------------------------------------------------


NOT_NEWER = LicenseRefusedError(Reason.NO_VERSION, "Nothing is published.")


@given(st.floats(0, 1), st.timedeltas(timedelta(days=-3), timedelta(days=3)))
def test_checks_are_due_by_the_clock(spread, later):
    """Not within twelve hours, always after thirteen and a bit or when the last lies in the future (D-46)."""
    last = replace(begin_update_check(None, START, spread), answered=True)
    due = is_check_due(last, START + later, settings())
    if -CLOCK_TOLERANCE <= later < 12 * HOUR:
        assert not due
    if later < -CLOCK_TOLERANCE or later >= 13.2 * HOUR:
        assert due


@given(
    st.floats(0, 1),
    st.timedeltas(timedelta(days=-3), timedelta(days=3)),
    st.none() | st.timedeltas(timedelta(hours=-1), timedelta(days=3)),
)
def test_an_attempt_without_an_answer_counts_for_less_than_an_hour(spread, later, answered_before):
    """Never within half an hour, and never within the twelve hours of an answer before it (D-50)."""
    answered = None if answered_before is None else begin_update_check(None, START - answered_before, spread)
    last = begin_update_check(answered and end_update_check(answered, NOT_NEWER), START, spread)
    due = is_check_due(last, START + later, settings())
    is_ahead = later < -CLOCK_TOLERANCE
    knows = answered_before is not None and answered_before + later >= -CLOCK_TOLERANCE
    if not is_ahead and (later < HOUR / 2 or (knows and later + answered_before < 12 * HOUR)):
        assert not due
    if is_ahead or (later >= HOUR and not (knows and later + answered_before < 13.2 * HOUR)):
        assert due


@pytest.mark.parametrize(
    ("spread", "later", "due"),
    [
        (1, -CLOCK_TOLERANCE - TICK, True),
        (1, -CLOCK_TOLERANCE, False),
        (1, 13.2 * HOUR - TICK, False),
        (1, 13.2 * HOUR, True),
        (0, 12 * HOUR - TICK, False),
        (0, 12 * HOUR, True),
    ],
)
def test_a_check_is_due_to_the_instant(spread, later, due):
    """A tenth of the wait is the most that is added, and five minutes the most that a clock may be behind."""
    last = begin_update_check(None, START, spread)
    assert last == UpdateCheckRecord(START, 0.1 * spread, answered=False, listing=None)
    assert is_check_due(end_update_check(last, NOT_NEWER), START + later, settings()) is due


@pytest.mark.parametrize(
    ("spread", "later", "due"),
    [
        (0, HOUR / 2 - TICK, False),
        (0, HOUR / 2, True),
        (1, HOUR - TICK, False),
        (1, HOUR, True),
        (1, -CLOCK_TOLERANCE - TICK, True),
    ],
)
def test_an_unanswered_check_is_due_to_the_instant(spread, later, due):
    """Half an hour later, and up to as much again, so that not all of a fleet come back at once."""
    last = end_update_check(begin_update_check(None, START, spread), ServiceUnavailableError())
    assert is_check_due(last, START + later, settings()) is due
    assert is_check_due(None, START, settings())


@pytest.mark.parametrize(
    ("installed", "offered", "newer"),
    [
        ("1.0", "1.0", False),
        ("1.0", "1.0.0", False),
        ("1.9", "1.10", True),
        ("2.0", "1.9", False),
        ("1.0", "1.1rc1", False),
        ("1.1rc1", "1.1rc2", True),
        ("1.1rc1", "1.1", True),
        ("1.0", "1.0.post1", True),
        ("1.0", "banana", False),
        ("banana", "1.0", False),
        ("1.0", "9" * 256, True),
        ("1.0", "9" * 257, False),  # longer than any version: not read
        ("9" * 5000, "1.0", False),  # Python refuses to read such numbers, with an error of its own
    ],
    ids=range(13),
)
def test_newer_is_what_pep_440_calls_newer(installed, offered, newer):
    """Unreadable versions are never offered, pre-releases only where one is installed (D-47)."""
    assert is_newer(offered, installed) is newer
    link = replace(LISTING, version=offered)
    assert is_offer(link, installed) is newer
    assert not is_offer(replace(link, download_url=None), installed)


@pytest.mark.parametrize(("text", "is_one"), [("1.0", True), ("2024 Spring", False), ("", False)])
def test_a_version_can_be_compared_or_not(text, is_one):
    """By PEP 440, like everything else about versions."""
    assert is_version(text) is is_one


VOUCHED = Manifest("notes", "2.0", 1, "0" * 64, START, START)
LISTING = Listing("Notes", "notes", "2.0", "", START, "https://x.example/f", "word", VOUCHED)


@pytest.mark.parametrize(
    ("answer", "answered", "kept"),
    [
        (LISTING, True, "2.0"),
        (Listing("Notes", "notes", "2.0", "", START, None), True, None),
        (Listing("Notes", "notes", "0.9", "", START, "https://x.example/f"), True, "0.9"),
        (LicenseRefusedError(Reason.OTHER, "No."), True, None),
        (InvalidRequestError({}), True, "1.5"),
        (OUTAGE, False, "1.5"),
    ],
)
def test_what_is_remembered_of_a_check(answer, answered, kept):
    """What can be had replaces, a no forgets, an outage keeps; the link is never kept."""
    before = UpdateCheckRecord(
        START, 0.0, answered=True, listing=Listing("Notes", "notes", "1.5", "", START, None)
    )
    after = end_update_check(begin_update_check(before, START + HOUR, 0.5), answer)
    assert after.answered is answered
    assert (after.listing and after.listing.version) == kept
    assert after.listing is None or (after.listing.download_url, after.listing.signed) == (None, None)
    assert (after.checked_at, after.spread) == (START + HOUR, 0.05)
    assert after.answered_at == (START + HOUR if answered else START)


@given(st.text(max_size=8), st.text(max_size=8))
def test_any_two_versions_can_be_compared(offered, installed):
    """No text makes the comparison crash, and nothing is newer than itself."""
    assert is_newer(offered, installed) in (True, False)
    assert not is_newer(offered, offered)


@pytest.mark.parametrize(("minutes", "good"), [(0, True), (54, True), (55, False), (-1, False)])
def test_a_link_is_good_for_most_of_its_hour(minutes, good):
    """55 of 60 minutes, and not at all by a clock that went backwards (D-48)."""
    assert is_link_good(START, START + timedelta(minutes=minutes)) is good
    assert not is_link_good(None, START)


@pytest.mark.parametrize(
    ("version", "other", "expected"),
    [
        ("1.9", "1.10", True),
        ("1.10", "1.10.0", False),
        ("2.0b1", "2.0", True),
        ("1.0", None, False),
        ("banana", "1.0", False),
        ("1.0", "9" * 5_000, False),
        ("9" * 5_000, "1.0", False),
    ],
)
def test_versions_below_another_one(version, other, expected):
    """Pre-releases count like others, and what cannot be read is below nothing."""
    assert is_below(version, other) is expected


def test_another_error_than_an_outage_becomes_one_after_the_grace_period():
    """Such as a keyring's: the license has run out, and no reason of the network is known."""
    held = CachedLicense(Verified("Notes", None, lifetime=True), START, START)
    failure = fall_back(NotActivatedError(), held, START + timedelta(days=30), settings())
    assert isinstance(failure, ServiceUnavailableError)
    assert (failure.outage, failure.retry_after) == (Outage.UNREACHABLE, None)


@pytest.mark.parametrize("failure", [UntrustedResponseError("x"), ServiceUnavailableError("x", 7)])
def test_what_ended_the_last_license_is_added_to_the_failure(failure):
    """Also to one that is no outage; the time to wait stays."""
    verified = Verified("Notes", None, lifetime=False)
    over = CachedLicense(verified, START - timedelta(days=400), START)
    error = fall_back(failure, over, START, settings())
    assert isinstance(error, ServiceUnavailableError)
    assert str(error) == "x The last confirmed license has run out."
    assert error.retry_after == getattr(failure, "retry_after", None)


def test_an_outage_gives_way_to_a_success_that_cannot_be_read():
    """It might hold; an answer of the server stands."""
    problem, refused = StateUnreadableError("Permission denied"), LicenseRefusedError(Reason.REVOKED, "")
    assert unless_unreadable(OUTAGE, problem) is problem
    assert unless_unreadable(OUTAGE, None) is OUTAGE
    assert unless_unreadable(refused, problem) is refused


@pytest.mark.parametrize(
    ("product", "other", "alike"),
    [
        ("Notes Pro", "Notes", True),
        ("Notes Pro", "notes-pro", True),
        ("Photo Studio", "Poto Stduio", True),
        ("Notes", "Paint", False),
        ("Notes" * 100, "Notes", False),
    ],
)
def test_names_that_may_be_a_slip(product, other, alike):
    """A developer finds the slip by the message; another product is not called one."""
    assert is_alike(product, other) is alike
    refusal = wrong_product(product, settings(product=other))
    assert ("the app passes its name wrongly" in refusal.message) is alike
