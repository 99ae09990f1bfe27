"""What installing an update does here, how a set-up is started, what its exit code means (D-350, D-352)."""

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from stage.rules import settings

from licclient import explain
from licclient._core.kinds import InstallationKind
from licclient._core.model import InstallObstacle
from licclient._updates.attempts import (
    InstallAttempt,
    attempt_name,
    is_held_back,
    is_same_version,
    read_attempt,
    write_attempt,
)
from licclient.errors import InstallationError
from licclient.install._plan import SETUPS, InstallationReceipt, make_plan, read_replaced
from licclient.install._setup_commands import (
    escape_for_script,
    file_name,
    is_setup,
    read_outcome,
    setup_command,
)
from licclient.install._texts import TEXTS

NSIS, INNO, MSI = InstallationKind.NSIS, InstallationKind.INNO, InstallationKind.MSI
WINDOWS = r"C:\Windows"


def plan_of(kind, system="linux", *, is_writable=True, **known: Any):
    """Return the plan of a kind whose place can be written."""
    return make_plan(kind, system=system, is_writable=is_writable, **known)


@pytest.mark.parametrize("kind", InstallationKind)
@pytest.mark.parametrize("system", ["linux", "win32", "darwin"])
def test_what_another_program_updates_is_never_installed(kind, system):
    """Whatever the kind is: its name and what to type are in the error."""
    plan = plan_of(kind, system, updater="Snap", command="snap refresh photo-lab", has_versions=True)
    assert not plan.is_possible
    with pytest.raises(InstallationError) as caught:
        plan.require()
    assert (caught.value.updater, caught.value.command) == ("Snap", "snap refresh photo-lab")
    assert explain(caught.value, "en") == explain(plan, "en")
    assert explain(plan, "en") == "Snap updates this app. To update it, run: snap refresh photo-lab"


def test_what_is_updated_without_a_command():
    """As by a store."""
    plan = plan_of(InstallationKind.STORE, "win32", updater="Microsoft Store")
    assert explain(plan, "de") == "Microsoft Store aktualisiert diese App."


@pytest.mark.parametrize("kind", sorted(SETUPS))
def test_a_set_up_needs_windows_and_the_end_of_the_app(kind):
    """It asks for the administrator where the user may not write."""
    assert plan_of(kind, "linux").obstacle is InstallObstacle.NOT_REPLACEABLE
    plan = plan_of(kind, "win32")
    assert (plan.obstacle, plan.has_to_quit, plan.is_administrator_asked) == (None, True, False)
    assert explain(plan, "en") == "The app closes to install the update, and opens again."
    plan = plan_of(kind, "win32", is_writable=False)
    assert (plan.is_possible, plan.is_administrator_asked) == (True, True)
    assert explain(plan, "en").endswith("Windows asks for the administrator's permission.")
    plan.require()


def test_an_appimage_and_a_bundle_are_replaced_where_the_user_may_write():
    """On their own systems."""
    for kind, system in ((InstallationKind.APPIMAGE, "linux"), (InstallationKind.APP, "darwin")):
        assert plan_of(kind, system).is_possible
        assert plan_of(kind, "win32").obstacle is InstallObstacle.NOT_REPLACEABLE
        assert plan_of(kind, system, is_writable=False).obstacle is InstallObstacle.NOT_WRITABLE
    assert explain(plan_of(InstallationKind.APPIMAGE), "en").startswith("The new version is used from")


def test_a_folder_needs_versions():
    """One that was only unpacked has no place for a second version, and one of unknown kind may have it."""
    for kind in (InstallationKind.FOLDER, InstallationKind.UNKNOWN):
        assert plan_of(kind).obstacle is InstallObstacle.NOT_REPLACEABLE
        assert plan_of(kind, has_versions=True).is_possible
        blocked = plan_of(kind, has_versions=True, is_writable=False)
        assert blocked.obstacle is InstallObstacle.NOT_WRITABLE


