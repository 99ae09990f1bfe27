"""A Windows of wine, which `nox -s windows` has built; the service runs on this machine."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.windows.wine import Windows

from harness.frozen import Shop, shop_over_tls
from harness.shop import PRODUCT


@pytest.fixture(scope="session")
def windows() -> Windows:
    """Return the Windows; it has licclient, its extras, and PyInstaller."""
    folder = os.environ.get("LICENSING_WINDOWS")
    if folder is None:
        pytest.skip("there is no Windows here: nox -s windows")
    return Windows(Path(folder), os.environ.get("DISPLAY", ""))


@pytest.fixture
def drive(windows: Windows, tmp_path: Path) -> Iterator[Path]:
    """Make a folder on drive C, and move it among the files that are searched for keys afterwards."""
    folder = Path(tempfile.mkdtemp(dir=windows.drive, prefix="test-"))
    yield folder
    shutil.move(folder, tmp_path / "drive")


@pytest.fixture
def local_data(windows: Windows, tmp_path: Path) -> Iterator[Path]:
    """Return the user's folder for apps' data, in which licclient has nothing yet."""
    (profile,) = (path for path in (windows.drive / "users").iterdir() if path.name != "Public")
    folder = profile / "AppData" / "Local"
    shutil.rmtree(folder / "licclient", ignore_errors=True)
    yield folder
    if (folder / "licclient").exists():
        shutil.move(folder / "licclient", tmp_path / "local-data")
        for path in (tmp_path / "local-data").rglob("activation-*"):
            path.chmod(0o600)  # Windows has no modes, and the folder of a user is for him alone


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop without releases."""
    with shop_over_tls(tmp_path, PRODUCT | {"releases": []}) as shop:
        yield shop
