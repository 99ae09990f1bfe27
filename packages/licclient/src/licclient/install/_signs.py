"""Pure: from the signs of an installation to its kind, who updates it, and the command to type (D-341).

The order matters: a sandbox or store comes first, because what is inside of it looks like any other app, and
a folder comes last. No environment variable decides by itself: children inherit all of them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from licclient._core.kinds import PUBLISHED_KINDS, InstallationKind

Kind = InstallationKind


@dataclass(frozen=True, slots=True)
class Signs:
    """What was seen of the installation that runs; by default nothing.

    Attributes:
        managers: The package managers of this system, as far as they have a kind.
        is_unreadable: Whether a sign that would decide could not be read.
        override: Content of the file by which the vendor's package names the kind (D-342).
        is_override_trusted: Whether this user could not have written that file.
        store: Name of the store whose sandbox the program runs in.
        flatpak, snap: Id or name of the package that the program is a part of.
        appimage: Whether the program lies in the mounted or unpacked AppImage that was started.
        is_in_app_dir: Whether it lies in an AppDir, which may have been unpacked by hand.
        framework: The framework for updates that the app contains.
        is_bundle: Whether the program is in a `.app` of macOS.
        cask: Homebrew's name of the bundle, unless its cask says that the app updates itself.
        formula, scoop, winget: Name of the package in whose folder the program lies, of Homebrew and others.
        is_for_all: Whether Scoop or pipx has installed it for all users.
        is_in_store: Whether it lies in the store of Nix or Guix, which nobody writes to.
        is_versioned: Whether the program runs from a folder of `Installation`.
        setup: The kind of set-up that has recorded this folder.
        owner: The package manager of the system that has installed the file, and the package's name.
        is_frozen: Whether a freezer made the program.
        is_single_file: Whether it unpacks itself at each start.
        tool: pipx, uv or conda, if the environment was made by it.
        environment: The name of an environment of pipx or uv: of the package that it was made for, in pipx
            with a suffix that a person may have chosen.
        is_temporary: Whether the tool has made the environment for one run.
        distribution: Name of the Python package that the program belongs to.
        installer: The tool that installed it, as its `INSTALLER` file names it.
        is_editable: Whether that is a developer's checkout.
        is_from_index: Whether it came by its name, and not from a file, an address or a repository (PEP 610).
        is_system_python: Whether the operating system manages this Python (PEP 668).
        pyapp: Name of the program that PyApp made.
        python: The command of this Python.
        prefix: The folder of its environment, quoted for the shell.
    """

    managers: frozenset[Kind] = frozenset()
    is_unreadable: bool = False
    override: str | None = None
    is_override_trusted: bool = False
    store: str | None = None
    flatpak: str | None = None
    snap: str | None = None
    appimage: bool = False
    is_in_app_dir: bool = False
    framework: Kind | None = None
    is_bundle: bool = False
    cask: str | None = None
    formula: str | None = None
    scoop: str | None = None
    winget: str | None = None
    is_for_all: bool = False
    is_in_store: bool = False
    is_versioned: bool = False
    setup: Kind | None = None
    owner: tuple[Kind, str] | None = None
    is_frozen: bool = False
    is_single_file: bool = False
    tool: Kind | None = None
    environment: str | None = None
    is_temporary: bool = False
    distribution: str | None = None
    installer: str | None = None
    is_editable: bool = False
    is_from_index: bool = True
    is_system_python: bool = False
    pyapp: str | None = None
    python: str = "python"
    prefix: str = ""


class Decision(NamedTuple):
    """What follows from the signs of an installation.

    `updater` is who updates it, None for the app itself; `command` is what to type for that, if it is known.
    """

    kind: Kind
    updater: str | None = None
    command: str | None = None
    is_certain: bool = True


UNKNOWN: Final = Decision(Kind.UNKNOWN, is_certain=False)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]*")
"""A name in a command: nothing that a shell would take for a command of its own."""

_COMMAND_LENGTH: Final = 500
_POINT: Final = 4  # the field of a line that has the path
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")

_MANAGER: Final = "the package manager"
_MANAGERS: Final = frozenset({Kind.DPKG, Kind.RPM})

UPDATERS: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        Kind.STORE: "the store",
        Kind.FLATPAK: "Flatpak",
        Kind.SNAP: "Snap",
        Kind.DPKG: "apt",
        Kind.RPM: "dnf",
        Kind.HOMEBREW: "Homebrew",
        Kind.WINGET: "winget",
        Kind.SCOOP: "Scoop",
        Kind.PIP: "pip",
        Kind.PIPX: "pipx",
        Kind.UV: "uv",
        Kind.CONDA: "conda",
        Kind.SYSTEM_PYTHON: _MANAGER,
        Kind.SPARKLE: "Sparkle",
        Kind.WINSPARKLE: "WinSparkle",
        Kind.VELOPACK: "Velopack",
    }
)
"""Who updates each kind that the app does not update itself."""

_COMMANDS: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        Kind.FLATPAK: "flatpak update ",
        Kind.SNAP: "sudo snap refresh ",
        Kind.DPKG: "sudo apt install --only-upgrade ",
        Kind.RPM: "sudo dnf upgrade ",
        Kind.HOMEBREW: "brew upgrade --cask ",
        Kind.WINGET: "winget upgrade --id ",
        Kind.SCOOP: "scoop update ",
        Kind.UV: "uv tool upgrade ",
    }
)


class Mount(NamedTuple):
    """A file system in the table of mounts: its type, and what it was mounted from."""

    type: str
    source: str


def find_mount(table: str, point: str) -> Mount | None:
    """Return what is mounted at a path, by Linux's `/proc/self/mountinfo`; None for nothing."""
    mount = None
    for line in table.split("\n"):
        before, _, after = line.partition(" - ")
        fields, described = before.split(" "), after.split(" ")
        if len(fields) > _POINT and len(described) > 1 and _unescape(fields[_POINT]) == point:
            mount = Mount(_unescape(described[0]), _unescape(described[1]))  # the last one covers the others
    return mount


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


