"""What CI checks beside the README's test command: `uv run --group dev nox -l`.

Most sessions run in the workspace's own environment, which that command has filled; a session whose result
depends on what is installed has one of its own.
"""

import os
import shutil
import subprocess
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["full", "branches", "lint", "types", "frozen", "docs", "dist"]

PACKAGES = ["licclient", "licconform", "licserver"]
PURE_TESTS = {
    "licclient": "archive argument_checks changelog computers consumption covered dialogs download_headers "
    "entitlements ending explain full_licenses installation_signs install_plans license_files links "
    "long_texts pace policy probation protocol public_keys records response_signatures schedule seats "
    "settings signed_releases status trials typed_key versions",
    "licconform": "client_cases runner server_cases",
    "licserver": "api_requests api_responses byte_ranges changelogs channel_choice characters kind_choice "
    "client_addresses clock_readings console_units covered_offers damaged_keys dates_and_versions decisions "
    "domain_matching download_links ed25519_keys entitlements environment_matching feed_choice "
    "feed_documents foreign_exports hosts languages license_files mail_addresses masking moves "
    "offline_requests outbound_addresses patch_headers personal_addresses php_versions phrases prepared_hmac "
    "rare_values release_manifests response_signatures rollback_reports rollout seat_decisions "
    "shop_changes shop_contracts shop_earlier shop_ends shop_facts shop_items shop_orders shop_questions "
    "shop_readers shop_reading shop_refunded_lines shop_signatures shop_standard shop_subscriptions "
    "shop_units security_notices "
    "sign_in_codes totp trial_decisions use_requests webhook_signatures wordpress_fields",
}
"""The tests of each package's pure modules: `packages/*/tests/test_*.py`."""
COVERING = [
    *(f"packages/licserver/tests/test_{name}.py" for name in ("file_signatures", "shop_machine", "terms")),
    *(
        f"tests/field/test_{name}.py"
        for name in ("orders_that_are_edited", "shops_objects", "shops_reports", "own_shops")
    ),
    *(
        f"tests/field/test_{name}.py"
        for name in ("order_of_events", "renewal_orders", "shops_reports_4", "upgraded_sales")
    ),
]
"""Tests of pure modules that have tests of other modules beside them."""
MEASURED = ("-n", "2", "-p", "pytest_cov", "--cov", "--cov-report=", "--cov-fail-under=0")  # the report fails
MEASURES = Path(".nox", "measures").absolute()
LAZY = (
    *("aiosmtplib", "argon2-cffi", "backports.zstd", "cryptography", "filelock", "jinja2", "nh3"),
    *("platformdirs", "prometheus-client", "pyotp", "segno", "zxcvbn"),
)
"""Dependencies that are loaded by their first use: `licclient._core.lazy`, `licserver.libraries`."""
EVERYTHING = ("-m", "")
"""Selects marked tests as well."""


def sync(session: nox.Session, *arguments: str) -> None:
    """Install what the lock file names into the session's environment, and nothing else."""
    session.run_install(
        "uv", "sync", "--locked", *arguments, env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location}
    )


def run(session: nox.Session, *command: str, group: str = "test", env: dict[str, str] | None = None) -> None:
    """Run a command in the workspace's environment, with one more group of tools."""
    session.run("uv", "run", "--quiet", "--locked", "--group", group, *command, env=env, external=True)


@nox.session(venv_backend="none")
def full(session: nox.Session) -> None:
    """Every test, marked ones as well; `-- PATH` for some. A test that fails is run once more, alone.

    `-- rest` leaves out what the README's command has run a moment ago, as CI does.
    """
    selected = ("-m", marked()) if session.posargs == ["rest"] else (*EVERYTHING, *session.posargs)
    run(session, "pytest", "--failed-alone", *selected, group="fakes")


@nox.session(venv_backend="none", requires=[f"alone({package})" for package in PACKAGES])
def branches(session: nox.Session) -> None:
    """Every branch of the pure modules, by their own tests alone: they need no server, file or clock.

    Most of these run, and are measured, in the sessions `alone`, which this one begins with.
    """
    run(session, "pytest", *MEASURED, *COVERING, env=measuring("covering"))
    run(session, "coverage", "combine", "--keep", str(MEASURES))
    run(session, "coverage", "report")


def measuring(part: str) -> dict[str, str]:
    """Return the environment of a run whose branches are measured, by a file of its own."""
    MEASURES.mkdir(parents=True, exist_ok=True)
    return {"COVERAGE_FILE": str(MEASURES / f".coverage.{part}")}


