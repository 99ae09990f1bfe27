"""Which version is on probation, and what the launcher does about it (D-360): pure."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licclient.install._launch import exit_status
from licclient.install._probation import (
    CONFIRMED,
    MAX_STARTS,
    STARTING,
    STARTS,
    Step,
    is_counted,
    is_noted,
    is_noted_by_mistake,
    is_on_probation,
    next_pointer,
    next_step,
    read_starts,
    without_way_back,
    write_starts,
)
from licclient.install._versions import Pointer, folder_names

GOOD, BAD, NEXT = (
    folder_names(version, digit * 64)[0] for version, digit in (("1.0", "a"), ("1.1", "b"), ("1.2", "c"))
)
REBUILT = folder_names("1.0", "d" * 64)[0]
ON_PROBATION = Pointer(BAD, GOOD)


# --- protocol 1, which launchers in the field have -----------------------------------------------------


def test_the_protocol_is_frozen():
    """Names, bytes and number: a launcher that was installed years ago knows these."""
    assert (STARTS, CONFIRMED, STARTING) == ("probation.txt", ".licclient-confirmed", ".licclient-starting")
    assert MAX_STARTS == 2
    assert write_starts("1.1-bbbbbbbbbbbbbbbb", 1) == b"1\n1.1-bbbbbbbbbbbbbbbb\n1\n"
    assert read_starts(b"1\n1.1-bbbbbbbbbbbbbbbb\n1\n", BAD) == 1
    assert read_starts(b"1\r\n1.1-bbbbbbbbbbbbbbbb\r\n2\r\n", BAD) == 2


@pytest.mark.parametrize("raw", [None, write_starts(GOOD, 2)])
def test_a_version_that_was_not_started(raw):
    """No file, or a file about another version, counts nothing against this one."""
    assert read_starts(raw, BAD) == 0


@pytest.mark.parametrize("count", range(3))
def test_a_file_that_is_cut_anywhere_counts_nothing(count):
    """A prefix of it is damaged, whatever was left out."""
    whole = write_starts(BAD, count)
    assert read_starts(whole, BAD) == count
    assert {read_starts(whole[:size], BAD) for size in range(len(whole))} == {None}


@pytest.mark.parametrize(
    "raw",
    [
        f"2\n{BAD}\n2\n".encode(),  # of a later protocol
        f"1\n{BAD}\n2\n2\n".encode(),
        f"1\n{BAD}\n-1\n".encode(),
        f"1\n{BAD}\n3\n".encode(),  # no launcher counts so far
        f"1\n{BAD}\n02\n".encode(),
        f"1\n{BAD}\n\n".encode(),
        f"1\n{BAD} x\n2\n".encode(),
        f"1\n{BAD}\n\u0662\n".encode(),  # a digit of another script
        b"\0" * 40,
        b"",
    ],
)
def test_a_file_that_nobody_here_wrote(raw):
    """It is damaged, and not a number of starts."""
    assert read_starts(raw, BAD) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_read(raw):
    """Reading never raises."""
    assert read_starts(raw, BAD) in {None, 0, 1, 2}


# --- decisions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pointer", "confirmed", "rolled_back", "expected"),
    [
        (ON_PROBATION, {GOOD}, (), True),
        (ON_PROBATION, {GOOD}, {"1.1"}, True),  # noted, and the pointer did not move: a killed launcher
        (ON_PROBATION, {GOOD, BAD}, (), False),
        (ON_PROBATION, (), (), False),  # an app that does not confirm
        (ON_PROBATION, {BAD}, (), False),
        (ON_PROBATION, {GOOD}, {"1.0"}, False),  # never into a version that was rolled back
        (Pointer(BAD), {GOOD}, (), False),
    ],
)
def test_probation(pointer, confirmed, rolled_back, expected):
    """Only a version that was not confirmed, after one that was."""
    assert is_on_probation(pointer, confirmed, rolled_back) is expected


@pytest.mark.parametrize(
    ("starts", "step"), [(0, Step.COUNT), (1, Step.COUNT), (2, Step.GO_BACK), (999, Step.GO_BACK)]
)
def test_two_starts_are_given(starts, step):
    """The third one runs the version before."""
    assert next_step(ON_PROBATION, starts, {GOOD}, ()) is step


def test_only_a_counted_version_that_has_a_good_one_before_it_is_left():
    """Of all inputs: never with a damaged file, never a confirmed version, never into one that was left."""
    for starts, confirmed, rolled_back in product(
        (None, 0, 1, 2, 3), ((), (GOOD,), (BAD,), (GOOD, BAD)), ((), ("1.0",), ("1.1",), ("1.0", "1.1"))
    ):
        for pointer in (ON_PROBATION, Pointer(BAD), Pointer(GOOD)):
            is_left = next_step(pointer, starts, confirmed, rolled_back) is Step.GO_BACK
            assert is_left == (
                pointer == ON_PROBATION
                and starts in (2, 3)
                and confirmed == (GOOD,)
                and "1.0" not in rolled_back
            )


@pytest.mark.parametrize(
    ("status", "counted"),
    [
        (0, False),  # closed, or a second instance that handed over
        (-15, False),
        (143, False),
        (-1, False),
        (129, False),
        (-2, False),
        (130, False),
        (0xC000013A, False),
        (0x40010004, False),
        (1, True),  # also TerminateProcess of the task manager
        (3, True),
        (-9, True),
        (137, True),
        (-11, True),
        (-6, True),
        (0xC0000005, True),  # access violation
        (0xC0000409, True),
    ],
)
def test_what_counts(status, counted):
    """Crashes and kills do; what a user or the system ended in order does not, nor what was asked to end."""
    assert is_counted(status, was_asked=False) is counted
    assert not is_counted(status, was_asked=True)


def test_a_version_on_probation_is_no_version_to_go_back_to():
    """The pointer to a third one keeps the good one; otherwise it keeps the one before, as ever."""
    for before, name, confirmed, rolled_back, after in (
        (None, NEXT, (), (), Pointer(NEXT)),
        (Pointer(GOOD), NEXT, {GOOD}, (), Pointer(NEXT, GOOD)),
        (ON_PROBATION, NEXT, {GOOD}, (), Pointer(NEXT, GOOD)),
        (ON_PROBATION, NEXT, {GOOD, BAD}, (), Pointer(NEXT, BAD)),
        (ON_PROBATION, NEXT, (), (), Pointer(NEXT, BAD)),
        (ON_PROBATION, NEXT, {GOOD}, {"1.0"}, Pointer(NEXT, BAD)),
        (ON_PROBATION, GOOD, {GOOD}, (), Pointer(GOOD, BAD)),  # installed again, by hand
    ):
        assert next_pointer(before, name, (name,), confirmed, rolled_back) == after


@pytest.mark.parametrize("confirmed", [(), (GOOD,), (BAD,), (GOOD, BAD)])
def test_a_damaged_version_is_no_other_version(confirmed):
    """In another folder it has the place of the damaged one, and that is never what is gone back to."""
    first, second, third = names = tuple(f"1.1-{digit * 16}" for digit in "ef0")
    assert next_pointer(Pointer(first, GOOD), second, names, confirmed, ()) == Pointer(second, GOOD)
    assert next_pointer(Pointer(first), third, names, confirmed, ()) == Pointer(third)
    assert next_pointer(Pointer(NEXT, first), second, names, confirmed, ()) == Pointer(second, NEXT)
    assert next_pointer(Pointer(first, second), second, names, confirmed, ()) == Pointer(second)


@pytest.mark.parametrize(
    ("pointer", "name", "rolled_back", "expected"),
    [
        (Pointer(GOOD, BAD), GOOD, ("1.0",), True),
        (Pointer(BAD, GOOD), GOOD, ("1.1", "1.0"), True),
        (Pointer(GOOD), GOOD, ("1.1",), False),
        (Pointer(GOOD), BAD, ("1.1",), False),  # it runs on after a person has left it
        (None, GOOD, ("1.0",), False),
    ],
)
def test_a_version_that_works_is_not_on_the_list(pointer, name, rolled_back, expected):
    """A version that was left stays there; one that only began to be left does not."""
    assert is_noted_by_mistake(pointer, name, rolled_back) is expected


def test_no_way_back():
    """Neither from the version that changed the data, nor from one that was installed after it."""
    assert without_way_back(ON_PROBATION, BAD) == Pointer(BAD)
    assert without_way_back(Pointer(NEXT, GOOD), BAD) == Pointer(NEXT, BAD)
    assert without_way_back(Pointer(NEXT, BAD), BAD) == Pointer(NEXT, BAD)


def test_another_file_of_the_same_version_is_not_noted():
    """The note would name the good one as well, which then was no version to go back to."""
    assert is_noted(BAD, GOOD)
    assert not is_noted(REBUILT, GOOD)


@pytest.mark.parametrize(
    ("status", "expected"),
    [(0, 0), (3, 3), (255, 255), (-9, 137), (0xC0000005, -0x3FFFFFFB), (0x7FFFFFFF, 0x7FFFFFFF)],
)
def test_a_status_that_is_passed_on(status, expected):
    """A launcher's own is that of a shell for signals, and a signed number for crashes on Windows."""
    assert exit_status(status) == expected
