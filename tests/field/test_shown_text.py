"""Text of others where people read it: on terminals, and as the names of files."""

import ast
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import licserver.cli
from harness.commands import Cli
from licserver.cli.output import TerminalFile
from licserver.domain.characters import shows_as_written
from licserver.protocol.downloads import attachment

ESCAPES = "\x1b]0;title\x07\x9b2J\x7f\r\u202etxt.exe\u2066\u2028"
"""A title, a cleared screen, a carriage return, marks of the direction, a line separator."""

RAW = {*map(chr, range(9)), *map(chr, range(11, 32)), *map(chr, range(0x7F, 0xA0)), *"\u202e\u2066\u2028"}


def texts_of(document: Any) -> list[str]:
    """Return all texts of a JSON document."""
    match document:
        case dict():
            return [text for value in document.values() for text in texts_of(value)]
        case list():
            return [text for value in document for text in texts_of(value)]
        case _:
            return [str(document)]


@pytest.fixture
def vendor(bare_cli: Cli) -> Cli:
    """A vendor with a product and a license, into which a restored backup has brought any text."""
    bare_cli("product", "add", "app", "--name", "App", "--environment", "strict")
    bare_cli("license", "issue", "app", "--note", "plain", "--email", "jo@example.com")
    with closing(sqlite3.connect(bare_cli.folder / "licserver.sqlite3")) as database, database:
        database.execute("UPDATE products SET name = ?", (ESCAPES,))
        database.execute("UPDATE licenses SET note = ?", (ESCAPES + "\nforged row",))
        database.execute("UPDATE audit SET details = ?", (json.dumps({"x": ESCAPES}),))
    return bare_cli


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "command",
    ["product list", "license list", "license find jo@example.com", "audit", "export - --format jsonl"],
)
def test_no_command_prints_a_text_as_it_is(
    vendor: Cli, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """solana-labs/solana#20495: names that a stranger has chosen move the cursor of the vendor's terminal."""
    if command.startswith("export"):
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output = vendor(*command.split())
    assert RAW & {*output} == set()
    assert "\nforged row" not in output
    if not command.startswith("export"):
        document = vendor(*command.split(), "--json")
        assert RAW & {*document} == set()
        if command in {"product list", "audit"}:
            assert any(ESCAPES in text for text in texts_of(json.loads(document)))


def test_no_error_prints_a_text_as_it_is(vendor: Cli, tmp_path: Path) -> None:
    """As of a file's name, or of an argument that a script passes on."""
    for command in (["restore", str(tmp_path / ESCAPES)], ["product", "show", ESCAPES], [ESCAPES]):
        assert RAW & {*vendor(*command, expect=2)} == set()


def test_every_command_prints_through_one_function() -> None:
    """solana-labs/solana#20495: one place that was forgotten is enough."""
    found = []
    for file in Path(licserver.cli.__file__).parent.glob("*.py"):
        calls = [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call)]
        names = {ast.unparse(call.func) for call in calls} & {"print", "click.echo", "click.secho"}
        found += [file.name] if names and file.name != "output.py" else []
    assert found == []


def test_a_character_may_arrive_in_two_pieces() -> None:
    """As a file that is written to a terminal does."""
    terminal = io.BytesIO()
    file = TerminalFile(terminal)
    for byte in "Jürgen \x9b2J".encode():
        assert file.write(bytes([byte])) == 1
    assert terminal.getvalue().decode() == r"Jürgen \x9b2J"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mark", [*"\u202e\u202d\u2066\u200f\u061c\u200b\ufeff\x85\u2028"], ids=ascii)
def test_a_name_is_shown_as_it_is(bare_cli: Cli, tmp_path: Path, mark: str) -> None:
    """minio/object-browser#2828: `invoice<U+202E>fdp.exe` is shown as `invoiceexe.pdf`."""
    bare_cli("product", "add", "app", "--name", "App", "--environment", "strict")
    file = tmp_path / f"invoice{mark}fdp.exe"
    file.write_bytes(b"MZ")
    assert "rename it" in bare_cli("release", "publish", "app", "1.0", str(file), expect=2)
    assert attachment(file.name) == 'attachment; filename="invoice_fdp.exe"'  # as an older version stored it


@pytest.mark.parametrize(
    "name",
    ["Grüße.zip", "مرحبا.zip", "می\u200cخواهم.zip", "👩\u200d💻.zip", "a b (1).zip"],
    ids=ascii,
)
def test_names_of_any_script_are_fine(name: str) -> None:
    """nextcloud/server#10030: letters that are written from right to left need no mark."""
    assert shows_as_written(name)
