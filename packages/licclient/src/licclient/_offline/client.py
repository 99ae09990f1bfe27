"""`client.license_file`: the license file of a computer without a network, of both clients."""

from os import PathLike
from typing import TYPE_CHECKING, Any

from licclient._core.network import on_daemon_thread
from licclient._offline import flow

if TYPE_CHECKING:
    from licclient._core.model import License
    from licclient._core.session import ClientAccess
    from licclient._offline import texts  # noqa: F401 - which an error names: freezers follow this import


class LicenseFileInstaller:
    """The license file of this computer; `LicenseClient.license_file`."""

    def __init__(self, client: "ClientAccess[Any]") -> None:
        self._client = client

    def request(self) -> str:
        """Return the request for a license file for this computer.

        Raises:
            ValueError: The client was made without `public_keys`.
        """
        return flow.request_file(self._client.session())

    def install(self, file: str | PathLike[str] | bytes) -> "License":
        """Install a license file, by its path or content: it holds until its end without any request.

        Raises:
            LicenseFileError: It cannot be used here; what was installed before stays.
            OSError: It cannot be read.
            ValueError: The client was made without `public_keys`.
        """
        license_ = flow.install_file(self._client.session(), file)
        self._client.look_again()
        return license_


class AsyncLicenseFileInstaller:
    """The twin of `LicenseFileInstaller`; `AsyncLicenseClient.license_file`."""

    def __init__(self, client: "ClientAccess[Any]") -> None:
        self._client = client

    async def request(self) -> str:
        """Return the request for a license file; as `LicenseFileInstaller.request`."""
        session = self._client.session()
        return await on_daemon_thread(lambda: flow.request_file(session))

    async def install(self, file: str | PathLike[str] | bytes) -> "License":
        """Install a license file; as `LicenseFileInstaller.install`."""
        session = self._client.session()
        license_ = await on_daemon_thread(lambda: flow.install_file(session, file))
        self._client.look_again()
        return license_
