"""A release that does not start makes way for the one before it (D-360): real launchers and programs."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from stage.archives import APP, downloaded, names, pack

from licclient.install import Installation

pytestmark = pytest.mark.skipif(os.name == "nt", reason="programs are scripts; tests/wine has real ones")

LAUNCHER = "import sys; from licclient.install import Installation; "
LAUNCHER += "sys.exit(Installation(sys.argv[1]).start('photo-lab', sys.argv[2:]))"

OLD_LAUNCHER = """
import os, sys
from pathlib import Path
root = Path(sys.argv[1])
name = (root / "current.txt").read_text().splitlines()[0]
program = str(root / "versions" / name / "photo-lab")
os.execv(program, [program, *sys.argv[2:]])
"""
"""A launcher that knows the pointer alone, as docs/app/updates.md allows."""

CONFIRMING = f"""#!{sys.executable}
import sys
from pathlib import Path
from licclient.install import Installation
folder = Path(__file__).parent
Installation(folder.parents[1]).confirm()
print("works", folder.name.partition("-")[0], *sys.argv[1:])
"""

BAD = {
    "exits with 3": "exit 3",
    "dies of SIGSEGV": "kill -SEGV $$",
    "dies of SIGKILL": "kill -KILL $$",
    "dies of SIGABRT": "kill -ABRT $$",
}


class Computer:
    """A computer with the app, which starts it by a launcher."""

    def __init__(self, root: Path, launcher: list[str]) -> None:
        self.root, self.launcher = root, launcher

    def start(self, *arguments: str, launcher: list[str] | None = None) -> tuple[int, str]:
        """Start the launcher, and wait; return its exit status and output."""
        command = [*(launcher or self.launcher), str(self.root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.stderr == ""
        return done.returncode, done.stdout

    def begin(self, *arguments: str) -> tuple["subprocess.Popen[str]", int]:
        """Start the launcher, and wait until its program has begun; return both."""
        command = [*self.launcher, str(self.root), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout:
            line = process.stdout.readline()
        assert line.startswith("begins")
        return process, int(line.split()[-1])


@pytest.fixture(autouse=True)
def _hangups_end_programs():
    """Under `nohup` they are ignored, which all programs that are started here would inherit."""
    hangup = signal.SIGHUP if os.name == "posix" else signal.SIGTERM
    before = signal.signal(hangup, signal.SIG_DFL)
    yield
    signal.signal(hangup, before)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Compile the launcher that was written after docs/app/launcher.md."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler here")
    program = tmp_path_factory.mktemp("launcher") / "launcher"
    source = Path(__file__).parent / "stage" / "launcher.c"
    subprocess.run([compiler, "-O1", "-Wall", "-o", program, source], check=True)
    return str(program)


@pytest.fixture
def computer(root, request):
    """A computer with our launcher, or with the one in another language."""
    if getattr(request, "param", None) == "C":
        return Computer(root, [request.getfixturevalue("compiled")])
    return Computer(root, [sys.executable, "-c", LAUNCHER])


both_launchers = pytest.mark.parametrize("computer", ["Python", "C"], indirect=True)


@pytest.fixture
def release(tmp_path):
    """Make the zip of a version of the app: a shell script, or one that confirms."""

    def release(version, script=""):
        begin = "" if "begins" in script else f"echo begins {version}"
        program = CONFIRMING if not script else f"#!/bin/sh\n{begin}\n{script}\n"
        content = pack(APP | {"photo-lab": program.encode(), "version.txt": version.encode()})
        return downloaded(tmp_path, content, version)

    return release


@pytest.fixture
def installation(root, release, computer):
    """An installation with version 1.0, which has started and confirmed that it works."""
    installation = Installation(root)
    installation.apply(release("1.0"))
    assert computer.start() == (0, "works 1.0\n")
    return installation


def hanging(release, version="1.1", script="BEGIN; exec sleep 60"):
    """Return a release that prints its process id, and hangs."""
    return release(version, script.replace("BEGIN", f"echo begins {version} $$"))


@pytest.mark.sampled(2)
@both_launchers
@pytest.mark.parametrize("script", BAD.values(), ids=BAD)
def test_a_release_that_does_not_start(root, installation, release, script, computer):
    """Started twice without a confirmation, it is left and remembered; the one before runs from then on."""
    installation.apply(release("1.1", script))
    for _ in range(2):
        status, output = computer.start()
        assert (status != 0, output) == (True, "begins 1.1\n")
        assert installation.current.version == "1.1"
    assert computer.start("a b", "c") == (0, "works 1.0 a b c\n")
    assert (root / "rolled-back.txt").read_text() == "1.1\n"
    assert (installation.current.version, installation.previous) == ("1.0", None)
    assert computer.start() == (0, "works 1.0\n")


@pytest.mark.slow
@both_launchers
def test_the_status_is_the_programs(root, installation, release, computer):
    """A signal is reported as a shell does; the launcher does not die of it itself."""
    installation.apply(release("1.1", "exit 7"))
    assert computer.start()[0] == 7
    installation.apply(release("1.2", "kill -KILL $$"))
    assert computer.start()[0] == 128 + signal.SIGKILL


@pytest.mark.sampled(1)
@both_launchers
def test_a_release_that_hangs_and_is_killed(root, installation, release, computer):
    """Only the kill counts: as long as it hangs, another start is a second instance."""
    installation.apply(hanging(release))
    for _ in range(2):
        launcher, program = computer.begin()
        os.kill(program, signal.SIGKILL)
        assert launcher.wait(20) == 128 + signal.SIGKILL
    assert computer.start() == (0, "works 1.0\n")


@pytest.mark.slow
@both_launchers
def test_a_launcher_that_is_killed_has_counted(root, installation, release, computer):
    """Together with its program, as by a power cut: there is nobody to take the count back."""
    installation.apply(hanging(release))
    for _ in range(2):
        launcher, program = computer.begin()
        launcher.kill()
        launcher.wait(20)
        os.kill(program, signal.SIGKILL)
    assert computer.start() == (0, "works 1.0\n")


@pytest.mark.sampled(1)
@both_launchers
@pytest.mark.parametrize("number", [signal.SIGTERM, getattr(signal, "SIGHUP", 1)])
@pytest.mark.parametrize("target", ["launcher", "program"])
def test_what_is_ended_from_outside_does_not_count(root, installation, release, number, target, computer):
    """A logoff or a shutdown is no crash, whether the launcher gets the signal or the program."""
    installation.apply(hanging(release))
    for _ in range(3):
        launcher, program = computer.begin()
        os.kill(launcher.pid if target == "launcher" else program, number)
        assert launcher.wait(20) == 128 + number
        with suppress(ProcessLookupError):
            os.kill(program, 0)
            pytest.fail("the program outlived its launcher")
    assert installation.current.version == "1.1"


@pytest.mark.slow
@both_launchers
def test_a_program_that_handles_sigterm_may_end_as_it_likes(root, installation, release, computer):
    """Its status does not count then."""
    script = "trap 'exit 5' TERM; BEGIN; while :; do sleep 0.05; done"
    installation.apply(hanging(release, script=script))
    for _ in range(3):
        launcher, _ = computer.begin()
        launcher.terminate()
        assert launcher.wait(20) == 5
    assert installation.current.version == "1.1"


@pytest.mark.slow
@both_launchers
def test_what_ends_in_order_does_not_count(root, installation, release, computer):
    """Exit 0 before a confirmation: closed at once, or a second instance that handed over."""
    installation.apply(release("1.1", "exit 0"))
    for _ in range(4):
        assert computer.start() == (0, "begins 1.1\n")


@pytest.mark.slow
@both_launchers
def test_an_impatient_user_does_not_roll_back(root, installation, release, computer):
    """Starts while the first one still loads are second instances, however they end."""
    content = "#!/bin/sh\necho begins 1.1 $$\n[ $1 ] && exit $1\nexec sleep 60\n"
    installation.apply(downloaded(root.parent, pack(APP | {"photo-lab": content.encode()}), "1.1"))
    launcher, program = computer.begin()
    for status in ("1", "0", "3", "1"):
        assert computer.start(status)[0] == int(status)
    assert (root / "probation.txt").read_text().splitlines()[2] == "1"
    os.kill(program, signal.SIGTERM)
    launcher.wait(20)
    assert (root / "probation.txt").read_text().splitlines()[2] == "0"


@pytest.mark.sampled(1)
@both_launchers
def test_two_bad_releases_in_a_row(root, installation, release, computer):
    """The second one is installed while the first is on probation; the last good one runs."""
    installation.apply(release("1.1", "exit 3"))
    computer.start()
    installation.apply(release("1.2", "exit 4"))
    assert (installation.current.version, installation.previous.version) == ("1.2", "1.0")
    assert len(names(root)) == 3  # the first one may still run
    assert [computer.start()[0] for _ in range(2)] == [4, 4]
    assert computer.start() == (0, "works 1.0\n")
    installation.apply(release("1.3", "exit 5"))
    assert [computer.start()[0] for _ in range(3)] == [5, 5, 0]
    assert (root / "rolled-back.txt").read_text().split() == ["1.2", "1.3"]


@pytest.mark.slow
@both_launchers
def test_a_release_that_repairs_it(root, installation, release, computer):
    """A newer one needs nobody: it is installed, confirms, and is the one to go back to."""
    installation.apply(release("1.1", "exit 3"))
    assert [computer.start()[0] for _ in range(3)] == [3, 3, 0]
    installation.apply(release("1.2"))
    assert computer.start() == (0, "works 1.2\n")
    installation.apply(release("1.3", "exit 3"))
    assert [computer.start()[0] for _ in range(2)] == [3, 3]
    assert computer.start() == (0, "works 1.2\n")


@pytest.mark.slow
def test_a_confirmed_version_may_crash(root, installation, release, computer):
    """It has worked once: later crashes are no reason to go back."""
    content = CONFIRMING + "sys.exit(9)\n"
    installation.apply(downloaded(root.parent, pack(APP | {"photo-lab": content.encode()}), "1.1"))
    assert [computer.start()[0] for _ in range(5)] == [9] * 5


@pytest.mark.sampled(1)
@both_launchers
def test_an_app_that_never_confirms(root, release, computer):
    """It is started as ever: its process takes the launcher's place, and nothing is written."""
    installation = Installation(root)
    installation.apply(release("1.0", "exit 3"))
    installation.apply(release("1.1", "exit 3"))
    assert [computer.start()[0] for _ in range(5)] == [3] * 5
    assert {path.name for path in root.iterdir()} <= {"current.txt", "versions", ".licclient.lock"}
    assert names(root) == {installation.current.folder.name, installation.previous.folder.name}


