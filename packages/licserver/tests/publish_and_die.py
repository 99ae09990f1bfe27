"""A program of `test_publish_crash.py`: publishes again and again, and is killed in the middle each time.

    publish_and_die.py DATA_DIR FILE steps EVERY   killed before each EVERY-th step, until one gets through
    publish_and_die.py DATA_DIR FILE delays COUNT  killed after a delay, COUNT delays over the length of one

A step is a function that licserver calls, or a statement that goes to the database. Each publisher has a
product and a file of its own. Prints a line for each: the product, and whether the publisher came to its end.
"""

import itertools
import os
import signal
import sys
import time
from pathlib import Path

import licserver
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.release_manifests import sign_with_keys
from licserver.services.installation import open_services
from licserver.settings import load_settings

_STATEMENTS = {"commit", "execute"}
_OURS = str(Path(licserver.__file__).parent)  # whatever folder the environment lies in is called


def publish(folder: Path, file: Path, slug: str, die_at: int | None) -> None:
    """Publish once, in this process."""
    services = open_services(load_settings(data_dir=folder))
    services.products.add(slug, slug.title())
    left = die_at

    def count(frame, event, called) -> None:
        nonlocal left
        ours = frame.f_code.co_filename.startswith(_OURS)
        if (ours and event in {"call", "c_call"}) or (
            event == "c_call" and getattr(called, "__name__", "") in _STATEMENTS
        ):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if die_at is not None:
        sys.setprofile(count)
    services.releases.publish(slug, "1.0", file, "New.", sign_with_keys([PrivateKey(bytes(32))]))
    sys.setprofile(None)


def fork(folder: Path, file: Path, slug: str, die_at: int | None = None) -> int:
    """Publish once, in a process of its own; returns its id."""
    child = os.fork()
    if child:
        return child
    publish(folder, file, slug, die_at)
    os._exit(0)


def finish(child: int, slug: str) -> bool:
    """Wait for a publisher, and tell what became of it."""
    _, status = os.waitpid(child, 0)
    assert status in {0, signal.SIGKILL}, status
    print(slug, status == 0, flush=True)  # noqa: T201 - that is what it is for
    return status == 0


def main(folder: Path, original: Path, how: str, count: int = 0) -> None:
    """Play all of it."""
    slugs = (f"app-{number}" for number in itertools.count())
    file = original.with_name("app.zip")

    def next_file() -> str:
        slug = next(slugs)
        file.write_bytes(slug.encode() + original.read_bytes())  # other bytes each time
        return slug

    if how == "steps":
        for step in itertools.count(step=count):
            slug = next_file()
            if finish(fork(folder, file, slug, step), slug):
                return
    lengths = []
    for _ in range(3):
        slug, begun = next_file(), time.monotonic()
        assert finish(fork(folder, file, slug), slug)
        lengths.append(time.monotonic() - begun)
    length = min(lengths[1:])  # the first one makes the database, too
    for number in range(count):
        slug = next_file()
        child = fork(folder, file, slug)
        time.sleep(length * 1.1 * number / count)  # the point of it
        os.kill(child, signal.SIGKILL)
        finish(child, slug)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:]))
