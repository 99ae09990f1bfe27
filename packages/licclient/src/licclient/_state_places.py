"""Pure: where in the platform's folder for application state a record lies (D-192).

A folder for each vendor, named after the license service's address, and in it one for each product. Folders
that come out alike are harmless: a record's own name says what it belongs to.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from licclient._model import Settings
from licclient._records import record_name

_LONGEST: Final = 60
_DEVICE: Final = r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)"  # no folder on Windows may be called so


@dataclass(frozen=True, slots=True)
class Places:
    """Folders relative to the one for all apps.

    Attributes:
        app: Of the product; of the vendor for a client that names neither product nor slug.
        elsewhere: Name of a record that other apps may need as well → its folder.
    """

    app: str
    elsewhere: Mapping[str, str]


def places_for(settings: Settings) -> Places:
    """Say where a client's records lie."""
    server, product, slug = settings.server, settings.product, settings.slug
    vendor = folder_name(server.partition("://")[2])
    elsewhere = {
        # One id for all products of a vendor, so that they take one activation slot.
        record_name("installation", server): vendor,
        record_name("activation", server, "", ""): vendor,
    }
    if product is not None and slug is not None:  # activated perhaps before the app named its product
        elsewhere[record_name("activation", server, "", slug)] = f"{vendor}/{folder_name(slug)}"
    name = product or slug
    return Places(vendor if name is None else f"{vendor}/{folder_name(name)}", elsewhere)


def folder_name(text: str) -> str:
    """Make a folder's name that every file system takes."""
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower())[:_LONGEST].strip("-.") or "app"
    return f"_{name}" if re.match(_DEVICE, name) else name
