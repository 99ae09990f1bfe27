"""What CI checks beside the tests, each in an environment of its own: `uv run --group dev nox -l`."""

import os
import shutil

import nox

nox.options.default_venv_backend = "uv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["lint", "types", "alone", "frozen", "docs"]

PACKAGES = ["licclient", "licserver"]
EVERYTHING = ("-m", "")
"""Selects marked tests as well."""


def sync(session: nox.Session, *arguments: str) -> None:
    """Install what the lock file says into the session's environment, and nothing else."""
    session.run_install(
        "uv", "sync", "--locked", *arguments, env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location}
    )


@nox.session
def lint(session: nox.Session) -> None:
    """Style, unused and undeclared dependencies, and who may import whom."""
    sync(session, "--no-default-groups", "--group", "lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("lint-imports")
    for package in PACKAGES:
        with session.chdir(f"packages/{package}"):
            # The plugin is loaded by a pytest that is there.
            names = ("--package-module-name-map", "PySide6-Essentials=PySide6")
            session.run("deptry", "src", "--per-rule-ignores", "DEP004=pytest", *names)


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict, on both packages and the tests between them; pyright on what apps import."""
    sync(session, "--group", "lint", "--group", "dev")
    session.run("mypy")
    session.run("basedpyright")


@nox.session
@nox.parametrize("package", PACKAGES, ids=PACKAGES)
def alone(session: nox.Session, package: str) -> None:
    """One package without the other, its own tests and dependencies, and every branch of its pure rooms."""
    sync(session, "--package", package, "--group", "test")
    (other,) = set(PACKAGES) - {package}
    stranger = f"import {package}, importlib.util as u; assert u.find_spec('{other}') is None"
    session.run("python", "-c", stranger)
    tests = ["pytest", f"packages/{package}/tests", *session.posargs]
    if session.posargs:  # some of the tests cover some of the rooms
        session.run(*tests)
        return
    # README's command has just tried both engines, and no room that is looked at here knows one.
    tests += ["-k", "not postgresql"]
    # Nothing but these rooms is traced, so that it costs next to nothing.
    rooms = f"--include={','.join(pure_rooms(package))}"
    session.run("coverage", "run", rooms, "-m", *tests)
    session.run("coverage", "report", rooms)


def pure_rooms(package: str) -> list[str]:
    """Return the files of the rooms that take values and return values, as their contract names them."""
    told = nox.project.load_toml("pyproject.toml")["tool"]["importlinter"]["contracts"]
    (pure,) = (contract for contract in told if contract["id"] == f"{package}-pure")
    return [f"*/{room.replace('.', '/')}.py" for room in pure["source_modules"]]


@nox.session
def bench(session: nox.Session) -> None:
    """Speed beside a bare handler, as a ratio: `-- quick` for two minutes, `-- --help` for more."""
    sync(session)
    session.run("python", "-m", "bench", *(session.posargs or ["full", "--write", "docs"]))


@nox.session
def crash(session: nox.Session) -> None:
    """Kill the server 200 times, PostgreSQL 20 times and apps 300 times; restart 20 times, race 200 times.

    All under load. The test run does a few of each.
    """
    sync(session)
    campaign = {
        "LICENSING_CRASHES": "200",
        "LICENSING_POSTGRES_CRASHES": "20",
        "LICENSING_RESTARTS": "20",
        "LICENSING_RACES": "200",
        "LICCLIENT_CRASHES": "300",
    }
    files = ["tests/test_crash.py", "tests/test_crash_postgres.py", "tests/test_restarts.py"]
    apps = [f"packages/licclient/tests/test_{name}.py" for name in ("together", "installation_processes")]
    races = "packages/licserver/tests/test_serve.py::test_callers_who_race_share_the_slots_exactly"
    session.run("pytest", *EVERYTHING, *files, *apps, races, *session.posargs, env=campaign)


@nox.session
def hostile(session: nox.Session) -> None:
    """Honest clients beside clients that attack, ten minutes long; the test run does 20 s of it."""
    sync(session)
    seconds = {"LICENSING_HOSTILE_SECONDS": "600"}
    session.run("pytest", "tests/test_hostile.py", *session.posargs, env=seconds)


@nox.session
def mutants(session: nox.Session) -> None:
    """Change the rooms that must not be wrong, and see the tests notice; half an hour, `-- rules` for one."""
    sync(session, "--group", "mutants")
    session.run("python", "tests/mutants.py", *session.posargs)


@nox.session
def stalls(session: nox.Session) -> None:
    """All tests on a machine that stands still every few seconds; an hour, `-- PATH` for some."""
    sync(session, "--group", "stalls")
    session.run("python", "tests/stalls.py", *EVERYTHING, *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """2,000 made-up requests for each operation of the OpenAPI document, on both engines."""
    sync(session)
    made_up = "tests/test_openapi_fuzz.py"
    session.run("pytest", *EVERYTHING, made_up, *session.posargs, env={"LICENSING_EXAMPLES": "2000"})


@nox.session
def pictures(session: nox.Session) -> None:
    """The pictures of the console, taken anew by the system's chromium; look at each of them."""
    sync(session, "--group", "pictures")
    session.run("python", "tests/pictures.py")


@nox.session
def frozen(session: nox.Session) -> None:
    """Freeze an app and both examples; see them activate over TLS, remember, and the app replace itself."""
    sync(session, "--group", "frozen")
    session.run("pytest", *EVERYTHING, "tests/frozen", *session.posargs)


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
    """The documentation as a site; every warning is an error."""
    sync(session, "--group", "docs")
    shutil.rmtree("docs/_build", ignore_errors=True)
    session.run("sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "docs", "docs/_build/html")
    session.log("built docs/_build/html/index.html")
