"""The structure of client and server, as `nox -s structure` measures it: what was reached stays reached."""

import ast
from typing import Final

import pytest

import structure

pytestmark = pytest.mark.slow

CLIENT: Final = structure.Modules("licclient")

SERVER: Final = structure.Modules("licserver")

WANTED_LATE: Final = {CLIENT: 20, SERVER: 15}
STATEMENTS: Final = 3
FEW_PRIVATE_NAMES: Final = 5
FEW_MODULES_OF_WEB: Final = 13

VOCABULARY: Final = {
    "licclient._features": "the attribute of both clients",
    "licclient.errors": "the feature's error",
    "licclient.testing._service": "what a test issues and takes back",
    "licclient.types": "names for annotations",
}
"""Each file outside of `_seats` that names seats, and what for."""


PARTS: Final = pytest.mark.parametrize("part", [CLIENT, SERVER], ids=["client", "server"])


@PARTS
def test_no_module_imports_itself(part: structure.Modules) -> None:
    """Through others, late imports counted."""
    assert part.circles() == []


@PARTS
def test_imports_inside_functions_are_few(part: structure.Modules) -> None:
    """Libraries are loaded by their first use through `_core.lazy`, `_features` and `libraries`."""
    assert len(part.late_imports()) <= WANTED_LATE[part]


@PARTS
def test_a_name_has_one_meaning(part: structure.Modules) -> None:
    """Classes and limits."""
    assert part.repeated_names() == []


def test_the_head_of_a_package_imports_nothing_of_it() -> None:
    """Else a module that needs one function of the package loads all of it. Registries are the exception."""
    heads = {
        name
        for name, path in SERVER.paths.items()
        if path.name == "__init__.py" and any(name in target for target, _, _ in SERVER.imports(name))
    }
    assert heads - {"licserver.cli"} == {
        "licserver.artifacts",
        "licserver.database.repositories",
        "licserver.database.tables",
        "licserver.shops",
    }


@pytest.mark.parametrize(("subject", "pattern"), structure.SUBJECTS.items())
def test_a_subject_has_the_same_name_in_each_layer(subject: str, pattern: str) -> None:
    """A rule, its wire format, its service and its repository are modules of one name."""
    names = structure.subject_names(SERVER, subject, pattern)
    assert [name.partition(":")[0] for name in names] == [subject]


def test_private_names_of_aiohttp_are_in_a_single_file() -> None:
    """An upgrade of the library is checked there."""
    names = structure.private_names(SERVER)
    assert {name.partition(" in ")[2] for name in names} == {"licserver.serving.connections"}
    assert len(names) <= FEW_PRIVATE_NAMES
    assert structure.upper_pin() == []


def test_only_http_is_at_the_root_of_web() -> None:
    """What serves a process or works beside requests has a package of its own."""
    root = [name for name in SERVER.paths if name.startswith("licserver.web.") and name.count(".") == 2]
    modules = [name for name in root if SERVER.paths[name].name != "__init__.py"]
    assert len(modules) <= FEW_MODULES_OF_WEB


def test_pure_modules_import_nothing_that_is_not() -> None:
    """Indirectly either: import-linter checks it."""
    assert structure.allowed_indirect_imports("licclient-pure") == []


def test_a_feature_is_its_folder() -> None:
    """Seats stand for all optional features: outside of their folder, only what apps and tests name."""
    outside = {name for name in CLIENT.naming("seat") if not name.startswith("licclient._seats")}
    assert outside == set(VOCABULARY)


@pytest.mark.parametrize("feature", ["_seats.client", "_uses.client", "_offline.client", "_computers.client"])
def test_a_feature_is_attached_by_three_statements(feature: str) -> None:
    """The import of its types, and an attribute of each client."""
    tree = CLIENT.trees["licclient._features"]
    attached = [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and node.module == f"licclient.{feature}")
        or (isinstance(node, ast.AnnAssign) and feature in ast.unparse(node.value or node))
    ]
    assert len(attached) == STATEMENTS


@pytest.mark.parametrize("package", ["licclient", "licconform", "licserver"])
def test_no_variable_is_called_one(package: str) -> None:
    """The name is the noun of the element: `license_`, `row`, `candidate`."""
    assert structure.bindings_of_one(structure.Modules(package).paths.values()) == []


def test_no_variable_of_a_test_is_called_one() -> None:
    """Tests are read as stories: a name without a noun sends the reader back."""
    assert structure.bindings_of_one(structure.list_tests()) == []
