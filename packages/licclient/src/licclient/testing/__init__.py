"""For the tests of apps: a license service in memory, a clock that tests move, storage in memory.

With pytest, use the fixtures `license_service` and `license_clock`; they come with licclient::

    def test_export_is_locked_after_a_refund(license_service):
        app = App(license_service.client(SETTINGS))  # the app's own `ClientSettings`
        key = license_service.issue("Notes Pro", activated=True)

Without pytest, `with LicenseService() as service:` is the same. Nothing is patched: clients get the service's
`transport=`, `storage=` and `clock=`, so that neither network, disk, keyring nor the real clock is used.
`answer_dialog` types a key into the next ready dialog, and presses its buttons.
"""

from licclient.testing._clients import LicenseClock, MemoryStorage, Misbehaviour, SeenRequest
from licclient.testing._dialogs import answer_dialog
from licclient.testing._service import LicenseService

__all__ = ["LicenseClock", "LicenseService", "MemoryStorage", "Misbehaviour", "SeenRequest", "answer_dialog"]
