"""The default selection has a sample of a test's cases; the others are `slow`, and run in `nox -s full`."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from hashlib import sha256

import pytest

LEFT_OUT = ("browser", "crash", "postgresql", "slow", "system_tools", "window")
"""The marks of tests that the default selection leaves out."""


def mark_beyond_samples(items: Iterable[pytest.Item]) -> None:
    """Mark the cases of `sampled` tests beyond the sample as slow; ignore cases that are left out already."""
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("sampled") and not any(map(item.get_closest_marker, LEFT_OUT)):
            cases[item.nodeid.partition("[")[0]].append(item)
    for of_one_test in cases.values():
        mark = of_one_test[0].get_closest_marker("sampled")
        assert mark is not None
        count, *kinds = mark.args
        kept = set(sample([(item.nodeid, _values(item, kinds)) for item in of_one_test], count))
        for item in of_one_test:
            if item.nodeid not in kept:
                item.add_marker("slow")


def sample(cases: Sequence[tuple[str, Collection[Hashable]]], count: int) -> list[str]:
    """Return ids of at least `count` cases that have each of the values; the hashes of the ids decide which.

    The choice depends on nothing but the ids and values: it is the same in each worker and on each machine.
    """
    shuffled = sorted(cases, key=lambda case: sha256(case[0].encode()).digest())
    seen, kept, others = set[Hashable](), list[str](), list[str]()
    for case, values in shuffled:
        (others if seen.issuperset(values) else kept).append(case)  # also if it has no values
        seen.update(values)
    return kept + others[: max(0, count - len(kept))]


def _values(item: pytest.Item, kinds: Iterable[str]) -> list[Hashable]:
    """Return the values of a case's parameters; for those without a hash their numbers."""
    assert isinstance(item, pytest.Function)
    values = list[Hashable]()
    for kind in kinds:
        value = item.callspec.params[kind]
        try:
            hash(value)
        except TypeError:
            value = item.callspec.indices[kind]
        values.append((kind, value))
    return values
