"""The programs in `examples`, started as a reader starts them, and used with real keys and a real mouse.

With `LICENSING_PICTURES=docs/images` the pictures of the documentation are taken anew.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.customer import EXAMPLES, PRODUCT, SLUG, Customer, example, running
from harness.screen import Screen
from harness.sockets import Cable
from harness.world import World


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
