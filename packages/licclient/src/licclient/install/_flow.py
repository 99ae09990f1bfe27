"""Install an update in the way in which this app was installed; the flows of `client.install_update`.

Each kind has a module that does it. What it does is known before (`_plan`).
"""

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from licclient._core.computer import own_platform, require_space
from licclient._core.kinds import PUBLISHED_KINDS, InstallationKind
from licclient._core.lazy import lazy
from licclient._core.model import InstallObstacle
from licclient._core.policy import is_below
from licclient._core.runners import Flow
from licclient._core.storage import is_folder, make_private, take_lock
from licclient._updates import download as download_module
from licclient._updates.attempts import InstallAttempt
from licclient._updates.check import find_offer_key, installed_version
from licclient.errors import InstallationError, LicclientError, StateUnreadableError, UntrustedResponseError
from licclient.install import (
    Installation,
    _app_bundle,
    _appimage,
    _publisher,
    _receipts,
    _restart,
    _velopack,
    _windows_setups,
)
from licclient.install._detection import DetectedInstallation, detect
from licclient.install._detection_files import find_own_folder
from licclient.install._handover import BY_FEED, make_feed
from licclient.install._plan import SETUPS, InstallationReceipt, InstalledUpdate, UpdatePlan, make_plan

if TYPE_CHECKING:
    import shutil
    import tempfile

    from licclient._core.session import Session
    from licclient._core.update_model import Downloaded, Update
    from licclient._updates.download import Progress
else:
    shutil = lazy("shutil")
    tempfile = lazy("tempfile")

_SYSTEM: str = sys.platform  # with any value for mypy

LOCK_SECONDS: Final = 120.0
"""Time limit for another process that installs an update of the same app."""

_ATTEMPT: Final = "attempt-"
"""How the folder of a set-up that is run begins."""

_LOOSE_ATTEMPT: Final = "licclient-attempt-"
"""The same in the system's temporary folder, without a state folder."""

UPDATES: Final = "updates"
"""The folder of downloaded updates, in the state folder."""


def plan_update(session: "Session", installation: DetectedInstallation | None = None) -> UpdatePlan:
    """Return what `install_update` does here."""
    return _plan(session, detect() if installation is None else installation)


def _plan(session: "Session", installation: DetectedInstallation) -> UpdatePlan:
    is_velopack = installation.kind is InstallationKind.VELOPACK
    plan = make_plan(
        installation.kind,
        system=_SYSTEM,
        is_writable=installation.is_writable,
        is_certain=installation.is_certain,
        updater=installation.updater,
        command=installation.command,
        has_versions=_find_own_folder(installation) is not None,
        hands_over=_velopack.is_available() if is_velopack else session.settings.hand_over is not None,
    )
    if plan.is_possible and plan.kind not in _INSTALLERS.keys() | BY_FEED:
        return UpdatePlan(plan.kind, InstallObstacle.NOT_REPLACEABLE)
    return plan


def read_receipt(session: "Session") -> InstallationReceipt | None:
    """Return what the last installation came to."""
    return _receipts.read_receipt(session)


def install_update(
    session: "Session",
    update: "Update",
    progress: "Progress | None",
    typed: str | None,
    *,
    downloaded: "Downloaded | None",
    installation: DetectedInstallation | None,
    restart: bool,
) -> Flow[InstalledUpdate]:
    """Download an update and install it; arguments, result and errors are those of the client's method."""
    key = find_offer_key(session, typed)  # a wrong key is an error wherever the app is installed
    detected = detect() if installation is None else installation
    plan = _plan(session, detected)
    plan.require()
    if plan.kind in BY_FEED:
        return _hand_over(session, update, plan, key)
    _require_kind(update, plan)
    with ExitStack() as stack:
        if downloaded is None:
            _require_newest(session, detected, plan, update.version)
            folder = stack.enter_context(_download_folder(session))
            downloaded = yield from download_module.download(session, update, folder, progress, typed)
        if not downloaded.is_verified:
            raise UntrustedResponseError(
                "The file was not verified, because the service sent no digest of it."
            )
        stack.enter_context(_alone(session))
        _require_newest(session, detected, plan, downloaded.version)
        _remove_attempts(session)
        return _INSTALLERS[plan.kind](_Work(session, detected, downloaded, plan, restart))


