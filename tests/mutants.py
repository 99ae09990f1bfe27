"""Mutation testing: change the modules that must not be wrong, line by line, and see a test turn red for it.

`uv run --group dev nox -s mutants` (`-- licserver` for one package, `-- decisions _core/storage` for some
modules, `-- --changed` for those whose file or tests differ from the main branch, or from the last commit on
it, for `SECONDS_FOR_CHANGED` at most). mutmut changes a copy in a temporary folder; nothing here is touched.
What survives is printed, and fewer than `ENOUGH` killed of those tried in any module is a failure. Only the
tests named beside a module are run, all of them quick and without a database: what they do not see is not
held by them.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
ENOUGH: Final = 0.95
SECONDS_FOR_CHANGED: Final = 240
"""For all modules together: CI has an hour for everything."""

KILLED: Final = {"killed", "timeout"}
NOT_TRIED: Final = "not checked"

_RULES: Final = (
    "decisions",
    "dates_and_versions",
    "domain_matching",
    "client_addresses",
    "environment_matching",
    "download_links",
)

_CONTRACTS: Final = (
    *(
        "shop_contracts",
        "shop_refunded_lines",
        "shop_orders",
        "shop_questions",
        "shop_standard",
        "shop_subscriptions",
    ),
    *(f"field/{name}" for name in ("own_shops", "shops_objects", "shops_reports")),
)

PACKAGES: Final = {
    "licserver": {
        "domain/decisions": (*_RULES, "covered_offers"),
        "domain/environments": _RULES,
        "domain/entitlements": ("entitlements", "use_requests"),
        "domain/moves": ("moves",),
        "domain/offline_files": ("offline_requests",),
        "domain/seats": ("seat_decisions",),
        "domain/security_notices": ("security_notices",),
        "domain/trials": ("trial_decisions",),
        "domain/channel_offers": ("channel_choice", "covered_offers", "dates_and_versions", "rollout"),
        "domain/offers": ("channel_choice", "covered_offers", "feed_choice", "rollout"),
        "domain/wordpress": ("php_versions", "wordpress_fields"),
        "protocol/conversion": ("foreign_exports", "license_files"),
        "protocol/damaged_keys": ("damaged_keys",),
        "protocol/downloads": ("download_links", "byte_ranges", "patch_headers", "rotation"),
        "protocol/response_signatures": ("response_signatures",),
        "protocol/ed25519_keys": ("ed25519_keys",),
        "protocol/foreign_exports": ("foreign_exports",),
        "protocol/offline_files": ("offline_requests",),
        **{f"protocol/{name}s": (f"{name}_decisions",) for name in ("seat", "trial")},
        "protocol/rollbacks": ("rollback_reports",),
        "protocol/uses": ("use_requests",),
        "protocol/prepared_hmac": ("prepared_hmac",),
        "protocol/release_manifests": ("release_manifests",),
        "security/link_secrets": ("rotation",),
        "security/redaction": ("masking",),
        "shops/changes": ("shop_changes",),
        "shops/earlier": ("shop_earlier",),
        **{
            f"shops/{name}": ("shop_readers", "shop_refunded_lines")
            for name in ("dodo", "gumroad", "lemonsqueezy", "paddle")
        },
        **{
            f"shops/{name}": ("shop_readers", "shop_refunded_lines")
            for name in ("polar", "stripe", "woocommerce")
        },
        "shops/standard": (
            "shop_readers",
            "shop_refunded_lines",
            "shop_signatures",
            "shop_standard",
            "field/own_shops",
        ),
        "shops/adoption": ("shop_contracts",),
        "shops/desired": _CONTRACTS,
        "shops/facts": ("shop_facts",),
        "shops/orders": ("shop_orders", "shop_refunded_lines", "shop_contracts"),
        "shops/subscriptions": ("shop_subscriptions", "shop_contracts"),
        "shops/items": ("shop_items", "shop_units", "shop_ends", "shop_contracts"),
        "shops/units": ("shop_units", "shop_refunded_lines", "shop_contracts", "shop_questions"),
        "shops/reading": ("shop_reading", "shop_readers"),
        "shops/signatures": ("shop_signatures",),
    },
    "licclient": {
        "_core/signed_responses": ("response_signatures", "pinned_cache", "pins"),
        "_updates/signed_releases": ("signed_releases",),
        "_core/records": ("covered", "records", "state_places"),
        "_core/storage": ("storage",),
        "_core/successes": ("successes",),
        "_core/policy": ("covered", "policy"),
        "_core/pace": ("pace",),
        "_core/download_headers": ("download_headers",),
        "_computers/protocol": ("computers",),
        "_seats/protocol": ("protocol", "seats"),
        "_seats/renewal": ("seats",),
        "_trials/protocol": ("trials",),
        "_updates/rollbacks": ("protocol", "rollouts"),
        "_uses/protocol": ("consumption", "protocol"),
        "_verification/ending": ("ending",),
        "install/_probation": ("probation",),
    },
}
"""package → module → the tests that must notice when it is changed."""

_SETTINGS: Final = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/{package}/{module}.py"]
also_copy = ["checks", "conftest.py", "src", "tests"]
pytest_add_cli_args_test_selection = ["checks"]
timeout_multiplier = 4
timeout_constant = 5

[tool.pytest.ini_options]
pythonpath = ["tests"]
addopts = [
    "--import-mode=importlib",
    "--disable-plugin-autoload", "-p", "asyncio", "-p", "hypothesispytest",
]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
"""


