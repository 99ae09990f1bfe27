"""Open the app again as soon as this process has ended.

On Linux and macOS a shell waits for the end of a pipe that only this process holds: no process id is looked
at, which another program could have meanwhile.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from licclient._core.environment import clean_environment

_WAIT: Final = 'read -r _; exec "$@" </dev/null'

_held: Final[list[int]] = []
"""Ends of pipes that stay open as long as this process lives; children do not inherit them."""


def start_after_end(command: Sequence[str], folder: Path | None, environment: Mapping[str, str]) -> None:
    """Have a command started when this process has ended; raise `OSError` if that cannot be arranged."""
    read_end, write_end = os.pipe()
    try:
        quiet = subprocess.DEVNULL
        subprocess.Popen(  # noqa: S603 - ours, and the shell gets it as arguments
            ["/bin/sh", "-c", _WAIT, "sh", *command],
            stdin=read_end,
            stdout=quiet,
            stderr=quiet,
            cwd=folder,
            env=environment,
            start_new_session=True,  # a terminal that is closed with the app must not end it
        )
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    _held.append(write_end)


def own_environment() -> dict[str, str]:
    """Return the environment that the app is opened with again: without what its bundle put into ours."""
    return clean_environment()


def starting_folder() -> Path | None:
    """Return the folder that a person started the app in; None if it is gone."""
    for folder in filter(None, (os.environ.get("OWD"), os.getcwd())):  # noqa: PTH109 - a text
        if Path(folder).is_dir():
            return Path(folder)
    return None
