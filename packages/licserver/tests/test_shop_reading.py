"""Bodies that cannot be read, and periods."""

from datetime import UTC, date, datetime

import pytest

from harness import shops
from licserver.shops import woocommerce
from licserver.shops.periods import add_period, is_period
from licserver.shops.reading import UnreadableDeliveryError, as_first, load, to_name, to_utc


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
        woocommerce.read({}, body)
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
        assert {fact.reported_at.year for fact in woocommerce.read({}, body).facts} == {year}
        return
    with pytest.raises(
        UnreadableDeliveryError, match=r"^date_modified_gmt: the year must be from 1970 to 9990$"
    ):
        woocommerce.read({}, body)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b'{"a": null, "b": "", "c": "0000-00-00 00:00:00", "d": 0, "e": false, "f": "x"}',
            {"d": 0, "e": False, "f": "x"},
        ),
        (b'{"a": {"b": null}, "c": [null, "", 1, {"d": null}], "e": []}', {"a": {}, "c": [1, {}], "e": []}),
        (b'[null, "2026-06-15"]', ["2026-06-15"]),
        (b"5", 5),
    ],
)
def test_what_is_null_or_empty_is_absent(body: bytes, expected: object) -> None:
    """In objects and lists, at any depth; what is false or zero is a value."""
    assert load(body) == expected


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5_000 + b"x"])
def test_what_is_no_json(body: bytes) -> None:
    """It is an error of the delivery."""
    with pytest.raises(UnreadableDeliveryError, match=r"^the body: Invalid JSON: "):
        load(body)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" a\tb\r\n c ", "a b c"),
        ("a\0b", "a b"),
        ("x" * 254 + " yz", "x" * 254),
        ("專業版" * 100, "專業版" * 85),
        ("", ""),
    ],
)
def test_names_are_lines(text: str, expected: str) -> None:
    """Of a length that can be mapped."""
    assert to_name(text) == expected


def test_an_instant_without_a_zone_is_utc() -> None:
    """And in another one it is the same instant."""
    noon = datetime(2026, 6, 15, 12, tzinfo=UTC)
    assert to_utc(datetime(2026, 6, 15, 12)) == noon  # noqa: DTZ001 - as a shop writes it
    assert to_utc(datetime.fromisoformat("2026-06-15T14:00:00+02:00")) == noon
    for year in (1969, 9991):
        with pytest.raises(ValueError, match="the year must be"):
            to_utc(datetime(year, 1, 1))  # noqa: DTZ001 - the same


def test_the_reading_of_the_event_that_has_made_an_object() -> None:
    """Of an event that reports nothing, the reason stays."""
    assert as_first("why") == "why"
