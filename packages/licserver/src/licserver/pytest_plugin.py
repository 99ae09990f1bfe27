"""The pytest plugin; pytest finds it through the package's entry point."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from licserver.testing import LicenseServer


@pytest.fixture
def license_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LicenseServer]":
    """A running license server without products, whose clock a test can move."""
    from licserver.testing import serve_licenses  # noqa: PLC0415 - every run of pytest loads this file

    folder: Path = tmp_path_factory.mktemp("license-server")
    with serve_licenses(folder) as server:
        yield server
