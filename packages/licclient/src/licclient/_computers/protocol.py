"""Pure: the request for the computers of a license, the one to move it here, and their responses."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, ClassVar, Final

from licclient._core.arguments import is_text
from licclient._core.model import MoveObstacle, Reason, Settings
from licclient._core.requests import Call, post_call, read_date, read_instant
from licclient._core.responses import (
    LICENSE_REFUSALS,
    Reply,
    masked,
    read_failure,
    read_json_object,
    unusable_reply,
)
from licclient.errors import LicclientError, MoveError

COMPUTERS_PATH: Final = "/api/v1/licenses/computers"
MOVE_PATH: Final = "/api/v1/licenses/move"

MAX_LIST_BYTES: Final = 256 * 1024
"""Longest response that is read: a hundred computers, each name written with escapes only."""

MOST_COMPUTERS: Final = 100
"""How many entries are read."""

MAX_COMPUTER_NAME: Final = 80
"""Letters of a computer's name; as long as a label."""

MAX_ID: Final = 128

_REFUSALS: Final = {
    **LICENSE_REFUSALS,
    "invalid_license": Reason.NOT_FOUND,
    "license_revoked": Reason.REVOKED,
}


@dataclass(frozen=True, slots=True)
class Computer:
    """A computer that uses a license.

    Attributes:
        id: Names it in a request to move the license; it is no installation id.
        name: What its user called it; None without a name.
        masked_id: The ends of its installation id or domain, for a computer without a name.
        last_seen: The last day, UTC, on which it was verified; None if the service does not send it.
        is_this: Whether it is this computer.
        is_movable: Whether the license can be moved away from it now, as far as this computer is concerned.
        retry_at: When that is possible again, aware, UTC; None if no time is known.
    """

    id: str
    name: str | None
    masked_id: str
    last_seen: date | None
    is_this: bool
    is_movable: bool
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MovedTo:
    """Where the license of this computer was moved to; `on` is the day, UTC."""

    name: str | None
    masked_id: str
    on: date


@dataclass(frozen=True, slots=True)
class ComputerList:
    """The computers of a license; `explain` has a sentence for it.

    Attributes:
        slots: How many computers the license allows; None without a limit.
        used: How many slots are in use.
        computers: Those that use them, the one that was seen last first; at most 100.
        moves_left: How often the license can be moved now.
        retry_at: When it can be moved again, aware, UTC; None if it can now, or no time is known.
        moved_to: Where the license was moved to from this computer; None if it was not, or is back.
    """

    slots: int | None
    used: int
    computers: tuple[Computer, ...]
    moves_left: int
    retry_at: datetime | None = None
    moved_to: MovedTo | None = None
    _texts: ClassVar[str] = "licclient._computers.texts"


def computers_call(settings: Settings, key: str, domain: str) -> Call:
    """Return the request for the computers of a license."""
    call = post_call(settings, COMPUTERS_PATH, {"license_key": key, "domain": domain})
    return call._replace(max_bytes=MAX_LIST_BYTES)


def move_call(settings: Settings, key: str, domain: str, ip: str, computer_id: str) -> Call:
    """Return the request to move the license from a computer to this one; `ip` is as for a verify."""
    fields = {"license_key": key, "domain": domain, "ip": ip, "from": computer_id, **settings.machine}
    return post_call(settings, MOVE_PATH, fields)


def read_computers(reply: Reply, key: str) -> ComputerList | LicclientError:
    """Parse the response with the computers of a license; an entry that cannot be read is left out."""
    body = read_json_object(reply.body)
    match reply.status, body:
        case 200, {"computers": list(entries), "slots": int() | None as slots, "used": used} if (
            _is_count(used) and (slots is None or _is_count(slots)) and _is_count(body.get("moves_left"))
        ):
            read = (_read_computer(entry, key) for entry in entries[:MOST_COMPUTERS])
            computers = tuple(computer for computer in read if computer is not None)
            retry_at, moved_to = read_instant(body.get("retry_at")), _read_moved_to(body.get("moved_to"), key)
            return ComputerList(slots, used, computers, body["moves_left"], retry_at, moved_to)
        case _:
            return _read_move_failure(reply, key)


def read_move(reply: Reply, key: str) -> bool | LicclientError:
    """Parse the response to a move: whether the license was moved, or was here already."""
    match reply.status, read_json_object(reply.body):
        case 200, {"moved": bool(is_moved)}:
            return is_moved
        case 200, _:
            return unusable_reply(reply)
        case _:
            return _read_move_failure(reply, key)


def not_supported() -> MoveError:
    """Return the error for a service without these requests."""
    return MoveError(
        MoveObstacle.NOT_SUPPORTED, "This license service does not move licenses between computers."
    )


def _read_move_failure(reply: Reply, key: str) -> LicclientError:
    match reply.status, read_json_object(reply.body):
        case 403, {
            "error": "too_many_moves" | "file_held" | "not_allowed" as code,
            "message": str(words),
            **more,
        } if is_text(words):
            return MoveError(MoveObstacle(code), masked(words, key), read_instant(more.get("retry_at")))
        case 404, {"error": "computer_not_found" as code, "message": str(words)} if is_text(words):
            return MoveError(MoveObstacle(code), masked(words, key))
        case _:
            return read_failure(reply, key, _REFUSALS)


def _read_computer(entry: object, key: str) -> Computer | None:
    match entry:
        case {
            "id": str(id_),
            "is_this": bool(is_this),
            "can_move": bool(is_movable),
            **more,
        } if 0 < len(id_) <= MAX_ID and id_.isascii() and id_.isprintable():
            name, masked_id = _read_name(more.get("name"), key), _read_name(more.get("masked"), key)
            seen, retry_at = read_date(more.get("last_seen")), read_instant(more.get("retry_at"))
            return Computer(id_, name, masked_id or id_[:4] + "…", seen, is_this, is_movable, retry_at)
        case _:
            return None


def _read_moved_to(value: object, key: str) -> MovedTo | None:
    match value:
        case {"on": str(on), **more} if (day := read_date(on)) is not None:
            return MovedTo(_read_name(more.get("name"), key), _read_name(more.get("masked"), key) or "…", day)
        case _:
            return None


def _read_name(value: object, key: str) -> str | None:
    """Read what people called a computer, in one line; leave out what does not print or looks like a key."""
    if not isinstance(value, str) or not is_text(value):
        return None
    text = "".join(filter(str.isprintable, " ".join(value[: 4 * MAX_COMPUTER_NAME].split())))
    return masked(text, key)[:MAX_COMPUTER_NAME].strip() or None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
