"""Write the repository's address to where people and package indexes look for it.

It is set once, in the workspace's pyproject.toml: `repository` in `[tool.workspace]`. This makes of it
`project.urls` of each package and the badges of README.md; docs/conf.py reads the setting itself. Without an
address there are none of these.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
_ADDRESS = re.compile(r"https://[\w.-]+/\w[\w.-]*/\w[\w.-]*(?<!\.git)")


def read_address(root: Path = ROOT) -> str:
    """Return the address, such as https://github.com/OWNER/NAME, or an empty text.

    Raises:
        ValueError: It is not such an address.
    """
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    address = settings["tool"]["workspace"]["repository"]
    if not isinstance(address, str) or (address and not _ADDRESS.fullmatch(address)):
        raise ValueError("pyproject.toml: `repository` is like https://github.com/OWNER/NAME, or empty")
    return address


def format_urls(address: str) -> str:
    """Return the table `project.urls` of a package."""
    if not address:
        return ""
    return (
        "[project.urls]\n"
        f'Documentation = "{address}/tree/main/docs"\n'
        f'Changelog = "{address}/blob/main/CHANGELOG.md"\n'
        f'Issues = "{address}/issues"\n'
        f'Source = "{address}"\n'
    )


def format_badges(address: str) -> str:
    """Return the line of badges for README.md."""
    if not address:
        return ""
    workflow = f"{address}/actions/workflows/ci.yml"
    return f"[![CI]({workflow}/badge.svg?branch=main)]({workflow})\n"


def write_files(root: Path = ROOT) -> list[Path]:
    """Bring all files up to date; return those that have changed."""
    address = read_address(root)
    urls = {path: ("# ", "", format_urls(address)) for path in root.glob("packages/*/pyproject.toml")}
    changed = []
    for path, (begin, end, content) in {
        **urls,
        root / "README.md": ("<!-- ", " -->", format_badges(address)),
    }.items():
        text = path.read_text(encoding="utf-8")
        opening, closing = f"{begin}repository{end}\n", f"{begin}/repository{end}\n"
        before, found, rest = text.partition(opening)
        _, found_end, after = rest.partition(closing)
        if not (found and found_end):
            raise ValueError(f"{path.relative_to(root)}: no lines {opening!r} and {closing!r}")
        new = f"{before}{opening}{content}{closing}{after}"
        if new != text:
            path.write_text(new, encoding="utf-8")
            changed.append(path)
    return changed


if __name__ == "__main__":
    try:
        for file in write_files():
            print(f"wrote {file.relative_to(ROOT)}")
    except ValueError as problem:
        sys.exit(str(problem))
