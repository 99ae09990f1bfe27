"""Gate features of a Python desktop app on a license key, and find and download its updates.

A program that does both. It runs as it stands here, without a license service of your own: the last lines
stand in for one, and are the only ones that a real app does not have::

    from licclient import LicclientError, LicenseClient, explain

    client = LicenseClient(
        "https://licenses.example.com",  # your license service
        product="Notes Pro",  # its name there, to the letter: keys of other products are refused
        slug="notes-pro",  # its slug there; with the version, for updates
        version="1.4.0",
    )

    @client.licensed  # raises if there is no license; answers from the disk, also offline
    def export():
        return "exported"

    def run(typed, folder):
        try:
            client.activate(typed)  # once: verifies a key that a person typed, and remembers it
            print(export())
        except LicclientError as problem:  # everything that is raised is one
            print(explain(problem))  # a sentence in the person's language
        check = client.check_for_update()  # failures are in its result; asks twice a day at most
        print(explain(check))
        if check:
            print(client.download(check.update, folder))  # verified; an interrupted one goes on

    if __name__ == "__main__":
        from licclient.testing import LicenseService

        with LicenseService() as service:
            service.attach(client)
            service.publish("1.5.0", changelog="Exports faster.")
            run(service.issue("Notes Pro", slug="notes-pro"), "downloads")

The same with ready windows, for Tk (for Qt: `.qt`, and `to_qt()`)::

    import tkinter

    from licclient.deliver import to_tk
    from licclient.dialogs.tk import ask_for_key, offer_update

    window = tkinter.Tk()

    def ask(problem):  # with a key it returns the license, and the function runs
        return ask_for_key(client, window, problem=problem)

    @client.licensed(otherwise=ask)
    def export():
        print("exported")

    tkinter.Button(window, text="Export", command=export).pack()

    def offer(update):
        file = offer_update(client, update, "downloads", window)  # None if the person does not want it
        # `client.install_update(update, downloaded=file)` installs it, whatever your app was set up by

    client.start(on_update=offer, deliver=to_tk(window))  # verifies and checks in the background
    window.mainloop()
    client.close()

Next to read, by `help`: `LicenseClient`, whose methods are listed by purpose; `licclient.errors`, what is
raised; `licclient.types`, what is named in annotations only; `licclient.testing` for the tests of your app;
`licclient.dialogs`, `licclient.deliver`, `licclient.install`. Modules with an underscore are private.
`client.diagnose()` finds out why something does not work.

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
