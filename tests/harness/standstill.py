"""When the machine itself stood still: a test of how long something takes does not blame us for that."""

import threading
import time
from typing import Final, Self

_LOOK_SECONDS: Final = 0.01
_LATE_SECONDS: Final = 0.05
"""By so much a thread may wake up late on a machine that is merely busy."""


class Standstill(threading.Thread):
    """Watches the clock for a block: who waits, or works without Python's lock, does not hold it up.

    Args:
        late: By so much a look may be late without being counted; less where every hundredth counts.
    """

    def __init__(self, late: float = _LATE_SECONDS) -> None:
        super().__init__(daemon=True)
        self._late = late
        self._gaps: list[tuple[float, float]] = []
        self._over = threading.Event()

    def run(self) -> None:
        """Note each time at which nothing was looked at for too long."""
        last = time.monotonic()
        while not self._over.wait(_LOOK_SECONDS):
            now = time.monotonic()
            if now - last > _LOOK_SECONDS + self._late:
                self._gaps.append((last + _LOOK_SECONDS, now))
            last = now

    def within(self, began: float, ended: float) -> float:
        """Return for how many seconds it stood still between two instants of the monotonic clock."""
        return sum(max(0.0, min(end, ended) - max(begin, began)) for begin, end in self._gaps)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(2 * _LOOK_SECONDS)  # a gap is noted at its end
        self._over.set()
        self.join()
