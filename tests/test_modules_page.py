"""The table of all modules in docs/architecture.md: each module has a row, its docstring's first line.

`LICENSING_WRITE_MODULES=1 pytest tests/test_modules_page.py` writes it anew.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "modules-table.md"
PACKAGES = ("licserver", "licclient", "licconform")
PROGRAMS = ("migrations/versions", "deploy_files/examples")
"""Folders whose files are no modules that others import."""


def modules(package: str) -> Iterator[tuple[str, str]]:
    """Yield each module's path below its package, and the first sentence of its docstring."""
    source = ROOT / "packages" / package / "src" / package
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        if name.startswith("_vendor") or any(one in name for one in PROGRAMS):
            continue
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        first = " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|").replace("``", "`")
        yield name.removesuffix(".py").replace("__init__", ""), first


def make_table() -> str:
    """Write the page."""
    lines = ["<!-- made by tests/test_modules_page.py -->"]
    for package in PACKAGES:
        lines += ["", f"### Modules of {package}", "", "| module | contents |", "|---|---|"]
        lines += [f"| `{name or package}` | {text} |" for name, text in modules(package)]
    return "\n".join(lines) + "\n"


def test_each_module_says_what_it_is_for() -> None:
    """In the first line of its docstring."""
    assert [name for package in PACKAGES for name, text in modules(package) if not text] == []


def test_the_table_is_that_of_the_code() -> None:
    """A module that is added, moved or described anew changes the page."""
    if os.environ.get("LICENSING_WRITE_MODULES"):
        FILE.write_text(make_table(), encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == make_table()