@pytest.mark.parametrize("kind", [NSIS, InstallationKind.APPIMAGE, InstallationKind.FOLDER])
def test_nothing_is_replaced_on_an_unsure_sign(kind):
    """But a folder of versions is one, whatever else is there."""
    system = "win32" if kind is NSIS else "linux"
    assert plan_of(kind, system, is_certain=False).obstacle is InstallObstacle.NOT_REPLACEABLE
    assert plan_of(InstallationKind.UNKNOWN, is_certain=False, has_versions=True).is_possible


def test_a_framework_within_the_app():
    """It has its own window and its own way to restart: two updaters of one app undo each other."""
    for kind, system, name in (
        (InstallationKind.WINSPARKLE, "win32", "WinSparkle"),
        (InstallationKind.SPARKLE, "darwin", "Sparkle"),
        (InstallationKind.VELOPACK, "linux", "Velopack"),
    ):
        plan = plan_of(kind, system)
        assert (plan.obstacle, plan.updater) == (InstallObstacle.OTHER_UPDATER, name)
    assert plan_of(InstallationKind.SPARKLE, "linux").obstacle is InstallObstacle.NOT_REPLACEABLE


def test_a_framework_that_the_app_can_call_is_handed_the_update():
    """On its own system and a sure sign; Velopack waits for the app's end, and the others have windows."""
    plan = plan_of(InstallationKind.WINSPARKLE, "win32", updater="WinSparkle", hands_over=True)
    assert (plan.is_possible, plan.updater, plan.has_to_quit) == (True, "WinSparkle", False)
    assert explain(plan, "de") == "WinSparkle aktualisiert diese App."
    plan = plan_of(InstallationKind.VELOPACK, "win32", updater="Velopack", hands_over=True)
    assert (plan.is_possible, plan.updater, plan.has_to_quit) == (True, None, True)
    for kind, system, known in (
        (InstallationKind.WINSPARKLE, "linux", {}),
        (InstallationKind.SPARKLE, "darwin", {"is_certain": False}),
        (InstallationKind.SNAP, "linux", {}),
    ):
        plan = plan_of(kind, system, updater="it", hands_over=True, **known)
        assert plan.obstacle is InstallObstacle.OTHER_UPDATER


def test_command_lines_are_those_that_the_vendors_document():
    """The folder of NSIS is last and has no quotes, whatever is in it."""
    setup, folder = r"C:\Users\Jo\state\update-1.exe", "C:\\Program Files\\Photo & Lab\\"
    line = setup_command(NSIS, setup, folder, WINDOWS, is_administrator_asked=False)
    assert line == rf'"{setup}" /S /D=C:\Program Files\Photo & Lab'
    line = setup_command(INNO, setup, folder, WINDOWS, is_administrator_asked=True)
    assert line.startswith(rf'"{setup}" /VERYSILENT /SUPPRESSMSGBOXES /SP- /NOCANCEL /NORESTART ')
    assert " /NORESTARTAPPLICATIONS " in line  # or what the set-up has closed opens twice
    assert line.endswith('/DIR="C:\\Program Files\\Photo & Lab"')
    package = r"C:\Users\Jo\state\update-1.msi"
    line = setup_command(MSI, package, folder, WINDOWS, is_administrator_asked=False)
    assert line == rf'"C:\Windows\System32\msiexec.exe" /i "{package}" /qn /norestart'
    line = setup_command(MSI, package, folder, WINDOWS, is_administrator_asked=True)
    assert " /passive " in line  # it asks for the permission only if it may show something


@pytest.mark.parametrize("kind", sorted(SETUPS))
@pytest.mark.parametrize("letter", ['"', "\n", "\x00"])
def test_no_path_leaves_its_place_in_a_command(kind, letter):
    """No file of Windows has such a name."""
    with pytest.raises(ValueError, match="no quotes"):
        setup_command(kind, "C:\\a.exe", f"C:\\a{letter}b", WINDOWS, is_administrator_asked=False)


def test_only_set_ups_have_a_command():
    """A mistake of ours."""
    with pytest.raises(ValueError, match=r"kind must be one of .*, not folder"):
        setup_command(InstallationKind.FOLDER, "C:\\a", "C:\\b", WINDOWS, is_administrator_asked=False)


