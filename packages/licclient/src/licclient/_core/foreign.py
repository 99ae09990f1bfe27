"""Pure: what code of other packages raises. A panic of Rust, for example, is no `Exception`."""

from typing import Final

_STOPS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)


def is_failure(problem: BaseException) -> bool:
    """Return whether something failed; False for what ends a program, generator or task, and must go on."""
    # By its name: asyncio is not loaded for this.
    return not isinstance(problem, _STOPS) and type(problem).__name__ != "CancelledError"
