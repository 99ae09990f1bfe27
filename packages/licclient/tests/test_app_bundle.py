"""A bundle of macOS is replaced whole or not at all (D-357); its tools are stand-ins here."""

import errno
import os
import stat
from pathlib import Path

import pytest
from stage.archives import downloaded, pack

from licclient._core.model import InstallObstacle
from licclient.errors import InstallationError, UntrustedResponseError
from licclient.install import _app_bundle, _beside

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs shells of Unix")

DITTO = '#!/bin/sh\nexec python3 -m zipfile -e "$3" "$4"\n'
CODESIGN = """#!/bin/sh
for last; do :; done
case $1 in
--verify)
    test -f "$last/Contents/sealed" || exit 1
    expected="-R=anchor apple generic and certificate leaf[subject.OU] = \\"$(cat "$last/Contents/team")\\""
    case $4 in -R*) test "$4" = "$expected" || exit 3 ;; esac ;;
*)
    exec >&2
    test -f "$last/Contents/team" || { echo "$last: code object is not signed at all"; exit 1; }
    printf 'Executable=%s/Contents/MacOS/app\\n' "$last"
    echo "TeamIdentifier=$(cat "$last/Contents/team")" ;;
esac
"""
"""It prints what the real one does, and names a bundle by its path."""


def files_of(version: str, team: str = "AB12CD34EF") -> dict[str, bytes]:
    """Return the files of a bundle."""
    contents = {"sealed": b"", "team": team.encode(), "version": version.encode()}
    return {f"Photo Lab.app/Contents/{name}": content for name, content in contents.items()}


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    """The bundle of version 1.0, and stand-ins for what macOS has."""
    for name, text in (("DITTO", DITTO), ("CODESIGN", CODESIGN)):
        tool = tmp_path / name
        tool.write_text(text)
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(_app_bundle, name, str(tool))
    applications = tmp_path / "Applications"
    for path, content in files_of("1.0").items():
        file = applications / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return applications / "Photo Lab.app"


def version(bundle: Path) -> str:
    """Return the version of a bundle; nothing else may lie beside it."""
    assert [path.name for path in bundle.parent.iterdir()] == ["Photo Lab.app"]
    return (bundle / "Contents" / "version").read_text()


def install(bundle: Path, folder: Path, files: dict[str, bytes]) -> None:
    """Replace the bundle by another one."""
    _app_bundle.replace_bundle(downloaded(folder, pack(files)), bundle)


def test_a_bundle_is_replaced_whole(bundle, tmp_path):
    """No file of the old one is left in it."""
    (bundle / "Contents" / "old").write_bytes(b"")
    install(bundle, tmp_path, files_of("2.0"))
    assert version(bundle) == "2.0"
    assert not (bundle / "Contents" / "old").exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("files", "error"),
    [
        (files_of("2.0", team="ANOTHER"), InstallationError),
        (files_of("2.0", team="not set"), InstallationError),
        (
            {name: content for name, content in files_of("2.0").items() if "sealed" not in name},
            UntrustedResponseError,
        ),
        ({"readme.txt": b""}, InstallationError),
        (files_of("2.0") | {"Other.app/Contents/sealed": b""}, InstallationError),
    ],
    ids=["another team", "no team", "a broken seal", "no bundle", "two bundles"],
)
def test_another_bundle_replaces_nothing(bundle, tmp_path, files, error):
    """The old one stays as it was."""
    with pytest.raises(error):
        install(bundle, tmp_path, files)
    assert version(bundle) == "1.0"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("team", ["not set", None])
def test_a_bundle_without_a_team_is_replaced_by_any_that_is_sealed(bundle, tmp_path, team):
    """As one that was signed on the developer's computer alone, or not at all."""
    path = bundle / "Contents" / "team"
    path.unlink() if team is None else path.write_text(team)
    install(bundle, tmp_path, files_of("2.0"))
    assert version(bundle) == "2.0"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("team", ['x" or anchor apple "', "", "AB12CD34EF\nTeamIdentifier=EVIL"])