def test_a_script_reads_no_name_of_a_folder_as_a_command():
    """Within quotes nothing is one; without them, as NSIS wants its folder, each sign is escaped."""
    line = r'"C:\Jo & Co\update-1.exe" /S /D=C:\Jo & Co (x)^ 100% done!'
    assert escape_for_script(line) == r'"C:\Jo & Co\update-1.exe" /S /D=C:\Jo ^& Co ^(x^)^^ 100% done!'


def test_a_set_up_is_known_by_its_first_bytes():
    """A page of a proxy or a zip is never run."""
    package = bytes.fromhex("d0cf11e0a1b11ae1")
    assert is_setup(NSIS, b"MZ\x90")
    assert is_setup(INNO, b"MZ\x90")
    assert is_setup(MSI, package)
    assert not is_setup(MSI, b"MZ\x90")
    assert not is_setup(NSIS, package)
    assert not is_setup(NSIS, b"PK\x03\x04")


def test_no_set_up_runs_under_a_name_that_windows_knows():
    """Such as `setup.exe`."""
    assert file_name(NSIS, "ab12") == file_name(INNO, "ab12") == "update-ab12.exe"
    assert file_name(MSI, "ab12") == "update-ab12.msi"


@pytest.mark.parametrize(
    ("kind", "note", "obstacle"),
    [
        (NSIS, "0", "no_effect"),  # as when a file was in use, and the script did not look
        (NSIS, "1", "refused"),
        (NSIS, "5", "failed"),
        (NSIS, "1223", "refused"),
        (INNO, "0", "no_effect"),
        (INNO, "1", "failed"),
        (INNO, "2", "refused"),
        (INNO, "4", "failed"),
        (INNO, "5", "failed"),  # a file in use: its own answer to a question that it does not show
        (INNO, "6", "failed"),
        (INNO, "7", "failed"),
        (NSIS, "2", "aborted"),
        (INNO, "8", "restart_needed"),
        (INNO, "3010", "restart_needed"),
        (INNO, "99", "failed"),
        (MSI, "0", "no_effect"),
        (MSI, "1602", "refused"),
        (MSI, "1603", "failed"),
        (MSI, "1618", "busy"),
        (MSI, "1620", "failed"),
        (MSI, "1625", "forbidden"),
        (MSI, "1638", "failed"),
        (MSI, "1641", "restart_needed"),
        (MSI, "3010", "restart_needed"),
        (MSI, "1223\r\n", "refused"),
        (InstallationKind.APPIMAGE, "0", "no_effect"),
        (NSIS, "still-running\r\n", "still_running"),
        (NSIS, "timed-out", "timed_out"),
        (NSIS, None, "interrupted"),
        (NSIS, "", "interrupted"),
        (NSIS, "99999999999999999999", "interrupted"),
    ],
)
def test_exit_codes_are_read_as_the_vendors_document_them(kind, note, obstacle):
    """Success of a set-up proves nothing while the version before runs; and its failure nothing after it."""
    assert read_outcome(kind, note, runs_promised=False)[0] == obstacle
    assert read_outcome(kind, note, runs_promised=True)[0] is None


@pytest.mark.parametrize(
    ("current", "runs_promised", "is_rolled_back", "obstacle"),
    [
        ("1.6.0", True, False, None),
        ("1.5.0", True, True, None),  # put there again by hand
        ("1.5.0", False, True, "rolled_back"),  # by the launcher, or by `--previous-version`
        ("1.6.0", False, True, "rolled_back"),
        ("1.5.0", False, False, "rolled_back"),  # the list of these is gone
        ("1.6.0", False, False, "newer_installed"),  # an instance that was started before
        ("1.7.0", False, False, "newer_installed"),
        (None, False, False, "newer_installed"),  # an AppImage
        ("nightly", False, False, "newer_installed"),
    ],
)
def test_what_came_of_a_version_that_was_installed_while_the_app_ran(
    current, runs_promised, is_rolled_back, obstacle
):
    """Its attempt is noted when all is there, so it was never interrupted (D-408)."""
    outcome = read_replaced("1.6.0", current, runs_promised=runs_promised, is_rolled_back=is_rolled_back)
    assert outcome == obstacle


