"""The difference between what a shop wants and what is; a person may have changed what is."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licserver.shops.changes import (
    DISPUTED,
    REFUNDED,
    REVOKED,
    TERMS,
    ActualState,
    Applied,
    DesiredState,
    assume_applied,
    find_change,
    find_end,
)

MAPPED = {
    "slots": 3,
    "lifetime": False,
    "expires_on": date(2027, 6, 15),
    "support_until": None,
    "plan": "basic",
    "floating_seats": None,
}
MORE = {**MAPPED, "slots": 50, "plan": "team"}
ISSUED = Applied(item="price_1", terms=MAPPED)
reasons = st.sampled_from([None, REFUNDED, DISPUTED])
terms = st.fixed_dictionaries({name: st.sampled_from([value, None]) for name, value in MORE.items()})
states = st.tuples(st.booleans(), st.sampled_from([None, REFUNDED, DISPUTED, "fraud"])).filter(
    lambda state: state[0] or state[1] is None
)


def wanted(values=MAPPED, revoked=None, *, ends=False):
    """What a shop wants."""
    return DesiredState("price_1", values, ends, revoked)


def carry_out(change, actual):
    """Do what is to be done, as the service does."""
    new = {**actual.terms, **change.terms}
    if change.revoked_reason is not None:
        assert not actual.is_revoked
        return ActualState(new, is_revoked=True, revoked_reason=change.revoked_reason)
    if change.reinstate:
        assert actual.is_revoked
        return ActualState(new)
    return ActualState(new, actual.is_revoked, actual.revoked_reason)


def step(actual, applied, values, revoked=None):
    """Bring a license to what is wanted; returns what it is, and what was applied."""
    change = find_change(wanted(values, revoked), actual, applied)
    return carry_out(change, actual), change.applied


@given(values=terms, revoked=reasons, was=st.tuples(terms, reasons))
def test_a_license_that_nobody_has_touched_becomes_what_is_wanted(values, revoked, was):
    """Whatever it was before; a second time nothing is left to do."""
    actual, applied = step(ActualState(MAPPED), ISSUED, *was)
    actual, applied = step(actual, applied, values, revoked)
    assert (actual.terms, actual.is_revoked) == (values, revoked is not None)
    again = find_change(wanted(values, revoked), actual, applied)
    assert (again.terms, again.revoked_reason, again.reinstate, again.applied) == ({}, None, False, applied)


@given(name=st.sampled_from(TERMS), history=st.lists(terms, max_size=4))
def test_a_term_that_a_person_has_changed_stays(name, history):
    """However often the shop wants another one; the others follow, and what was left is noted."""
    chosen = "by hand"
    actual, applied = ActualState({**MAPPED, name: chosen}), ISSUED
    for values in [*history, MORE]:
        actual, applied = step(actual, applied, values)
        assert actual.terms == {**values, name: chosen}
    if any(step_[name] != MAPPED[name] for step_ in [*history, MORE]):
        assert applied.kept.get(name, MORE[name]) == MORE[name]


def test_what_was_left_is_noted_until_it_is_what_the_shop_wants():
    """The page of the license reads it."""
    actual, applied = step(ActualState({**MAPPED, "slots": 7}), ISSUED, MORE)
    assert applied.kept == {"slots": 50}
    actual, applied = step(ActualState({**actual.terms, "slots": 50}), applied, MORE)
    assert applied.kept == {}


def test_terms_that_are_not_known_stay():
    """A line that no report describes any more."""
    change = find_change(DesiredState(None, None), ActualState(MORE), ISSUED)
    assert (change.terms, change.applied) == ({}, ISSUED)


def test_the_day_of_a_mapping_goes_with_a_subscription():
    """Once its end is known; not a day that a person has chosen."""
    change = find_change(
        DesiredState("price_1", None, ends_with_subscription=True), ActualState(MAPPED), ISSUED
    )
    assert change.terms == {"expires_on": None}
    chosen = ActualState({**MAPPED, "expires_on": date(2026, 9, 1)})
    change = find_change(DesiredState("price_1", None, ends_with_subscription=True), chosen, ISSUED)
    assert (change.terms, change.applied.kept) == ({}, {"expires_on": None})
    without = find_change(
        DesiredState("price_1", None, ends_with_subscription=True),
        chosen,
        Applied(item="price_1", terms={**MAPPED, "expires_on": None}),
    )
    assert (without.terms, without.applied.kept) == ({}, {})  # the shop wants no end: no other day is refused


@given(first=reasons, second=reasons)
def test_a_revocation_by_a_person_stays(first, second):
    """Whatever the shop reports afterwards, and whatever it takes back."""
    actual, applied = ActualState(MAPPED, is_revoked=True, revoked_reason="fraud"), ISSUED
    for revoked in (first, second, None):
        actual, applied = step(actual, applied, MAPPED, revoked)
        assert (actual.is_revoked, actual.revoked_reason) == (True, "fraud")


@given(first=st.sampled_from([REFUNDED, DISPUTED]))
def test_a_license_that_a_person_has_reinstated_stays_valid(first):
    """As long as the shop reports nothing else; a new reason revokes it again."""
    _, applied = step(ActualState(MAPPED), ISSUED, MAPPED, first)
    actual = ActualState(MAPPED)
    for _ in range(2):
        actual, applied = step(actual, applied, MAPPED, first)
        assert not actual.is_revoked
        assert applied.kept == {REVOKED: first}
    other = DISPUTED if first == REFUNDED else REFUNDED
    actual, applied = step(actual, applied, MAPPED, other)
    assert (actual.is_revoked, actual.revoked_reason, applied.kept) == (True, other, {})
    actual, applied = step(actual, applied, MAPPED)
    assert not actual.is_revoked


def test_each_refund_revokes_though_an_earlier_one_failed():
    """The person has reinstated nothing: the shop has."""
    actual, applied = step(ActualState(MAPPED), ISSUED, MAPPED, REFUNDED)
    actual, applied = step(actual, applied, MAPPED)
    assert not actual.is_revoked
    actual, applied = step(actual, applied, MAPPED, REFUNDED)
    assert (actual.is_revoked, actual.revoked_reason, applied.kept) == (True, REFUNDED, {})


def test_a_license_stays_valid_that_was_reinstated_after_two_reasons():
    """A dispute, then a refund, and a person who lets the customer keep the license all the same."""
    actual, applied = step(ActualState(MAPPED), ISSUED, MAPPED, DISPUTED)
    actual, applied = step(actual, applied, MAPPED, REFUNDED)
    assert (actual.revoked_reason, applied.desired_reason, applied.revoked_reason) == (
        DISPUTED,
        REFUNDED,
        DISPUTED,
    )
    actual, applied = step(ActualState(MAPPED), applied, MAPPED, REFUNDED)
    assert (actual.is_revoked, applied.kept) == (False, {REVOKED: REFUNDED})


@pytest.mark.parametrize("shop_reinstates", [True, False])
def test_a_person_may_revoke_in_the_shops_own_words(shop_reinstates):
    """After the license was valid again, that is the person's revocation, whatever the shop takes back."""
    _, applied = step(ActualState(MAPPED), ISSUED, MAPPED, REFUNDED)
    if shop_reinstates:
        _, applied = step(ActualState(MAPPED, is_revoked=True, revoked_reason=REFUNDED), applied, MAPPED)
    else:
        _, applied = step(ActualState(MAPPED), applied, MAPPED, REFUNDED)
    actual, applied = step(
        ActualState(MAPPED, is_revoked=True, revoked_reason=REFUNDED), applied, MAPPED, REFUNDED
    )
    actual, applied = step(actual, applied, MAPPED)
    assert (actual.is_revoked, actual.revoked_reason) == (True, REFUNDED)