@pytest.mark.slow
@both_launchers
def test_a_version_that_is_not_on_probation_takes_the_launchers_place(root, installation, release, computer):
    """As before: one process, which gets every signal itself."""
    (installation.current.folder / "photo-lab").write_text("#!/bin/sh\necho begins 1.0 $$\nexec sleep 60\n")
    launcher, program = computer.begin()
    assert launcher.pid == program
    launcher.kill()
    assert launcher.wait(20) == -signal.SIGKILL


@pytest.mark.slow
def test_a_program_that_is_gone(root, installation, release, computer):
    """A virus scanner has taken it: that counts, too, and the one before runs."""
    made = installation.apply(release("1.1", "exit 3"))
    (made.folder / "photo-lab").unlink()
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="photo-lab"):
            Installation(root).start("photo-lab")
    assert computer.start() == (0, "works 1.0\n")


@pytest.mark.slow
@both_launchers
def test_a_good_version_that_is_gone(root, installation, release, computer):
    """A virus scanner has taken its program or its folder: what is current is started as ever."""
    previous = installation.current.folder
    installation.apply(release("1.1", "exit 3"))
    assert [computer.start()[0] for _ in range(2)] == [3, 3]
    (previous / "photo-lab").unlink()
    assert computer.start() == (3, "begins 1.1\n")
    shutil.rmtree(previous)
    assert computer.start() == (3, "begins 1.1\n")
    assert installation.current.version == "1.1"
    assert not (root / "rolled-back.txt").exists()


