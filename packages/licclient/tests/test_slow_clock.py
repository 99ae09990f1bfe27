"""A clock that is slow, in an app that pins keys: what was signed counts by the service's clock (D-116)."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.rules import settings
from stage.signing import SIGNER, Vendor

from licclient import License, Source, Trust
from licclient._core.model import CachedLicense, Verified
from licclient._core.policy import fall_back, from_cache, mark
from licclient._core.records import seal, unseal
from licclient._core.status import evaluate_status
from licclient.errors import ServiceUnavailableError

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
RULES = settings()


@given(
    st.lists(st.timedeltas(timedelta(days=-2), timedelta(days=6)), min_size=1, max_size=25),
    st.timedeltas(timedelta(0), timedelta(hours=24)),
)
def test_a_slow_clock_neither_shortens_nor_lengthens(moments, lag):
    """As long as it stays as slow as it was, it is as good as one that is right."""
    verified = Verified("Notes", date(2026, 11, 24), lifetime=False)
    right, slow = CachedLicense(verified, START, START), CachedLicense(verified, START, START, slow_by=lag)
    for moment in moments:
        at = START + moment
        right, slow = mark(right, at, RULES), mark(slow, at - lag, RULES)
        assert from_cache(slow, at - lag, RULES) == from_cache(right, at, RULES)
        assert slow.seen_at == right.seen_at


@given(
    st.none() | st.dates(date(2026, 11, 20), date(2026, 11, 26)),
    st.timedeltas(timedelta(0), timedelta(hours=24)),
    st.timedeltas(timedelta(hours=-3), timedelta(days=5)),
    st.timedeltas(timedelta(0), timedelta(minutes=4)),
    st.timedeltas(timedelta(0), timedelta(days=6)),
)
def test_what_the_status_promises_is_kept(expiry, lag, moment, ahead, wait):
    """The license holds without an answer until the one instant, and is asked for from the other on."""
    verified = Verified("Notes", expiry, lifetime=False)
    now = START - lag + moment
    seen_at = max(START, now + lag + ahead)
    held = CachedLicense(verified, START, seen_at, slow_by=lag)
    status = evaluate_status(held, None, now, RULES, key_hint=None, update=None)
    then = now + wait
    found = fall_back(ServiceUnavailableError(), held, then, RULES)
    if status.source is None:
        return
    assert status.days_left is None or status.days_left >= 0
    is_over = then >= status.grace_ends_at + timedelta(seconds=1)
    if then < status.grace_ends_at or is_over:
        assert isinstance(found, License) is not is_over
    if then >= max(now, seen_at - lag):
        assert (from_cache(held, then, RULES) is not None) is (then < status.next_check_at)


@given(st.timedeltas(timedelta(0), timedelta(hours=24)))
def test_a_slow_clock_changes_no_promise(lag):
    """What is shown differs from what a right clock shows by the lag, and so lies in the same instant."""
    held = CachedLicense(Verified("Notes", date(2026, 11, 24), lifetime=False), START, START)
    for hours in range(0, 96, 5):
        now = START + timedelta(hours=hours)
        right = evaluate_status(held, None, now, RULES, key_hint=None, update=None)
        slow = evaluate_status(held._replace(slow_by=lag), None, now - lag, RULES, key_hint=None, update=None)
        assert (slow.state, slow.source, slow.days_left) == (right.state, right.source, right.days_left)
        assert slow.next_check_at == right.next_check_at - lag
        assert slow.grace_ends_at == (right.grace_ends_at and right.grace_ends_at - lag)


@pytest.fixture
async def slow_record(make_client, service, http_answer, clock, key, tmp_path):
    """The file of what a service has signed whose clock is three hours ahead of ours."""
    vendor = Vendor(service, http_answer, type(clock)(), SIGNER)
    vendor.responds()
    clock.move(hours=-3)
    await make_client(trust=Trust(public_keys=[SIGNER.text])).activate(key)
    [path] = (tmp_path / "state").glob("signed-*")
    return path


async def test_what_was_signed_holds_through_cache_and_grace(make_client, service, clock, slow_record):
    """With a clock three hours slow, for as long as with one that is right."""
    pins = {"trust": Trust(public_keys=[SIGNER.text])}
    service.goes_down()
    for moved, source in ((23.8, Source.CACHE), (0.4, Source.GRACE), (71.6, Source.GRACE)):
        clock.move(hours=moved)
        assert (await make_client(**pins).verify()).source is source
    clock.move(hours=0.4)
    assert (await make_client(**pins).status()).source is None


@pytest.mark.parametrize("slow_by", [None, "7", -1, 86_401, 1e300, [], 0])
async def test_what_is_no_plausible_lag_is_none(make_client, clock, slow_record, slow_by):
    """Whoever edits it and redoes the sum gets no more than without it; a greater one ends all the sooner."""
    pins = {"trust": Trust(public_keys=[SIGNER.text])}

    def edit(value):
        document = dict(unseal(slow_record.stem, slow_record.read_bytes()))
        document["slow_by"] = value
        slow_record.write_bytes(seal(slow_record.stem, document))

    edit(slow_by)
    assert (await make_client(**pins).status()).source is None
    clock.move(hours=3)
    assert (await make_client(**pins).status()).source is Source.CACHE
    edit(86_400)
    clock.move(hours=1)
    assert (await make_client(**pins).status()).source is Source.GRACE
