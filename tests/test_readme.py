"""The README's words are true: its code runs, its commands exist."""

import re
import shlex
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from harness.world import World
from licclient.errors import LicenseRefusedError
from licserver.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _block(marker: str) -> str:
    found = re.search(rf"<!-- {marker} -->\n```\w+\n(.*?)```\n<!-- /{marker} -->", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_a_newcomer_gates_a_feature_with_the_ten_lines(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README's app asks for a key, remembers it across a restart, and asks again after a revocation."""
    tkinter = pytest.importorskip("tkinter")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.setattr(tkinter, "Tk", Mock)
    monkeypatch.setattr(tkinter, "Button", lambda *_, **__: Mock())
    typed, shown = "", list[str]()

    def ask_for_key(client: Any, _parent: Any, *, problem: Exception) -> Any:
        shown.append(str(problem))
        return client.activate(typed) if typed else None

    monkeypatch.setattr("licclient.dialogs.tk.ask_for_key", ask_for_key)
    product = {"slug": "photo-lab", "name": "Photo Lab", "environment": "domain", "support_policy": False}
    world.stock({"products": [{**product, "releases": []}], "licenses": []})
    key = world.new_key("photo-lab")
    with world.serving() as server:

        def start() -> dict[str, Any]:
            code = _block("example").replace("https://licenses.example.com", server.url)
            app: dict[str, Any] = {}
            exec(compile(code, "README.md", "exec"), app)  # noqa: S102 - ours
            return app

        app = start()
        app["export"]()  # the dialog was closed
        assert capsys.readouterr().out == ""
        typed = f" {key.lower()} "
        app["export"]()
        app, typed = start(), ""
        app["export"]()
        assert capsys.readouterr().out == "exported\n" * 2
        assert server.verifies == 1
        world.services.licenses.revoke(key)
        with pytest.raises(LicenseRefusedError):
            app["client"].verify(force=True)
        app["export"]()
    assert capsys.readouterr().out == ""
    assert shown == [
        *["No license key has been entered on this computer yet."] * 2,
        "License has been revoked.",
    ]


def test_the_example_is_short() -> None:
    """Twelve lines of code, and five minutes of reading up to them at two hundred words a minute."""
    lines = [line for line in _block("example").splitlines() if line.strip()]
    assert len(lines) <= 12
    before = README.partition("<!-- /example -->")[0]
    assert len(before.split()) <= 5 * 200


def test_the_command_that_ci_runs_is_the_one_that_is_pasted() -> None:
    """`.ci/run` takes the test command out of the README; there is exactly one."""
    assert README.count("<!-- test-command -->") == 1
    assert _block("test-command").strip().endswith(".boot/bin/uv run -q --locked pytest")


COMMAND_PAGES = [
    *("README.md", "packages/licserver/README.md", "docs/server.md"),
    *(f"docs/server/{name}.md" for name in ("data-folder", "postgresql", "signing")),
]


@pytest.mark.parametrize("page", COMMAND_PAGES)
def test_every_command_in_the_documents_exists(page: str) -> None:
    """Each `licserver …` line that a reader can paste is one that the program knows."""
    text = "".join(
        re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    )
    commands = {
        tuple(word for word in shlex.split(line, comments=True)[1:3] if re.fullmatch(r"[a-z][a-z-]+", word))
        for line in re.findall(r"^licserver .*$", text, re.MULTILINE)
    }
    assert commands
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main([*command, "--help"])
        assert ended.value.code == 0, command


def test_every_link_in_the_documents_leads_somewhere() -> None:
    """Relative links between the pages point at files that exist."""
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert any((page.parent / f"{target}{ending}").exists() for ending in ("", ".md")), (
                page.name,
                target,
            )
