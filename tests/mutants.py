"""Mutation testing: change the modules that must not be wrong, line by line, and see a test turn red for it.

`uv run --group dev nox -s mutants` (`-- licserver` for one package, `-- decisions _core/storage` for some
modules, `-- --changed` for those whose file or tests differ from the main branch, or from the last commit on
it). mutmut changes a copy in a temporary folder; nothing here is touched. What survives is printed, and fewer
than `ENOUGH` killed in any module is a failure. Only the tests named beside a module are run, all of them
quick and without a database: what they do not see is not held by them.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ENOUGH: Final = 0.95

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
        "shop_orders",
        "shop_questions",
        "shop_standard",
        "shop_subscriptions",
        "shop_machine",
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
        "domain/offers": ("channel_choice", "covered_offers", "feed_choice", "rollout"),
        "domain/wordpress": ("php_versions", "wordpress_fields"),
        "protocol/conversion": ("foreign_exports", "license_files"),
        "protocol/damaged_keys": ("moving_in",),
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
        **{f"shops/{name}": ("shop_readers",) for name in ("dodo", "gumroad", "lemonsqueezy", "paddle")},
        **{f"shops/{name}": ("shop_readers",) for name in ("polar", "stripe", "woocommerce")},
        "shops/standard": ("shop_readers", "shop_signatures", "shop_standard", "field/own_shops"),
        "shops/adoption": ("shop_contracts",),
        "shops/desired": _CONTRACTS,
        "shops/facts": ("shop_facts",),
        "shops/orders": _CONTRACTS,
        "shops/subscriptions": _CONTRACTS,
        "shops/units": ("shop_units", "shop_contracts", "shop_questions", "shop_machine"),
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
        "_seats/protocol": ("protocol", "seats"),
        "_seats/renewal": ("seats",),
        "_trials/protocol": ("trials",),
        "_updates/rollbacks": ("protocol", "rollouts"),
        "_uses/protocol": ("consumption", "protocol"),
        "_verification/ending": ("ending",),
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
    "--deselect", "checks/test_shop_machine.py::test_a_shop[all",  # a minute for each change that survives
]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
"""


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
    shutil.copy(ROOT / "conftest.py", folder)
    (folder / "checks").mkdir()
    for test in PACKAGES[package][module]:
        shutil.copy(ROOT / path_of_test(package, test), folder / "checks")
    shutil.copy(own / "tests" / "conftest.py", folder / "checks")
    (folder / "pyproject.toml").write_text(_SETTINGS.format(package=package, module=module), encoding="utf-8")


def mutmut(folder: Path, *arguments: str) -> str:
    """Run mutmut in a folder; returns what it prints."""
    done = subprocess.run(
        ["mutmut", *arguments], cwd=folder, check=False, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    if done.returncode and arguments[0] != "run":
        raise SystemExit(f"mutmut {arguments[0]} failed:\n{done.stdout}")
    return done.stdout


def evaluate(folder: Path, package: str, module: str) -> bool:
    """Change, test and report; True when enough was noticed."""
    lay_out(folder, package, module)
    tail = mutmut(folder, "run", "--max-children", "1").replace("\r", "\n")[-2000:]
    lines = [
        line.strip()
        for line in mutmut(folder, "results", "--all", "true").splitlines()
        if "__mutmut_" in line
    ]
    verdicts = dict(line.split(": ") for line in lines)
    if not verdicts:
        raise SystemExit(f"{package}: mutmut made nothing of it:\n{tail}")
    killed = [name for name, verdict in verdicts.items() if verdict in {"killed", "timeout"}]
    for name in [name for name in verdicts if name not in killed]:
        print(f"--- {name}: {verdicts[name]}")  # noqa: T201 - a report
        changed = [line for line in mutmut(folder, "show", name).splitlines() if line[:1] in "+-"]
        print("\n".join(line for line in changed if line[:3] not in {"---", "+++"}))  # noqa: T201 - a report
    share = len(killed) / len(verdicts)
    print(f"{package} {module}: {len(killed)} of {len(verdicts)} killed, {share:.1%}", flush=True)  # noqa: T201
    return share >= ENOUGH


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
    for package, module in chosen:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            enough.append(evaluate(Path(folder), package, module))
    if not enough or not all(enough):
        raise SystemExit(f"fewer than {ENOUGH:.0%} of the changes turned a test red")


if __name__ == "__main__":
    main(sys.argv[1:])
