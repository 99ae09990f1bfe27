"""A window of a third toolkit, made with the public names of `licclient.dialogs` alone: Kivy, on a screen."""

import ast
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from harness.screen import Screen, without

FOLDER: Final = Path(__file__).parent / "toolkits"


def tell(story: str, screen: Screen, folder: Path) -> Any:
    """Return the results of a story of `kivy_story`."""
    if find_spec("kivy") is None:
        without("Kivy is not installed: it has no wheel for this Python or this machine")
    quiet = {"KIVY_HOME": str(folder / "kivy"), "KIVY_NO_ARGS": "1", "KIVY_NO_FILELOG": "1"}
    home = {"HOME": str(folder), "LANG": "C.UTF-8", "KIVY_NO_CONSOLELOG": "1"}
    home["PYTHONPATH"] = str(FOLDER.parent)
    done = subprocess.run(
        [sys.executable, str(FOLDER / "kivy_story.py"), story, str(folder)],
        env={**os.environ, **screen.environ, **quiet, **home},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.window
def test_a_key_is_asked_for(screen: Screen, tmp_path: Path) -> None:
    """What cannot be a key costs no request; a refusal and the thanks are shown; the app gets the license."""
    assert tell("activation", screen, tmp_path) == {
        "heading": "Activate Notes",
        "mistyped": "! The license key is incomplete. Characters missing: 28",
        "refused": "! This license has been revoked. Please contact support.",
        "thanks": "Thank you. Your license is active.",
        "closed": ["License"],
        "is_over": True,
        "requests": 2,
    }
    assert len(list(tmp_path.glob("refused*.png"))) == 1


@pytest.mark.window
def test_an_update_is_offered_and_downloaded(screen: Screen, tmp_path: Path) -> None:
    """One dialog at a time; its changelog is plain text, and the file arrives."""
    assert tell("update", screen, tmp_path) == {
        "open": [True, False],
        "changelog": "- Export\n- [b]Markup is text[/b]",
        "closed": ["NoneType", "Downloaded"],
    }


@pytest.mark.window
def test_a_full_license_is_moved(screen: Screen, tmp_path: Path) -> None:
    """The list is drawn in place of the field, and a click chooses."""
    assert tell("full", screen, tmp_path) == {
        "choices": ["Anna's MacBook · last seen Jan 15, 2030"],
        "chosen": ["down"],
        "thanks": "The license was moved here from Anna's MacBook. Thank you. Your license is active.",
        "closed": ["License"],
    }
    assert len(list(tmp_path.glob("full*.png"))) == 1


@pytest.mark.window
def test_closing_the_client_closes_its_dialogs(screen: Screen, tmp_path: Path) -> None:
    """As those of Tk and Qt."""
    assert tell("closing", screen, tmp_path) == {"heading": "Notes aktivieren", "closed": [None]}


def test_the_window_uses_no_private_name() -> None:
    """Of the package; and it is read in one sitting."""
    text = (FOLDER / "kivy_dialogs.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in modules if name.startswith("licclient")} == {"licclient", "licclient.dialogs"}
    own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr[0] == "_"}
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert own - defined == {"_body_height", "_on_close"}
    assert len(text.splitlines()) < 250
