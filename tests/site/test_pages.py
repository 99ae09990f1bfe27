"""Rules for the pages that users read: no internal ids, no measurements, an example soon, reachable."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BACKGROUND = {
    "architecture",
    "asvs",
    "decisions",
    "field-reports",
    "measurements",
    "performance",
    "scale",
    "security",
}
"""Pages for those who want reasons and figures: decisions and measurements belong here."""
SPECIFICATION = {"protocol", "conformance"}
"""Pages that state rules of time and size, such as a validity in milliseconds."""
HAS_IDS = {"architecture", "asvs", "conformance", "decisions", "field-reports", "measurements"}
"""Pages for contributors, and the page about `licconform`, which prints the ids of decisions."""
NO_EXAMPLE = {
    "index": "leads on",
    "server/personal-data": "is a list of stored data",
    "server/shop-states": "is a table of states",
}
PAGES = {
    path.relative_to(DOCS).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.glob("**/*.md"))
    if not path.name.endswith("-table.md") and "_build" not in path.parts
}
USER_PAGES = {name: text for name, text in PAGES.items() if name not in BACKGROUND | SPECIFICATION}
FIGURES = re.compile(r"µs|\d\s?ms\b|\bmedian\b|\b(?<!\[)(?<!were )measured\b", re.IGNORECASE)
EXAMPLE = re.compile(r"^ *(```|!\[|:::)", re.MULTILINE)
SCREEN = 150
"""Words: with the page's title and header they fill a screen of 800 pixels in furo's column."""


def test_the_pages_are_there() -> None:
    """Or the other tests would show nothing."""
    assert len(USER_PAGES) > 45
    assert PAGES.keys() >= BACKGROUND | SPECIFICATION


@pytest.mark.parametrize("name", sorted(PAGES.keys() - HAS_IDS))
def test_a_page_has_no_ids_of_decisions(name: str) -> None:
    """A reader of a guide, the protocol or the promises has never seen them."""
    assert re.findall(r"\bD-\d+", PAGES[name]) == []


def test_a_generated_reference_has_no_ids_of_decisions() -> None:
    """What docstrings and OpenAPI documents bring along; `nox -s docs` builds these pages."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed here: nox -s docs")
    if not (folder := DOCS / "_build" / "html" / "reference").is_dir():
        pytest.skip("the site is not built here: nox -s docs")
    built = sorted(folder.glob("*.html"))
    assert len(built) >= 7
    found = {page.name: re.findall(r"\bD-\d+", page.read_text(encoding="utf-8")) for page in built}
    assert {name: ids for name, ids in found.items() if ids} == {}


@pytest.mark.parametrize("name", USER_PAGES)
def test_a_user_page_has_no_measurements(name: str) -> None:
    """It may link to them, as "[measured](…)"."""
    assert [match[0] for match in FIGURES.finditer(USER_PAGES[name])] == []


@pytest.mark.parametrize("name", sorted(USER_PAGES.keys() - NO_EXAMPLE.keys()))
def test_a_user_page_shows_an_example_within_a_screen(name: str) -> None:
    """A command, code or a picture."""
    first = EXAMPLE.search(USER_PAGES[name])
    assert first is not None
    assert len(USER_PAGES[name][: first.start()].split()) <= SCREEN


def test_each_page_is_in_the_navigation_once() -> None:
    """Sphinx warns of a page in no list, and not of one that is in two."""
    listed = re.findall(
        r"^[\w/-]+$", "\n".join(re.findall(r"```{toctree}(.*?)```", PAGES["index"], re.DOTALL)), re.MULTILINE
    )
    assert sorted(listed) == sorted(PAGES.keys() - {"index"})
