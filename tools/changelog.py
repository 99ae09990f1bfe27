"""Print the section of CHANGELOG.md for a version: `python -m tools.changelog 1.2.3`.

With a tag, as `v1.2.3`, the version must be released: its heading has a date.
"""

import re
import sys
from datetime import date
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
_LEVEL = re.compile(r"^## .*$", re.MULTILINE)
_HEADING = re.compile(r"## (?P<version>\S+) \((?P<day>\d{4}-\d\d-\d\d|unreleased)\)")


def find_section(text: str, name: str) -> str:
    """Return what stands below the heading of a version.

    Raises:
        ValueError: No such section, two, an empty one, or one that is unreleased for a tag; or a heading of
            another form, of which nobody knows where its section ends.
    """
    version = name.removeprefix("v")
    headings = [_read_heading(place[0]) for place in _LEVEL.finditer(text)]
    if [heading["version"] for heading in headings].count(version) > 1:
        raise ValueError(f"CHANGELOG.md: two sections of {version}")
    places = list(_LEVEL.finditer(text))
    for heading, place, following in zip(headings, places, [*places[1:], None], strict=True):
        if heading["version"] != version:
            continue
        if name != version and heading["day"] == "unreleased":
            raise ValueError(f"CHANGELOG.md: {version} is unreleased; write the day into its heading")
        section = text[place.end() : following.start() if following else None].strip()
        if not section:
            raise ValueError(f"CHANGELOG.md: the section of {version} is empty")
        return section
    raise ValueError(f"CHANGELOG.md: no heading `## {version} (YYYY-MM-DD)`")


def _read_heading(line: str) -> re.Match[str]:
    heading = _HEADING.fullmatch(line)
    if heading is None:
        raise ValueError(f"CHANGELOG.md: {line!r} is not like `## 1.2.3 (YYYY-MM-DD)`")
    if (day := heading["day"]) != "unreleased":
        date.fromisoformat(day)
    return heading


if __name__ == "__main__":
    try:
        (asked,) = sys.argv[1:]
        print(find_section(CHANGELOG.read_text(encoding="utf-8"), asked))
    except ValueError as problem:
        sys.exit(str(problem))
