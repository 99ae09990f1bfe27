"""Running cases: outcomes, expected failures, reports and the command line."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from licconform.cases import Catalogue, Kind, NotApplicableError, SetupError, expect
from licconform.cli import main, split_command
from licconform.report import format_badge, format_html, format_junit, format_summary
from licconform.runner import Outcome, Result, read_xfails, run_cases
from licconform.server.seeds import KeyStore, SeedCommand

KEY = "CP-AAAAAA-BBBBBB-CCCCCC-DDDDDD-EEEEEE"


def results(**xfails: str) -> list[Result]:
    """Run a case of each kind of end."""
    catalogue: Catalogue[str] = Catalogue()

    @catalogue.case("good", "spec 1", "It passes.")
    def _(subject: str) -> None:
        expect(subject == "subject", "another subject")

    @catalogue.table("bad", "D-01", "It fails ({0}).", [("one", KEY)])
    def _(_: str, text: str) -> None:
        expect(condition=False, message=f'<{text}>\x00 "http://a/api/v1/update-download?signature=secret"')

    @catalogue.case("skipped", "extension D-32", "It is not run.")
    def _(_: str) -> None:
        raise NotApplicableError("no digest")

    @catalogue.case("crash", "spec 2", "It stumbles.")
    def _(subject: str) -> None:
        int(subject)

    expected = {name.replace("_", "-"): reason for name, reason in xfails.items()}
    return run_cases(catalogue, lambda _: nullcontext("subject"), expected)


def outcomes(**xfails: str) -> dict[str, Outcome]:
    """Return case → outcome."""
    return {result.case.name: result.outcome for result in results(**xfails)}


def test_each_end_has_its_outcome() -> None:
    """A failure of the test itself is a failure of the case."""
    wanted = {"good": "passed", "bad-one": "failed", "skipped": "skipped", "crash": "failed"}
    assert outcomes() == wanted


def test_expected_failures_are_strict() -> None:
    """One that fails is expected, one that passes is as bad as a failure."""
    found = outcomes(good="known", bad_one="known")
    assert found["good"] is Outcome.UNEXPECTED_PASS
    assert found["bad-one"] is Outcome.EXPECTED_FAILURE


def test_a_report_hides_keys_and_counts_by_kind() -> None:
    """JUnit, HTML and badge agree, and are well-formed for any text that a server sends."""
    ran = results()
    assert format_summary(ran) == "literal 1/2, reading 0/1"
    suite = ET.fromstring(format_junit("title", ran))[0]  # noqa: S314 - our own text
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    page, badge = format_html("title", ran), format_badge(ran)
    assert "&lt;CP-AAAAAA-…" in page
    assert ET.fromstring(badge).get("aria-label") == "conformance: literal 1/2, reading 0/1"  # noqa: S314
    for secret in (KEY, "secret"):
        assert secret not in page + badge + format_junit("title", ran).decode()


@pytest.mark.parametrize(
    ("line", "problem"), [("good", "write NAME: REASON"), ("none: because", "there is no case none")]
)
def test_a_wrong_line_of_expected_failures_ends_the_run(tmp_path: Path, line: str, problem: str) -> None:
    """A misspelt name must not hide anything."""
    path = tmp_path / "known.xfails"
    path.write_text(f"# comment\n\nbad: it does # as known\n{line}\n", encoding="utf-8")
    with pytest.raises(SetupError, match=problem):
        read_xfails(path, {"good", "bad"})


def seed(code: str) -> KeyStore:
    """Return the keys of a seed command that is a line of Python."""
    return KeyStore(SeedCommand([sys.executable, "-c", code]))


def test_a_seed_command_prints_a_key() -> None:
    """What it prints beside the known names is ignored."""
    made = {"license_key": KEY, "slug": "a", "product": "A", "more": 1}
    assert seed(f"print({json.dumps(made)!r})").new("valid").product == "A"


def test_a_seed_command_can_leave_a_state_out() -> None:
    """Exit status 77 skips, also when the state is asked for again."""
    keys = seed("import sys; sys.exit(77)")
    for _ in range(2):
        with pytest.raises(NotApplicableError, match="does not support `key full`"):
            keys.shared("full")


def test_prepared_keys_are_given_out_once(tmp_path: Path) -> None:
    """Then, and for what nobody prepared, cases are skipped."""
    path = tmp_path / "keys.json"
    prepared = {"license_key": "CP-1", "slug": "a", "product": "A"}
    path.write_text(json.dumps({"valid": [prepared, {**prepared, "license_key": "CP-2"}]}), encoding="utf-8")
    keys = KeyStore(SeedCommand([sys.executable, "-m", "licconform.recipes.prepared", str(path)]))
    assert [keys.new("valid").license_key for _ in range(2)] == ["CP-1", "CP-2"]
    for words in (("key", "valid"), ("key", "full"), ("revoke", "CP-1")):
        with pytest.raises(NotApplicableError):
            keys.act(*words)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("1/0", "ZeroDivisionError"),
        ("print('[]')", "no JSON object"),
        ("print('no')", "no JSON object"),
        ("print('{}')", "without license_key, slug, product$"),
    ],
)
def test_a_seed_command_that_does_not_work_ends_the_run(code: str, problem: str) -> None:
    """Nothing is reported about the server then."""
    with pytest.raises(SetupError, match=problem):
        seed(code).new("valid")


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (["--seed", "no-such-program"], 2, "could not be run"),
        (
            ["--seed", f"{sys.executable} -c 'import sys; sys.exit(77)'", "--only", "verify-valid"],
            2,
            "nothing",
        ),
        (["--seed", "x", "--only", "verify-walid"], 2, "no case verify-walid"),
        (["--seed", "./seed.sh 'a"], 2, "--seed: No closing quotation"),
    ],
)
def test_a_run_that_tests_nothing_exits_with_2(options: list[str], status: int, text: str) -> None:
    """It is neither conformance nor a failure."""
    done = CliRunner().invoke(main, ["server", "--base-url", "http://127.0.0.1:1", *options])
    assert done.exit_code == status
    assert text in done.output


def test_the_lists_name_everything() -> None:
    """Cases with their sections, and the states of a seed command."""
    assert "D-08" in CliRunner().invoke(main, ["cases", "server"]).output
    assert "D-42" in CliRunner().invoke(main, ["cases", "client"]).output
    assert "lifetime-subscription-ended" in CliRunner().invoke(main, ["states"]).output
    assert len(Kind) == 3


@pytest.mark.parametrize(
    ("program", "status", "text"),
    [
        ("sys.exit(0)", 1, "literal 1/2"),
        ("sys.exit(127)", 2, "could not be started"),
        ("sys.exit(3)", 1, "expected 0 (yes)"),
    ],
)
def test_a_client_is_any_program(program: str, status: int, text: str) -> None:
    """It is judged by its exit status."""
    cases = ["--only", "verify-valid-lifetime", "--only", "verify-refused-revoked"]
    command = [sys.executable, "-c", f"import sys; {program}"]
    done = CliRunner().invoke(main, ["client", *cases, "--", *command])
    assert (done.exit_code, text in done.output) == (status, True), done.output


@pytest.mark.parametrize("option", ["--junit", "--html", "--badge"])
def test_a_report_that_cannot_be_written_is_no_failure_of_the_client(tmp_path: Path, option: str) -> None:
    """It has an exit status of its own, and no traceback."""
    path = str(tmp_path / "no-folder" / "report")
    command = [sys.executable, "-c", "pass"]
    done = CliRunner().invoke(
        main, ["client", "--only", "verify-valid-lifetime", option, path, "--", *command]
    )
    assert (done.exit_code, "no-folder" in done.output) == (2, True), done.output


@pytest.mark.parametrize("kind", ["literal", "reading", "extension", "all"])
def test_kinds_are_typed_as_the_page_has_them(kind: str) -> None:
    """Whatever release of click is installed; nothing answers here, which is another complaint."""
    options = ["--base-url", "http://127.0.0.1:1", "--seed", "false", "--kind", kind]
    done = CliRunner().invoke(main, ["server", *options])
    assert "Invalid value" not in done.output
    assert done.exit_code == 2


def test_a_command_of_windows_is_split() -> None:
    """The path of a program has backslashes, and quotes if it has spaces."""
    command = r""""C:\Program Files\Python\python.exe" C:\seed.py 'a b' """
    assert split_command(command, is_windows=True) == [
        r"C:\Program Files\Python\python.exe",
        r"C:\seed.py",
        "a b",
    ]
    assert split_command("python -c 'import sys'", is_windows=False) == ["python", "-c", "import sys"]
