"""Templates and assets. Templates escape everything and fail on a name that they do not know."""

import hashlib
from collections.abc import Mapping
from datetime import date, datetime
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from licserver import __version__
from licserver.web.console import messages
from licserver.web.console.charts import share_bar

if TYPE_CHECKING:
    from jinja2 import Environment

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml; charset=utf-8",
}
_NAMES: Final = ("vendored/pico.min.css", "console.css", "vendored/htmx.min.js", "console.js", "icon.svg")

PREFIX: Final = "/console/assets/"


class Asset(NamedTuple):
    """A style sheet, script or image."""

    path: str
    content_type: str
    content: bytes


def load_assets() -> Mapping[str, Asset]:
    """Read the styles and scripts, each under a path with its digest, so that browsers keep them."""
    folder = files("licserver.web.console") / "assets"
    found = {}
    for name in _NAMES:
        content = (folder / name).read_bytes()
        short = name.rpartition("/")[2]
        digest = hashlib.sha256(content).hexdigest()[:16]
        found[short] = Asset(f"{PREFIX}{digest}/{short}", _TYPES[short.rpartition(".")[2]], content)
    return found


class Templates:
    """Renders pages; used by several threads at once."""

    def __init__(self, assets: Mapping[str, Asset]) -> None:
        self._assets = assets

    @cached_property
    def _templates(self) -> "Environment":
        """Loaded with the first page: most processes never render one."""
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

        templates = Environment(
            loader=PackageLoader("licserver.web.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        templates.filters.update(
            day=_day, moment=_moment, stamp=_stamp, number=messages.number, bytes=messages.file_size
        )
        templates.globals.update(
            asset={name: asset.path for name, asset in self._assets.items()},
            share_bar=share_bar,
            version=__version__,
            messages=messages,
        )
        return templates

    def render(self, template: str, **context: Any) -> bytes:
        """Render a page."""
        return self._templates.get_template(template).render(context).encode()


def _day(value: date | None) -> str:
    return "–" if value is None else f"{value.day} {value:%B %Y}"


def _moment(value: datetime | None) -> str:
    return "–" if value is None else f"{value.day} {value:%b %Y, %H:%M} UTC"


def _stamp(value: date | datetime) -> str:
    return value.isoformat()