# --- launchers of other ages ---------------------------------------------------------------------------


@pytest.mark.slow
@both_launchers
def test_an_old_launcher_with_new_files(root, installation, release, computer):
    """It starts what is current, as ever, whatever the new files say; and a new one takes over from it."""
    bad = release("1.1", "exit 3")
    installation.apply(bad)
    for _ in range(4):
        assert computer.start(launcher=[sys.executable, "-c", OLD_LAUNCHER]) == (3, "begins 1.1\n")
    for _ in range(2):
        assert computer.start() == (3, "begins 1.1\n")
    assert computer.start(launcher=[sys.executable, "-c", OLD_LAUNCHER]) == (3, "begins 1.1\n")
    assert computer.start() == (0, "works 1.0\n")
    assert computer.start(launcher=[sys.executable, "-c", OLD_LAUNCHER]) == (0, "works 1.0\n")


@pytest.mark.sampled(1)
@both_launchers
@pytest.mark.parametrize("content", [b"", b"1\n", b"2\nanything of a later protocol\n", b"\0" * 100])
def test_a_state_that_is_torn_or_of_a_later_protocol(root, installation, release, content, computer):
    """It is started as ever, and never a reason to go back; the next version begins anew."""
    installation.apply(release("1.1", "exit 3"))
    (root / "probation.txt").write_bytes(content)
    assert [computer.start()[0] for _ in range(4)] == [3] * 4
    assert (root / "probation.txt").read_bytes() == content
    installation.apply(release("1.2", "exit 3"))
    assert [computer.start()[0] for _ in range(3)] == [3, 3, 0]


