"""Periods as vendors write them: `30d`, `6m`, `1y`."""

import calendar
import re
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from typing import Final

_PERIOD: Final = re.compile(r"([1-9][0-9]{0,3})([dmy])")
_MONTHS: Final = 12


def is_period(text: str) -> bool:
    """Return whether a text is a period."""
    return _PERIOD.fullmatch(text) is not None


def add_period(day: date, period: str) -> date:
    """Return the day so much later; in a month that is too short, its last day."""
    match = _PERIOD.fullmatch(period)
    if match is None:
        raise ValueError(period)
    number, unit = int(match[1]), match[2]
    if unit == "d":
        return day + timedelta(days=min(number, (date.max - day).days))
    return _add_months(day, number * (_MONTHS if unit == "y" else 1))


def _add_months(day: date, number: int) -> date:
    months = day.month - 1 + number
    year, month = day.year + months // _MONTHS, months % _MONTHS + 1
    if year > MAXYEAR:
        return date.max
    return day.replace(year=year, month=month, day=min(day.day, calendar.monthrange(year, month)[1]))


def add_period_to_instant(at: datetime, period: str) -> datetime:
    """Return the instant so much later, at the same time of the day in UTC."""
    return datetime.combine(add_period(at.date(), period), at.time(), UTC)


def subtract_months(at: datetime, number: int) -> datetime:
    """Return the instant so many months before, at the same time of the day in UTC."""
    return datetime.combine(_add_months(at.date(), -number), at.time(), UTC)
