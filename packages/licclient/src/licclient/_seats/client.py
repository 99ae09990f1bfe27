"""`client.seats`: floating seats, of both clients."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from licclient._seats.seat import AsyncSeat, Seat

if TYPE_CHECKING:
    from licclient._core.runners import Deliver
    from licclient._seats.seat import OnLost


class Seats:
    """Floating seats of a license; `LicenseClient.seats`."""

    def __init__(
        self, create: "Callable[[type[Seat], str | None, OnLost | None, Deliver | None], Seat]"
    ) -> None:
        self._create = create

    def take(
        self, key: str | None = None, *, on_lost: "OnLost | None" = None, deliver: "Deliver | None" = None
    ) -> Seat:
        """Take one of the floating seats of a license, and renew it until it is released.

        ::

            with client.seats.take(on_lost=save_and_warn) as seat:  # raises `NoSeatError` if all are in use
                ...

        Without `with`, call `release` of the seat at the end.

        Args:
            key: As in `verify`.
            on_lost: Called once with a `LicclientError` if the seat is lost.
            deliver: As in `start`.

        Raises:
            NoSeatError: All are in use, or the license or the service has none.
            NotActivatedError: No key was given, and none was activated on this computer.
            LicclientError: As `verify`.
            TypeError: Something that cannot be called, or a coroutine function.
        """
        return self._create(Seat, key, on_lost, deliver).take_first()


class AsyncSeats:
    """The twin of `Seats`; `AsyncLicenseClient.seats`."""

    def __init__(
        self, create: "Callable[[type[AsyncSeat], str | None, OnLost | None, Deliver | None], AsyncSeat]"
    ) -> None:
        self._create = create

    def take(
        self, key: str | None = None, *, on_lost: "OnLost | None" = None, deliver: "Deliver | None" = None
    ) -> AsyncSeat:
        """Take a seat; as `Seats.take`: `async with client.seats.take():`, or `await client.seats.take()`."""
        return self._create(AsyncSeat, key, on_lost, deliver)
