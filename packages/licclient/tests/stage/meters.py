"""What a hostile answer may cost: seconds and memory."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from licclient._core.transport import LOOK_UP_SECONDS

MOST_MEMORY = 32 << 20
SLACK_SECONDS = 8.0
"""For a machine that does other things as well."""

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@contextmanager
def bounded(timeout: float) -> Iterator[None]:
    """Check that a block ends within the client's time limit, and holds little memory while it runs."""
    before, began = _start(), monotonic()
    yield
    took, grown = monotonic() - began, _peak() - before
    assert took < timeout + LOOK_UP_SECONDS + SLACK_SECONDS, f"it took {took:.1f} seconds"
    assert grown < MOST_MEMORY, f"it took {grown >> 20} MiB"


def _start() -> int:
    """Forget how much memory was held at most so far, where the system can do that; return what is held."""
    if _CLEAR.exists():
        _CLEAR.write_text("5")
    return _peak()


def _peak() -> int:
    if _CLEAR.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) << 10
    if sys.platform == "win32":  # since the process began, as below
        return _windows_peak()
    import resource  # noqa: PLC0415 - not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class _MemoryCounters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS of psapi.h; only the peak of the working set is read."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("page_faults", ctypes.c_uint32),
        ("peak_working_set", ctypes.c_size_t),
        ("others", ctypes.c_size_t * 7),
    )


def _windows_peak() -> int:
    counters = _MemoryCounters(size=ctypes.sizeof(_MemoryCounters))
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    kernel.K32GetProcessMemoryInfo.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
    if not kernel.K32GetProcessMemoryInfo(kernel.GetCurrentProcess(), ctypes.byref(counters), counters.size):
        raise ctypes.WinError(ctypes.get_last_error())
    return counters.peak_working_set


def crash_report(error: BaseException | None) -> str:
    """Write down an error as a crash reporter does, with everything that it was raised from."""
    report = ""
    while error is not None:
        report += f"{type(error).__module__}.{type(error).__qualname__}: {error!r} {vars(error)}\n"
        error = error.__cause__ or error.__context__
    return report
