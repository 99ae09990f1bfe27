"""Gate features of a Python desktop app on a license key, and find and download its updates.

::

    client = LicenseClient("https://licenses.example.com", product="Notes Pro", slug="notes", version="1.4.0")

    client.activate(typed)        # verify a key that a person typed, and remember it
    client.require()              # return the license, or raise; `@client.licensed` does so before a function
    client.check_for_update()     # `update` of the result is for `client.download(update, folder)`
    client.start(on_update=show)  # verify and check in the background

All that is raised is a `LicclientError`; `explain(problem)` says it in the person's language.

Here is what an app calls and gets. `licclient.errors` has all errors, and `licclient.types` what is named in
annotations only: workers, callbacks, `Storage`. Ready windows are in `licclient.dialogs.tk` and `.qt`;
`licclient.deliver` calls back on their thread, `licclient.install` installs a download, and tests of apps use
`licclient.testing`. Modules with an underscore are private.

Importing this one opens no file, no socket and no thread, and loads no HTTP library.
"""

from typing import TYPE_CHECKING

from licclient import errors
from licclient._client import LicenseClient
from licclient._core import __version__
from licclient._core.lazy import load_module
from licclient._core.model import Entitlements, License, Outage, Quota, Reason, Source
from licclient.errors import LicclientError

if TYPE_CHECKING:
    from licclient import types as types
    from licclient._async_client import AsyncLicenseClient
    from licclient._core.settings import ClientSettings, Pages, Trust, Updates
    from licclient._core.status import LicenseState, LicenseStatus
    from licclient._core.update_model import Downloaded, Update, UpdateCheck
    from licclient._explain import explain

__all__ = [
    "AsyncLicenseClient",
    "ClientSettings",
    "Downloaded",
    "Entitlements",
    "LicclientError",
    "License",
    "LicenseClient",
    "LicenseState",
    "LicenseStatus",
    "Outage",
    "Pages",
    "Quota",
    "Reason",
    "Source",
    "Trust",
    "Update",
    "UpdateCheck",
    "Updates",
    "__version__",
    "explain",
]


# D-311. Not needed by a start that is answered from the cache, so loaded when they are asked for.
_LATER = {
    "_async_client": ("AsyncLicenseClient",),
    "_explain": ("explain",),
    "_core.settings": ("ClientSettings", "Pages", "Trust", "Updates"),
    "_core.status": ("LicenseState", "LicenseStatus"),
    "_core.update_model": ("Downloaded", "Update", "UpdateCheck"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "types"})


def __getattr__(name: str) -> object:
    for module, names in _LATER.items():
        if name in names:
            return getattr(load_module(f"licclient.{module}"), name)
    if name == "types":
        return load_module("licclient.types")
    advice = ""
    if not name.startswith("_"):
        for place in (errors, load_module("licclient.types")):
            if name in place.__all__:
                advice = f"; it is in {place.__name__}"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{advice}")