# --- disks that refuse ---------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("broken", ["probation.txt", ".licclient-confirmed", "rolled-back.txt"])
def test_what_cannot_be_read_is_neither(root, installation, release, monkeypatch, broken, computer):
    """Neither counted nor gone back: the current version is started as ever."""
    installation.apply(release("1.1", "exit 3"))
    assert [computer.start()[0] for _ in range(2)] == [3, 3]
    (root / "rolled-back.txt").write_text("0.9\n")
    before = (root / "probation.txt").read_bytes()
    real, replaced = os.open, []

    def refuse(path, *arguments: object, **options: object):
        if str(path).endswith(broken):
            raise OSError(5, "Input/output error", str(path))
        return real(path, *arguments, **options)

    def refuse_look(path, *, follow_links=False):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("licclient._core.storage.REPLACE_PAUSES", ())
    monkeypatch.setattr("licclient._core.storage.os.open", refuse)
    if broken == ".licclient-confirmed":
        monkeypatch.setattr("licclient.install.look_at", refuse_look)
    monkeypatch.setattr("os.execve", lambda path, *_: replaced.append(path))
    Installation(root).start("photo-lab")
    assert ["1.1-" in path for path in replaced] == [True]
    monkeypatch.undo()
    assert (root / "probation.txt").read_bytes() == before
    assert computer.start() == (0, "works 1.0\n")


@pytest.mark.slow
def test_what_cannot_be_counted_is_started(root, installation, release, monkeypatch):
    """On a full disk the app runs as ever."""
    installation.apply(release("1.1", "exit 3"))
    replaced = []

    def full(*_: object):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("licclient.install.write_file", full)
    monkeypatch.setattr("os.execve", lambda path, *_: replaced.append(path))
    for _ in range(3):
        Installation(root).start("photo-lab")
    assert ["1.1-" in path for path in replaced] == [True] * 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["rolled-back.txt", "current.txt"])
def test_going_back_works_where_nothing_can_be_written(
    root, installation, release, monkeypatch, caplog, name, computer
):
    """The good version runs; the next start tries to store it again."""
    installation.apply(release("1.1", "exit 3"))
    assert [computer.start()[0] for _ in range(2)] == [3, 3]
    from licclient.install import write_file as real  # noqa: PLC0415 - to replace it

    def full(path, *arguments: object):
        if path.name == name:
            raise OSError(28, "No space left on device")
        real(path, *arguments)

    replaced = []
    monkeypatch.setattr("licclient.install.write_file", full)
    monkeypatch.setattr("os.execve", lambda path, *_: replaced.append(path))
    Installation(root).start("photo-lab")
    assert ["1.0-" in path for path in replaced] == [True]
    assert "No space left" in caplog.text
    assert installation.current.version == "1.1"
    monkeypatch.undo()
    assert computer.start() == (0, "works 1.0\n")
    assert (root / "rolled-back.txt").read_text() == "1.1\n"


