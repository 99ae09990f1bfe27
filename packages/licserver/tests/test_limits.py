"""The limits of requests are in one module, and the documentation has them all."""

import os
import re
from pathlib import Path

import licserver
from licserver import limits

PACKAGE = Path(licserver.__file__).parent
PAGE = Path(__file__).parents[3] / "docs/server/limits.md"
VALUES = {name: value for name, value in vars(limits).items() if name.startswith("MAX_")}
UNITS = {"BYTES": "bytes", "CHARS": "characters", "FIELDS": "fields", "SECONDS": "seconds"}
UNITS |= {"SEGMENTS": "parts", "CHUNKS": "chunks"}


def describe(name):
    """A limit as a row of the table."""
    value, unit = VALUES[name], UNITS[name.rpartition("_")[2]]
    if unit == "bytes":
        size = f"{value >> 20} MiB" if value >= 1 << 20 else f"{value >> 10} KiB"
    else:
        size = f"{value:,g} {unit}"
    reason = re.sub(r" \(D-[0-9]+\)", "", limits.REASONS[name])  # users' pages name no decisions
    return f"| {size} | {reason} |\n"


def test_the_documentation_has_each_limit():
    """`LICENSING_WRITE_LIMITS=1` writes the table."""
    assert list(limits.REASONS) == list(VALUES)
    table = "| at most | of |\n|---|---|\n" + "".join(map(describe, VALUES))
    text = PAGE.read_text("utf-8")
    before, rest = text.split("## How large a request may be\n\n")
    _, heading, after = rest.partition("\n## ")
    written = f"{before}## How large a request may be\n\n{table}{heading}{after}"
    if os.environ.get("LICENSING_WRITE_LIMITS"):
        PAGE.write_text(written, "utf-8")
    assert PAGE.read_text("utf-8") == written


def test_each_limit_is_kept():
    """A constant that nothing uses would be a promise."""
    sources = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py") if path.name != "limits.py"]
    for name in VALUES:
        assert any(len(re.findall(rf"\b{name}\b", text)) > 1 for text in sources), name  # beside its import


def test_no_other_module_bounds_a_request():
    """Whoever reads a body, a form or an upload takes the number from `limits`."""
    constant = re.compile(r"^_?MAX_(BODY|FORM|HEAD|TARGET|FIELDS?|TEXT)\w*(: Final)? = [0-9]", re.MULTILINE)
    read = re.compile(r"(?:read_body|read_form)\([^)]*?, (?:limit: int = )?([^,)]+)[,)]")
    for path in (PACKAGE / "web").rglob("*.py"):
        text = path.read_text("utf-8")
        assert constant.search(text) is None, path
        for limit in read.findall(text):
            names = re.findall(r"\bMAX_\w+|\blimit\b|\bsettings\b|\bsizes?\b", limit)
            assert names or "request" in limit or "self" in limit, (path, limit)