def pure_tests(package: str) -> list[str]:
    """Return the files with the tests of a package's pure modules."""
    return [f"packages/{package}/tests/test_{name}.py" for name in PURE_TESTS[package].split()]


def marked() -> str:
    """Return what selects the tests that the default selection leaves out."""
    default: str = nox.project.load_toml("pyproject.toml")["tool"]["pytest"]["ini_options"]["addopts"][-1]
    return default.removeprefix("not ")


def check_pure_modules(session: nox.Session) -> None:
    """Compare the modules that are measured with those that the contracts call pure."""
    tools = nox.project.load_toml("pyproject.toml")["tool"]
    pure = {
        module.replace(".", "/")
        for contract in tools["importlinter"]["contracts"]
        if contract["id"].endswith("-pure")
        for module in contract["source_modules"]
    }
    include = tools["coverage"]["run"]["include"]
    measured = {path.removeprefix("*/").removesuffix(".py").removesuffix("/*") for path in include}
    if pure != measured:
        session.error(f"[tool.coverage.run] and the contracts differ in {sorted(pure ^ measured)}")


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Style, workflows, unused and undeclared dependencies, and who may import whom."""
    run(session, "ruff", "check", group="lint")
    run(session, "ruff", "format", "--check", group="lint")
    run(session, "lint-imports", group="lint")
    check_pure_modules(session)
    workflows = sorted(map(str, Path(".github/workflows").glob("*.yml")))
    run(session, "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows, group="lint")
    run(session, "zizmor", "--offline", "--quiet", *workflows, group="lint")
    for package in PACKAGES:
        own = ("--config", f"packages/{package}/pyproject.toml", f"packages/{package}/src")
        others = ("--extend-exclude", ".*/deploy_files/examples")  # programs of their own
        # pytest is there when it loads the plugin. httpx brings anyio, pydantic its core, and Python 3.14
        # compression.
        names = ("--package-module-name-map", "PySide6-Essentials=PySide6")
        ignored = f"DEP001=compression,DEP002={'|'.join(LAZY)},DEP003=anyio|pydantic_core,DEP004=pytest"
        run(session, "deptry", *own, *others, "--per-rule-ignores", ignored, *names, group="lint")


@nox.session(venv_backend="none")
def structure(session: nox.Session) -> None:
    """Print the measures of the structure beside the wanted ones; `-- --details` lists what was counted."""
    run(session, "python", "tests/structure.py", *session.posargs)


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Mypy, strict, on all packages and the tests between them; pyright on what apps import."""
    run(session, "mypy", group="lint")
    run(session, "basedpyright", group="lint")


@nox.session
@nox.parametrize("package", PACKAGES, ids=PACKAGES)
def alone(session: nox.Session, package: str) -> None:
    """Install one package without the others, import it; run and measure the tests of its pure modules."""
    sync(session, "--package", package, "--group", "test")
    others = sorted(set(PACKAGES) - {package})
    not_there = f"import {package}, importlib.util as u; assert not any(map(u.find_spec, {others}))"
    session.run("python", "-c", not_there)
    session.run("pytest", *MEASURED, *pure_tests(package), *session.posargs, env=measuring(package))


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """Speed beside a bare handler, as a ratio: `-- quick` for two minutes, `-- --help` for more."""
    run(session, "python", "-m", "bench", *(session.posargs or ["full", "--write", "docs"]))


@nox.session(venv_backend="none")
def crash(session: nox.Session) -> None:
    """Kill the server 200 times, 50 more amid sales, PostgreSQL 20 times and apps 300 times.

    Restart 20 times, race 200 times, and play shops and launchers ten times as long.

    All under load. The test run does a few of each.
    """
    campaign = {
        "LICENSING_CRASHES": "200",
        "LICENSING_SALE_CRASHES": "50",
        "LICENSING_POSTGRES_CRASHES": "20",
        "LICENSING_RESTARTS": "20",
        "LICENSING_RACES": "200",
        "LICENSING_LONGER": "10",
        "LICCLIENT_CRASHES": "300",
    }
    files = ["tests/test_crash.py", "tests/test_crash_postgres.py", "tests/test_restarts.py"]
    apps = [f"packages/licclient/tests/test_{name}.py" for name in ("together", "installation_processes")]
    races = "packages/licserver/tests/test_serve.py::test_callers_who_race_share_the_slots_exactly"
    jumps = "packages/licserver/tests/test_seats.py::test_racers_never_hold_more_than_were_sold"
    seats = "packages/licserver/tests/test_seats_crash.py"
    server = [
        f"packages/licserver/tests/test_{name}.py"
        for name in ("publish_crash", "sales_crash", "move_races", "shop_machine", "shop_server")
    ]
    probation = "packages/licclient/tests/test_probation_machine.py"
    tests = (*files, *apps, races, jumps, seats, *server, probation)
    run(session, "pytest", *EVERYTHING, "--timeout=0", *tests, *session.posargs, env=campaign)


