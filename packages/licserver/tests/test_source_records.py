"""Events of shops as they are stored, and periods."""

from datetime import date

import pytest

from harness import shops
from licserver.sources.records import UnreadableDeliveryError, add_period, dump_events, is_period, load_events


def test_events_are_stored_and_loaded() -> None:
    """A stored event is the same when it is loaded."""
    events = shops.read("woocommerce", shops.woo("completed", refunds=[{"total": "-1"}])).events
    assert load_events(dump_events(events)) == events
    assert "paid_through" not in dump_events(events)  # of most events most fields are empty


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "^the body: "),
        (b'{"line_items": []}', "^id: Field required$"),
        (shops.woo(total="5 EUR"), "^total: "),
    ],
)
def test_the_error_names_the_first_field(body: bytes, message: str) -> None:
    """And not its value, which may be personal data."""
    with pytest.raises(UnreadableDeliveryError, match=message) as problem:
        shops.read("woocommerce", body)
    assert "EUR" not in str(problem.value)


@pytest.mark.parametrize(
    ("day", "period", "expected"),
    [
        (date(2026, 6, 15), "1y", date(2027, 6, 15)),
        (date(2028, 2, 29), "1y", date(2029, 2, 28)),
        (date(2026, 1, 31), "1m", date(2026, 2, 28)),
        (date(2026, 11, 30), "14m", date(2028, 1, 30)),
        (date(2026, 6, 15), "30d", date(2026, 7, 15)),
        (date(9999, 6, 15), "1y", date.max),
        (date(9999, 12, 15), "9999d", date.max),
    ],
)
def test_periods(day: date, period: str, expected: date) -> None:
    """A period is added by the calendar, and never beyond its last day."""
    assert add_period(day, period) == expected


def test_other_texts_are_no_periods() -> None:
    """Anything else is refused."""
    assert not any(map(is_period, ["", "1", "0d", "1w", "-1d", "1 y"]))
    with pytest.raises(ValueError, match="1w"):
        add_period(date(2026, 1, 1), "1w")


@pytest.mark.parametrize("year", [1969, 1970, 9990, 9991])
def test_a_sale_is_of_a_year_that_leaves_room_for_a_grace(year: int) -> None:
    """Nearer to the ends of time, a date with a grace or in another time zone would be no date."""
    body = shops.woo("completed", date_modified_gmt=f"{year}-06-30T12:00:00")
    if year in {1970, 9990}:
        assert [one.occurred_at.year for one in shops.read("woocommerce", body).events] == [year]
        return
    with pytest.raises(
        UnreadableDeliveryError, match=r"^date_modified_gmt: the year must be from 1970 to 9990$"
    ):
        shops.read("woocommerce", body)