def decide(signs: Signs) -> Decision:
    """Return the kind of an installation; an uncertain one rather than a wrong one."""
    if signs.is_unreadable:
        return UNKNOWN
    if signs.override is not None:
        return _read_override(signs)
    return (
        _decide_sandbox(signs)
        or _decide_package(signs)
        or _decide_system(signs)
        or (UNKNOWN if signs.is_in_app_dir else None)
        or (_decide_frozen(signs) if signs.is_frozen else _decide_python(signs))
    )


def updated_by(kind: Kind, name: str | None, updater: str | None = None) -> Decision:
    """Return the decision for a kind that another program updates, by the name that it knows the app by."""
    before = _COMMANDS.get(kind)
    command = _command(before, name) if before and name else None
    return Decision(kind, updater or UPDATERS[kind], command)


def _command(before: str, name: str, after: str = "") -> str | None:
    """Return a command with a name in it; None if a shell would take the name for anything else."""
    command = f"{before}{name}{after}"
    return command if _NAME.fullmatch(name) and _is_shown(command) else None


def _is_shown(command: str) -> bool:
    return command.isprintable() and len(command) <= _COMMAND_LENGTH


def _read_override(signs: Signs) -> Decision:
    """Read the vendor's file: the kind, and in a second line the command to type (D-403).

    Distributions repack a package for another manager, and its file with it. A web page can save a file of
    this name into a folder of downloads: what a user may write names no command.
    """
    first, *others = [line.strip() for line in (signs.override or "").splitlines()] or [""]
    command = next(filter(None, others), None)
    if command is not None and not (signs.is_override_trusted and _is_shown(command)):
        command = None
    try:
        kind = Kind(first.lower())
    except ValueError:
        return UNKNOWN
    if kind is Kind.UNKNOWN:  # such as a package manager that has no name here
        return Decision(kind, _MANAGER, command, is_certain=command is not None)
    if kind in _MANAGERS and kind not in signs.managers:
        return Decision(Kind.UNKNOWN, _MANAGER, is_certain=False)
    if kind is Kind.APPIMAGE and not signs.appimage:  # unpacked: there is no file to replace
        return UNKNOWN
    return Decision(kind, None if kind in PUBLISHED_KINDS else UPDATERS[kind], command)


def _decide_sandbox(signs: Signs) -> Decision | None:
    if signs.store is not None:
        return updated_by(Kind.STORE, None, signs.store)
    if signs.flatpak is not None:
        return updated_by(Kind.FLATPAK, signs.flatpak)
    if signs.snap is not None:
        return updated_by(Kind.SNAP, signs.snap)
    return None


