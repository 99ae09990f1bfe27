"""The app that is frozen to be started by a launcher: it works, or does not start, as its release has it.

It prints its version, and confirms it by the client alone: nothing of it imports `licclient.install`.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from licclient import LicenseClient

BUNDLE = Path(__file__).parent

version, behaviour = (BUNDLE / "version.txt").read_text(encoding="utf-8").split()
print(behaviour, version, *sys.argv[2:], flush=True)  # noqa: T201 - its output
if behaviour == "exits":
    sys.exit(3)
if behaviour == "dies" and sys.platform == "win32":
    ctypes.windll.kernel32.TerminateProcess(ctypes.c_void_p(-1), 0xC0000005)
elif behaviour == "dies":
    os.kill(os.getpid(), signal.SIGSEGV)
if behaviour == "hangs":
    Path(os.environ["PHOTO_LAB_PID"]).write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(300)
with LicenseClient("http://127.0.0.1:9", slug="photo-lab", version=version) as client:
    client.confirm_version()