def _require_kind(update: "Update", plan: UpdatePlan) -> None:
    """Raise `InstallationError` if the file is of another kind than this installation."""
    expected = InstallationKind.FOLDER if plan.kind in _FOLDERS else plan.kind
    if expected in PUBLISHED_KINDS and update.kind not in (None, expected):
        raise InstallationError(InstallObstacle.WRONG_FILE)


def _require_newest(
    session: "Session", installation: DetectedInstallation, plan: UpdatePlan, version: str
) -> None:
    """Raise `InstallationError` if a newer version is installed: this instance of the app may be an old one.

    A download may be below what was offered, since that was withdrawn meanwhile (D-33, D-178).
    """
    _, running = installed_version(session.settings)
    if plan.kind in _FOLDERS:  # one that was rolled back there may be installed again
        folder = _find_own_folder(installation)
        current = None if folder is None else Installation(folder).current
        installed = None if current is None else current.version
    else:
        installed = _receipts.find_installed_since(session)
    if any(is_below(version, other) for other in (running, installed)):
        raise InstallationError(InstallObstacle.NEWER_INSTALLED)


def _hand_over(
    session: "Session", update: "Update", plan: UpdatePlan, key: "str | LicclientError"
) -> InstalledUpdate:
    """Have the framework within the app check its feed; it asks the person, and ends the app."""
    settings = session.settings
    if isinstance(key, LicclientError):
        raise key
    if settings.hand_over is None:
        raise InstallationError(InstallObstacle.OTHER_UPDATER, plan.updater)
    slug, installed = installed_version(settings)
    feed = make_feed(
        settings,
        key,
        slug,
        installed,
        update.version,
        domain=session.domain(),
        platform=own_platform(settings.platform),
        kind=session.kind,
    )
    settings.hand_over(feed)
    return InstalledUpdate(update.version, plan.kind, has_to_quit=False, is_reopened=False)


# --- each kind ------------------------------------------------------------------------------------


class _Work(NamedTuple):
    """A verified download, and where it is to be installed; `restart`: the app is to be opened again."""

    session: "Session"
    installation: DetectedInstallation
    downloaded: "Downloaded"
    plan: UpdatePlan
    restart: bool

    def note(self, folder: Path | None = None) -> None:
        """Remember the attempt, for its receipt; what cannot be remembered is installed all the same."""
        place = None if folder is None else str(folder)
        own_folder = _find_own_folder(self.installation) if self.plan.kind in _FOLDERS else None
        app = str(own_folder or self.installation.program.resolve())
        attempt = InstallAttempt(self.downloaded.version, self.plan.kind, self.session.now(), place, app)
        with suppress(StateUnreadableError):
            _receipts.note_attempt(self.session, attempt)

    def done(self, *, has_to_quit: bool, is_reopened: bool) -> InstalledUpdate:
        """Return what was installed."""
        return InstalledUpdate(self.downloaded.version, self.plan.kind, has_to_quit, is_reopened)


def _install_folder(work: _Work) -> InstalledUpdate:
    folder = _find_own_folder(work.installation)
    if folder is None:
        raise InstallationError(InstallObstacle.NOT_REPLACEABLE)
    Installation(folder).apply(work.downloaded)
    work.note()
    launcher = _find_launcher(folder, work.installation.program) if work.restart else None
    restarts = launcher is not None and _open_again(str(launcher))
    return work.done(has_to_quit=False, is_reopened=restarts)


def _install_appimage(work: _Work) -> InstalledUpdate:
    program = work.installation.program.resolve()
    _appimage.replace_appimage(work.downloaded, program)
    work.note()
    restarts = work.restart and _open_again(str(program))
    return work.done(has_to_quit=False, is_reopened=restarts)


def _install_bundle(work: _Work) -> InstalledUpdate:
    _app_bundle.replace_bundle(work.downloaded, work.installation.program)
    work.note()
    is_reopened = work.restart and _open_again("/usr/bin/open", "-n", str(work.installation.program))
    return work.done(has_to_quit=False, is_reopened=is_reopened)


