"""Every flow of a client, against a service that has all endpoints; and what a client holds meanwhile."""

import os
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

TRIAL_KEY: Final = "CP-TRIAL1-DEF456-GHI789-JKL012-MNO345"
USAGE: Final = {"name": "exports", "used": 1, "limit": 9, "remaining": 8, "resets_at": "2027-01-01T00:00:00Z"}
SEAT: Final = {"expires_at": "2026-11-20T12:02:00Z", "lease_seconds": 120, "seats": 5, "used": 1}
GRANT: Final = {"valid": True, "product": "Notes", "expiry": None, "lifetime": True}

COMPUTER: Final = {"id": "9f" * 16, "is_this": False, "can_move": True}
COMPUTERS: Final = {"slots": 1, "used": 1, "moves_left": 3, "computers": [COMPUTER]}

ANSWERS: Final = {
    "licenses/computers": COMPUTERS,
    "licenses/move": {"moved": True},
    "licenses/verify": GRANT,
    "licenses/deactivate": {"deactivated": 1},
    "licenses/trial": {"license_key": TRIAL_KEY},
    "licenses/consume": USAGE,
}


def hold_seat(store: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Take, renew or release a seat."""
    if fields.get("release"):
        was_held = fields["seat"] in store.held
        store.held.discard(fields["seat"])
        return {"released": was_held}
    store.held.add(fields["seat"])
    return {"seat": fields["seat"], **SEAT}


def serve_all(store: Any) -> None:
    """Have a store's service answer at each endpoint; `store.held` are the seats in use."""
    sell = store.reply
    store.held = set()

    def reply(request: Any) -> bytes:
        if request.path.endswith("seat"):
            return store.answer(200, hold_seat(store, request.json))
        for path, body in ANSWERS.items():
            if request.path.endswith(path):
                return store.answer(200, body)
        return sell(request)

    store.service.script = reply


async def _activated(client: Any, key: str) -> None:
    await client.activate(key)


async def _forgotten(client: Any, key: str) -> None:
    """Activate, and lose the answer: the next call asks."""
    await client.activate(key)
    for path in client.client.state_folder.glob("license-*.state"):
        path.unlink()


async def _nothing(client: Any, key: str) -> None:
    pass


async def _download(client: Any, key: str, folder: Path) -> None:
    await client.download((await client.check_for_update(key, force=True)).update, folder)


async def _seat(client: Any, key: str, folder: Path) -> None:
    seat = client.client.seats.take(key)
    if isinstance(seat, Awaitable):
        await seat
    if isinstance(done := seat.release(), Awaitable):
        await done


async def _move(client: Any, key: str, folder: Path) -> None:
    computers = client.client.computers.list(key)
    if isinstance(computers, Awaitable):
        computers = await computers
    moved = client.client.computers.move_here(computers.computers[0], key)
    if isinstance(moved, Awaitable):
        await moved


Flow = Callable[[Any, str, Path], Awaitable[Any]]

FLOWS: Final[dict[str, tuple[Callable[[Any, str], Awaitable[None]], Flow]]] = {
    "verify": (_nothing, lambda client, key, _: client.verify(key)),
    "activate": (_nothing, lambda client, key, _: client.activate(key)),
    "require": (_forgotten, lambda client, _key, _: client.require()),
    "start_trial": (_nothing, lambda client, _key, _: client.start_trial()),
    "deactivate": (_nothing, lambda client, key, _: client.deactivate(key)),
    "consume": (_activated, lambda client, _key, _: client.uses.consume("exports")),
    "check_for_update": (_activated, lambda client, _key, _: client.check_for_update(force=True)),
    "download": (_activated, _download),
    "seat": (_activated, _seat),
    "move": (_nothing, _move),
}
"""Name → what prepares a client for it, and the flow."""


def threads() -> list[str]:
    """Name the threads of clients."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("licclient")]


def descriptors() -> int:
    """Count the open files and sockets of this process; 0 where the system does not list them."""
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0  # noqa: PTH208 - no Path for each
