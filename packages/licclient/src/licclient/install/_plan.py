"""Pure: what installing an update does here, and what it came to (D-350, D-353).

`UpdatePlan` is known before anything is downloaded, an `InstallationReceipt` after the next start.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

from licclient._core.kinds import InstallationKind
from licclient._core.model import InstallObstacle
from licclient._core.policy import is_below
from licclient.errors import InstallationError

if TYPE_CHECKING:
    from licclient.install import _texts  # noqa: F401 - which errors name: freezers follow this import

SETUPS: Final = frozenset({InstallationKind.NSIS, InstallationKind.INNO, InstallationKind.MSI})
"""Kinds that a set-up of Windows replaces, while the app does not run."""

_REPLACED: Final = frozenset({InstallationKind.APPIMAGE, InstallationKind.APP})
"""Kinds that are replaced while they run, and only where the user may write."""

_FRAMEWORKS: Final = {
    InstallationKind.SPARKLE: "Sparkle",
    InstallationKind.WINSPARKLE: "WinSparkle",
    InstallationKind.VELOPACK: "Velopack",
}
"""Kinds that a framework within the app updates, by their names (D-356)."""

_SYSTEMS: Final = {
    InstallationKind.APPIMAGE: "linux",
    InstallationKind.APP: "darwin",
    InstallationKind.SPARKLE: "darwin",
    **dict.fromkeys((*SETUPS, InstallationKind.WINSPARKLE), "win32"),
}
"""The system that a kind belongs to, as `sys.platform` names it."""


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """What `install_update` does on this computer; `explain` makes it a sentence.

    Attributes:
        kind: How the app was installed.
        obstacle: Why it cannot be updated from within; None if it can.
        updater: The name of what updates it; None if `install_update` does. Without an obstacle it is a
            framework within the app that shows its own windows.
        command: What a person types for that; None without a command.
        has_to_quit: Whether the app has to end before the update is installed.
        is_administrator_asked: Whether Windows asks a person for the administrator's permission.
    """

    _texts: ClassVar[str] = "licclient.install._texts"

    kind: InstallationKind
    obstacle: InstallObstacle | None = None
    updater: str | None = None
    command: str | None = None
    has_to_quit: bool = False
    is_administrator_asked: bool = False

    @property
    def is_possible(self) -> bool:
        """Whether `install_update` can install an update here."""
        return self.obstacle is None

    def require(self) -> None:
        """Raise `InstallationError` if nothing can be installed."""
        if self.obstacle is not None:
            raise InstallationError(self.obstacle, self.updater, self.command)


def make_plan(
    kind: InstallationKind,
    *,
    system: str,
    is_writable: bool,
    is_certain: bool = True,
    updater: str | None = None,
    command: str | None = None,
    has_versions: bool = False,
    hands_over: bool = False,
) -> UpdatePlan:
    """Return the plan for an installation.

    Args:
        kind: As of `detect`.
        system: As `sys.platform` names it.
        is_writable: Whether this user may write where the app is.
        is_certain: Whether the signs of the kind are sure; nothing is replaced on an unsure one.
        updater: The name of what updates the app; None if it updates itself.
        command: What a person types for that.
        has_versions: Whether the app runs from a folder of `Installation`.
        hands_over: Whether the app has a way to call its framework for updates.
    """
    if hands_over and is_certain and kind in _FRAMEWORKS and _SYSTEMS.get(kind, system) == system:
        is_velopack = kind is InstallationKind.VELOPACK  # it gets a file, and waits for the app's end
        return UpdatePlan(kind, updater=None if is_velopack else _FRAMEWORKS[kind], has_to_quit=is_velopack)
    if updater is not None:
        return UpdatePlan(kind, InstallObstacle.OTHER_UPDATER, updater, command)
    if _SYSTEMS.get(kind, system) != system or not (is_certain or has_versions):
        return UpdatePlan(kind, InstallObstacle.NOT_REPLACEABLE)
    if kind in SETUPS:
        return UpdatePlan(kind, has_to_quit=True, is_administrator_asked=not is_writable)
    if kind in _FRAMEWORKS:
        return UpdatePlan(kind, InstallObstacle.OTHER_UPDATER, _FRAMEWORKS[kind])
    if kind not in _REPLACED and not has_versions:
        return UpdatePlan(kind, InstallObstacle.NOT_REPLACEABLE)
    return UpdatePlan(kind, None if is_writable else InstallObstacle.NOT_WRITABLE)


@dataclass(frozen=True, slots=True)
class InstalledUpdate:
    """What `install_update` did; the app should end now.

    Attributes:
        version: The version that is installed, or will be.
        kind: How the app was installed.
        has_to_quit: Whether the update is installed only when the app has ended.
        is_reopened: Whether the app opens again by itself when it has ended.
    """

    version: str
    kind: InstallationKind
    has_to_quit: bool
    is_reopened: bool


REPLACED: Final = _REPLACED | {InstallationKind.FOLDER, InstallationKind.UNKNOWN}
"""Kinds that are replaced while the app runs: their attempts are noted when that has succeeded."""


def read_replaced(
    promised: str, current: str | None, *, runs_promised: bool, is_rolled_back: bool
) -> InstallObstacle | None:
    """Return why a version that was installed while the app ran does not run; None if it does (D-408).

    Args:
        promised: The version that was installed.
        current: The version that starts next; None where only one is installed, as in an AppImage.
        runs_promised: Whether that version runs, or a later one.
        is_rolled_back: Whether it was rolled back here.
    """
    if runs_promised:
        return None
    if is_rolled_back or (current is not None and is_below(current, promised)):
        return InstallObstacle.ROLLED_BACK
    return InstallObstacle.NEWER_INSTALLED


@dataclass(frozen=True, slots=True)
class InstallationReceipt:
    """What the last update came to that was installed from within; `explain` makes it a sentence.

    Attributes:
        version: The version that was promised.
        kind: How the app was installed.
        at: When the installation began; aware, UTC.
        obstacle: Why this version does not run; None if it runs, or a later one.
        code: The exit code of the set-up; None without a set-up, or if it did not end.
    """

    _texts: ClassVar[str] = "licclient.install._texts"

    version: str
    kind: InstallationKind
    at: datetime
    obstacle: InstallObstacle | None = None
    code: int | None = None

    @property
    def is_installed(self) -> bool:
        """Whether the version that was promised runs, or a later one."""
        return self.obstacle is None
