"""Templates: loaded from the package, escaping everything, and failing on what they do not know."""

from collections.abc import Mapping
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from licserver import __version__
from licserver.web.console import messages
from licserver.web.console.assets import Asset
from licserver.web.console.charts import share_bar

if TYPE_CHECKING:
    from jinja2 import Environment


class Templates:
    """Writes pages; used by several threads at once.

    Args:
        assets: From `load_assets`.
    """

    def __init__(self, assets: Mapping[str, Asset]) -> None:
        self._assets = assets

    @cached_property
    def _templates(self) -> "Environment":
        """Made when the first page is asked for: most processes are never asked."""
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
            words=messages,
        )
        return templates

    def write(self, template: str, **context: Any) -> bytes:
        """Write a page."""
        return self._templates.get_template(template).render(context).encode()


def _day(value: date | None) -> str:
    return "–" if value is None else f"{value.day} {value:%B %Y}"


def _moment(value: datetime | None) -> str:
    return "–" if value is None else f"{value.day} {value:%b %Y, %H:%M} UTC"


def _stamp(value: date | datetime) -> str:
    return value.isoformat()
