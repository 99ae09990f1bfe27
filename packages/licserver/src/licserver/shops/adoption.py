"""Match lines of an order with licenses that were issued before the ids of lines were stored (D-204)."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from licserver.shops.contract import Issued
from licserver.shops.facts import Line


class Adoption(NamedTuple):
    """Licenses by the line that they were issued for.

    Args:
        taken: Of each line, by its place, the licenses that belong to it.
        left: Licenses that belong to no line.
        unclear: The places of lines that may be what a license of `left` was issued for.
    """

    taken: dict[int, list[Issued]]
    left: list[Issued]
    unclear: frozenset[int]


def adopt(
    lines: Sequence[Line],
    served: Iterable[int],
    issued: Iterable[Issued],
    find_product: Callable[[Line], str | None],
) -> Adoption:
    """Match the lines of an order with its licenses.

    A license belongs to the line with the id that was stored for it, otherwise to a line of the same product
    and quantity, otherwise to a line of the same quantity.

    Args:
        lines: All lines.
        served: The places of those that have their licenses.
        issued: Licenses of which the line is not known.
        find_product: Returns the slug that is mapped for a line, "" to issue nothing, None without a mapping.
    """
    matching = _Matching(lines, issued)
    done = set(served)
    open_ = [place for place in range(len(lines)) if place not in done]
    ids = [_ids(line) for line in lines]
    for rank in range(max((len(ids[place]) for place in open_), default=0)):
        open_ = [place for place in open_ if not matching.take_by_id(place, ids[place][rank : rank + 1])]
    matching.close_taken()
    issuing = [place for place in open_ if find_product(lines[place]) != ""]
    issuing = [place for place in issuing if not matching.take_by_product(place, find_product(lines[place]))]
    unmapped = [place for place in issuing if find_product(lines[place]) is None]
    issuing = matching.take_by_quantity(issuing, unmapped)
    unmatched = [license_ for of_item in matching.left.values() for license_ in of_item]
    return Adoption(matching.taken, unmatched, frozenset(issuing) if unmatched else frozenset())


def _ids(line: Line) -> list[str]:
    """Return what may have been stored for a line, the surest first."""
    first = () if line.sold is None else (line.sold,)
    return list(dict.fromkeys((*first, *line.external_ids)))


class _Matching:
    """Licenses by the id that was stored for them, and the places of lines that have taken them."""

    def __init__(self, lines: Sequence[Line], issued: Iterable[Issued]) -> None:
        self._lines = lines
        self.left = dict[str, list[Issued]]()
        self.taken = dict[int, list[Issued]]()
        self._last = dict[str, int]()  # stored id → the line that has taken of it last
        for license_ in issued:
            self.left.setdefault(license_.item or "", []).append(license_)

    def take_by_id(self, place: int, ids: Sequence[str]) -> bool:
        """Take as many licenses of an id as the line has; return False if there are none."""
        return any(self.left.get(id_) and self._take(place, id_) for id_ in ids)

    def take_by_product(self, place: int, product: str | None) -> bool:
        """Take the licenses of an id that has the line's product and quantity."""
        fits = [id_ for id_ in self._of_quantity(place) if self.left[id_][0].product == product]
        return bool(fits) and self._take(place, fits[0])

    def take_by_quantity(self, places: Sequence[int], unmapped: Sequence[int]) -> list[int]:
        """Take licenses by their number alone, where no other line competes; return what has none."""
        done = set[int]()
        for place in unmapped:
            quantity = self._lines[place].quantity
            rivals = [
                other for other in unmapped if self._lines[other].quantity == quantity and other not in done
            ]
            fits = self._of_quantity(place)
            if fits and len(rivals) <= len(fits):
                self._take(place, fits[0])
                done.add(place)
        return [place for place in places if place not in done]

    def close_taken(self) -> None:
        """Give what is left of an id to the line that has taken of it last: its quantity was reduced."""
        for id_, place in self._last.items():
            self.taken[place] += self.left.pop(id_, [])

    def _of_quantity(self, place: int) -> list[str]:
        return [id_ for id_, of_item in self.left.items() if len(of_item) == self._lines[place].quantity]

    def _take(self, place: int, id_: str) -> bool:
        of_item, quantity = self.left[id_], self._lines[place].quantity
        count = len(of_item) if quantity is None else quantity
        self.taken.setdefault(place, []).extend(of_item[:count])
        self.left[id_] = of_item[count:]
        self._last[id_] = place
        if not self.left[id_]:
            del self.left[id_]
        return True
