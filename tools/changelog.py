"""Print the section of CHANGELOG.md for a version: `python -m tools.changelog 1.2.3`.

With a tag, as `v1.2.3`, the version must be released: its heading has a date.
"""

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
_HEADING = re.compile(r"^## (?P<version>\S+) \((?P<day>\d{4}-\d\d-\d\d|unreleased)\)$", re.MULTILINE)


def find_section(text: str, name: str) -> str:
    """Return what stands below the heading of a version.

    Raises:
        ValueError: No such section, an empty one, or one that is unreleased for a tag.
    """
    version = name.removeprefix("v")
    headings = list(_HEADING.finditer(text))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading["version"] != version:
            continue
        if name != version and heading["day"] == "unreleased":
            raise ValueError(f"CHANGELOG.md: {version} is unreleased; write the day into its heading")
        section = text[heading.end() : following.start() if following else None].strip()
        if not section:
            raise ValueError(f"CHANGELOG.md: the section of {version} is empty")
        return section
    raise ValueError(f"CHANGELOG.md: no heading `## {version} (YYYY-MM-DD)`")


if __name__ == "__main__":
    try:
        print(find_section(CHANGELOG.read_text(encoding="utf-8"), sys.argv[1]))
    except ValueError as problem:
        sys.exit(str(problem))
