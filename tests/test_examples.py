"""The programs in `examples`, started as a reader starts them, and used with real keys and a real mouse.

With `LICENSING_PICTURES=docs/images` the pictures of the documentation are taken anew.
"""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.customer import EXAMPLES, PRODUCT, SLUG, Customer, example, running
from harness.screen import Screen
from harness.sockets import Cable
from harness.world import World
from licclient import UpdateCheck, explain
from licclient.errors import StateUnreadableError

RECIPES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(("program", "language"), [("tk", "en"), ("qt", "ja")])
def test_a_customer_activates_exports_and_updates(
    program: str,
    language: str,
    world: World,
    screen: Screen,
    photograph: Callable[[str, str], None],
    tmp_path: Path,
) -> None:
    """A refusal, a good key and the export it unlocks; an update skipped, asked for, stopped, and had."""
    world.stock({"products": [PRODUCT], "licenses": []})
    revoked, good = world.new_key(SLUG, revoked=True), world.new_key(SLUG)
    with (
        world.serving() as server,
        Cable(server.port).plugged() as cable,
        running(example(program), language, cable.url, screen, tmp_path / "home") as work,
    ):
        customer = Customer(screen, server, photograph).in_language(program, language, work)
        customer.is_refused(revoked)
        customer.activates(good)
        customer.updates(cable)
        (file,) = customer.downloaded()
    assert file.read_bytes() == world.files["1.1.0"]


@pytest.mark.parametrize("program", ["notes_tk.py", "notes_qt.py"])
def test_the_examples_are_short(program: str) -> None:
    """Something that is read in one sitting."""
    assert len((EXAMPLES / program).read_text(encoding="utf-8").splitlines()) < 140


def _fail(**_: bool) -> UpdateCheck:
    raise StateUnreadableError("Too many open files", "_updates/check.py")


@pytest.mark.parametrize("program", ["notes_tk.py", pytest.param("notes_qt.py", marks=pytest.mark.slow)])
def test_an_update_check_that_cannot_be_made_ends_no_thread(program: str) -> None:
    """A cleaner has removed the app's files: the person reads it, at each click once."""
    pytest.importorskip("PySide6" if "qt" in program else "tkinter")
    shown: list[UpdateCheck] = []
    window = SimpleNamespace(
        licenses=SimpleNamespace(check_for_update=_fail), deliver=lambda call: call(), show_check=shown.append
    )
    runpy.run_path(str(EXAMPLES / program))["Notes"].check_on_thread(window)
    [check] = shown
    assert explain(check, "en").startswith("The license data on this computer cannot be read")


def test_the_recipes_show_an_update_check_that_cannot_be_made() -> None:
    """The same for the app of all recipes."""
    recipe = runpy.run_path(str(RECIPES / "photo_lab" / "photo_lab.py"))
    check = recipe["find_update"](SimpleNamespace(check_for_update=_fail))
    assert check.update is None
    assert explain(check, "en").startswith("The license data on this computer cannot be read")


def test_the_recipes_take_what_a_launcher_passes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder, and the files that a person opens: an error would be a start that counts as a crash."""
    recipe = runpy.run_path(str(RECIPES / "photo_lab" / "photo_lab.py"))
    monkeypatch.setattr("sys.argv", ["photo-lab", "/opt/Photo Lab", "a.jpg", "b.jpg", "--installation"])
    recipe["main"]()
    assert json.loads(capsys.readouterr().out)["version"] == "1.0.0"
