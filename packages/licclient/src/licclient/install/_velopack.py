"""Hand a verified package over to Velopack, by the Python package of that name in the app (D-391).

Velopack reads it from a folder, so it needs neither the address of a feed nor the license key, and installs
nothing that was not verified. Its updater waits for the end of the app, replaces it, and opens it again.
"""

import errno
import importlib.util
import json
import re
import zipfile
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from licclient._core.lazy import load_module
from licclient._core.model import InstallObstacle
from licclient.errors import InstallationError
from licclient.install._archive import DEFLATED, STORED
from licclient.install._unpack import ArchiveFile
from licclient.install._verified import copy_verified

if TYPE_CHECKING:
    from licclient._core.update_model import Downloaded

_PACKAGE: Final = "velopack"
_CHANNEL: Final = "licclient"
"""The channel of the folder's feed: the app's own has a name that only Velopack knows."""

_DRAFT: Final = "package.draft"
_MAX_MANIFEST_BYTES: Final = 1024 * 1024
_FILE_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,200}")


def is_available() -> bool:
    """Return whether the app has brought Velopack's Python package along."""
    try:
        return importlib.util.find_spec(_PACKAGE) is not None
    except ValueError:  # a stand-in without a spec
        return False


def prepare(downloaded: "Downloaded", folder: Path) -> None:
    """Make an empty folder the source of an update: the verified package, and a feed that lists it.

    Raises:
        InstallationError: It is no package of Velopack.
        UntrustedResponseError: The file is not the verified one.
        OSError: The disk has no room, or fails.
    """
    draft = folder / _DRAFT
    copy_verified(downloaded, draft, 0o600, lambda head: head.startswith(b"PK"))
    name, version = _read_manifest(draft)
    package = draft.rename(folder / f"{name}-{version}-full.nupkg")
    asset = {
        "PackageId": name,
        "Version": version,
        "Type": "Full",
        "FileName": package.name,
        "SHA1": "",
        "SHA256": downloaded.sha256.upper(),
        "Size": downloaded.size,
    }
    (folder / f"releases.{_CHANNEL}.json").write_text(json.dumps({"Assets": [asset]}), "utf-8")


def _read_manifest(package: Path) -> tuple[str, str]:
    """Return the id and the version that a package has in its `.nuspec`."""
    try:
        with ArchiveFile(FileIO(package)) as file, zipfile.ZipFile(file) as archive:
            [info] = [info for info in archive.infolist() if _is_manifest(info)]
            with archive.open(info) as manifest:
                root = ET.fromstring(manifest.read(_MAX_MANIFEST_BYTES))  # noqa: S314 - the vendor's, and verified
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # a place that no file can have
            raise
        raise InstallationError(InstallObstacle.WRONG_FILE) from None
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever `zipfile`, `zlib` and `ElementTree` raise for a damaged file
        raise InstallationError(InstallObstacle.WRONG_FILE) from None
    values = [(root.findtext(f".//{{*}}{name}") or "").strip() for name in ("id", "version")]
    if not all(map(_FILE_NAME.fullmatch, values)):
        raise InstallationError(InstallObstacle.WRONG_FILE)
    return values[0], values[1]


def _is_manifest(info: zipfile.ZipInfo) -> bool:
    """Return whether an entry is the manifest, packed by a method whose memory is bounded."""
    is_bounded = info.compress_type in (STORED, DEFLATED)
    return is_bounded and info.filename.endswith(".nuspec") and "/" not in info.filename


def find_update(folder: Path) -> tuple[Any, Any]:
    """Have Velopack take over the package of a folder; return its manager and its update.

    Raises:
        InstallationError: The package is no newer version of this app, or Velopack does not know this app.
    """
    velopack: Any = load_module(_PACKAGE)
    options = velopack.UpdateOptions(
        AllowVersionDowngrade=False, MaximumDeltasBeforeFallback=-1, ExplicitChannel=_CHANNEL
    )
    try:
        manager = velopack.UpdateManager(str(folder), options)
        update = manager.check_for_updates()
        if update is not None:
            manager.download_updates(update)
            return manager, update
    except RuntimeError as problem:
        raise InstallationError(InstallObstacle.FAILED) from problem
    raise InstallationError(InstallObstacle.WRONG_FILE)


def start(manager: Any, update: Any, *, restart: bool) -> None:
    """Start Velopack's updater, which waits for the end of this process; raise `InstallationError`."""
    try:
        manager.wait_exit_then_apply_updates(update, silent=False, restart=restart)
    except RuntimeError as problem:
        raise InstallationError(InstallObstacle.FAILED) from problem
