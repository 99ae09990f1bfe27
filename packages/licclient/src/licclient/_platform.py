"""The name of the platform that an app runs on, as update checks send it (D-187)."""

import re
from typing import Final

AUTO: Final = "auto"
"""The setting that stands for the platform of this computer."""

_NAME: Final = re.compile(r"[a-z0-9_.-]{1,40}")
_SYSTEMS: Final = {"win32": "windows", "darwin": "macos"}
_MACHINES: Final = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "aarch64": "arm64",
    "i386": "x86",
    "i486": "x86",
    "i586": "x86",
    "i686": "x86",
}


def is_platform(text: str) -> bool:
    """Return whether this can name a platform."""
    return _NAME.fullmatch(text) is not None


def name_platform(system: str, machine: str) -> str | None:
    """Return the name of a platform, such as windows-x86_64, by `sys.platform` and `platform.machine()`."""
    machine = machine.lower()
    name = f"{_SYSTEMS.get(system, system)}-{_MACHINES.get(machine, machine)}"
    return name if machine and is_platform(name) else None


def own_platform(setting: str | None) -> str | None:
    """Return what update checks send: the setting, or the platform of this computer."""
    if setting != AUTO:
        return setting
    import platform  # noqa: PLC0415 - most starts ask nobody
    import sys  # noqa: PLC0415

    return name_platform(sys.platform, platform.machine())
