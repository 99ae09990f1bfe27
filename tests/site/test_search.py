"""The site's search finds the page that answers each of the questions in `questions.toml`.

`nox -s docs` builds the site and runs this; where Sphinx is not installed, it is skipped.
"""

import json
import shutil
import subprocess
import tomllib
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="Sphinx is not installed here: nox -s docs")

HERE = Path(__file__).parent
SITE = HERE.parents[1] / "docs" / "_build" / "html"
if not SITE.is_dir():
    pytest.skip("the site is not built here: nox -s docs", allow_module_level=True)
NODE = shutil.which("node")
QUESTIONS = tomllib.loads((HERE / "questions.toml").read_text(encoding="utf-8"))


@pytest.mark.skipif(NODE is None, reason="node is not installed here: Sphinx's search is JavaScript")
def test_each_question_finds_its_page() -> None:
    """Among the first three pages; a search that shows a page several times, by sections, counts it once."""
    assert len(QUESTIONS) >= 30
    done = subprocess.run(
        [str(NODE), str(HERE / "search.js"), str(SITE)],
        input=json.dumps(list(QUESTIONS)),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    missed = {}
    for (question, page), hits in zip(QUESTIONS.items(), json.loads(done.stdout), strict=True):
        first = list(islice(dict.fromkeys(hits), 3))
        if page not in first:
            missed[question] = first
    assert missed == {}


def test_each_page_of_a_question_exists() -> None:
    """Under the name that the index has for it."""
    assert [page for page in QUESTIONS.values() if not (SITE / f"{page}.html").exists()] == []