@pytest.mark.slow
def test_an_update_at_the_same_moment_wins(root, installation, release, monkeypatch, computer):
    """A launcher that was about to go back finds another version current, and starts it."""
    installation.apply(release("1.1", "exit 3"))
    assert [computer.start()[0] for _ in range(2)] == [3, 3]
    real, replaced = Installation._go_back, []

    def late(self, *arguments: str):
        installation.apply(release("1.2"))
        return real(self, *arguments)

    monkeypatch.setattr(Installation, "_go_back", late)
    monkeypatch.setattr("os.execve", lambda path, *_: replaced.append(path))
    Installation(root).start("photo-lab")
    assert ["1.2-" in path for path in replaced] == [True]
    assert not (root / "rolled-back.txt").exists()


@pytest.mark.slow
def test_a_busy_installation_is_not_waited_for_long(root, installation, release, monkeypatch, computer):
    """While another process unpacks, the good version runs at once."""
    installation.apply(release("1.1", "exit 3"))
    assert [computer.start()[0] for _ in range(2)] == [3, 3]
    monkeypatch.setattr("licclient.install.START_SECONDS", 0.05)
    replaced = []
    monkeypatch.setattr("os.execve", lambda path, *_: replaced.append(path))
    with installation._alone():
        Installation(root).start("photo-lab")
    assert ["1.0-" in path for path in replaced] == [True]
    assert installation.current.version == "1.1"


# --- what the app says ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_program_from_elsewhere_confirms_nothing(root, installation, release, computer):
    """A test or a developer's run of the source is not the installed version."""
    installation.apply(release("1.1", "exit 3"))
    assert installation.confirm() is None
    assert installation.confirm(no_way_back=True) is None
    assert installation.previous.version == "1.0"
    assert [computer.start()[0] for _ in range(3)] == [3, 3, 0]


def test_it_is_confirmed_once(root, installation, release, monkeypatch):
    """Later calls write nothing, and so work in a folder that cannot be written any more."""
    current = installation.current
    monkeypatch.setattr("sys.argv", [str(current.folder / "photo-lab")])
    marked = current.folder / ".licclient-confirmed"
    before = marked.stat()
    assert installation.confirm() == current
    assert marked.stat() == before
    assert stat.S_ISREG(before.st_mode)
    assert before.st_size == 0


def test_no_way_back(root, installation, release, monkeypatch, computer):
    """After it, neither a launcher nor a person goes back; the next version has this one before it."""
    made = installation.apply(release("1.1", "exit 3"))
    monkeypatch.setattr("sys.argv", [str(made.folder / "photo-lab")])
    assert installation.confirm(no_way_back=True) == made
    assert (installation.previous, installation.roll_back()) == (None, None)
    assert [computer.start()[0] for _ in range(4)] == [3] * 4
    assert installation.confirm(no_way_back=True) == made
    installation.apply(release("1.2", "exit 4"))
    assert [computer.start()[0] for _ in range(3)] == [4, 4, 3]


@pytest.mark.slow
def test_no_way_back_after_the_next_version_was_installed(root, installation, release, monkeypatch, computer):
    """The next one must not lead to what cannot read the data."""
    made = installation.apply(release("1.1", "exit 3"))
    monkeypatch.setattr("sys.argv", [str(made.folder / "photo-lab")])
    installation.apply(release("1.2", "exit 4"))
    assert installation.previous.version == "1.0"
    installation.confirm(no_way_back=True)
    assert (installation.current.version, installation.previous) == ("1.2", made)
    assert [computer.start()[0] for _ in range(3)] == [4, 4, 3]


