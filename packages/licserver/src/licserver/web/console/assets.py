"""The files that pages need, read once; each has its digest in its address, so that browsers keep it."""

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final, NamedTuple

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml; charset=utf-8",
}
_NAMES: Final = ("vendored/pico.min.css", "console.css", "vendored/htmx.min.js", "console.js", "icon.svg")

PREFIX: Final = "/console/assets/"


class Asset(NamedTuple):
    """One file, with where it is and what it is."""

    path: str
    content_type: str
    content: bytes


def load_assets() -> Mapping[str, Asset]:
    """Read all of them; by the name that templates use."""
    folder = files("licserver.web.console") / "assets"
    found = {}
    for name in _NAMES:
        content = (folder / name).read_bytes()
        short = name.rpartition("/")[2]
        digest = hashlib.sha256(content).hexdigest()[:16]
        found[short] = Asset(f"{PREFIX}{digest}/{short}", _TYPES[short.rpartition(".")[2]], content)
    return found
