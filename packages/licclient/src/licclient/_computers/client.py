"""`client.computers`: the computers of a license, of both clients."""

from typing import TYPE_CHECKING, Any

from licclient._computers import flow
from licclient._computers.protocol import Computer, ComputerList
from licclient._core.model import License

if TYPE_CHECKING:
    from licclient._computers import texts  # noqa: F401 - which an error names: freezers follow this import
    from licclient._core.session import ClientAccess


class Computers:
    """The computers that use a license; `LicenseClient.computers`."""

    def __init__(self, client: "ClientAccess[Any]") -> None:
        self._client = client

    def list(self, key: str | None = None) -> ComputerList:
        """Return the computers that use the license, this one marked, and how often it can be moved.

        Also if the license is full, and after it was moved away from this computer.

        Args:
            key: As in `verify`.

        Raises:
            MoveError: The service cannot list them, or leaves moves to the vendor's support.
            NotActivatedError: No key was given, and none was activated on this computer.
            LicenseRefusedError: The license is unknown, revoked or expired.
            ServiceUnavailableError: No answer.
            UntrustedResponseError: As `verify`.
        """
        computers: ComputerList = self._client.run(flow.list_computers(self._client.session(), key))
        return computers

    def move_here(self, computer: Computer, key: str | None = None) -> License:
        """Move the license from a computer to this one, and remember its key as `activate` does.

        ::

            computers = client.computers.list(key).computers
            client.computers.move_here(ask_which(computers), key)

        All slots of that computer are free then, and one is this computer's. It counts as one of the moves
        that the vendor allows in 30 days; nothing is counted if this computer has a slot already.

        Args:
            computer: One of `list`.
            key: As in `verify`; the same as for `list`.

        Raises:
            MoveError: The license stays where it is; `obstacle` is why, and `retry_at` when it can be moved.
            TypeError: `computer` is not an item of `list`.
            LicclientError: As `list` and `activate`.
        """
        access = self._client
        license_: License = access.run(flow.move_here(access.session(), computer, key, access.activate))
        access.look_again()
        return license_


class AsyncComputers:
    """The twin of `Computers`; `AsyncLicenseClient.computers`."""

    def __init__(self, client: "ClientAccess[Any]") -> None:
        self._client = client

    async def list(self, key: str | None = None) -> ComputerList:
        """Return the computers that use the license; as `Computers.list`."""
        computers: ComputerList = await self._client.run(flow.list_computers(self._client.session(), key))
        return computers

    async def move_here(self, computer: Computer, key: str | None = None) -> License:
        """Move the license from a computer to this one; as `Computers.move_here`."""
        access = self._client
        license_: License = await access.run(flow.move_here(access.session(), computer, key, access.activate))
        access.look_again()
        return license_
