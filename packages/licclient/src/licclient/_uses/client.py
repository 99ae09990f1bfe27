"""`client.uses`: metered entitlements, of both clients."""

from typing import TYPE_CHECKING, Any

from licclient._uses import flow

if TYPE_CHECKING:
    from licclient._core.session import ClientAccess
    from licclient._uses import texts  # noqa: F401 - which an error names: freezers follow this import


class Uses:
    """Metered entitlements of the activated license; `LicenseClient.uses`."""

    def __init__(self, client: "ClientAccess[Any]") -> None:
        self._client = client

    def consume(self, entitlement: str, amount: int = 1) -> int:
        """Use some of a metered entitlement of the activated license, such as ``"exports"``.

        The service counts it, exactly once. While it does not answer a small part may be used, which is
        reported to it later: a tenth of the limit, at least 1, and never more than is left.

        Returns:
            How much is left of the period.

        Raises:
            QuotaExceededError: It exceeds the rest of the quota; `resets_at` is when the next period begins.
            NotEntitledError: The license has no such metered entitlement.
            NotActivatedError: No key has been activated on this computer.
            LicenseRefusedError: The license does not hold, or not on this computer.
            ServiceUnavailableError: No answer, and nothing is left to be used without one.
            UntrustedResponseError: As `verify`.
        """
        remaining: int = self._client.run(flow.consume(self._client.session(), entitlement, amount))
        return remaining


class AsyncUses:
    """The twin of `Uses`; `AsyncLicenseClient.uses`."""

    def __init__(self, client: "ClientAccess[Any]") -> None:
        self._client = client

    async def consume(self, entitlement: str, amount: int = 1) -> int:
        """Use some of a metered entitlement; as `Uses.consume`."""
        remaining: int = await self._client.run(flow.consume(self._client.session(), entitlement, amount))
        return remaining
