"""A fuzzer of files: everything that can happen to a record on a disk, and what reading it may return."""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, process_time

MOST_SECONDS = 0.1
"""What reading a record may take of the processor, on the average of a round."""

HANG_SECONDS = 20.0
"""What no single reading may take, on a machine that does other things as well."""


def edits(good: bytes, flips: tuple[int, ...] = (1,), step: int = 1) -> Iterator[tuple[str, bytes]]:
    """Yield each truncation, each `step`-th byte changed, removed or doubled, and larger changes."""
    for at in range(0, len(good), step):
        yield f"cut after {at} bytes", good[:at]
        yield f"without byte {at}", good[:at] + good[at + 1 :]
        yield f"byte {at} doubled", good[:at] + good[at : at + 1] + good[at:]
        for flip in flips:
            yield f"byte {at} ^ {flip}", good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :]
    half = len(good) // 2
    lines = good.splitlines(keepends=True)
    yield "halves swapped", good[half:] + good[:half]
    yield "lines swapped", b"".join(reversed(lines))
    yield "twice", good * 2
    yield "with more", good + b" "
    yield "NULs", bytes(len(good))
    yield "a byte order mark", b"\xef\xbb\xbf" + good
    yield "Windows' line ends", good.replace(b"\n", b"\r\n")
    yield "upper case", good.upper()
    yield "deep nesting", lines[0] + b"[" * 100_000 + b"\n"
    yield "nothing but line ends", b"\n" * 1000


def _full_folder(path: Path, good: bytes) -> None:
    path.mkdir()
    (path / path.name).write_bytes(good)


def _socket(path: Path, _: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket must be short
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


def _link(path: Path, good: bytes) -> None:
    target = path.with_name("elsewhere")
    target.write_bytes(good)
    path.symlink_to(target)


def _huge(path: Path, good: bytes) -> None:
    path.write_bytes(good)
    with path.open("r+b") as file:
        file.truncate(5 * 1024**3)


def _unreadable(path: Path, good: bytes) -> None:
    path.write_bytes(good)
    path.chmod(0)


STRANGE: dict[str, Callable[[Path, bytes], object]] = {
    "a folder": lambda path, _: path.mkdir(),
    "a folder with the record in it": _full_folder,
    "a file of five gigabytes": _huge,
}
if sys.platform != "win32":  # there, links need rights, and the rest does not exist
    STRANGE |= {
        "a pipe": lambda path, _: os.mkfifo(path),
        "a socket": _socket,
        "a link to the record": _link,
        "a link to itself": lambda path, _: path.symlink_to(path),
        "a link to nowhere": lambda path, _: path.symlink_to(path.with_name("nowhere")),
        "a link to zeros without end": lambda path, _: path.symlink_to("/dev/zero"),
        "a link to noise without end": lambda path, _: path.symlink_to("/dev/urandom"),
    }
    if os.geteuid() != 0:  # to root every file is readable
        STRANGE["a file that may not be read"] = _unreadable


def never_granted(record: Path, ask: Callable[[], object], *, step: int) -> None:
    """Check that no edit of a record is accepted, crashes or hangs; `ask` reads it as a new process does."""
    good = record.read_bytes()
    assert ask(), "the record as it is must be believed"
    began, count = process_time(), 0
    for name, raw in edits(good, step=step):
        if raw == good:
            continue
        record.write_bytes(raw)
        assert not _in_time(ask), name
        count += 1
    assert (process_time() - began) / count < MOST_SECONDS
    record.write_bytes(good)
    assert ask(), "and it is believed again"


def never_granted_by(name: str, record: Path, ask: Callable[[], object]) -> None:
    """The same with something else in the record's place, one of `STRANGE`."""
    good = record.read_bytes()
    assert ask()
    record.unlink()
    STRANGE[name](record, good)
    assert not _in_time(ask), name


def _in_time(ask: Callable[[], object]) -> object:
    began = monotonic()
    granted = ask()
    assert monotonic() - began < HANG_SECONDS
    return granted
