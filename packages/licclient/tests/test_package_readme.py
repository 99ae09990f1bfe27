"""The README's own words, pasted into an empty file."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_readmes_example_runs_as_it_stands(license_service, tmp_path):
    """Nothing has to be added: refused, activated, gated, and no update is an end without words."""
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    app = {}
    exec(compile(example, "README.md", "exec"), app)  # noqa: S102 - ours
    assert "exported" not in app["export"]("A note")
    key = license_service.issue("Notes Pro")
    assert "Notes Pro" not in app["enter_key"]("CP-")
    assert app["enter_key"](key.lower()) == "Licensed for Notes Pro"
    assert app["export"]("A note") == "A note exported"
    app["update"](tmp_path / "downloads", tmp_path / "app")
    assert license_service.count("update-check") == 1
