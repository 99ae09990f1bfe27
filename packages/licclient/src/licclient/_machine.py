"""What names this computer to the license service when a trial is started: a hash, never the id itself."""

import hmac
import re
import sys
from pathlib import Path
from typing import Final

LINUX_FILES: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_IOREG: Final = ("/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice")
_IOREG_SECONDS: Final = 5.0


def hash_machine(slug: str, machine_id: str) -> str:
    """Return a machine's name for one product: keyed by the id, as `machine-id(5)` asks for.

    It tells neither the id nor whether two products run on the same machine.
    """
    return hmac.digest(machine_id.encode(), f"licclient trial {slug}".encode(), "sha256").hex()


def read_machine_id() -> str | None:
    """Return the id that the operating system gave this computer; None if it cannot be read."""
    try:
        if sys.platform == "win32":
            import winreg  # noqa: PLC0415 - this one platform

            access = winreg.KEY_READ | winreg.KEY_WOW64_64KEY
            path = r"SOFTWARE\Microsoft\Cryptography"
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, path, 0, access) as key:
                return _clean(str(winreg.QueryValueEx(key, "MachineGuid")[0]))
        if sys.platform == "darwin":
            return _read_ioreg()
    except (OSError, ValueError):
        return None
    return next(filter(None, map(_read_file, LINUX_FILES)), None)


def _read_ioreg() -> str | None:
    import subprocess  # noqa: PLC0415 - this one platform

    done = subprocess.run(_IOREG, capture_output=True, timeout=_IOREG_SECONDS, check=False)  # noqa: S603 - fixed
    found = re.search(rb'"IOPlatformUUID" = "([^"]+)"', done.stdout)
    return None if found is None else _clean(found[1].decode("ascii", "replace"))


def _read_file(path: str) -> str | None:
    try:
        return _clean(Path(path).read_text("ascii"))
    except (OSError, ValueError):
        return None


def _clean(text: str) -> str | None:
    text = text.strip().lower()
    return None if text in ("", "uninitialized") else text  # the latter is a system on its first start