@nox.session(venv_backend="none")
def failover(session: nox.Session) -> None:
    """Faults of several hosts, their database, proxy, bucket and Redis; writes the table in `docs/scale.md`.

    Five minutes; the test run does three of them, shorter. Needs haproxy, pgbouncer and PostgreSQL. Linux
    lets it run in a network namespace of its own; elsewhere some faults are left out.
    """
    longer = {"LICENSING_FAILOVER": "10", "LICENSING_FAILOVER_TABLE": "docs/failover-table.md"}
    alone = ("-n", "0", "--timeout=0")
    network = own_network(session)
    if network:
        longer["LICENSING_FAILOVER_NAMESPACE"] = "1"
    run(session, *network, "pytest", *EVERYTHING, *alone, "tests/failover", *session.posargs, env=longer)


def own_network(session: nox.Session) -> tuple[str, ...]:
    """Return what runs a command in a network namespace of its own; empty where that is not allowed."""
    keeping = () if os.geteuid() == 0 else ("--map-current-user", "--keep-caps")
    script = 'ip link set lo up && nft add table inet probe && exec "$@"'
    network = ("unshare", "--net", *keeping, "sh", "-c", script, "sh")
    try:
        subprocess.run([*network, "true"], check=True, capture_output=True, text=True)  # noqa: S603 - ours
    except (OSError, subprocess.CalledProcessError) as problem:
        reason = getattr(problem, "stderr", None) or problem
        session.warn(f"on loopback addresses of this machine, as it makes no network namespace: {reason}")
        return ()
    return network


@nox.session(venv_backend="none")
def upgrade(session: nox.Session) -> None:
    """A schema step and its way back beside servers under load, with ten million licenses; an hour.

    The test run does it with a hundred thousand. `LICENSING_UPGRADE_DATABASE` names an empty database.
    """
    rows = {"LICENSING_UPGRADE_ROWS": "10000000"}
    tests = ("-s", "--timeout=0", "tests/test_upgrade_live.py")
    run(session, "pytest", *EVERYTHING, *tests, *session.posargs, env=rows)


@nox.session(venv_backend="none")
def hostile(session: nox.Session) -> None:
    """Honest clients beside clients that attack, ten minutes long; the test run does 10 s of it."""
    seconds = {"LICENSING_HOSTILE_SECONDS": "600"}
    run(session, "pytest", *EVERYTHING, "--timeout=0", "tests/test_hostile.py", *session.posargs, env=seconds)


@nox.session(venv_backend="none")
def mutants(session: nox.Session) -> None:
    """Change the modules that must not be wrong, and see the tests notice; half an hour.

    `-- rules` for one of them, `-- --changed` for those that differ from the main branch.
    """
    run(session, "python", "tests/mutants.py", *session.posargs, group="mutants")


@nox.session(venv_backend="none")
def stalls(session: nox.Session) -> None:
    """All tests on a machine that stands still every few seconds; an hour, `-- PATH` for some."""
    run(session, "python", "tests/stalls.py", *EVERYTHING, "--timeout=0", *session.posargs, group="stalls")


@nox.session(venv_backend="none")
def fuzz(session: nox.Session) -> None:
    """2,000 made-up requests for each operation of the OpenAPI document, on both engines."""
    made_up = "tests/test_openapi_fuzz.py"
    run(
        session,
        "pytest",
        *EVERYTHING,
        "--timeout=0",
        made_up,
        *session.posargs,
        env={"LICENSING_EXAMPLES": "2000"},
    )


@nox.session(venv_backend="none")
def payloads(session: nox.Session) -> None:
    """Fetch the deliveries of shops that others wrote (`tests/foreign.toml`), and play them up to a key."""
    folder, new = Path(session.cache_dir, "payloads"), Path(session.cache_dir, "payloads.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for name, pinned in nox.project.load_toml("tests/foreign.toml").items():
        git, commit = ("git", "--git-dir", str(new / f"{name}.git")), pinned["commit"]
        session.run(*git, "init", "--quiet", "--bare", external=True)
        address = f"https://github.com/{pinned['repository']}"
        session.run(*git, "fetch", "--quiet", "--depth", "1", address, commit, external=True)
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)  # all of them, or none: the tests run wherever there is the folder
    run(session, "pytest", *EVERYTHING, "tests/test_foreign_payloads.py", *session.posargs)


