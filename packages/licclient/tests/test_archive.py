"""The plan that is made from a zip's directory (D-80): pure, so no file is touched here."""

import stat
import tracemalloc
from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.archives import MODES, NAMES, entry

from licclient.errors import UnusableArchiveError
from licclient.install._archive import (
    MAX_DIRECTORY_BYTES,
    MAX_ENTRIES,
    MAX_UNPACKED_BYTES,
    Entry,
    check_directory,
    check_entries,
    read_plan,
)


def test_a_plan_says_what_will_be_made():
    """Folders come before what is in them, also those that only a file's path names."""
    plan = read_plan(
        [
            entry("bin/run", stat.S_IFREG | 0o755, file_size=3),
            entry("empty/", stat.S_IFDIR | 0o755),
            entry("lib/a/ä b.txt", file_size=4),
            entry("from-windows.txt", 0, file_size=5, create_system=0),
            entry("folder-from-windows/", 0, create_system=0),
            entry(".hidden/.dylibs"),
        ]
    )
    assert plan.folders == ("bin", "empty", "lib", "lib/a", "folder-from-windows", ".hidden")
    assert plan.files == (
        Entry("bin/run", 3, executable=True, index=0),
        Entry("lib/a/ä b.txt", 4, executable=False, index=2),
        Entry("from-windows.txt", 5, executable=False, index=3),
        Entry(".hidden/.dylibs", 0, executable=False, index=5),
    )
    assert plan.size == 12


@pytest.mark.parametrize(
    "name",
    [
        ".licclient-confirmed",
        ".LICCLIENT-Confirmed",
        ".licclient-starting/x",
        ".licclient-starting/",
        ".licclient-x/a/b",
    ],
)
def test_our_own_files_are_left_out(name):
    """A vendor who packs the folder of an installed version confirms nothing by it, on no disk (D-401)."""
    mode = stat.S_IFDIR | 0o755 if name.endswith("/") else stat.S_IFREG | 0o755
    others = [entry("run", file_size=3), entry("a/.licclient-confirmed"), entry(".licclient")]
    plan = read_plan([entry(name, mode, file_size=4), *others])
    assert (plan.folders, plan.size, plan.has_program) == (("a",), 3, False)
    assert [(file.path, file.index) for file in plan.files] == [
        ("run", 1),
        ("a/.licclient-confirmed", 2),
        (".licclient", 3),
    ]
    with pytest.raises(UnusableArchiveError, match="holds no file"):
        read_plan([entry(name, mode)])


def test_what_is_left_out_is_no_other_file():
    """It neither takes a name from a file nor hides a flaw."""
    read_plan([entry("run"), entry(".licclient-a"), entry(".licclient-A")])
    with pytest.raises(UnusableArchiveError, match="out of the folder"):
        read_plan([entry("run"), entry(".licclient-a/../../b")])


REFUSED = {name: entry(infos) for name, infos in NAMES.items()} | {
    name: entry("bad", mode) for name, mode in MODES.items()
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_names_that_lead_elsewhere_and_what_is_no_file(refused):
    """What one platform would take for another place, or cannot hold, is refused on all; so are links."""
    with pytest.raises(UnusableArchiveError):
        read_plan([entry("good.txt"), refused])


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([], "no file"),
        ([entry("a/", stat.S_IFDIR | 0o755)], "no file"),
        ([entry("")], "a name that no file may have: ''"),
        ([entry("a", orig_filename="a\0b")], "a name that no file may have"),
        ([entry("a/b", orig_filename="a\\b")], "a name that no file may have"),
        ([entry("a\ud800")], "a name that no file may have"),
        ([entry("a", stat.S_IFLNK | 0o777)], "a link; pack the file that it points to: 'a'"),
        ([entry("/a")], "an absolute path: '/a'"),
        ([entry("a", flag_bits=0x1)], "encrypted: 'a'"),
        ([entry("a", flag_bits=0x2000)], "encrypted"),
        ([entry("a", compress_type=14)], "use deflate: 'a'"),
        ([entry("a", file_size=-1)], "negative size"),
        ([entry("a", compress_size=-1)], "negative size"),
        ([entry("a"), entry("a")], "one on some disks: 'a'"),
        ([entry("straße"), entry("STRASSE")], "one on some disks"),
        ([entry("é"), entry("e\u0301")], "one on some disks"),
        ([entry("a/b"), entry("A")], "one on some disks: 'A'"),
        ([entry("a", file_size=MAX_UNPACKED_BYTES), entry("b", file_size=1)], "is larger than"),
        ([entry("a")] * (MAX_ENTRIES + 1), "more than 100000 entries"),
        ([entry("x" * 2000)], "x…'"),
        ([entry("/".join("a" * 65))], "is in more than 64 folders"),
        (
            [entry(f"{n}/{'b' * 250}/{'c' * 250}/{'d' * 250}/f") for n in range(12_000)],
            "list of files is larger than",
        ),
        ([entry(f"{n}/" + "d/" * 20 + "f") for n in range(5_000)], "more than 100000 entries"),
    ],
)
def test_the_words_say_what_is_wrong_and_where(entries, words):
    """A vendor can mend it: the entry is named, cut where it is very long."""
    with pytest.raises(UnusableArchiveError) as caught:
        read_plan(entries)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


