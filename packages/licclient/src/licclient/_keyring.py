"""The only file that names `keyring`: the operating system's place for secrets, when the extra is installed.

Importing keyring looks through all installed packages, and asking it may wake a service; so both happen
only when a key is stored, or fetched for a call. Whatever goes wrong there is "not here": a private file
stands in.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

SECONDS: Final = 10.0
"""How long to wait for it: a locked one asks the person for a password, one without a desktop may hang."""

_SERVICE: Final = "licclient"

_T = TypeVar("_T")


def store(account: str, key: str) -> bool:
    """Put a key there; False when there is no keyring that works.

    Args:
        account: The name of the activation: a digest.
        key: The license key.
    """

    def work() -> bool:
        import keyring  # noqa: PLC0415 - an extra

        if not _is_safe(keyring.get_keyring()):
            return False
        keyring.set_password(_SERVICE, account, key)
        # Some backends take everything and keep nothing.
        return keyring.get_password(_SERVICE, account) == key

    try:
        return _patiently(work)
    except Exception:  # noqa: BLE001 - every backend fails in its own way, and its words may hold the key
        return False


def fetch(account: str) -> str | None:
    """Take a key out; None when it is not there, or cannot be had now."""

    def work() -> str | None:
        import keyring  # noqa: PLC0415 - an extra

        return keyring.get_password(_SERVICE, account)

    try:
        return _patiently(work)
    except Exception:  # noqa: BLE001 - as above
        return None


def drop(account: str) -> None:
    """Remove a key, if it is there."""

    def work() -> None:
        import keyring  # noqa: PLC0415 - an extra

        keyring.delete_password(_SERVICE, account)

    with suppress(Exception):  # as above; it may be gone already
        _patiently(work)


def describe() -> str:
    """Say which keyring there is, for support."""

    def work() -> str:
        import keyring  # noqa: PLC0415 - an extra

        found = keyring.get_keyring()
        name = f"{type(found).__module__}.{type(found).__name__}"
        return name if _is_safe(found) else f"{name}, not used"

    try:
        return _patiently(work)
    except ImportError:
        return "not installed (the extra licclient[keyring])"
    except Exception as problem:  # noqa: BLE001 - as above
        return f"does not work ({type(problem).__name__})"


def _patiently(work: Callable[[], _T]) -> _T:
    from licclient._sockets import within  # noqa: PLC0415 - loads socket, which most starts do without

    return within(SECONDS, work)


def _is_safe(backend: object) -> bool:
    """Tell a real keyring from the stand-ins: "fail", "null", and the plain-text files of keyrings.alt."""
    module = type(backend).__module__
    priority = getattr(backend, "priority", 0)
    return not module.startswith(("keyring.backends.fail", "keyring.backends.null", "keyrings.alt")) and (
        priority > 0
    )
