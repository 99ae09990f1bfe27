"""For the tests of apps: a license service that does what it is told, and a clock that moves when told.

With pytest, ask for the fixtures `license_service` and `license_clock`; they come with licclient. Without it,
use `fake_service` as a context manager. The app's clients are constructed as ever, also ones made before the
test began: while the fake is there, none of them touches the network, the disk's state folder, the keyring or
the real clock, whatever address they were given.
"""

from licclient.testing._clock import LicenseClock
from licclient.testing._hooks import fake_service
from licclient.testing._service import LicenseService
from licclient.testing._storage import MemoryStorage
from licclient.testing._told import Misbehaviour, SeenRequest

__all__ = ["LicenseClock", "LicenseService", "MemoryStorage", "Misbehaviour", "SeenRequest", "fake_service"]