_NO_SHRINKING: Final = """
settings.register_profile("mutants", deadline=None, phases=[Phase.explicit, Phase.generate])
settings.load_profile("mutants")
"""
"""For the copied `conftest.py`: that an example fails is enough, and the smallest one takes a minute."""


def path_of_test(package: str, test: str) -> str:
    """Return the file of a test, from the root: of its package, or a field report."""
    field_report = test.removeprefix("field/")
    if field_report != test:
        return f"tests/field/test_{field_report}.py"
    return f"packages/{package}/tests/test_{test}.py"


def lay_out(folder: Path, package: str, module: str) -> None:
    """Copy what mutmut needs: the package, the chosen tests, and what these stand on."""
    own = ROOT / "packages" / package
    shutil.copytree(own / "src", folder / "src")
    shutil.copytree(ROOT / "tests" / "harness", folder / "tests" / "harness")
    shutil.copytree(ROOT / "tests" / "vectors", folder / "tests" / "vectors")
    if (own / "tests" / "stage").exists():
        shutil.copytree(own / "tests" / "stage", folder / "tests" / "stage")
    conftest = (ROOT / "conftest.py").read_text(encoding="utf-8")
    conftest = conftest.replace("from hypothesis import settings", "from hypothesis import Phase, settings")
    (folder / "conftest.py").write_text(conftest + _NO_SHRINKING, encoding="utf-8")
    (folder / "checks").mkdir()
    for test in PACKAGES[package][module]:
        shutil.copy(ROOT / path_of_test(package, test), folder / "checks")
    shutil.copy(own / "tests" / "conftest.py", folder / "checks")
    (folder / "pyproject.toml").write_text(_SETTINGS.format(package=package, module=module), encoding="utf-8")


class Result(NamedTuple):
    """What became of the changes of a module."""

    killed: int
    survivors: tuple[str, ...]
    total: int

    @property
    def tried(self) -> int:
        """How many were tried in the time."""
        return self.killed + len(self.survivors)

    @property
    def is_enough(self) -> bool:
        """Whether the tests have noticed enough of what was tried."""
        return self.killed >= ENOUGH * self.tried


def judge(verdicts: Mapping[str, str]) -> Result:
    """Return the result of what mutmut reports of each change."""
    killed = sum(verdict in KILLED for verdict in verdicts.values())
    survivors = (name for name, verdict in verdicts.items() if verdict not in {*KILLED, NOT_TRIED})
    return Result(killed, tuple(survivors), len(verdicts))


def report_untried(module: str, result: Result) -> str:
    """Return the line that `.ci/run` shows once more at its end; nothing if all was tried."""
    if not result.total:  # not even found
        return f"!!! mutants: of {module}, no change was tried in the time"
    untried = result.total - result.tried
    return f"!!! mutants: of {module}, {untried} of {result.total} changes were not tried in the time" * (
        untried > 0
    )


