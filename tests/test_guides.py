"""The Python of the app developer's guides runs as it stands there, against the service of the fixtures."""

import ast
import ctypes
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import licclient
import licclient.testing
import licclient.types
from harness.commands import Program
from harness.screen import Screen
from licclient import ClientSettings, LicenseClient
from licclient.errors import LicenseRefusedError
from licclient.testing import LicenseService, Misbehaviour

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ["client", *(f"app/{page.stem}" for page in sorted(DOCS.glob("app/*.md")))]
BLOCK = re.compile(r"(?<!<!-- launcher -->\n)^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PUBLIC = {name: getattr(module, name) for module in (licclient, licclient.errors) for name in module.__all__}
PLACES = {
    name: module.__name__
    for module in (licclient.types, licclient.testing, licclient.errors, licclient)
    for name in module.__all__
}
"""Public name → the module that a developer imports it from."""

APP = """
note = "note"
class App:
    def __init__(self, client):
        self.client, self.export = client, client.licensed(lambda note: "exported")
"""


def _blocks(page: str) -> list[str]:
    return BLOCK.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("page", [page for page in PAGES if _blocks(page) and page != "app/testing"])
def test_the_code_of_a_guide_runs(
    page: str, license_service: LicenseService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block after block, with what only an app can bring: windows, callbacks, folders."""
    pytest.importorskip("tkinter")

    def create_client(given: str | ClientSettings, **options: Any) -> LicenseClient:
        settings = given if isinstance(given, ClientSettings) else ClientSettings(given, **options)
        return license_service.client(settings)

    monkeypatch.setattr(licclient, "LicenseClient", create_client)
    monkeypatch.setattr(ctypes, "CDLL", Mock())  # a page loads WinSparkle
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("app.py", "")
    license_service.publish("1.5.0", content=archive.getvalue())
    license_service.offer_trials("Notes Pro", slug="notes-pro")
    key = license_service.issue("Notes Pro", activated=True)
    client = create_client(
        "https://licenses.example.com", product="Notes Pro", slug="notes-pro", version="1.4.0"
    )
    client.activate(key)
    names: dict[str, Any] = {
        "client": client,
        "key": key,
        "choose": lambda computers: computers[0],
        "root": Mock(),
        "update": client.check_for_update().update,
        "downloads": tmp_path,
        "LicenseClient": create_client,
        "downloads_folder": tmp_path,
        "to_tk": lambda _: None,
        "offer": Mock(),
        "save_and_warn": Mock(),
        "work": Mock(),
        "migrate": Mock(),
        "show": Mock(),
        "path": b"no license file",
        "stop": Mock(is_set=lambda: False),
        "sys": SimpleNamespace(argv=["app", str(tmp_path / "app")]),
        "SETTINGS": client.settings,
        "LicenseRefusedError": LicenseRefusedError,
        "pytest": pytest,
    }
    for block in _blocks(page):
        code = block.replace("/home/me/Downloads", str(tmp_path))
        exec(compile(code, f"{page}.md", "exec"), names)  # noqa: S102 - ours
    for name, test in names.items():
        if name.startswith("test_"):
            test(license_service)


@pytest.mark.parametrize("page", PAGES)
def test_a_guide_imports_what_it_uses(page: str) -> None:
    """Each public name of a page's code is imported on the page, and errors and test helpers are placed."""
    imported: set[str] = set()
    for block in _blocks(page):
        tree = list(ast.walk(ast.parse(block)))
        imports = [node for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]
        imported |= {alias.name for node in imports for alias in node.names}
        assert {node.id for node in tree if isinstance(node, ast.Name)} & PLACES.keys() <= imported
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    names = {name for name, place in PLACES.items() if place in ("licclient.errors", "licclient.testing")}
    assert {PLACES[name] for name in re.findall(r"\w+", text) if name in names} <= {
        place for place in PLACES.values() if place in text
    }


def test_every_method_of_the_fixture_is_on_its_page() -> None:
    """With every parameter: an editor shows them to some developers only."""
    page = (DOCS / "app" / "testing.md").read_text(encoding="utf-8")
    methods = {name: method for name, method in vars(LicenseService).items() if inspect.isfunction(method)}
    names = {name for name in methods if not name.startswith("_")} - {"close"}
    for name in ("issue", "publish"):
        names |= {f"{parameter}=" for parameter in inspect.signature(methods[name]).parameters} - {"self="}
    missing = {name for name in names - {"product=", "version="} if name not in page}
    assert missing == set()
    assert {word for word in Misbehaviour if f'"{word}"' not in page} == set()


@pytest.mark.slow
def test_the_methods_of_the_guide_need_a_license(
    license_service: LicenseService, capsys: pytest.CaptureFixture[str]
) -> None:
    """The class of the page, whose client is created in `__init__`."""
    (block,) = (block for block in _blocks("client") if block.startswith("class Notes"))
    names: dict[str, Any] = {**PUBLIC, "LicenseClient": license_service.client}
    exec(compile(block, "client.md", "exec"), names)  # noqa: S102 - ours
    app = names["Notes"]()
    with pytest.raises(licclient.errors.NotActivatedError):
        app.export("note")
    assert app.on_click("note") is None
    assert capsys.readouterr().out == f"{licclient.explain(licclient.errors.NotActivatedError())}\n"
    app.client.activate(license_service.issue("Notes Pro"))
    assert (app.export("note"), app.on_click("note")) == ("note exported", "note printed")


EXAMPLES = {
    page: block
    for page in ("packages/licclient/README.md", "docs/client.md", "docs/app/entitlements.md")
    for block in BLOCK.findall((DOCS.parent / page).read_text(encoding="utf-8"))
    if "otherwise=show" in block and "def export" in block
}


@pytest.mark.slow
@pytest.mark.parametrize("page", EXAMPLES)
def test_without_a_license_an_example_shows_why_and_returns_nothing(
    page: str, license_service: LicenseService, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sentence in place of the result would be written into the customer's file."""
    client = license_service.client(product="Notes Pro")
    code = EXAMPLES[page].partition("\nprojects =")[0]
    names: dict[str, Any] = {**PUBLIC, "client": client, "LicenseClient": lambda *_, **__: client}
    exec(compile(code, page, "exec"), names)  # noqa: S102 - ours
    assert names["export"]("note") is None
    assert capsys.readouterr().out == f"{licclient.explain(licclient.errors.NotActivatedError())}\n"


def test_no_example_returns_a_sentence() -> None:
    """Each page and program whose `otherwise` is seen hands out a license or nothing."""
    pages = [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md"), *DOCS.parent.glob("packages/*/README.md")]
    programs = [*DOCS.parent.glob("examples/*.py")]
    uses = [
        use for page in (*pages, *programs) for use in re.findall(r"otherwise=(.+)", page.read_text("utf-8"))
    ]
    assert len(uses) > len(EXAMPLES)
    assert [use for use in uses if "explain" in use] == []


@pytest.mark.slow
def test_the_test_of_the_guide_passes(tmp_path: Path) -> None:
    """Pasted into a file, with an app that has one licensed function."""
    _run_tests(APP + _blocks("app/testing")[0], tmp_path)


@pytest.mark.parametrize("toolkit", ["tk", "qt"])
def test_the_tests_of_dialogs_pass(toolkit: str, screen: Screen, tmp_path: Path) -> None:
    """As they stand there; for Qt, with what the page names in place of Tk."""
    _, code, fixtures = _blocks("app/testing")
    if toolkit == "qt":
        pytest.importorskip("PySide6")
        code = re.sub(r"@pytest.fixture\n.*?root.destroy\(\)\n", lambda _: fixtures, code, flags=re.DOTALL)
        code = code.replace("dialogs.tk", "dialogs.qt")
        code = code.replace("import tkinter", "from PySide6.QtWidgets import QApplication, QWidget")
    _run_tests(code, tmp_path, DISPLAY=screen.display)


def _run_tests(code: str, folder: Path, **environ: str) -> None:
    (folder / "test_app.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"]
    env = {**os.environ, **environ}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, timeout=120, env=env
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_commands_of_the_admin_api_run(tmp_path: Path) -> None:
    """Pasted into a shell, against a running server: listed, issued once, published."""
    program = Program(tmp_path / "vendor")
    program.run("product", "add", "photo-lab", "--name", "Photo Lab")
    page = (DOCS / "admin-api.md").read_text(encoding="utf-8")
    first, *blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    create, _, listing = first.partition("\n")
    create = create.removeprefix("TOKEN=$(").partition(")")[0]
    token = program.run(*shlex.split(create)[1:]).stdout.strip()
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "photo-lab-1.1.0.zip").write_bytes(b"zip")
    (tmp_path / "NEWS.html").write_text("<p>Faster.</p>")
    with program.serve() as (_, address):
        script = "\n".join([f"TOKEN={token}", listing, *blocks])
        script = script.replace("https://licenses.example.com", address).replace("curl ", "curl -sSf ")
        command = ["bash", "-ec", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert '"slug":"photo-lab"' in done.stdout
    assert '"version":"1.1.0"' in done.stdout
    assert '"license_key":"CP-' in done.stdout