@nox.session
def pictures(session: nox.Session) -> None:
    """The pictures of the console, taken anew by the system's chromium; look at each of them."""
    sync(session, "--group", "pictures")
    session.run("python", "tests/pictures.py")


@nox.session
def frozen(session: nox.Session) -> None:
    """Freeze an app and both examples; see them activate over TLS, remember, and the app replace itself."""
    sync(session, "--group", "frozen")
    # One worker a file, or each would freeze the same programs.
    once_more = ("--dist", "loadfile", "--failed-alone")
    session.run("pytest", *EVERYTHING, *once_more, "tests/frozen", *session.posargs)


@nox.session(venv_backend="none")
def windows(session: nox.Session) -> None:
    """The client on Windows, by wine on Linux: its tests and dialogs, a frozen app that updates itself.

    `-- suite` for one part, `-- slow` for the tests that take long, which run only if they are named;
    `-- --python 3.13` for another Python whose standard library this machine has.
    Needs `apt-get install wine wine64 gcc-mingw-w64-x86-64-win32 xvfb openbox libtk8.6`; set-ups of Inno need
    wine32 and a compiler as well, and the table at the end says how to get them.
    """
    tool = ("python", "-m", "tools.windows", *session.posargs)
    place = {"PYTHONPATH": "tests"}  # the virtual screen
    command = ("uv", "run", "--quiet", "--locked", "--group", "test", *tool)
    if lacks := str(session.run(*command, "--missing", env=place, external=True, silent=True)).strip():
        problem = f"nothing ran under wine, as this machine lacks {lacks}"
        session.error(problem) if os.environ.get("LICENSING_WINE") == "required" else session.skip(problem)
    session.run(*command, env=place, external=True)


@nox.session
def dist(session: nox.Session) -> None:
    """Build a release of what is committed into `dist`, check it, and install and use each archive alone.

    `-- v1.2.3`: for that tag, which the version and the changelog must have.
    """
    sync(session, "--group", "dev", "--group", "dist")
    session.run("python", "-m", "tools.build_release", *session.posargs)
    tests = ("-n", "2", "tests/archives")
    session.run("pytest", *EVERYTHING, *tests, env={"LICENSING_DIST": "built"})
    session.log("built dist/packages and dist/release")


@nox.session(venv_backend="none")
def publish(session: nox.Session) -> None:
    """Upload `dist/packages` to the package index at an address, which it must be given: `-- URL`.

    Archives that the index has already are passed over. To PyPI the release workflow uploads.
    """
    if len(session.posargs) != 1:
        session.error("which index? nox -s publish -- URL")
    address = session.posargs[0].rstrip("/")
    archives = sorted(map(str, Path("dist", "packages").iterdir()))
    known = ("--publish-url", f"{address}/", "--check-url", f"{address}/simple/")
    session.run("uv", "publish", *known, *archives, external=True)


@nox.session
def deploy(session: nox.Session) -> None:
    """A Debian under systemd, set up as `docs/deploy.md` says, and through an upgrade; as root, five minutes.

    Needs `apt-get install systemd-container debootstrap`; what it has made of Debian it keeps below `.nox`.
    """
    sync(session, "--group", "dev", "--group", "deploy")
    kept = {"LICENSING_MACHINE": os.environ.get("LICENSING_MACHINE", f"{session.cache_dir}/machine")}
    session.run("pytest", *EVERYTHING, "tests/test_deploy_machine.py", *session.posargs, env=kept)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation as a site; every warning is an error. Compares its references with the programs."""
    sync(session, "--group", "docs")
    shutil.rmtree("docs/_build", ignore_errors=True)
    session.run("sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "docs", "docs/_build/html")
    session.run("pytest", *EVERYTHING, "-n", "0", "tests/site")
    session.log("built docs/_build/html/index.html")


@nox.session
def links(session: nox.Session) -> None:
    """Ask each address outside that the documentation names; needs the internet: CI, once a week."""
    sync(session, "--group", "docs")
    session.run("sphinx-build", "-q", "-b", "linkcheck", "docs", "docs/_build/links")
