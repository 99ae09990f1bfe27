"""Which version is current, and which are unused (D-81): pure."""

from dataclasses import fields
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licclient.install._versions import (
    Pointer,
    folder_names,
    leftovers,
    read_pointer,
    version_of,
    write_pointer,
)

OLD, NEW, THIRD = (
    folder_names(version, digit * 64)[0] for version, digit in (("1.0", "a"), ("1.1", "b"), ("2", "c"))
)


@pytest.mark.parametrize(
    ("version", "folder"),
    [
        ("1.0.0", "1.0.0-abababababababab"),
        ("v1.0-RC1", "1.0rc1-abababababababab"),
        ("1!2.0+linux.x86", "1!2.0+linux.x86-abababababababab"),
    ],
)
def test_a_folder_is_named_after_version_and_archive(version, folder):
    """People can read it, and another archive of the same version is another folder."""
    assert folder_names(version, "ab" * 32)[0] == folder
    assert folder.startswith(version_of(folder))
    assert folder_names(version, "cd" * 32) != folder_names(version, "ab" * 32)


def test_a_version_may_have_more_folders_than_a_pointer():
    """One of them is free, whatever is damaged; all can be read, and belong to the version."""
    names = folder_names("1.0", sha256(b"").hexdigest())
    assert len(set(names)) == len(names) > len(fields(Pointer))
    assert {version_of(name) for name in names} == {"1.0"}
    assert {read_pointer(write_pointer(Pointer(name))) for name in names} == set(map(Pointer, names))


@pytest.mark.parametrize(
    ("version", "sha256"),
    [
        ("../evil", "a" * 64),
        ("", "a" * 64),
        ("1" * 300, "a" * 64),
        ("1.0", "a" * 63),
        ("1.0", "../" + "a" * 61),
    ],
)
def test_what_names_no_folder(version, sha256):
    """What comes from outside cannot lead elsewhere."""
    with pytest.raises(ValueError, match=r"^(version|sha256) must be"):
        folder_names(version, sha256)


@pytest.mark.parametrize("pointer", [Pointer(OLD), Pointer(NEW, OLD)])
def test_a_pointer_reads_as_it_was_written(pointer):
    """Also after an editor on Windows has been over it."""
    raw = write_pointer(pointer)
    assert read_pointer(raw) == pointer
    assert read_pointer(raw.replace(b"\n", b"\r\n")) == pointer
    assert raw.decode().splitlines()[0] == pointer.current


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"../../evil-aaaaaaaaaaaaaaaa\n",
        f"{OLD}\n{OLD}\n".encode(),
        f"{OLD}\n{NEW}\n{THIRD}\n".encode(),
        f"{OLD}\n\n".encode(),
        f"{OLD} \n".encode(),
        f"{OLD}\n\xff".encode("latin-1"),
    ],
)
def test_a_damaged_pointer_points_nowhere(raw):
    """What cannot be read is a miss, and never leads out of the folder."""
    assert read_pointer(raw) is None


@given(st.binary(max_size=80))
def test_any_bytes_read_as_a_pointer_or_as_none(raw):
    """Whatever is on the disk, reading never raises, and what it yields writes back."""
    found = read_pointer(raw)
    assert found is None or read_pointer(write_pointer(found)) == found


def test_leftovers():
    """Drafts, what was being removed, and versions that nobody needs; nothing that others put there."""
    names = [OLD, NEW, THIRD, ".incoming-x", ".discarded-y", "notes.txt", "1.0", ".hidden"]
    drafts = [".incoming-x", ".discarded-y"]
    assert leftovers(Pointer(THIRD, NEW), names, ()) == [*drafts, OLD]
    assert leftovers(Pointer(THIRD), names, ()) == [*drafts, OLD, NEW]
    assert leftovers(Pointer(THIRD), names, {OLD, NEW}) == drafts
    assert leftovers(None, names, ()) == drafts
