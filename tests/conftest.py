"""Fixtures of the cross-package tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.world import MovableClock, World, utc


@pytest.fixture
def clock() -> MovableClock:
    """A clock that stands at noon of 2026-11-20, UTC."""
    return MovableClock(utc(2026, 11, 20, 12))


@pytest.fixture
def make_world(
    tmp_path: Path, clock: MovableClock, make_database_url: Callable[..., str | None]
) -> Iterator[Callable[..., World]]:
    """Makes vendors, on either engine; all are closed at the end."""
    worlds: list[World] = []

    def make(**settings: Any) -> World:
        settings.setdefault("database_url", make_database_url())
        worlds.append(World(tmp_path / f"world-{len(worlds)}", clock, **settings))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """One vendor with default settings."""
    return make_world()
