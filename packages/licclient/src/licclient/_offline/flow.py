"""The license file of this computer: request one, install it."""

import os
from os import PathLike
from pathlib import Path

from licclient._core.arguments import is_text, wrong_type
from licclient._core.model import License
from licclient._core.session import Session
from licclient._core.storage import MAX_PATH, open_plain
from licclient._offline.license_files import MAX_FILE, LicenseFiles, write_request


def open_license_files(session: Session) -> LicenseFiles:
    """Return the license file of a client."""
    return LicenseFiles(session.settings, session.storage, session.domain)


def request_file(session: Session) -> str:
    """Return the request for a license file for this installation."""
    _demand_pinned_keys(session)
    settings = session.settings
    return write_request(session.domain(), settings.slug or "", settings.version or "")


def install_file(session: Session, file: "bytes | str | PathLike[str]") -> License:
    """Install a license file; errors are those of `LicenseFileInstaller.install`."""
    _demand_pinned_keys(session)
    if not isinstance(file, bytes):
        if not isinstance(file, str | PathLike):
            raise wrong_type("file", "a path, or the bytes of a license file", file)
        if not is_text(os.fspath(file)) or len(os.fspath(file)) > MAX_PATH:
            raise ValueError("file must be the path of a license file")
        with open_plain(Path(file)) as opened:
            file = opened.read(MAX_FILE + 1)
    return session.license_files.install(file, session.now())


def _demand_pinned_keys(session: Session) -> None:
    if not session.settings.public_keys:
        raise ValueError(
            "license files need public_keys: pin the keys that `licserver signing-key public` prints"
        )
