"""The pytest plugin; pytest finds it by itself where licclient is installed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from licclient.testing import LicenseClock, LicenseService


@pytest.fixture
def license_clock() -> "LicenseClock":
    """A clock that stands at noon of 2030-01-15, UTC, until the test moves it.

    The app's clients read it when the test asks for `license_service` as well.
    """
    from licclient.testing import LicenseClock  # noqa: PLC0415 - every pytest run loads this file

    return LicenseClock()


@pytest.fixture
def license_service(license_clock: "LicenseClock") -> "Iterator[LicenseService]":
    """A license service that every licclient of the test talks to, whatever address it was given.

    It starts with no licenses and no versions, and every computer starts without an activation.
    """
    from licclient.testing import fake_service  # noqa: PLC0415 - as above

    with fake_service(license_clock) as service:
        yield service
