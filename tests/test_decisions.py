"""Each decision has an id of its own, and each id that the code cites stands in `docs/decisions.md`."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
DECISIONS = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")


def test_no_id_stands_for_two_decisions() -> None:
    """Two branches took the same next id, and both cited it."""
    counts = Counter(re.findall(r"^\*\*(D-\d+)", DECISIONS, re.MULTILINE))
    assert [id_ for id_, count in counts.items() if count > 1] == []


def test_each_cited_id_exists() -> None:
    """An id in the source leads its reader to a decision."""
    cited = {
        id_
        for path in (ROOT / "packages").glob("*/src/**/*.py")
        for id_ in re.findall(r"\bD-\d+\b", path.read_text(encoding="utf-8"))
    }
    assert cited - set(re.findall(r"\bD-\d+\b", DECISIONS)) == set()
