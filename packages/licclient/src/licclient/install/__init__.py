"""Replace an application by its downloaded update, and go back to the version before.

::

    from licclient.install import Installation

    Installation(folder).apply(client.download(update, downloads))
"""

from licclient.install._installation import Installation, Installed

__all__ = ["Installation", "Installed"]
