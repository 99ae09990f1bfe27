"""The structure of the client, as `nox -s structure` measures it: what was reached stays reached."""

import ast
from typing import Final

import pytest

import structure

CLIENT: Final = structure.Modules("licclient")

WANTED_LATE: Final = 20
STATEMENTS: Final = 3

VOCABULARY: Final = {
    "licclient._features": "the attribute of both clients",
    "licclient.errors": "the feature's error",
    "licclient.testing._service": "what a test issues and takes back",
    "licclient.types": "names for annotations",
}
"""Each file outside of `_seats` that names seats, and what for."""


def test_nothing_of_the_client_imports_itself() -> None:
    """Late imports are counted."""
    assert CLIENT.circles() == []


def test_imports_inside_functions_are_few() -> None:
    """Modules are loaded by their first use through `_core.lazy` and `_features`."""
    assert len(CLIENT.late_imports()) <= WANTED_LATE


def test_a_name_has_one_meaning() -> None:
    """Classes and limits."""
    assert CLIENT.repeated_names() == []


def test_pure_modules_import_nothing_that_is_not() -> None:
    """Indirectly either: import-linter checks it."""
    assert structure.allowed_indirect_imports("licclient-pure") == []


def test_a_feature_is_its_folder() -> None:
    """Seats stand for all optional features: outside of their folder, only what apps and tests name."""
    outside = {name for name in CLIENT.naming("seat") if not name.startswith("licclient._seats")}
    assert outside == set(VOCABULARY)


@pytest.mark.parametrize("feature", ["_seats.client", "_uses.client", "_offline.client"])
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
    assert structure.bindings_of_one(structure.Modules(package)) == []
