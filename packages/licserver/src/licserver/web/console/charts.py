"""Bar charts as SVG. Pure.

The SVG has shapes only, which stretch to any width; text is HTML around it, so that it stays legible on a
phone. Colours are classes of the style sheet, for light and dark.
"""

from collections.abc import Sequence
from datetime import date
from typing import Final, NamedTuple

from markupsafe import Markup, escape

_HEIGHT: Final = 100
_STEP: Final = 10
_BAR: Final = 8


class Series(NamedTuple):
    """One colour of a chart: label, class of the style sheet (without ``s-``), a value for each day."""

    label: str
    style: str
    values: Sequence[int]

    @property
    def total(self) -> int:
        """The sum of all days."""
        return sum(self.values)


class Plot(NamedTuple):
    """Numbers by day as a chart and as a table; series are stacked from the bottom."""

    title: str
    days: Sequence[date]
    series: Sequence[Series]

    @property
    def total(self) -> int:
        """The sum of all series."""
        return sum(one.total for one in self.series)

    @property
    def top(self) -> int:
        """The end of the scale."""
        return round_up(max((sum(column) for column in self._columns), default=0))

    @property
    def rows(self) -> list[tuple[date, tuple[int, ...]]]:
        """The table's rows, the latest day first, without days of zeros."""
        rows = zip(self.days, self._columns, strict=True)
        return [(day, column) for day, column in rows if any(column)][::-1]

    @property
    def _columns(self) -> list[tuple[int, ...]]:
        return list(zip(*(one.values for one in self.series), strict=True))

    @property
    def svg(self) -> Markup:
        """The shapes; hidden from screen readers, which read the table."""
        scale = _HEIGHT / (self.top or 1)
        width = max(1, len(self.days)) * _STEP
        shapes = [
            f'<line class="grid" x1="0" x2="{width}" y1="{y}" y2="{y}"/>'
            for y in range(0, _HEIGHT + 1, _HEIGHT // 4)
        ]
        for at, (day, column) in enumerate(zip(self.days, self._columns, strict=True)):
            top = float(_HEIGHT)
            bars, labels = [], []
            for one, value in zip(self.series, column, strict=True):
                if value:
                    top -= value * scale
                    bars.append(
                        f'<rect class="s-{escape(one.style)}" x="{at * _STEP + 1}" y="{top:.2f}" '
                        f'width="{_BAR}" height="{value * scale:.2f}"/>'
                    )
                    labels.append(f"{one.label} {value:,}")
            title = escape(f"{day:%a %d %b}: {', '.join(labels) or 'nothing'}")
            # The whole column shows the title, so that small values can be found too.
            hover = f'<rect class="hover" x="{at * _STEP}" y="0" width="{_STEP}" height="{_HEIGHT}"/>'
            shapes.append(f"<g><title>{title}</title>{''.join(bars)}{hover}</g>")
        return Markup(  # noqa: S704 - numbers, our own class names, and text that was escaped above
            f'<svg class="plot" viewBox="0 0 {width} {_HEIGHT}" preserveAspectRatio="none"'
            ' aria-hidden="true">'
            f"{''.join(shapes)}</svg>"
        )


def share_bar(share: float, style: str = "one") -> Markup:
    """Draw a share from 0 to 1 as a bar, for a cell of a table."""
    width = round(max(0.0, min(1.0, share)) * 100, 1)
    return Markup(  # noqa: S704 - a number and our own class name
        '<svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="rest" x="0" y="0" width="100" height="10"/>'
        f'<rect class="s-{escape(style)}" x="0" y="0" width="{width}" height="10"/></svg>'
    )


def round_up(value: int) -> int:
    """Round up to the next number that is easy to read at the end of a scale."""
    if value <= 0:
        return 0
    unit = int(10 ** max(0, len(str(value)) - 2))
    leads = (1, 2, 3, 4, 5, 6, 8, 10) if value < 10 else (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)  # noqa: PLR2004
    return next(unit * lead for lead in leads if unit * lead >= value)
