"""Prepare a new version beside the app that it replaces: one installer at a time, killed ones leave nothing.

The lock is on the folder in which the app is, since two users or two state folders have no other in common.
Where a folder cannot be locked, as on NFS, the private folder alone keeps two installers apart (D-396).
"""

import errno
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import Final

from licclient._core.clock import monotonic, real_clock
from licclient._core.model import InstallObstacle
from licclient._core.storage import PAUSE, is_absence, look_at, sync_folder
from licclient.errors import InstallationError

LOCK_SECONDS: Final = 120.0
"""Time limit for another installer in the same folder."""

_LONG_AGO: Final = 24 * 3600.0
"""Seconds after which no installer is at work any more, where no lock says so."""

ASIDE: Final = "old"
"""The part of a private folder for an app that is moved out of its place, under its own name."""

_PREFIX, _SUFFIX = ".licclient-", ".draft"
_PRIVATE: Final = re.compile(r"\.licclient-[0-9a-z_]{8}\.draft")
"""How `tempfile` calls a private folder; its length does not depend on the app's name."""

_CANNOT_WRITE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSYS})
"""The last one is of AppImageLauncher's file system, which removes and renames nothing."""


@contextmanager
def private_folder(folder: Path) -> Generator[Path]:
    """Hold the folder of an app, and yield a new, private one in it; it is removed at the end.

    An app in its part `ASIDE` goes back to its place, if that is empty: now, or with the next installer here
    if this process is killed.

    Raises:
        InstallationError: Another installer is at work here, or this user may not write here.
    """
    descriptor = _lock(folder)
    try:
        with suppress(PermissionError):  # of a folder whose names cannot be listed
            for path in folder.iterdir():
                if _is_abandoned(path, is_alone=descriptor is not None):
                    _discard(path)
        draft = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=_SUFFIX, dir=folder))
        try:
            yield draft
        finally:
            _discard(draft)
    except OSError as problem:
        if problem.errno in _CANNOT_WRITE:
            raise InstallationError(InstallObstacle.NOT_WRITABLE) from problem
        raise
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """Lock a folder until the descriptor is closed, also by a kill; None where it cannot be locked."""
    if sys.platform == "win32":  # nothing is replaced there while it runs
        return None
    import fcntl  # noqa: PLC0415 - Unix only

    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    deadline = monotonic() + LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if monotonic() >= deadline:
                    raise InstallationError(InstallObstacle.BUSY) from None
                sleep(PAUSE)
            else:
                return descriptor
    except OSError:  # a file system without locks, or without those of folders
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise


def _is_abandoned(path: Path, *, is_alone: bool) -> bool:
    """Return whether a path is surely the private folder of an installer that was killed."""
    if not _PRIVATE.fullmatch(path.name):
        return False
    status = look_at(path)
    if status is None or not stat.S_ISDIR(status.st_mode):
        return False
    return is_alone or real_clock().timestamp() - status.st_mtime > _LONG_AGO


def _discard(draft: Path) -> None:
    """Remove a private folder; never the only copy of an app."""
    folder = draft.parent
    try:
        for app in (draft / ASIDE).iterdir():
            if look_at(folder / app.name) is None:
                app.rename(folder / app.name)
                sync_folder(folder)
    except OSError as problem:
        if not is_absence(problem):
            return
    shutil.rmtree(draft, ignore_errors=True)
