"""Print results: sentences and aligned columns for people, JSON for programs."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any

import click


class Printer:
    """Prints the results of a command, as JSON if asked to."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def result(self, record: dict[str, Any], sentence: str) -> None:
        """Print the result of a change."""
        click.echo(_to_json(record) if self.as_json else sentence)

    def details(self, record: dict[str, Any]) -> None:
        """Print one object, a field a line."""
        if self.as_json:
            click.echo(_to_json(record))
            return
        width = max(map(len, record))
        for name, value in record.items():
            lines = (value if isinstance(value, list) else [value]) or ["-"]
            for label, line in zip([name.replace("_", " "), *[""] * len(lines)], lines, strict=False):
                click.echo(f"{label:{width}}  {_cell(line)}")

    def table(self, records: Iterable[dict[str, Any]], widths: Sequence[int], empty: str) -> None:
        """Print a list of any length while it is read.

        Args:
            records: All with the same fields.
            widths: Of the columns, in characters; 0 for the last one.
            empty: What to print if there are none.
        """
        count = 0
        for count, record in enumerate(records, 1):
            if self.as_json:
                click.echo(("[" if count == 1 else ",") + _to_json(record))
                continue
            if count == 1:
                click.echo(_line([name.replace("_", " ").upper() for name in record], widths))
            click.echo(_line([_cell(value) for value in record.values()], widths))
        if self.as_json:
            click.echo("]" if count else "[]")
        elif not count:
            click.echo(empty)


def plain(value: Any) -> Any:
    """Format dates, instants and bytes for JSON."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case _:
            raise TypeError(f"no JSON for {type(value).__name__}")


def _to_json(record: dict[str, Any]) -> str:
    return json.dumps(record, default=plain, ensure_ascii=False)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case dict():
            return "  ".join(_cell(part) for part in value.values())
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S} UTC"
        case _:
            return str(value)
