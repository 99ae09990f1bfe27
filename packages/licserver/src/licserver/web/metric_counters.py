"""Counting requests: whole numbers in memory that all workers share, one block for each of them.

A request costs a few additions. No lock: a block has one writer, which is an event loop's thread, and who
reads adds all blocks up. The numbers outlive a worker: its successor goes on in the same block.
"""

import itertools
import mmap
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import wraps
from time import perf_counter
from types import MappingProxyType
from typing import Final

from aiohttp import web

from licserver.domain.decisions import VerifyRefusal
from licserver.protocol import public_api
from licserver.web.app_state import Handler

OTHER: Final = "other"
ADMIN: Final = "admin"
CONSOLE: Final = "console"
ENDPOINTS: Final = ("verify", "update_check", "download", "manifest", "health", ADMIN, CONSOLE, OTHER)
STATUSES: Final = (
    *(200, 201, 204, 206, 302, 303, 304),
    *(400, 401, 403, 404, 405, 408, 409, 413, 416, 417, 422, 429, 499),
    *(500, 503),
)
"""All that this server answers; what is none of them is counted as `OTHER`."""

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the classes of duration, seconds."""

VERDICTS: Final = ("valid", *(refusal.name.lower() for refusal in VerifyRefusal))

_PATHS: Final[Mapping[str, str]] = MappingProxyType(
    {
        public_api.VERIFY_PATH: "verify",
        public_api.UPDATE_CHECK_PATH: "update_check",
        public_api.DOWNLOAD_PATH: "download",
        public_api.MANIFEST_PATH: "manifest",
        "/healthz": "health",
        "/readyz": "health",
        ADMIN: ADMIN,
        CONSOLE: CONSOLE,
    }
)
_STATUS_AT: Final = {status: at for at, status in enumerate(STATUSES)}
_REFUSED: Final = {
    public_api.answer_verify(refusal).content: VERDICTS.index(refusal.name.lower())
    for refusal in VerifyRefusal
}

# A block: the verdicts, then for each endpoint its statuses, its classes of duration and its microseconds.
_DURATIONS_AT: Final = len(STATUSES) + 1
_MICROSECONDS_AT: Final = _DURATIONS_AT + len(BOUNDS) + 1
_ENDPOINT_CELLS: Final = _MICROSECONDS_AT + 1
_CELLS: Final = len(VERDICTS) + len(ENDPOINTS) * _ENDPOINT_CELLS
_CELL_BYTES: Final = 8


class Meter:
    """Counts the requests of one process.

    Args:
        cells: Its block.
    """

    def __init__(self, cells: memoryview) -> None:
        self._cells = cells

    def measuring(self, path: str, handler: Handler) -> Handler:
        """Count what a handler answers, and how long it takes.

        Args:
            path: The handler's address, or `ADMIN` or `CONSOLE` for all of theirs; another one is counted
                as `OTHER`.
            handler: Raises nothing but what ends the connection.
        """
        cells = self._cells
        endpoint = _PATHS.get(path, OTHER)
        is_verify = endpoint == "verify"
        first = len(VERDICTS) + ENDPOINTS.index(endpoint) * _ENDPOINT_CELLS
        durations, microseconds, odd = first + _DURATIONS_AT, first + _MICROSECONDS_AT, len(STATUSES)

        @wraps(handler)
        async def measured(request: web.Request) -> web.StreamResponse:
            began = perf_counter()
            response = await handler(request)
            took = perf_counter() - began
            status = response.status
            cells[first + _STATUS_AT.get(status, odd)] += 1
            cells[durations + bisect_left(BOUNDS, took)] += 1
            cells[microseconds] += int(took * 1_000_000)
            if is_verify:
                if status == 200:  # noqa: PLR2004 - a verdict of its own
                    cells[0] += 1
                elif (verdict := _REFUSED.get(getattr(response, "content", b""))) is not None:
                    cells[verdict] += 1
            return response

        return measured


class Meters:
    """The blocks of all processes of a server.

    To be made before the processes are: what they share is inherited.

    Args:
        processes: How many there will be. There is room for as many that end while others begin.
    """

    def __init__(self, processes: int = 1) -> None:
        self._count = 1 if processes == 1 else 3 * processes + 1
        self._own: int | None = None
        if processes == 1:
            self._file = None
            block: mmap.mmap | bytearray = bytearray(_CELLS * _CELL_BYTES)
        else:
            # A file, though nobody looks into it: its locks say which blocks are in use, and end with
            # their holder.
            self._file = tempfile.TemporaryFile(prefix="licserver-meters-")  # noqa: SIM115 - as long as the server
            self._file.truncate(self._count * _CELLS * _CELL_BYTES)
            block = mmap.mmap(self._file.fileno(), self._count * _CELLS * _CELL_BYTES)
        self._cells = memoryview(block).cast("Q")

    def claim(self) -> Meter:
        """Take the first block that nobody has, for this process and as long as it lives.

        When all are taken, which they should never be, the process counts where nobody reads.
        """
        for at in range(self._count):
            if self._lock(at):
                self._own = at
                return Meter(self._cells[at * _CELLS : (at + 1) * _CELLS])
        return Meter(memoryview(bytearray(_CELLS * _CELL_BYTES)).cast("Q"))

    def live(self) -> int:
        """How many processes are counting now."""
        count = 0
        for at in range(self._count):
            if at == self._own:
                count += 1  # asking for one's own lock gives it, and giving it back would lose it
            elif self._lock(at):
                self._unlock(at)
            else:
                count += 1
        return count

    def _lock(self, at: int) -> bool:
        if self._file is None:
            return self._own is None
        import fcntl  # noqa: PLC0415 - does not exist on Windows, where there is one process

        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        except OSError:
            return False
        return True

    def _unlock(self, at: int) -> None:
        if self._file is not None:
            import fcntl  # noqa: PLC0415 - the same

            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, at)

    def close(self) -> None:
        """Let go of what is shared; who counts still does, where nobody reads."""
        if self._file is not None:
            self._file.close()

    def totals(self) -> "Totals":
        """Add all blocks up."""
        sums = [0] * _CELLS
        for at in range(self._count):
            block = self._cells[at * _CELLS : (at + 1) * _CELLS]
            sums = [total + one for total, one in zip(sums, block, strict=True)]
        return Totals(sums)


class Totals:
    """What was counted, by name.

    Args:
        cells: A block's numbers, or the sums of several.
    """

    def __init__(self, cells: list[int]) -> None:
        self._cells = cells

    def verdicts(self) -> Iterator[tuple[str, int]]:
        """Give each verdict of a verify with its count."""
        return zip(VERDICTS, self._cells, strict=False)

    def requests(self) -> Iterator[tuple[str, str, int]]:
        """Give endpoint, status and count of what occurred."""
        for endpoint, cells in self._endpoints():
            for status, count in zip((*map(str, STATUSES), OTHER), cells, strict=False):
                if count:
                    yield endpoint, status, count

    def durations(self) -> Iterator[tuple[str, list[tuple[str, float]], float]]:
        """Give each endpoint, how many requests took at most so long, and the seconds of all together."""
        for endpoint, cells in self._endpoints():
            counts = itertools.accumulate(cells[_DURATIONS_AT:_MICROSECONDS_AT])
            bounds = (*map(str, BOUNDS), "+Inf")
            yield endpoint, list(zip(bounds, map(float, counts), strict=True)), cells[_MICROSECONDS_AT] / 1e6

    def _endpoints(self) -> Iterator[tuple[str, list[int]]]:
        for at, endpoint in enumerate(ENDPOINTS):
            first = len(VERDICTS) + at * _ENDPOINT_CELLS
            yield endpoint, self._cells[first : first + _ENDPOINT_CELLS]
