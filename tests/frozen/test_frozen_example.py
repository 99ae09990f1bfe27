"""The examples as one file each, on a virtual screen: what a customer gets who is sent a single program.

`nox -s frozen`; where PyInstaller is not installed, as in the plain test run, it is skipped.
"""

from pathlib import Path

import pytest

import licclient
from harness.customer import EXAMPLES, PRODUCT, SLUG, Customer, example, running
from harness.frozen import freeze, shop_over_tls
from harness.screen import Screen

pytest.importorskip("PyInstaller", reason="PyInstaller is not installed here: nox -s frozen")


@pytest.mark.parametrize(("toolkit", "unused"), [("tk", "PySide6"), ("qt", "tkinter")])
def test_the_example_in_one_file(toolkit: str, unused: str, screen: Screen, tmp_path: Path) -> None:
    """Refused, then activated by keyboard over TLS; prints its versions, and keeps its state in place."""
    example(toolkit)  # it has to be there to be frozen
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    for folder in (tmp_path / "build", temporary):
        folder.mkdir()
    # As docs/app/platforms.md says: the toolkit that the app does not use stays out.
    name = f"notes_{toolkit}"
    arguments = ("--onefile", "--exclude-module", unused, str(EXAMPLES / f"{name}.py"))
    program = freeze(tmp_path / "build", *arguments) / name
    with shop_over_tls(tmp_path, PRODUCT) as shop:
        revoked = shop.world.new_key(SLUG, revoked=True)
        variables = {"SSL_CERT_FILE": str(shop.authority), "TMPDIR": str(temporary)}
        with running([str(program)], "en", shop.url, screen, home, **variables) as work:
            customer = Customer(screen, shop.server, lambda *_: None).in_language(toolkit, "en", work)
            customer.is_refused(revoked)
            customer.activates(shop.key)
            (bundle,) = temporary.iterdir()  # it does run from what it unpacked
            assert bundle.name.startswith("_MEI")
    assert shop.server.agents == {f"licclient/{licclient.__version__}"}
    assert shop.server.versions == {"1.0.0"}
    state = home / ".local" / "state" / "licclient"
    kept = {path.name.partition("-")[0] for path in state.rglob("*.state")}
    assert kept >= {"activation", "installation", "license", "update"}
    strays = [path for path in home.rglob("*") if path.is_file() and state not in path.parents]
    assert strays == [work / "notes.html"]
    assert list(temporary.iterdir()) == []
