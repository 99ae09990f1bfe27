"""Install an update in the way in which this app was installed; the flows of `client.install_update`.

Each kind has a module that does it. What it does is known before (`_plan`).
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._core.computer import list_app_folders
from licclient._core.kinds import InstallationKind
from licclient._core.lazy import lazy
from licclient._core.model import InstallObstacle
from licclient._core.runners import Flow
from licclient._core.storage import is_folder, look_at, make_private, take_lock
from licclient._updates import download as download_module
from licclient.errors import InstallationError, UntrustedResponseError
from licclient.install import Installation, _appimage, _restart
from licclient.install._detection import DetectedInstallation, detect
from licclient.install._plan import InstalledUpdate, UpdatePlan, make_plan
from licclient.install._versions import POINTER

if TYPE_CHECKING:
    import tempfile

    from licclient._core.session import Session
    from licclient._core.update_model import Downloaded, Update
    from licclient._updates.download import Progress
else:
    tempfile = lazy("tempfile")

LOCK_SECONDS: Final = 120.0
"""Time limit for another process that installs an update of the same app."""

UPDATES: Final = "updates"
"""The folder of downloaded updates, in the state folder."""


def plan_update(installation: DetectedInstallation | None = None) -> UpdatePlan:
    """Return what `install_update` does here."""
    return _plan(detect() if installation is None else installation)


def _plan(installation: DetectedInstallation) -> UpdatePlan:
    plan = make_plan(
        installation.kind,
        system=sys.platform,
        is_writable=installation.is_writable,
        is_certain=installation.is_certain,
        updater=installation.updater,
        command=installation.command,
        has_versions=_find_own_folder(installation) is not None,
    )
    if plan.is_possible and plan.kind not in _INSTALLERS:
        return UpdatePlan(plan.kind, InstallObstacle.NOT_REPLACEABLE)
    return plan


def install_update(
    session: "Session",
    update: "Update",
    progress: "Progress | None",
    typed: str | None,
    *,
    installation: DetectedInstallation | None,
    restart: bool,
) -> Flow[InstalledUpdate]:
    """Download an update and install it; arguments, result and errors are those of the client's method."""
    detected = detect() if installation is None else installation
    plan = _plan(detected)
    plan.require()
    downloaded = yield from download_module.download(
        session, update, _download_folder(session), progress, typed
    )
    if not downloaded.is_verified:
        raise UntrustedResponseError("The file was not verified, because the service sent no digest of it.")
    with _alone(session):
        return _INSTALLERS[plan.kind](session, detected, downloaded, plan, restart=restart)


# --- each kind ------------------------------------------------------------------------------------


def _install_folder(
    _: "Session",
    installation: DetectedInstallation,
    downloaded: "Downloaded",
    plan: UpdatePlan,
    *,
    restart: bool,
) -> InstalledUpdate:
    folder = _find_own_folder(installation)
    if folder is None:
        raise InstallationError(InstallObstacle.NOT_REPLACEABLE)
    installed = Installation(folder).apply(downloaded)
    launcher = _find_launcher(folder, installation.program) if restart else None
    restarts = launcher is not None and _open_again(launcher)
    return InstalledUpdate(installed.version, plan.kind, has_to_quit=False, is_reopened=restarts)


def _install_appimage(
    _: "Session",
    installation: DetectedInstallation,
    downloaded: "Downloaded",
    plan: UpdatePlan,
    *,
    restart: bool,
) -> InstalledUpdate:
    program = installation.program.resolve()
    _appimage.replace_appimage(downloaded, program)
    restarts = restart and _open_again(program)
    return InstalledUpdate(downloaded.version, plan.kind, has_to_quit=False, is_reopened=restarts)


_INSTALLERS: Final[dict[InstallationKind, Callable[..., InstalledUpdate]]] = {
    InstallationKind.FOLDER: _install_folder,
    InstallationKind.UNKNOWN: _install_folder,
    InstallationKind.APPIMAGE: _install_appimage,
}


# --- the disk -------------------------------------------------------------------------------------


def _open_again(program: Path) -> bool:
    """Have the app opened when this process has ended; return whether it will be."""
    with suppress(OSError):  # the update is installed, and a person can open the app
        _restart.start_after_end([str(program)], _restart.starting_folder(), _restart.own_environment())
        return True
    return False


def _find_own_folder(installation: DetectedInstallation) -> Path | None:
    """Return the folder of `Installation` that the app runs from; None without one."""
    folder = installation.folder
    candidates = (folder, *folder.parents[1:2], *list_app_folders())  # a version is two levels below it
    return next((path for path in candidates if look_at(path / POINTER) is not None), None)


def _find_launcher(folder: Path, program: Path) -> Path | None:
    """Return the launcher: the file of the app's own folder that has the program's name."""
    return next((path for path in (folder / program.name,) if path.is_file()), None)


def _download_folder(session: "Session") -> Path:
    """Return the folder for downloads, private to the user; a fresh one without a state folder."""
    state_folder = session.storage.folder()
    if state_folder is None:
        return Path(tempfile.mkdtemp(prefix="licclient-"))
    folder = state_folder / UPDATES
    if not is_folder(folder):
        make_private(folder)
    return folder


@contextmanager
def _alone(session: "Session") -> Generator[None]:
    """Hold the lock of this app's installation; two at once would write the same files."""
    state_folder = session.storage.folder()
    if state_folder is None:
        yield
        return
    try:
        lock = take_lock(state_folder / UPDATES / "install.lock", LOCK_SECONDS)
    except TimeoutError:
        raise InstallationError(InstallObstacle.BUSY) from None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