def test_folders_may_differ_in_case():
    """As in terminfo: where case makes no difference they become one, and no file is lost."""
    plan = read_plan([entry("E/a"), entry("e/b"), entry("e/", stat.S_IFDIR | 0o755)])
    assert plan.folders == ("E", "e")


_NASTY = st.text(alphabet="ab./\\: \0*Nul\u202eé\u0301A", max_size=12) | st.text(max_size=20)


@given(st.lists(st.tuples(_NASTY, st.integers(0, 2**16 - 1)), max_size=6))
def test_whatever_is_accepted_stays_within_the_folder(entries):
    """For any directory: every path is relative, plain, and the same one file to Windows and to Unix."""
    try:
        plan = read_plan([entry(name, mode) for name, mode in entries])
    except UnusableArchiveError:
        return
    for path in (*plan.folders, *(file.path for file in plan.files)):
        for flavour in (PurePosixPath, PureWindowsPath):
            made = flavour("root") / path
            assert not flavour(path).is_absolute()
            assert ".." not in made.parts
            assert made.parts == ("root", *path.split("/"))
    assert len({file.path.casefold() for file in plan.files}) == len(plan.files)


def test_a_directory_of_few_entries_is_read():
    """The limits themselves pass; one entry more is refused."""
    check_directory(MAX_DIRECTORY_BYTES)
    check_entries(b"PK\x01\x02" * MAX_ENTRIES)
    with pytest.raises(UnusableArchiveError, match="entries"):
        check_entries(b"PK\x01\x02" * (MAX_ENTRIES + 1))


def test_folders_that_are_not_listed_count_as_well():
    """5 MB of paths with 508 folders each took 3 GB of memory, and 2.5 million folders on the disk."""
    depth = 64  # the last is the file's name
    deepest = [entry("a/" * (depth - 1) + "f")]
    assert len(read_plan(deepest).folders) == depth - 1
    entries = [entry(f"{n}/" + "d/" * 8 + "f") for n in range(10_000)]
    assert len(read_plan(entries).folders) == 90_000
    tracemalloc.start()
    with pytest.raises(UnusableArchiveError, match="is in more than 64 folders"):
        read_plan([entry(f"{n:05}/" + "a/" * 508 + "f") for n in range(5_000)])
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


def test_the_list_of_files_has_a_size():
    """A larger one is not read."""
    check_directory(MAX_DIRECTORY_BYTES)
    with pytest.raises(UnusableArchiveError, match="list of files"):
        check_directory(MAX_DIRECTORY_BYTES + 1)


def test_a_plan_says_whether_a_program_is_in_it():
    """Windows marks none."""
    assert read_plan([entry("run", stat.S_IFREG | 0o755)]).has_program
    assert not read_plan([entry("run")]).has_program


@pytest.mark.parametrize(
    ("stated", "system", "name"),
    [("ä.txt", 3, "ä.txt"), ("ä.txt", 0, None), ("\u00e9.txt", 3, "\u00e9.txt")],
)
def test_an_undeclared_name_is_utf_8_as_unix_tools_write_it(stated, system, name):
    """`zipfile` reads it as code page 437. Of another system nobody knows the encoding."""
    read = stated.encode().decode("cp437")
    entries = [entry(read, create_system=system, flag_bits=0)]
    if name is None:
        with pytest.raises(UnusableArchiveError, match="encoding is not stated"):
            read_plan(entries)
    else:
        assert [file.path for file in read_plan(entries).files] == [name]


def test_an_undeclared_name_that_is_not_utf_8_is_refused():
    """Old Unix tools wrote Latin-1."""
    with pytest.raises(UnusableArchiveError, match="encoding is not stated"):
        read_plan([entry(b"\xe4.txt".decode("cp437"), flag_bits=0)])