def test_what_a_license_is_for_now_is_kept():
    """And what it was for last, where no report describes that any more."""
    change = find_change(DesiredState("price_2", MORE), ActualState(MAPPED), ISSUED)
    assert change.applied.item == "price_2"
    assert find_change(DesiredState(None, None), ActualState(MORE), change.applied).applied.item == "price_2"


@given(state=states, revoked=reasons)
def test_what_an_earlier_version_has_set_is_assumed(state, revoked):
    """A revocation with one of the source's reasons was the source's, and any other a person's."""
    actual = ActualState(MAPPED, *state)
    applied = assume_applied(actual, revoked, is_end_chosen=False)
    assert applied.terms == MAPPED
    after, _ = step(actual, applied, MAPPED)
    assert after.is_revoked is (state[0] and state[1] not in {REFUNDED, DISPUTED})
    kept, _ = step(actual, applied, MAPPED, revoked)
    if revoked is not None:  # it was so then: what it is now, a person has decided
        assert kept.is_revoked is state[0]


def test_a_day_that_a_person_has_chosen_is_not_assumed():
    """The audit log has it."""
    applied = assume_applied(ActualState(MAPPED), None, is_end_chosen=True)
    change = find_change(DesiredState(None, None, ends_with_subscription=True), ActualState(MAPPED), applied)
    assert (change.terms, change.applied.kept) == ({}, {"expires_on": None})


NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("wants", "actual", "applied", "sets", "kept"),
    [
        (NOW, None, None, NOW, False),  # nothing was set yet
        (NOW, NOW, NOW, None, False),
        (NOW + DAY, NOW, NOW, NOW + DAY, False),
        (NOW - DAY, NOW, NOW, NOW - DAY, False),
        (None, NOW, NOW, None, False),  # it is not known
        (NOW + DAY, NOW + 9 * DAY, NOW, None, True),  # put off by a person
        (NOW + 10 * DAY, NOW + 9 * DAY, NOW, NOW + 10 * DAY, False),  # and paid for longer
        (NOW + DAY, NOW - DAY, NOW, None, True),  # ended by a person
        (NOW + DAY, None, NOW, None, True),  # resumed by a person
    ],
)
def test_the_end_of_a_subscription(wants, actual, applied, sets, kept):
    """It follows the shop, but for what a person has set."""
    assert find_end(wants, actual, applied, is_applied=applied is not None) == (sets, kept)