def test_a_signature_that_cannot_be_read_is_not_taken_for_none(bundle, tmp_path, team):
    """Nothing but a team's id is written into the requirement."""
    (bundle / "Contents" / "team").write_text(team)
    with pytest.raises(InstallationError) as caught:
        install(bundle, tmp_path, files_of("2.0"))
    assert caught.value.obstacle is InstallObstacle.FAILED
    assert version(bundle) == "1.0"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["x\nTeamIdentifier=AB12CD34EF\n.app", "x\r.app", "x\x7f.app"])
@pytest.mark.parametrize("team", ["ANOTHER", "AB12CD34EF"])
def test_the_name_of_a_bundle_is_no_signature(bundle, tmp_path, name, team):
    """It was printed with what `codesign` reports, and the first team counted."""
    files = {path.replace("Photo Lab.app", name): content for path, content in files_of("2.0", team).items()}
    with pytest.raises(InstallationError):
        install(bundle, tmp_path, files)
    assert version(bundle) == "1.0"


def test_a_link_is_no_bundle(bundle, tmp_path, monkeypatch):
    """Its seal would be that of another bundle."""
    run = _app_bundle._run

    def unpack_link(*command: str):
        done = run(*command)
        if "-x" in command:
            (new,) = Path(command[-1]).iterdir()
            new.rename(new.with_name("real"))
            new.symlink_to("real")
        return done

    monkeypatch.setattr(_app_bundle, "_run", unpack_link)
    with pytest.raises(InstallationError):
        install(bundle, tmp_path, files_of("2.0"))
    assert version(bundle) == "1.0"


def test_a_file_that_is_no_zip_replaces_nothing(bundle, tmp_path):
    """Nothing is unpacked."""
    with pytest.raises(InstallationError) as caught:
        _app_bundle.replace_bundle(downloaded(tmp_path, b"no zip"), bundle)
    assert caught.value.obstacle is InstallObstacle.WRONG_FILE
    assert version(bundle) == "1.0"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("ditto", "zipped", "obstacle"),
    [
        ("echo 'Operation failed' >&2; exit 1", pack(files_of("2.0")), "failed"),
        ("exit 1", b"PK\x03\x04 that is cut off", "wrong_file"),
        ("echo 'x: No space left on device' >&2; exit 1", pack(files_of("2.0")), errno.ENOSPC),
        ("exec sleep 30", pack(files_of("2.0")), "timed_out"),
    ],
)
def test_what_kept_ditto_from_its_work_is_named(bundle, tmp_path, monkeypatch, ditto, zipped, obstacle):
    """A full disk or a slow one does not make the file a wrong one."""
    Path(_app_bundle.DITTO).write_text(f"#!/bin/sh\n{ditto}\n")
    monkeypatch.setattr(_app_bundle, "_SECONDS", 0.2 if "sleep" in ditto else 30)
    with pytest.raises((InstallationError, OSError)) as caught:
        _app_bundle.replace_bundle(downloaded(tmp_path, zipped), bundle)
    assert getattr(caught.value, "obstacle", None) == obstacle or caught.value.errno == obstacle
    assert version(bundle) == "1.0"


def test_an_exchanged_file_replaces_nothing(bundle, tmp_path):
    """Its digest is another one."""
    file = downloaded(tmp_path, pack(files_of("2.0")))
    file.path.write_bytes(pack(files_of("6.6")))
    with pytest.raises(UntrustedResponseError):
        _app_bundle.replace_bundle(file, bundle)
    assert version(bundle) == "1.0"


def test_what_is_unpacked_is_what_was_hashed(bundle, tmp_path, monkeypatch):
    """Also if another process exchanges the file in between."""
    file = downloaded(tmp_path, pack(files_of("2.0")))
    run = _app_bundle._run

    def exchange(*command: str):
        if "-x" in command:
            file.path.write_bytes(pack(files_of("1.2 with a hole")))
        return run(*command)

    monkeypatch.setattr(_app_bundle, "_run", exchange)
    _app_bundle.replace_bundle(file, bundle)
    assert version(bundle) == "2.0"


