"""Which cases find which fault; not every case has to be run with every fault."""

from collections.abc import Callable, Collection, Iterable
from itertools import islice

AT_ONCE = 20


def match(
    faults: Iterable[str], cases: Collection[str], failing: Callable[[str, Collection[str]], set[str]]
) -> dict[str, set[str]]:
    """Return fault → cases that find it.

    Cases that have found none yet are run with each fault; if none of them does, the others until one does.
    """
    found, idle = dict[str, set[str]](), set(cases)
    for fault in faults:
        found[fault] = failing(fault, idle) if idle else set()
        idle -= found[fault]
        others = iter(sorted(set(cases) - idle - found[fault]))
        while not found[fault] and (more := [*islice(others, AT_ONCE)]):
            found[fault] = failing(fault, more)
    return found