def test_codes_of_windows_have_no_sign():
    """Scripts show those above 2³¹ as negative numbers."""
    assert read_outcome(NSIS, "-1073741819", runs_promised=False) == ("failed", 0xC0000005)


def test_a_receipt_has_a_sentence_for_each_end():
    """With the code where support needs it."""
    at = datetime(2026, 11, 21, tzinfo=UTC)
    receipt = InstallationReceipt("1.1.0", NSIS, at)
    assert receipt.is_installed
    assert explain(receipt, "en") == "The update to version 1.1.0 is installed."
    failed = InstallationReceipt("1.1.0", MSI, at, InstallObstacle.FAILED, 1603)
    assert not failed.is_installed
    assert explain(failed, "fr").endswith("(Code 1603)")
    aborted = InstallationReceipt("1.1.0", NSIS, at, InstallObstacle.ABORTED, 2)
    assert explain(aborted, "en").endswith("please contact support. (Code 2)")
    stopped = InstallationReceipt("1.1.0", MSI, at, InstallObstacle.FAILED)
    assert explain(stopped, "en") == "The update failed. Please try again, or contact support."


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("obstacle", InstallObstacle)
def test_each_obstacle_has_a_sentence_in_each_language(language, obstacle):
    """Of the same places as in English."""
    error = InstallationError(obstacle, "Snap", "snap refresh x", 5)
    assert explain(error, language)
    assert "{" not in explain(error, language)
    assert {code: text.count("{") for code, text in TEXTS[language].items()} == {
        code: text.count("{") for code, text in TEXTS["en"].items()
    }


def test_an_error_is_the_same_after_pickling():
    """As between processes."""
    error = InstallationError(InstallObstacle.FAILED, None, None, 1603)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - ours
    assert (copy.obstacle, copy.code, str(copy)) == (error.obstacle, 1603, str(error))


def test_versions_are_compared_as_pep_440_does():
    """A promised `1.1` is there when `1.1.0` runs; what is no version is compared as text."""
    assert is_same_version("1.1", "1.1.0")
    assert not is_same_version("1.1", "1.1.1")
    assert is_same_version("nightly", "nightly")
    assert not is_same_version("nightly", "1.0")


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
TRIED = InstallAttempt("1.1", NSIS, NOON, r"C:\state\updates\attempt-1")


def test_an_attempt_is_read_as_it_was_written():
    """Damage is an absence, as of other records."""
    assert read_attempt(write_attempt(TRIED)) == TRIED
    earlier = {name: value for name, value in write_attempt(TRIED).items() if name != "app"}
    assert read_attempt(earlier) == TRIED
    assert read_attempt(None) is None
    for damage in ({"kind": "tape"}, {"at": "noon"}, {"version": 1}, {"folder": 1}):
        assert read_attempt({**write_attempt(TRIED), **damage}) is None


@pytest.mark.parametrize(
    ("attempt", "version", "hours", "is_held"),
    [
        (TRIED, "1.1.0", 0, True),
        (TRIED, "1.1.0", 23, True),
        (TRIED, "1.1.0", 24, False),
        (TRIED, "1.1.0", -1, False),  # a clock that was set back
        (TRIED, "1.2", 1, False),  # the repair
        (None, "1.1", 1, False),
    ],
)
def test_what_was_tried_today_is_not_offered_by_itself(attempt, version, hours, is_held):
    """So that an app that installs without asking cannot loop."""
    assert is_held_back(attempt, version, NOON + timedelta(hours=hours)) is is_held


def test_attempts_of_two_apps_have_two_records():
    """By the service and the slug."""
    services = [settings(f"https://{host}.example") for host in ("a", "b")]
    names = {attempt_name(service, slug) for service in services for slug in ("notes", "photos")}
    assert len(names) == 4
