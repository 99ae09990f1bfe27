"""The table of measured faults in `docs/scale.md`."""

from collections.abc import Mapping

from failover.load import Result

COLUMNS = ("right", "slow", "failed", "wrong", "lost", "above", "failed for", "besides")


def make(results: Mapping[str, Result]) -> str:
    """Write the table: a line for each fault."""
    lines = ["| fault | " + " | ".join(COLUMNS) + " |", "|---" + "|---:" * 7 + "|---|"]
    return "\n".join([*lines, *(_row(fault, result) for fault, result in results.items())]) + "\n"


def _row(fault: str, result: Result) -> str:
    outcomes = [result.outcomes[name] for name in ("right", "slow", "failed", "wrong")]
    seconds = f"{result.seconds_of_failures:.1f} s" if result.outcomes["failed"] else ""
    cells = [*map(str, outcomes), str(result.lost), str(result.above), seconds]
    return "| " + " | ".join([fault, *cells, "; ".join(result.notes)]) + " |"
