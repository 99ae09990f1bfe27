"""A seed command for a server that is filled by hand: gives out what a file has prepared.

`--seed "python -m licconform.recipes.prepared keys.json"`. The file maps each state to a list of keys,
each as the seed command prints it. A key is given out once, which is noted in `keys.json.used`.
Where none is left, cases are skipped.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

UNSUPPORTED = 77


def main() -> None:
    """Run one seed command: FILE (key STATE | …)."""
    path, *words = sys.argv[1:]
    called = " ".join(words[:2])
    if words[0] != "key":
        sys.exit(_skip(f"`{words[0]}` is not possible by hand."))
    prepared: dict[str, list[dict[str, Any]]] = json.loads(Path(path).read_text(encoding="utf-8"))
    notes = Path(f"{path}.used")
    used = Counter(json.loads(notes.read_text(encoding="utf-8")) if notes.exists() else {})
    state = words[1]
    keys = prepared.get(state, [])
    if used[state] >= len(keys):
        sys.exit(_skip(f"No prepared key is left for `{called}`."))
    print(json.dumps(keys[used[state]]))  # noqa: T201 - its result
    used[state] += 1
    notes.write_text(json.dumps(used), encoding="utf-8")


def _skip(reason: str) -> int:
    print(reason, file=sys.stderr)  # noqa: T201 - the reason that is reported
    return UNSUPPORTED


if __name__ == "__main__":
    main()
