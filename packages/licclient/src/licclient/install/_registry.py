"""What set-ups of Windows have recorded: the kind of the one that installed a folder (D-341)."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any, Final, NamedTuple

from licclient._core.kinds import InstallationKind
from licclient._core.storage import open_plain

if sys.platform == "win32":
    import winreg as _winreg
else:
    _winreg: Any = None

_UNINSTALL: Final = r"SOFTWARE\Microsoft\Windows\CurrentVersion\Uninstall"
_MSI_FOLDERS: Final = r"SOFTWARE\Microsoft\Windows\CurrentVersion\Installer\Folders"
_MAX_KEYS: Final = 5_000
_NSIS: Final = b"Nullsoft"
_INNO_ID: Final = slice(64, 192)  # of `unins000.dat`: the AppId of the script
_INNO_HEAD: Final = 192
_SEARCHED: Final = 512 * 1024  # bytes of an uninstaller; its manifest is near the beginning


class SetupRecord(NamedTuple):
    """An installed program, as Windows lists it."""

    key: str
    location: str = ""
    uninstall: str = ""
    is_msi: bool = False


def find_setup(folder: Path) -> InstallationKind | None:
    """Return the kind of the set-up that has installed a folder; None for none, or for two that differ.

    Raise `OSError` if the registry cannot be read.
    """
    entries = list(_list_entries())
    kinds = {classify(entry) for entry in entries if is_of(entry, folder)} - {None}
    if not kinds and _is_inno_folder(folder, entries):
        return InstallationKind.INNO
    if not kinds and _is_msi_folder(folder):
        return InstallationKind.MSI
    return kinds.pop() if len(kinds) == 1 else None


def classify(entry: SetupRecord) -> InstallationKind | None:
    """Return the kind of set-up that made an entry."""
    if entry.is_msi:
        return InstallationKind.MSI
    if entry.key.endswith("_is1"):
        return InstallationKind.INNO
    return InstallationKind.NSIS if _is_nsis(_program_of(entry.uninstall)) else None


def is_same_folder(location: str, folder: str) -> bool:
    """Return whether a recorded place is a folder: in any case, with quotes, with a separator at its end."""
    recorded = location.strip().strip('"').rstrip("\\/")
    return bool(recorded) and PureWindowsPath(recorded) == PureWindowsPath(folder)


def is_of(entry: SetupRecord, folder: PurePath) -> bool:
    """Return whether a set-up has installed a folder, or the one above it, in which its uninstaller is.

    Some programs record a place that many share, such as the folder of all programs.
    """
    uninstaller = str(PureWindowsPath(_program_of(entry.uninstall)).parent)
    if entry.location:
        is_above = is_same_folder(entry.location, str(folder.parent))
        return is_same_folder(entry.location, str(folder)) or (
            is_above and is_same_folder(uninstaller, entry.location)
        )
    return not entry.is_msi and is_same_folder(uninstaller, str(folder))


def _program_of(command: str) -> str:
    """Return the program of a command line, with or without quotes around it; empty for none."""
    text = command.strip()
    if text.startswith('"'):
        return text[1:].partition('"')[0]
    ending = text.lower().find(".exe")
    return text if ending < 0 else text[: ending + 4]


def _is_nsis(program: str) -> bool:
    if not program:
        return False
    try:
        with open_plain(Path(program)) as file:
            return _NSIS in file.read(_SEARCHED)
    except OSError:  # it was removed: then this entry shows nothing
        return False


def _is_inno_folder(folder: Path, entries: Iterable[SetupRecord]) -> bool:
    """Return whether Inno Setup's uninstaller is in a folder, and Windows lists its app in no other one.

    A script need not have its app listed; a folder that a person has copied has the uninstaller as well.
    """
    if not (folder / "unins000.exe").exists():
        return False
    try:
        with open_plain(folder / "unins000.dat") as file:
            head = file.read(_INNO_HEAD)
    except OSError:
        return False
    app_id = head[_INNO_ID].partition(b"\0")[0].decode("utf-8", "replace")
    return all(entry.key.casefold() != f"{app_id}_is1".casefold() for entry in entries)


# --- the registry -----------------------------------------------------------------------------


def _views() -> Iterator[tuple[int, int]]:
    for hive in (_winreg.HKEY_CURRENT_USER, _winreg.HKEY_LOCAL_MACHINE):
        for view in (_winreg.KEY_WOW64_64KEY, _winreg.KEY_WOW64_32KEY):
            yield hive, _winreg.KEY_READ | view


def _list_entries() -> Iterator[SetupRecord]:
    for hive, access in _views():
        with suppress(FileNotFoundError), _winreg.OpenKey(hive, _UNINSTALL, 0, access) as root:
            for number in range(min(_winreg.QueryInfoKey(root)[0], _MAX_KEYS)):
                name = _winreg.EnumKey(root, number)
                with (
                    suppress(FileNotFoundError, PermissionError),
                    _winreg.OpenKey(root, name, 0, access) as key,
                ):
                    yield _read_entry(name, key)


def _read_entry(name: str, key: Any) -> SetupRecord:
    def read(value: str) -> Any:
        try:
            return _winreg.QueryValueEx(key, value)[0]
        except FileNotFoundError:
            return None

    return SetupRecord(
        name,
        str(read("InstallLocation") or ""),
        str(read("UninstallString") or ""),
        read("WindowsInstaller") == 1,
    )


def _is_msi_folder(folder: Path) -> bool:
    """Return whether Windows Installer has made a folder, whose location it need not have recorded."""
    with (
        suppress(FileNotFoundError),
        _winreg.OpenKey(
            _winreg.HKEY_LOCAL_MACHINE, _MSI_FOLDERS, 0, _winreg.KEY_READ | _winreg.KEY_WOW64_64KEY
        ) as key,
    ):
        for number in range(min(_winreg.QueryInfoKey(key)[1], _MAX_KEYS)):
            if is_same_folder(_winreg.EnumValue(key, number)[0], str(folder)):
                return True
    return False
