"""Pure: the computers of a license of `licclient.testing.LicenseService`, and moves between them (D-218)."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple

MOVES_COUNT_FOR: Final = timedelta(days=30)
_LEAST_MASKED: Final = 16
_NOT_ALLOWED: Final = "Computers of this license are changed by support; write to them."

Answer = tuple[int, dict[str, Any]]
"""Status and body of a response."""


class _Move(NamedTuple):
    at: datetime
    source: str
    target: str


@dataclass(slots=True)
class FakeComputers:
    """What is known of the computers of a license; `allowed` is how often it can be moved in 30 days."""

    allowed: int = 3
    last_seen: dict[str, datetime] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    files: dict[str, datetime] = field(default_factory=dict)  # until when a license file holds the slot
    moves: list[_Move] = field(default_factory=list)
    counted: list[_Move] = field(default_factory=list)  # those that did at the last move

    def note(self, domain: str, label: object, now: datetime) -> None:
        """Note that a computer was verified."""
        self.last_seen[domain] = now
        if isinstance(label, str):
            self.names[domain] = label

    def note_move(self, source: str, target: str, now: datetime) -> None:
        """Note that the license was moved from one domain to another."""
        move = _Move(now, source, target)
        self.moves.append(move)
        self.counted.append(move)

    def respond(self, domains: Collection[str], domain: str, slots: int | None, now: datetime) -> Answer:
        """Return the response with the computers that have a slot, to the one of this domain."""
        if not self.allowed:
            return _refuse("not_allowed", _NOT_ALLOWED, None)
        newest = sorted(domains, key=lambda entry: (self._seen(entry, now), entry), reverse=True)
        counted = self._counted({*domains, domain}, now)
        left = max(0, self.allowed - len(counted))
        body: dict[str, Any] = {"slots": slots, "used": len(domains), "moves_left": left, "retry_at": None}
        if not left:
            body["retry_at"] = _format(counted[-self.allowed].at + MOVES_COUNT_FOR)
        body["computers"] = [self._describe(entry, domain, now) for entry in newest]
        return 200, {**body, "moved_to": self._find_moved_to(domains, domain)}

    def move(self, domains: set[str], domain: str, computer_id: str, now: datetime) -> Answer:
        """Move the license to this domain; return the response."""
        if not self.allowed:
            return _refuse("not_allowed", _NOT_ALLOWED, None)
        if domain in domains:
            return 200, {"moved": False}
        source = next((entry for entry in domains if name_computer(entry) == computer_id), None)
        if source is None:
            return 404, {
                "error": "computer_not_found",
                "message": "This computer holds no slot of the license any more; list its computers again.",
            }
        if (held_until := self.files.get(source, now)) > now:
            day = f"{held_until.astimezone(UTC):%Y-%m-%d}"
            words = (
                f"This computer has a license file until {day}; its slot can be moved then, or by support."
            )
            return _refuse("file_held", words, held_until)
        counted = self._counted({*domains, domain}, now)
        if len(counted) >= self.allowed:
            again = counted[-self.allowed].at + MOVES_COUNT_FOR
            day = f"{again.astimezone(UTC):%Y-%m-%d}"
            words = (
                f"This license was moved as often as it may be in 30 days; it can be moved again on {day}."
            )
            return _refuse("too_many_moves", words, again)
        domains.remove(source)
        domains.add(domain)
        self.counted = counted
        self.note_move(source, domain, now)
        return 200, {"moved": True, "from": self._name(source)}

    def _counted(self, domains: Collection[str], now: datetime) -> list[_Move]:
        """Return the moves that count: not the last one of a computer that is back, nor the one before.

        The computer that asks counts as back: to take the license back is free.
        """
        counted = [move for move in self.counted if now - move.at < MOVES_COUNT_FOR]
        while returned := [move for move in counted[-2:] if move.source in domains]:
            counted.remove(returned[-1])
        return counted

    def _describe(self, entry: str, domain: str, now: datetime) -> dict[str, Any]:
        held_until = self.files.get(entry, now)
        is_held = held_until > now
        return {
            "id": name_computer(entry),
            **self._name(entry),
            "last_seen": f"{self._seen(entry, now):%Y-%m-%d}",
            "is_this": entry == domain,
            "can_move": not is_held,
            "retry_at": _format(held_until) if is_held else None,
        }

    def _find_moved_to(self, domains: Collection[str], domain: str) -> dict[str, Any] | None:
        if domain in domains:
            return None
        away = [move for move in self.moves if move.source == domain]
        return {**self._name(away[-1].target), "on": f"{away[-1].at:%Y-%m-%d}"} if away else None

    def _name(self, entry: str) -> dict[str, Any]:
        return {"name": self.names.get(entry), "masked": mask_domain(entry)}

    def _seen(self, entry: str, now: datetime) -> datetime:
        return self.last_seen.get(entry, now).astimezone(UTC)


def name_computer(domain: str) -> str:
    """Return the id of a computer in a list."""
    return sha256(domain.encode()).hexdigest()[:32]


def mask_domain(domain: str) -> str:
    """Return the ends of a domain."""
    return f"{domain[:4]}…{domain[-4:]}" if len(domain) >= _LEAST_MASKED else f"{domain[:1]}…"


def _refuse(code: str, message: str, retry_at: datetime | None) -> Answer:
    at = None if retry_at is None else _format(retry_at)
    return 403, {"error": code, "message": message, "retry_at": at}


def _format(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
