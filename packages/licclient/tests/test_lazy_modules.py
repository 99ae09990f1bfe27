"""What a freezer packs into an app: it follows imports, and reads no name of a module in a text."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import licclient

ROOT = Path(licclient.__file__).parent
MODULES = {
    ".".join(("licclient", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}


def list_imports(name: str) -> Iterator[str]:
    """Yield what a module imports, as PyInstaller finds it: in functions and for type checkers too."""
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def list_packed(start: str) -> set[str]:
    """Return the modules of the package that a program gets which imports one of them."""
    packed, waiting = set[str](), [start]
    while waiting:
        name = waiting.pop()
        if name not in MODULES or name in packed:
            continue
        packed.add(name)
        waiting += [name.rpartition(".")[0], *list_imports(name)]
    return packed


def list_named(name: str) -> set[str]:
    """Return the modules that a module names in texts, to import them when they are needed."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and re.fullmatch(r"licclient(\.\w+)+", text)}


def test_a_frozen_app_has_each_module_that_is_loaded_by_its_name() -> None:
    """Else a sentence or an error would be a `ModuleNotFoundError`, in what customers have only."""
    packed = list_packed("licclient")
    named = {module: list_named(module) & MODULES.keys() for module in packed}
    assert sum(len(modules) for modules in named.values()) > 10
    assert {module: missing for module, names in named.items() if (missing := names - packed)} == {}