def _decide_package(signs: Signs) -> Decision | None:
    """Decide packages that consist of one file or bundle, and frameworks that update them."""
    if signs.appimage:
        return Decision(Kind.APPIMAGE)
    if signs.cask is not None:
        return updated_by(Kind.HOMEBREW, signs.cask)
    if signs.framework is not None:
        return Decision(signs.framework, UPDATERS[signs.framework])
    return Decision(Kind.APP) if signs.is_bundle else None


def _decide_system(signs: Signs) -> Decision | None:
    """Decide what a package manager or a set-up of the operating system has installed."""
    if signs.formula is not None:
        return Decision(Kind.HOMEBREW, UPDATERS[Kind.HOMEBREW], _command("brew upgrade ", signs.formula))
    if signs.is_in_store:
        return Decision(Kind.UNKNOWN, _MANAGER)
    if signs.scoop is not None:
        update = "scoop update --global " if signs.is_for_all else "scoop update "
        return Decision(Kind.SCOOP, UPDATERS[Kind.SCOOP], _command(update, signs.scoop))
    if signs.winget is not None:
        return updated_by(Kind.WINGET, signs.winget)
    if signs.is_versioned:
        return Decision(Kind.FOLDER)
    if signs.owner is not None:
        kind, name = signs.owner
        return updated_by(kind, name)
    return None if signs.setup is None else Decision(signs.setup)


def _decide_frozen(signs: Signs) -> Decision:
    """Decide a program without other signs: a folder that was unpacked, as far as one can see."""
    return UNKNOWN if signs.is_single_file else Decision(Kind.FOLDER, is_certain=False)


def _decide_python(signs: Signs) -> Decision:
    """Decide an app that runs on a Python of its own or of the system."""
    if signs.is_editable:
        return UNKNOWN
    if signs.pyapp is not None:
        return Decision(Kind.UNKNOWN, "PyApp", _command("", signs.pyapp, " self update"))
    if signs.distribution is None:  # a script that nothing has installed, on whatever Python
        return UNKNOWN
    # An environment of conda takes packages of pip and of others as well, and conda updates its own alone.
    if signs.tool is not None and (signs.tool is not Kind.CONDA or signs.installer == "conda"):
        return _decide_tool(signs.tool, signs.distribution, signs)
    if signs.installer == "uv":
        install = _command(f"uv pip install --python {signs.python} -U ", signs.distribution)
        return Decision(Kind.UV, UPDATERS[Kind.UV], install if signs.is_from_index else None)
    if signs.installer == "pip":
        # From an index, an app that came as a file may be another one of that name. Where the system manages
        # Python, pip refuses unless it is made to overrule the system.
        is_known = signs.is_from_index and not signs.is_system_python
        install = _command(f"{signs.python} -m pip install -U ", signs.distribution)
        return Decision(Kind.PIP, UPDATERS[Kind.PIP], install if is_known else None)
    if signs.is_system_python:
        return updated_by(Kind.SYSTEM_PYTHON, None)
    return UNKNOWN


def _decide_tool(tool: Kind, distribution: str, signs: Signs) -> Decision:
    """Decide an app in an environment that a tool has made for it."""
    if signs.is_temporary:
        before, after = ("uvx ", "@latest") if tool is Kind.UV else ("pipx run --no-cache ", "")
        latest = _command(before, distribution, after) if signs.is_from_index else None
        return Decision(tool, UPDATERS[tool], latest)
    if tool is Kind.CONDA:  # without a folder it is the environment that is active in the person's shell
        update = _command(f"conda update --prefix {signs.prefix} ", distribution)
        return Decision(tool, UPDATERS[tool], update)
    name = signs.environment or distribution
    if tool is Kind.PIPX:
        before = "sudo pipx upgrade --global " if signs.is_for_all else "pipx upgrade "
        # The app may be in the environment of another one, which pipx upgrades alone otherwise.
        is_main = _normalize(name).startswith(_normalize(distribution))
        more = "" if is_main else "--include-injected "
        return Decision(tool, UPDATERS[tool], _command(before + more, name))
    return updated_by(tool, name)


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
