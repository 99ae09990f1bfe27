"""Pure: floating seats of `licclient.testing.LicenseService`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, Final

LEASE: Final = timedelta(minutes=2)


@dataclass(slots=True)
class FakeSeats:
    """The seats of a license; `count` is None for a license that is not floating."""

    count: int | None = None
    held: dict[str, datetime] = field(default_factory=dict)  # until when
    lost: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Check the number."""
        if self.count is not None and self.count < 0:
            raise ValueError("seats must not be negative")

    def take_back(self) -> None:
        """Take all of them back: the apps learn so when they renew them."""
        self.lost |= self.held.keys()
        self.held = {}

    def release(self, fields: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """Return the response to a request to release a seat."""
        return {"released": self._remaining(now).pop(fields["seat"], None) is not None}

    def respond(self, fields: Mapping[str, Any], now: datetime) -> tuple[int, dict[str, Any]]:
        """Return status and body of the response to a request to take or renew a seat."""
        seat, held = fields["seat"], self._remaining(now)
        if self.count is None:
            return 403, {"error": "not_floating", "message": "This license has no floating seats."}
        if seat in self.lost:
            message = "This seat was released or taken back; take another one."
            return 403, {"error": "seat_lost", "message": message}
        if seat not in held and len(held) >= self.count:
            end, message = min(held.values()), f"All {self.count} seats of this license are in use."
            when = {"retry_at": _format(end), "retry_after": ceil((end - now).total_seconds())}
            return 403, {"error": "no_seat", "message": message, "seats": self.count, **when}
        held[seat] = now + LEASE
        body = {"seat": seat, "expires_at": _format(held[seat]), "lease_seconds": LEASE.seconds}
        return 200, {**body, "seats": self.count, "used": len(held)}

    def _remaining(self, now: datetime) -> dict[str, datetime]:
        """Return the seats that are held, without those that have ended."""
        self.held = {seat: end for seat, end in self.held.items() if end > now}
        return self.held


def _format(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
