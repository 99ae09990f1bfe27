"""The README's words are true: its code runs, its commands exist."""

import re
import shlex
from pathlib import Path

import pytest

from harness.programs import SCRIPTS, run
from harness.world import World

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _block(marker: str) -> str:
    found = re.search(rf"<!-- {marker} -->\n```\w+\n(.*?)```\n<!-- /{marker} -->", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_gates_a_feature_and_downloads_the_update(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ten lines of app code, pasted with a real key and a real server, do what they say."""
    monkeypatch.setenv("HOME", str(tmp_path))
    releases = [{"version": "1.1.0", "published_at": "2026-11-05T00:00:00Z"}]
    product = {"slug": "photo-lab", "name": "Photo Lab", "environment": "domain", "support_policy": False}
    world.stock({"products": [{**product, "releases": releases}], "licenses": []})
    key = world.new_key("photo-lab")
    with world.serving() as server:
        code = _block("example").replace("https://licenses.example.com", server.url)
        exec(compile(code, "README.md", "exec"), {"key": key, "downloads": tmp_path / "downloads"})  # noqa: S102 - ours
        world.vendor.revoke(key)
        stranger = world.new_key("photo-lab", slots=0)
        exec(compile(code, "README.md", "exec"), {"key": stranger, "downloads": tmp_path})  # noqa: S102 - ours
    told = capsys.readouterr().out
    assert "Licensed for Photo Lab until further notice" in told
    assert f"Version 1.1.0 is out: {tmp_path / 'downloads' / 'photo-lab-1.1.0.zip'}" in told
    assert "Export stays locked: Max activations exceeded or unrecognized environment." in told


def test_the_example_is_short() -> None:
    """App developers are promised a few lines."""
    lines = [line for line in _block("example").splitlines() if line.strip()]
    assert len(lines) <= 16


def test_the_command_that_ci_runs_is_the_one_that_is_pasted() -> None:
    """`.ci/run` takes the test command out of the README; there is exactly one."""
    assert README.count("<!-- test-command -->") == 1
    assert _block("test-command").strip().endswith(".boot/bin/uv run -q --locked pytest")


@pytest.mark.parametrize("page", ["README.md", "docs/server.md", "packages/licserver/README.md"])
def test_every_command_in_the_documents_exists(page: str, tmp_path: Path) -> None:
    """Each `licserver …` line that a reader can paste is one that the program knows."""
    text = (ROOT / page).read_text(encoding="utf-8")
    commands = {
        tuple(word for word in shlex.split(line, comments=True)[1:3] if re.fullmatch(r"[a-z][a-z-]+", word))
        for line in re.findall(r"^licserver .*$", text, re.MULTILINE)
    }
    assert commands
    for command in commands:
        done = run([str(SCRIPTS / "licserver"), *command, "--help"], tmp_path)
        assert done.returncode == 0, (command, done.stderr)


def test_every_link_in_the_documents_leads_somewhere() -> None:
    """Relative links between the pages point at files that exist."""
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("packages/*/README.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert any((page.parent / f"{target}{ending}").exists() for ending in ("", ".md")), (
                page.name,
                target,
            )
