"""The results as a Markdown table and as a plot."""

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from xml.sax.saxutils import escape

from bench.rounds import Result

Sized = tuple[int, Result]

_BAR, _GAP, _LEFT, _WIDTH = 16, 6, 330, 860
_COLOURS = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#9d755d"]


_HEADINGS = (
    "| licenses | load | server | requests/s | ratio to the floor | p50 ms | p99 ms | p99 / floor's "
    "| CPU µs/request | memory MiB |"
)


def _conditions(rounds: int, seconds: float) -> str:
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, "
        f"aiohttp {version('aiohttp')}; {rounds} rounds of {seconds:g} s, medians; "
        "ratio: to the floor in the same round, with the lowest and the highest."
    )


def markdown(results: list[Sized], *, rounds: int, seconds: float) -> str:
    """Write the table: a row for each target, load and size; the floor only as what the others refer to."""
    lines = [
        _conditions(rounds, seconds),
        "",
        _HEADINGS,
        "|---:|---|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for size, result in results:
        ratio = (
            "1"
            if result.target == "floor"
            else f"{result.ratio:.2f} ({result.ratio_min:.2f} … {result.ratio_max:.2f})"
        )
        lines.append(
            f"| {size:,} | {result.load.name} | {result.target} | {result.requests_per_second:,.0f} "
            f"| {ratio} | {result.p50_ms:.1f} | {result.p99_ms:.1f} | {result.p99_ratio:.1f} "
            f"| {result.cpu_us:.0f} | {result.peak_mib:.0f} |"
        )
    busiest = max((result.generator_cpu for _, result in results), default=0.0)
    lines += ["", f"The load generator never used more than {busiest:.0%} of its core."]
    return "\n".join(lines) + "\n"


def plot(results: list[Sized]) -> str:
    """Draw the ratios as bars, with whiskers from the lowest to the highest; the line at 1 is the floor."""
    bars = [(size, result) for size, result in results if result.target != "floor"]
    names = list(dict.fromkeys(result.target for _, result in bars))
    top = max([1.0, *(result.ratio_max for _, result in bars)]) * 1.05
    scale = (_WIDTH - _LEFT - 60) / top
    height = len(bars) * (_BAR + _GAP) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}">',
        "<style>text { font: 12px sans-serif } .floor { stroke: black; stroke-dasharray: 4 }</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for row, (size, result) in enumerate(bars):
        y = 30 + row * (_BAR + _GAP)
        middle = y + _BAR / 2
        colour = _COLOURS[names.index(result.target) % len(_COLOURS)]
        low, high = _LEFT + result.ratio_min * scale, _LEFT + result.ratio_max * scale
        label = escape(f"{result.target}, {result.load.name}, {size:,}")
        parts += [
            f'<text x="{_LEFT - 8}" y="{middle + 4}" text-anchor="end">{label}</text>',
            f'<rect x="{_LEFT}" y="{y}" width="{result.ratio * scale:.1f}" height="{_BAR}" fill="{colour}"/>',
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="black"/>',
            f'<text x="{high + 6:.1f}" y="{middle + 4}">{result.ratio:.2f}</text>',
        ]
    at_one = _LEFT + scale
    parts += [
        f'<line x1="{at_one:.1f}" x2="{at_one:.1f}" y1="22" y2="{height - 25}" class="floor"/>',
        f'<text x="{at_one:.1f}" y="{height - 10}" text-anchor="middle">1: a bare aiohttp handler</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
