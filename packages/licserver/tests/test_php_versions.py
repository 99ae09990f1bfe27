"""Versions as PHP orders them, and for which of them publishing warns (D-199)."""

import json
from pathlib import Path

import pytest

from licserver.domain.wordpress import compare, explain_order

# The mutants run a copy of this file elsewhere.
VECTORS = json.loads(
    next(
        path
        for folder in Path(__file__).parents
        if (path := folder / "tests/vectors/php/versions.json").exists()
    ).read_text(encoding="utf-8")
)


@pytest.mark.parametrize(("version", "other", "order"), VECTORS["orders"])
def test_the_order_is_that_of_php(version, other, order):
    """Both ways, unless a separator at the end makes PHP take a version for older than itself."""
    assert compare(version, other) == order
    if not {version[-1], other[-1]} & {"_"}:
        assert compare(other, version) == -order


@pytest.mark.parametrize(
    "case", VECTORS["published"], ids=lambda case: "-".join([case["version"], *case["published"]])
)
def test_a_version_that_php_orders_otherwise_is_explained(case):
    """With two versions of which WordPress would not offer the newer one; plain versions have no warning."""
    sentence = explain_order(case["version"], case["published"])
    if case["warning"] is None:
        assert sentence is None
        return
    newer, older = case["warning"]
    assert sentence == (
        f"WordPress does not take {newer} to be newer than {older}, because PHP orders versions "
        "in another way: plugins and themes need plain versions such as 1.2.0."
    )
