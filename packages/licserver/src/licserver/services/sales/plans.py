"""The work for a contract of many licenses, found beside the transactions that do it.

To load 10,000 licenses takes a second, in which a transaction would let nobody else write.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from licserver.database.repositories import Repositories
from licserver.database.repositories.sales import FactRow, Problem, Source, SourceMapping
from licserver.services.sales.contract_loader import Contract
from licserver.shops.contract import DesiredLicense


class Basis(NamedTuple):
    """The data from which a plan was made; a plan counts while they are the same."""

    source: Source
    facts: Sequence[FactRow]
    mappings: Sequence[SourceMapping]
    problems: Sequence[Problem]
    sold: int


class LargePlan:
    """The licenses of a contract to issue, then those to change; each transaction takes some of them."""

    def __init__(
        self,
        basis: Basis,
        contract: Contract,
        missing: Sequence[DesiredLicense],
        changed: Sequence[DesiredLicense],
    ) -> None:
        self.basis, self.contract = basis, contract
        self.missing, self.changed = [*missing], [*changed]
        self.is_over = False

    def take_missing(self, count: int) -> list[DesiredLicense]:
        """Return the next licenses to issue; with the last ones the plan is over: it has none of them."""
        taken, self.missing = self.missing[:count], self.missing[count:]
        self.basis = self.basis._replace(sold=self.basis.sold + len(taken))
        self.is_over = bool(taken) and not self.missing
        return taken


def read_basis(repositories: Repositories, source: Source, objects: Iterable[str]) -> Basis:
    """Return what a plan for the contract of some objects is made of."""
    sales, name = repositories.sales, source.name
    facts, joined = sales.load_contract(name, set(objects))
    return Basis(
        source,
        sorted(facts),
        sales.list_mappings(name),
        sales.list_problems(name, joined),
        sales.count_sold(name, joined),
    )
