"""Pure: trials of `licclient.testing.LicenseService`."""


class FakeTrials:
    """The trials that are offered, and the key of each computer that has started one."""

    def __init__(self) -> None:
        self._offers: dict[str, tuple[str, int]] = {}  # slug → product and days
        self._keys: dict[tuple[str, str], str] = {}  # slug and machine → key

    def offer(self, slug: str, product: str, days: int) -> None:
        """Offer trials of a product, for so many days."""
        self._offers[slug] = product, days

    def find_offer(self, slug: str) -> tuple[str, int] | None:
        """Return product and days; None if no trials of this product are offered."""
        return self._offers.get(slug)

    def start(self, slug: str, machine: str, new_key: str) -> str:
        """Return the key of the computer's trial: `new_key` if it is its first one."""
        return self._keys.setdefault((slug, machine), new_key)
