"""Which client class a test runs with: see the fixture `flavour`.

Both classes call the same code, so a behavior is tested with the synchronous one. What differs (cancellation,
lifecycle, the event loop) is tested with `asynchronous` or `both`; `test_async` calls each method once.
"""

import pytest

from licclient import AsyncLicenseClient, LicenseClient

both = pytest.mark.parametrize(
    "flavour", [LicenseClient, AsyncLicenseClient], indirect=True, ids=["sync", "async"]
)
asynchronous = pytest.mark.parametrize("flavour", [AsyncLicenseClient], indirect=True, ids=["async"])
