"""The table of all modules in docs/architecture.md: each module has a row, its docstring's first line.

`LICENSING_WRITE_MODULES=1 pytest tests/test_modules_page.py` writes it anew.
"""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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
        if name.startswith("_vendor") or any(folder in name for folder in PROGRAMS):
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


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_each_file_that_a_page_names_exists(page: str) -> None:
    """A path in code, of the repository or below a package, and the name behind its dot."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`(\w+(?:/\w+)+)(?:\.(?:py|(\w+)))?(?:\.\w+)?/?`", text)
    assert len(named) > 20
    assert [path for path, name in named if not is_named_rightly(path, name)] == []


def is_named_rightly(path: str, name: str) -> bool:
    """Return whether a file or folder exists, and contains the name."""
    sources = [ROOT, *(ROOT / "packages" / package / "src" / package for package in PACKAGES)]
    for candidate in (source / path for source in sources):
        files = [
            candidate.with_suffix(suffix)
            for suffix in (".py", ".md", ".toml", *([f".{name}"] if name else []))
        ]
        if candidate.is_dir():
            files.append(candidate / "__init__.py")
            if not name:
                return True
        for file in filter(Path.is_file, files):
            if not name or file.suffix == f".{name}" or re.search(rf"\b{name}\b", file.read_text("utf-8")):
                return True
    return False
