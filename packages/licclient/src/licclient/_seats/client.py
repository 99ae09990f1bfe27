"""`client.seats`: floating seats, of both clients."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from licclient._core.arguments import check_call, check_text
from licclient._seats.seat import AsyncSeat, BaseSeat, Seat

if TYPE_CHECKING:
    from licclient._core.async_transport import AsyncTransport
    from licclient._core.runners import Deliver
    from licclient._core.session import ClientAccess
    from licclient._core.transport import Transport
    from licclient._seats import texts  # noqa: F401 - which an error names: freezers follow this import
    from licclient._seats.seat import OnLost

S = TypeVar("S", bound=BaseSeat[Any])


class Seats:
    """Floating seats of a license; `LicenseClient.seats`."""

    def __init__(self, client: "ClientAccess[Transport]") -> None:
        self._client = client

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
        return create(Seat, self._client, key, on_lost, deliver).take_first()


class AsyncSeats:
    """The twin of `Seats`; `AsyncLicenseClient.seats`."""

    def __init__(self, client: "ClientAccess[AsyncTransport]") -> None:
        self._client = client

    def take(
        self, key: str | None = None, *, on_lost: "OnLost | None" = None, deliver: "Deliver | None" = None
    ) -> AsyncSeat:
        """Take a seat; as `Seats.take`: `async with client.seats.take():`, or `await client.seats.take()`."""
        return create(AsyncSeat, self._client, key, on_lost, deliver)


def create(
    kind: Callable[..., S],
    client: "ClientAccess[Any]",
    key: str | None,
    on_lost: "OnLost | None",
    deliver: "Deliver | None",
) -> S:
    """Return a seat that is not taken yet, and is released at the latest when its client is closed."""
    check_text("key", key)
    check_call("on_lost", on_lost)
    check_call("deliver", deliver)
    seat = kind(client.session(), client.transport, key, on_lost, deliver)
    seat.check_open = client.session
    client.release_at_close(seat)
    return seat