def _install_setup(work: _Work) -> InstalledUpdate:
    """Start what runs the set-up when the app has ended, from a folder that is new and private (D-352)."""
    require_space(work.installation.folder, work.downloaded.size, "the new version")
    folder = _make_attempt_folder(work.session)
    try:
        setup = _windows_setups.stage(work.downloaded, work.plan.kind, folder)
        _require_publisher(setup, work.session.settings.publisher)
        work.note(folder)
        try:
            _windows_setups.start(
                setup,
                work.plan.kind,
                work.installation.folder,
                work.installation.program if work.restart else None,
                is_administrator_asked=work.plan.is_administrator_asked,
            )
        except OSError:
            _receipts.forget_attempt(work.session)
            raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return work.done(has_to_quit=True, is_reopened=work.restart)


def _install_package(work: _Work) -> InstalledUpdate:
    """Give Velopack a verified package; its updater waits for the end of the app (D-391)."""
    require_space(work.installation.folder, work.downloaded.size, "the new version")
    folder = _make_attempt_folder(work.session)
    try:
        _velopack.prepare(work.downloaded, folder)
        manager, update = _velopack.find_update(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # Velopack has a copy of its own
    work.note()
    try:
        _velopack.start(manager, update, restart=work.restart)
    except InstallationError:
        _receipts.forget_attempt(work.session)
        raise
    return work.done(has_to_quit=True, is_reopened=work.restart)


def _require_publisher(setup: Path, publisher: str | None) -> None:
    if publisher is not None and _publisher.read_publisher(setup) != publisher:
        raise InstallationError(InstallObstacle.WRONG_PUBLISHER)


_FOLDERS: Final = frozenset({InstallationKind.FOLDER, InstallationKind.UNKNOWN})
"""Kinds of what runs from a folder of `Installation`, if anything of them can be updated."""

_INSTALLERS: Final[dict[InstallationKind, Callable[[_Work], InstalledUpdate]]] = {
    **dict.fromkeys(_FOLDERS, _install_folder),
    InstallationKind.APPIMAGE: _install_appimage,
    InstallationKind.APP: _install_bundle,
    InstallationKind.VELOPACK: _install_package,
    **dict.fromkeys(SETUPS, _install_setup),
}


# --- the disk -------------------------------------------------------------------------------------


def _open_again(*command: str) -> bool:
    """Have the app opened when this process has ended; return whether it will be."""
    with suppress(OSError):  # the update is installed, and a person can open the app
        _restart.start_after_end(command, _restart.starting_folder(), _restart.own_environment())
        return True
    return False


def _find_own_folder(installation: DetectedInstallation) -> Path | None:
    """Return the folder of `Installation` that the app runs from; None unless that is sure."""
    with suppress(OSError):  # the pointer cannot be read
        return find_own_folder(installation.program)
    return None


def _find_launcher(folder: Path, program: Path) -> Path | None:
    """Return the launcher: the file of the app's own folder that has the program's name."""
    launcher = folder / program.name
    return launcher if launcher.is_file() else None


@contextmanager
def _download_folder(session: "Session") -> Generator[Path]:
    """Yield the private folder for downloads; without a state folder one that is removed again."""
    state_folder = session.storage.folder()
    if state_folder is None:
        with tempfile.TemporaryDirectory(prefix="licclient-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    else:
        yield _make_updates_folder(state_folder)


def _make_updates_folder(state_folder: Path) -> Path:
    folder = state_folder / UPDATES
    if not is_folder(folder):
        make_private(folder)
    return folder


def _make_attempt_folder(session: "Session") -> Path:
    """Return a new, private folder for a set-up; it stays until the next one."""
    state_folder = session.storage.folder()
    if state_folder is None:
        return Path(tempfile.mkdtemp(prefix=_LOOSE_ATTEMPT))
    return Path(tempfile.mkdtemp(prefix=_ATTEMPT, dir=_make_updates_folder(state_folder)))


def _remove_attempts(session: "Session") -> None:
    """Remove what earlier set-ups left; raise `InstallationError` if one of them runs."""
    state_folder = session.storage.folder()
    folders: list[Path] = []
    if state_folder is not None:
        folders += (state_folder / UPDATES).glob(f"{_ATTEMPT}*")
    else:  # another app may still want to read its own
        attempt = _receipts.find_known_attempt(session)
        last = Path("" if attempt is None else attempt.folder or "")
        folders += [last] * last.name.startswith(_LOOSE_ATTEMPT)
    for folder in folders:
        if _windows_setups.is_under_way(folder):
            raise InstallationError(InstallObstacle.BUSY)
        shutil.rmtree(folder, ignore_errors=True)


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
