"""The pytest plugin; pytest finds it through the package's entry point."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from licclient.testing import LicenseClock, LicenseService


__all__ = ["license_clock", "license_service"]


@pytest.fixture
def license_clock() -> "LicenseClock":
    """A clock that shows noon of 2030-01-15, UTC, until the test moves it; that of `license_service`."""
    from licclient.testing import LicenseClock  # noqa: PLC0415 - every pytest run loads this file

    return LicenseClock()


@pytest.fixture
def license_service(license_clock: "LicenseClock") -> "Iterator[LicenseService]":
    """A license service in memory, without licenses and releases; its `client(settings)` is for the app."""
    from licclient.testing import LicenseService  # noqa: PLC0415 - as above

    with LicenseService(license_clock) as service:
        yield service
