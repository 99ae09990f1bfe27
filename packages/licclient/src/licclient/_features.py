"""The only place where features are attached to clients, each loaded by its first use.

An answer from the cache needs few of them.
"""

from typing import TYPE_CHECKING, Any, Final, Generic, Never, TypeVar, overload

from licclient._core.lazy import load_module

if TYPE_CHECKING:
    from licclient import _status as status
    from licclient import install
    from licclient._activation import flow as activation
    from licclient._computers.client import AsyncComputers, Computers
    from licclient._core import runners, session
    from licclient._offline import flow as offline
    from licclient._offline.client import AsyncLicenseFileInstaller, LicenseFileInstaller
    from licclient._seats.client import AsyncSeats, Seats
    from licclient._trials import flow as trials
    from licclient._updates import check as updates
    from licclient._updates import download as downloads
    from licclient._uses.client import AsyncUses, Uses
    from licclient._verification import flow as verification
    from licclient._verification import require
    from licclient.install import _flow as installing

_MODULES: Final = {
    "activation": "_activation.flow",
    "downloads": "_updates.download",
    "install": "install",
    "installing": "install._flow",
    "offline": "_offline.flow",
    "require": "_verification.require",
    "runners": "_core.runners",
    "session": "_core.session",
    "status": "_status",
    "trials": "_trials.flow",
    "updates": "_updates.check",
    "verification": "_verification.flow",
}

__all__ = [
    "activation",
    "downloads",
    "install",
    "installing",
    "offline",
    "require",
    "runners",
    "session",
    "status",
    "trials",
    "updates",
    "verification",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = globals()[name] = load_module(f"licclient.{_MODULES[name]}")
    return module


# --- attributes of clients ------------------------------------------------------------------------

F_co = TypeVar("F_co", covariant=True)


class Feature(Generic[F_co]):
    """An attribute of a client with an optional feature; its class is loaded by its first use."""

    def __init__(self, module: str, name: str, doc: str) -> None:
        self._place, self.__doc__ = (module, name), doc

    @overload
    def __get__(self, client: None, owner: type) -> "Feature[F_co]": ...

    @overload
    def __get__(self, client: object, owner: type) -> F_co: ...

    def __get__(self, client: Any, owner: type) -> "Feature[F_co] | F_co":
        if client is None:
            return self
        module, name = self._place
        feature: F_co = getattr(load_module(f"licclient.{module}"), name)(client._access())  # noqa: SLF001
        return feature

    def __set__(self, client: object, value: Never) -> None:
        raise AttributeError("a feature of a client cannot be replaced")


class Features:
    """The optional features of `LicenseClient`, a line each."""

    uses: "Feature[Uses]" = Feature(
        "_uses.client", "Uses", 'Count uses, as `client.uses.consume("exports")` does.'
    )
    seats: "Feature[Seats]" = Feature(
        "_seats.client", "Seats", "Take floating seats, as `with client.seats.take()` does."
    )
    computers: "Feature[Computers]" = Feature(
        "_computers.client", "Computers", "Move a license here, after `client.computers.list()`."
    )
    license_file: "Feature[LicenseFileInstaller]" = Feature(
        "_offline.client",
        "LicenseFileInstaller",
        "License a computer without a network, as `client.license_file.request()` begins to do.",
    )


class AsyncFeatures:
    """The same of `AsyncLicenseClient`."""

    uses: "Feature[AsyncUses]" = Feature("_uses.client", "AsyncUses", "As `LicenseClient.uses`.")
    seats: "Feature[AsyncSeats]" = Feature("_seats.client", "AsyncSeats", "As `LicenseClient.seats`.")
    computers: "Feature[AsyncComputers]" = Feature(
        "_computers.client", "AsyncComputers", "As `LicenseClient.computers`."
    )
    license_file: "Feature[AsyncLicenseFileInstaller]" = Feature(
        "_offline.client", "AsyncLicenseFileInstaller", "As `LicenseClient.license_file`."
    )