def mutmut(folder: Path, *arguments: str) -> str:
    """Return what a command of mutmut prints."""
    done = subprocess.run(
        ["mutmut", *arguments], cwd=folder, check=False, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    if done.returncode:
        raise SystemExit(f"mutmut {arguments[0]} failed:\n{done.stdout}")
    return done.stdout


def try_changes(folder: Path, seconds: float | None) -> str | None:
    """Let mutmut try the changes; return the end of what it prints, or None if the time was up before."""
    children = str(os.cpu_count() or 1)
    with subprocess.Popen(
        ["mutmut", "run", "--max-children", children],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # what it has forked ends with it
    ) as process:
        try:
            return process.communicate(timeout=seconds)[0].replace("\r", "\n")[-2000:]
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # it has stored each result at once


def evaluate(folder: Path, package: str, module: str, seconds: float | None) -> bool:
    """Change, test and report; True when enough of what was tried was noticed."""
    lay_out(folder, package, module)
    output = try_changes(folder, seconds)
    lines = [
        line.strip()
        for line in mutmut(folder, "results", "--all", "true").splitlines()
        if "__mutmut_" in line
    ]
    verdicts = dict(line.split(": ") for line in lines)
    result = judge(verdicts)
    if output is not None and not result.tried:
        raise SystemExit(f"{package}: mutmut made nothing of it:\n{output}")
    for name in result.survivors:
        print(f"--- {name}: {verdicts[name]}")  # noqa: T201 - a report
        changed = [line for line in mutmut(folder, "show", name).splitlines() if line[:1] in "+-"]
        print("\n".join(line for line in changed if line[:3] not in {"---", "+++"}))  # noqa: T201 - a report
    share = f", {result.killed / result.tried:.1%}" if result.tried else ""
    print(f"{package} {module}: {result.killed} of {result.tried} killed{share}", flush=True)  # noqa: T201
    if untried := report_untried(module, result):
        print(untried, flush=True)  # noqa: T201 - a report
    return result.is_enough


def git(*arguments: str) -> str:
    """Run git in this repository; returns what it prints, or nothing where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
    return "" if done.returncode else done.stdout.strip()


def changed() -> list[tuple[str, str]]:
    """Return the modules whose file or tests have changed since the merge base with main, or since HEAD~."""
    head, base = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "origin/main")
    if base in {"", head}:
        base = git("rev-parse", "--verify", "HEAD~")
    paths = set(git("diff", "--name-only", base).splitlines()) if base else set()
    return [
        (package, module)
        for package, modules in PACKAGES.items()
        for module, tests in modules.items()
        if paths
        & {
            f"packages/{package}/src/{package}/{module}.py",
            *(path_of_test(package, test) for test in tests),
        }
    ]


def _names(package: str, module: str) -> set[str]:
    return {package, module, module.rpartition("/")[2]}


def main(arguments: list[str]) -> None:
    """Evaluate the packages and modules named, those that have changed, or all."""
    every = [(package, module) for package, modules in PACKAGES.items() for module in modules]
    if arguments == ["--changed"]:
        chosen = changed()
        print("changed:", ", ".join(module for _, module in chosen) or "none", flush=True)  # noqa: T201 - a report
        if not chosen:
            return
    else:
        chosen = [pair for pair in every if not arguments or _names(*pair) & set(arguments)]
        if unknown := set(arguments).difference(*(_names(*pair) for pair in chosen)):
            raise SystemExit(f"no such package or module: {', '.join(sorted(unknown))}")
    enough = []
    ends_at = time.monotonic() + SECONDS_FOR_CHANGED if arguments == ["--changed"] else None
    for place, (package, module) in enumerate(chosen):
        # What a module leaves of its share is for those that follow.
        seconds = None if ends_at is None else (ends_at - time.monotonic()) / (len(chosen) - place)
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            enough.append(evaluate(Path(folder), package, module, seconds))
    if not enough or not all(enough):
        raise SystemExit(f"fewer than {ENOUGH:.0%} of the changes turned a test red")


if __name__ == "__main__":
    main(sys.argv[1:])
