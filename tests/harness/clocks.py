"""Clocks that tests move: each step of one is meant, and is believed at once."""

from datetime import timedelta

import pytest


@pytest.fixture(autouse=True)
def _steps_are_meant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Believe a moved clock, unless `suspicious` is wanted; the real one of a database agrees with none."""
    monkeypatch.setattr(
        "licserver.database.repositories.instants.read_database_clock", lambda _connection: None
    )
    if "suspicious" not in request.fixturenames:
        monkeypatch.setattr("licserver.domain.instants.LONGEST_HOLD", timedelta())


@pytest.fixture
def suspicious() -> None:
    """Believe a clock only as a server does."""