@pytest.mark.slow
def test_no_way_back_that_cannot_be_stored_is_no_confirmation(root, installation, release, monkeypatch):
    """The app learns it before it changes the data."""
    made = installation.apply(release("1.1", "exit 3"))
    monkeypatch.setattr("sys.argv", [str(made.folder / "photo-lab")])

    def full(*_: object):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("licclient.install.write_file", full)
    with pytest.raises(OSError, match="No space"):
        installation.confirm(no_way_back=True)
    assert not (made.folder / ".licclient-confirmed").exists()


@pytest.mark.slow
def test_an_explicit_installation_begins_anew(root, installation, release, monkeypatch, computer):
    """A version that was rolled back, by the launcher or by a person, is on probation again."""
    bad = release("1.1", "exit 3")
    installation.apply(bad)
    assert [computer.start()[0] for _ in range(3)] == [3, 3, 0]
    monkeypatch.setattr("sys.argv", [str(installation.current.folder / "photo-lab")])
    installation.apply(bad)
    assert (root / "rolled-back.txt").read_text() == ""
    assert [computer.start()[0] for _ in range(3)] == [3, 3, 0]
    good = release("1.2")
    installation.apply(good)
    assert computer.start()[0] == 0
    installation.roll_back()
    made = installation.apply(good)
    assert not (made.folder / ".licclient-confirmed").exists()


@pytest.mark.slow
def test_a_marker_in_the_archive_confirms_nothing(root, installation, release, computer):
    """A vendor has packed the folder of a version that he had tried."""
    files = APP | {"photo-lab": b"#!/bin/sh\nexit 3\n", ".licclient-confirmed": b""}
    installation.apply(downloaded(root.parent, pack(files), "1.1"))
    assert [computer.start()[0] for _ in range(3)] == [3, 3, 0]


@pytest.mark.slow
@both_launchers
@pytest.mark.parametrize("name", [".licclient-confirmed", ".licclient-starting/x", ".licclient-confirmed/x"])
def test_no_archive_escapes_probation(root, installation, release, computer, name):
    """Whatever our own files are in it, and however often it is applied (D-401)."""
    files = APP | {"photo-lab": b"#!/bin/sh\nexit 3\n", name: b""}
    bad = downloaded(root.parent, pack(files), "1.1")
    made = installation.apply(bad)
    assert installation.apply(bad) == made
    assert not [path for path in made.folder.iterdir() if path.name.startswith(".licclient")]
    assert [computer.start()[0] for _ in range(3)] == [3, 3, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", [".licclient-confirmed", ".licclient-starting"])
def test_a_folder_is_no_mark(root, installation, release, computer, name):
    """In the place of either file it neither confirms nor ends the counting, and a version can confirm."""
    (installation.apply(release("1.1", "exit 3")).folder / name / "deep").mkdir(parents=True)
    assert [computer.start()[0] for _ in range(3)] == [3, 3, 0]
    good = installation.apply(release("1.2")).folder
    (good / name / "deep").mkdir(parents=True)
    assert computer.start() == (0, "works 1.2\n")
    assert (good / ".licclient-confirmed").is_file()
    (root / "probation.txt").unlink()
    (root / "probation.txt" / "deep").mkdir(parents=True)
    installation.apply(release("1.3", "exit 3"))
    assert [computer.start()[0] for _ in range(3)] == [3, 3, 0]


@pytest.mark.slow
def test_a_version_that_runs_on_after_it_was_left_stays_on_the_list(root, installation, release, monkeypatch):
    """Its next confirmation is no interruption that has to be mended (D-400)."""
    made = installation.apply(release("1.1"))
    monkeypatch.setattr("sys.argv", [str(made.folder / "photo-lab")])
    installation.confirm()
    installation.roll_back()
    installation.confirm()
    assert (root / "rolled-back.txt").read_text() == "1.1\n"


@pytest.mark.slow
@both_launchers
def test_another_file_of_the_same_version(root, installation, release, computer):
    """It is left like any other; its number is not noted, since the good one has it as well."""
    installation.apply(release("1.0", "exit 3"))
    assert [computer.start()[0] for _ in range(3)] == [3, 3, 0]
    assert not (root / "rolled-back.txt").exists()
    installation.apply(release("1.1", "exit 3"))
    assert [computer.start()[0] for _ in range(3)] == [3, 3, 0]
