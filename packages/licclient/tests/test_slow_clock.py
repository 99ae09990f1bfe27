"""A clock that is slow, in an app that pins keys: what was signed counts by the service's clock (D-116)."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.rules import settings
from stage.signing import SIGNER, Vendor

from licclient import Source
from licclient._model import Held, Verified
from licclient._policy import mark, recall
from licclient._records import seal, unseal

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
RULES = settings()


@given(
    st.lists(st.timedeltas(timedelta(days=-2), timedelta(days=6)), min_size=1, max_size=25),
    st.timedeltas(timedelta(0), timedelta(hours=24)),
)
def test_a_slow_clock_neither_shortens_nor_lengthens(moments, lag):
    """As long as it stays as slow as it was, it is as good as one that is right."""
    verified = Verified("Notes", date(2026, 11, 24), lifetime=False)
    right, slow = Held(verified, START, START), Held(verified, START, START, slow_by=lag)
    for moment in moments:
        at = START + moment
        right, slow = mark(right, at, RULES), mark(slow, at - lag, RULES)
        assert recall(slow, at - lag, RULES) == recall(right, at, RULES)
        assert slow.seen_at == right.seen_at


@pytest.fixture
async def slow_record(make_client, service, http_answer, clock, key, tmp_path):
    """The file of what a service has signed whose clock is three hours ahead of ours."""
    vendor = Vendor(service, http_answer, type(clock)(), SIGNER)
    vendor.responds()
    clock.move(hours=-3)
    await make_client(public_keys=[SIGNER.text]).activate(key)
    [path] = (tmp_path / "state").glob("signed-*")
    return path


async def test_what_was_signed_holds_through_cache_and_grace(make_client, service, clock, slow_record):
    """With a clock three hours slow, for as long as with one that is right."""
    pins = {"public_keys": [SIGNER.text]}
    service.goes_down()
    for moved, source in ((23.8, Source.CACHE), (0.4, Source.GRACE), (71.6, Source.GRACE)):
        clock.move(hours=moved)
        assert (await make_client(**pins).verify()).source is source
    clock.move(hours=0.4)
    assert (await make_client(**pins).status()).source is None


@pytest.mark.parametrize("slow_by", [None, "7", -1, 86_401, 1e300, [], 0])
async def test_what_is_no_plausible_lag_is_none(make_client, clock, slow_record, slow_by):
    """Whoever edits it and redoes the sum gets no more than without it; a greater one ends all the sooner."""
    pins = {"public_keys": [SIGNER.text]}

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
