"""List the computers of a license, and move it to this one (D-324)."""

from collections.abc import Callable

from licclient._computers.protocol import (
    Computer,
    ComputerList,
    computers_call,
    move_call,
    not_supported,
    read_computers,
    read_move,
)
from licclient._core.arguments import wrong_type
from licclient._core.model import License
from licclient._core.runners import Flow, OwnAddress
from licclient._core.session import Session, call_name, wait_for
from licclient.errors import LicclientError

Activate = Callable[[Session, str], Flow[License]]
"""Verifies a key by a call, and remembers it."""


def list_computers(session: Session, typed: str | None) -> Flow[ComputerList]:
    """Return the computers of a license; errors are those of `Computers.list`."""
    key, subject = session.license(typed)
    answer = yield from session.call(
        computers_call(session.settings, key, subject.domain),
        lambda reply: read_computers(reply, key),
        key,
        unknown=not_supported(),
    )
    if isinstance(answer, LicclientError):
        raise answer
    return answer


def move_here(session: Session, computer: Computer, typed: str | None, activate: Activate) -> Flow[License]:
    """Move the license from a computer to this one, then verify and remember its key."""
    if not isinstance(computer, Computer):
        raise wrong_type("computer", "an item of client.computers.list().computers", computer)
    key, subject = session.license(typed)
    session.activations.find()  # before the slot is taken: it must be possible to remember the key
    timeout = session.settings.timeout.total_seconds()
    # A verify that was sent before the move must not answer the one that follows it.
    with session.lock(call_name(subject)) as lock:
        yield from wait_for(lock)
        address: str = yield OwnAddress()
        answer = yield from session.call(
            move_call(session.settings, key, subject.domain, address, computer.id),
            lambda reply: read_move(reply, key),
            key,
            unknown=not_supported(),
            seconds=lock.left(timeout),
        )
    if isinstance(answer, LicclientError):
        raise answer
    return (yield from activate(session, key))
