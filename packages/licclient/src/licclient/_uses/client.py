"""`client.uses`: metered entitlements, of both clients."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from licclient._uses import flow

if TYPE_CHECKING:
    from licclient._core.runners import Flow
    from licclient._core.session import Session


class Uses:
    """Metered entitlements of the activated license; `LicenseClient.uses`."""

    def __init__(self, run: "Callable[[Flow[int]], int]", open_session: "Callable[[], Session]") -> None:
        self._run, self._open_session = run, open_session

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
        return self._run(flow.consume(self._open_session(), entitlement, amount))


class AsyncUses:
    """The twin of `Uses`; `AsyncLicenseClient.uses`."""

    def __init__(
        self, run: "Callable[[Flow[int]], Awaitable[int]]", open_session: "Callable[[], Session]"
    ) -> None:
        self._run, self._open_session = run, open_session

    async def consume(self, entitlement: str, amount: int = 1) -> int:
        """Use some of a metered entitlement; as `Uses.consume`."""
        return await self._run(flow.consume(self._open_session(), entitlement, amount))
