"""What the flows of one client share."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from licclient._activation import Activations
from licclient._clock import Clock, checked
from licclient._model import Settings
from licclient._records import record_name
from licclient._storage import Storage
from licclient._successes import Successes

if TYPE_CHECKING:
    from licclient._flows.updates import UpdateCheck
    from licclient._license_files import Installed, LicenseFiles
    from licclient._signatures.releases import SignedReleases


@dataclass(eq=False)
class Context:
    """The parts of one client that its flows use. Safe to share among threads.

    Attributes:
        now: Returns the present instant; aware, UTC.
        installation: Name of the record with this installation's id (D-45).
        worker_pause: Seconds after which a worker reads the clock again, if it is one for tests; else None.
    """

    settings: Settings
    now: Callable[[], datetime]
    storage: Storage
    activations: Activations
    successes: Successes
    installation: str
    worker_pause: float | None
    last_update_check: "UpdateCheck | None" = None

    @cached_property
    def releases(self) -> "SignedReleases":
        """What the vendor signed about releases."""
        from licclient._signatures.releases import SignedReleases  # noqa: PLC0415 - most starts offer nothing

        return SignedReleases(self.settings, self.storage)

    @cached_property
    def license_files(self) -> "LicenseFiles":
        """The license file of this computer; for apps with pinned keys."""
        from licclient._flows.verification import installation_domain  # noqa: PLC0415 - it imports this module
        from licclient._license_files import LicenseFiles  # noqa: PLC0415 - for apps with pinned keys

        return LicenseFiles(self.settings, self.storage, lambda: installation_domain(self))

    def license_file(self, key: str | None = None) -> "Installed | None":
        """Return the installed license file, if it is for this key."""
        return self.license_files.find(self.now(), key) if self.settings.public_keys else None


def create_context(settings: Settings, clock: Clock | None, storage: Storage) -> Context:
    """Create the context of a client; without a clock it reads the real one."""
    activations, successes = Activations(settings, storage), Successes(settings, storage)
    pause = getattr(clock, "worker_pause", None)
    installation = record_name("installation", settings.server)
    return Context(settings, checked(clock), storage, activations, successes, installation, pause)