def test_nothing_is_removed_before_the_new_bundle_is_durable(bundle, tmp_path, monkeypatch):
    """Each file and each folder of it; links are left alone."""
    steps = []
    monkeypatch.setattr(_app_bundle, "sync_file", lambda _: steps.append("file"))
    monkeypatch.setattr(_app_bundle, "sync_folder", lambda folder: steps.append(folder.name))
    exchange = _app_bundle._exchange
    monkeypatch.setattr(_app_bundle, "_exchange", lambda *both: steps.append("exchange") or exchange(*both))
    install(bundle, tmp_path, files_of("2.0"))
    assert sorted(steps[:-2]) == ["Contents", "Photo Lab.app", *["file"] * 3]
    assert steps[-2:] == ["exchange", "Applications"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("problem", [errno.EIO, errno.EPERM])
def test_an_exchange_that_fails_moves_nothing(bundle, tmp_path, monkeypatch, problem):
    """Only where the system has no exchanges the two are moved, one after the other."""
    monkeypatch.setattr(_app_bundle, "_exchange", lambda *_: problem)
    renamed = []
    monkeypatch.setattr(Path, "rename", lambda *paths: renamed.append(paths))
    with pytest.raises((OSError, InstallationError)):
        install(bundle, tmp_path, files_of("2.0"))
    assert version(bundle) == "1.0"
    assert renamed == []


def test_two_bundles_are_exchanged_where_the_system_can(bundle, tmp_path, monkeypatch):
    """The old one is removed with the private folder."""

    def exchange(new, old):
        old.rename(new.with_name("between"))
        new.rename(old)
        return 0

    monkeypatch.setattr(_app_bundle, "_exchange", exchange)
    install(bundle, tmp_path, files_of("2.0"))
    assert version(bundle) == "2.0"


def test_the_old_bundle_comes_back_if_the_new_one_cannot_be_moved(bundle, tmp_path, monkeypatch):
    """As with a disk that fails in between."""
    rename = Path.rename

    def fail(path, target):
        if path.parent.name == "new":
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output"):
        install(bundle, tmp_path, files_of("2.0"))
    assert version(bundle) == "1.0"


def test_the_old_bundle_is_kept_if_it_cannot_be_moved_back_either(bundle, tmp_path, monkeypatch):
    """It stays beside its place, as it is all that there is, and the next installer puts it back."""
    rename = Path.rename

    def fail(path, target):
        if target == bundle:
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output"):
        install(bundle, tmp_path, files_of("2.0"))
    (kept,) = bundle.parent.glob(".licclient-*.draft/old/*.app")
    assert (kept / "Contents" / "version").read_text() == "1.0"
    monkeypatch.undo()
    with _beside.private_folder(bundle.parent):  # of any app in this folder
        pass
    assert version(bundle) == "1.0"


def test_what_a_killed_installer_left_is_removed(bundle, tmp_path):
    """After the exchange it is the old bundle, and only then."""
    killed = bundle.parent / ".licclient-ab12_x9z.draft"
    for path, content in files_of("0.9").items():
        file = killed / "old" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    install(bundle, tmp_path, files_of("2.0"))
    assert version(bundle) == "2.0"


def test_a_place_that_may_not_be_written_is_named(bundle, tmp_path, monkeypatch):
    """As where macOS protects the apps of others."""
    monkeypatch.setattr(_app_bundle, "_exchange", lambda *_: errno.EPERM)
    with pytest.raises(InstallationError) as caught:
        install(bundle, tmp_path, files_of("2.0"))
    assert caught.value.obstacle is InstallObstacle.NOT_WRITABLE
    assert version(bundle) == "1.0"
