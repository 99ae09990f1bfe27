"""The site's reference of the command lines, held against what the programs print.

`nox -s docs` builds the site and runs this; where Sphinx is not installed, as in the plain test run, it is
skipped.
"""

import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import pytest

import licclient._cli
import licconform.cli
import licserver.cli

pytest.importorskip("sphinx", reason="Sphinx is not installed here: nox -s docs")

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
if not SITE.is_dir():
    pytest.skip("the site is not built here: nox -s docs", allow_module_level=True)
PROGRAMS: dict[str, tuple[str, Callable[[list[str]], object], int]] = {
    "licserver": ("cli", licserver.cli.main, 60),
    "licclient": ("client-cli", licclient._cli.main, 9),
    "licconform": ("conform-cli", lambda words: licconform.cli.main(words, prog_name="licconform"), 4),
}
"""Program → its page, how it is called, and fewer commands than it has."""


def helps(program: str, capsys: pytest.CaptureFixture[str], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield what `--help` prints, for a program and each command that this names."""
    with pytest.raises(SystemExit) as ended:
        PROGRAMS[program][1]([*path, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out.strip()
    yield text
    below = re.search(r"^(?:Commands:|  COMMAND)\n((?: .*\n?)+)", text, re.MULTILINE)
    for name in re.findall(r"^ {2,4}([a-z][a-z-]*)(?: {2}|$)", below[1], re.MULTILINE) if below else ():
        yield from helps(program, capsys, (*path, name))


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_page_has_what_help_prints(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command with all its options, each once, in the program's order, with straight quotes."""
    monkeypatch.setenv("COLUMNS", "100")
    name, _, commands = PROGRAMS[program]
    page = (SITE / "reference" / f"{name}.html").read_text(encoding="utf-8")
    blocks = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    shown = [unescape(re.sub(r"<[^>]+>", "", block)).strip() for block in blocks]
    printed = list(helps(program, capsys))
    assert len(printed) > commands
    assert shown == printed
    assert not re.search("[“”‘’]", page)


def test_quotes_stay_straight() -> None:
    """No page has a typographic quote that its source does not have: readers paste what they see."""
    sources = SITE / "_sources"
    pages = sorted(sources.rglob("*.md.txt"))
    assert len(pages) > 40
    for source in pages:
        page = (SITE / source.relative_to(sources)).with_suffix("").with_suffix(".html")
        for quote in "“”‘’":
            if quote not in source.read_text(encoding="utf-8"):
                assert quote not in page.read_text(encoding="utf-8"), page.name
