"""The id of this installation in the system's keyring, where it survives the state folder (D-326).

It is stored with a proof of the computer and the user that it belongs to. A keyring that roams, or was
restored from a backup on another computer, must not make two computers one.
"""

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from licclient._core.activations import KEYRING_SECONDS, QUICK_SECONDS, fetch_soon, store_key
from licclient._core.computer import bind_to_machine, read_machine_id
from licclient._core.lazy import lazy
from licclient._core.window_loop import is_in_window_loop
from licclient.errors import StateUnreadableError

if TYPE_CHECKING:
    import hmac
else:
    hmac = lazy("hmac")

_LONGEST: Final = 64
"""Letters of an id; ours have 32."""


def fetch_id(account: str) -> str | None:
    """Return the id that this user stored on this computer; None without one or without a working keyring.

    A locked keyring is waited for as long as a person may take, but not in the event loop of windows.
    """
    stored = fetch_soon(account, QUICK_SECONDS if is_in_window_loop() else KEYRING_SECONDS)
    installation_id, _, proof = (stored or "").partition(" ")
    if not 0 < len(installation_id) <= _LONGEST or not installation_id.isalnum():
        return None
    expected = _prove(account, installation_id)
    is_ours = expected is not None and hmac.compare_digest(proof.encode(), expected.encode())
    return installation_id if is_ours else None


def store_id(account: str, installation_id: str) -> None:
    """Store the id for this computer and user, in place of any other; never raises."""
    if fetch_id(account) == installation_id:
        return
    proof = _prove(account, installation_id)
    if proof is not None:
        store_key(account, f"{installation_id} {proof}")


def _prove(account: str, installation_id: str) -> str | None:
    """Return what only this computer and user have; None if the computer has no id that can be read."""
    machine_id = None
    with suppress(StateUnreadableError):
        machine_id = read_machine_id()
    home = os.path.expanduser("~")  # noqa: PTH111 - a user without one has this text
    return bind_to_machine(f"{account} {installation_id} {home}", machine_id) if machine_id else None
