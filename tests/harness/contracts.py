"""A vendor without a database: facts by their ids, and licenses as `desired` has them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import count, permutations
from typing import Any

from licserver.shops import SHOPS, ShopKind
from licserver.shops.contract import Answer, Desired, DesiredLicense, Issued, Rules, SaleProblem, Terms
from licserver.shops.desired import desired
from licserver.shops.facts import Fact, dump_fact, key_of, links_of, load_fact, newest
from licserver.shops.reading import NO_OPTIONS, ReadOptions

GRACE = timedelta(days=7)
DAY = datetime(2026, 6, 15, 12, tzinfo=UTC)


def at(days: float) -> datetime:
    """An instant, in days from noon of `DAY`."""
    return DAY + timedelta(days=days)


def text(days: float) -> str:
    """The same as shops write it."""
    return at(days).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """What is issued for an id of a shop."""

    external_id: str
    product: str | None = "app"
    slots: int | None = 3
    lifetime: bool = False
    expires_in: str | None = None
    support: str | None = None
    plan: str | None = None
    floating_seats: int | None = None
    quantity: int | None = None


def mapped(*names: str, **terms: Any) -> dict[str, Mapped]:
    """Return mappings of ids with the same terms."""
    return {name: replace(Mapped(external_id=name), **terms) for name in names}


@dataclass
class License:
    """A license that was issued."""

    id: bytes
    key: str | None
    number: int
    item: str | None
    order_id: str | None
    terms: Terms
    subscription_id: str | None = None
    ends_at: datetime | None = None
    revoked: str | None = None
    email: str | None = None
    language: str | None = None
    line_id: str | None = None
    in_use: int = 0

    @property
    def expires_on(self) -> date | None:
        """The day on which it ends, if it has one of its own."""
        return self.terms.expires_on


@dataclass
class Vendor:
    """A source, and what it has issued."""

    kind: str = "stripe"
    mappings: dict[str, Mapped] = field(default_factory=dict)
    rules: Rules = field(default_factory=lambda: Rules(GRACE))
    options: ReadOptions = NO_OPTIONS
    answers: dict[str, Answer] = field(default_factory=dict)
    facts: dict[tuple[str, str], Fact] = field(default_factory=dict)
    licenses: list[License] = field(default_factory=list)
    problems: list[SaleProblem] = field(default_factory=list)
    result: Desired = field(default_factory=Desired)

    def __post_init__(self) -> None:
        self._ids = count(1)

    def receive(self, *bodies: bytes, topic: str = "") -> None:
        """Take deliveries one after the other, and do what follows from each."""
        headers = {"x-wc-webhook-topic": topic} if topic else {}
        for body in bodies:
            self.take(SHOPS[ShopKind(self.kind)].read(headers, body, self.options).facts)

    def take(self, facts: Iterable[Fact]) -> None:
        """Store facts, and do what follows for their contract."""
        taken = list(facts)
        for fact in taken:
            self._store(fact)
        if taken:
            self.reconcile(taken)

    def _store(self, fact: Fact) -> None:
        email = getattr(fact, "email", None)
        stored = load_fact(dump_fact(fact), email)
        assert stored == fact
        key = key_of(fact)
        self.facts[key] = newest(self.facts[key], stored) if key in self.facts else stored

    def find_contract(self, seeds: Sequence[Fact]) -> list[Fact]:
        """Return the facts that belong together with some."""
        links = {link for seed in seeds for link in links_of(seed)}
        found: dict[tuple[str, str], Fact] = {}
        while True:
            new = {key: fact for key, fact in self.facts.items() if links & set(links_of(fact))}
            if new.keys() == found.keys():
                return list(found.values())
            found, links = new, links.union(*(links_of(fact) for fact in new.values()))

    def reconcile(self, seeds: Sequence[Fact] = ()) -> Desired:
        """Derive what should be of a contract, or of all, and do it."""
        facts = self.find_contract(seeds) if seeds else list(self.facts.values())
        links = {link for fact in facts for link in links_of(fact)}
        issued = [
            license_
            for license_ in self.licenses
            if f"order:{license_.order_id}" in links or f"subscription:{license_.subscription_id}" in links
        ]
        self.result = desired(
            facts, self.mappings, self.rules, [to_issued(license_) for license_ in issued], self.answers
        )
        self.problems = list(self.result.problems)
        known = [license_.license_id for license_ in self.result.licenses if license_.license_id is not None]
        assert len(known) == len(set(known)), "a license is desired twice"
        for wanted in self.result.licenses:
            self._apply(wanted)
        places = Counter((license_.key, license_.number) for license_ in self.licenses if has_key(license_))
        assert places.total() == len(places), "the database would refuse a second license at a place"
        for license_ in self.licenses:
            end = self.result.ends.get(license_.subscription_id or "")
            if end is not None:
                license_.ends_at = end.at
        again = desired(
            facts,
            self.mappings,
            self.rules,
            [to_issued(license_) for license_ in self._of(links)],
            self.answers,
        )
        revoked = {license_.id: license_.revoked for license_ in self.licenses}
        changes = [
            license_
            for license_ in again.licenses
            if license_.license_id is None or license_.revoked_reason != revoked[license_.license_id]
        ]
        assert not changes, f"a second run would change {changes}"
        return self.result

    def _of(self, links: set[str]) -> list[License]:
        return [
            license_
            for license_ in self.licenses
            if f"order:{license_.order_id}" in links or f"subscription:{license_.subscription_id}" in links
        ]

    def _apply(self, wanted: DesiredLicense) -> None:
        if wanted.license_id is None:
            assert wanted.revoked_reason is None
            assert wanted.terms is not None
            new = License(
                f"license {next(self._ids)}".encode(),
                wanted.key,
                wanted.number,
                wanted.item,
                wanted.order_id,
                wanted.terms,
                email=wanted.email,
                language=wanted.language,
            )
            self.licenses.append(new)
            license_ = new
        else:
            license_ = next(license_ for license_ in self.licenses if license_.id == wanted.license_id)
        license_.key, license_.number, license_.item = wanted.key, wanted.number, wanted.item
        if wanted.terms is not None:
            assert wanted.terms.product == license_.terms.product
            license_.terms = wanted.terms
        if wanted.subscription_id is not None:
            license_.subscription_id = wanted.subscription_id
        if wanted.ends_at is not None:
            license_.ends_at, license_.terms = wanted.ends_at, replace(license_.terms, expires_on=None)
        license_.revoked = wanted.revoked_reason

    # --- what tests look at

    @property
    def valid(self) -> list[License]:
        """The licenses that are not revoked."""
        return [license_ for license_ in self.licenses if license_.revoked is None]

    @property
    def ends(self) -> list[datetime | None]:
        """When the valid licenses end."""
        return [license_.ends_at for license_ in self.valid]

    @property
    def asked(self) -> list[str]:
        """The kinds of what a person has to look at."""
        return sorted(question.kind.name for question in self.problems)


def has_key(license_: License) -> bool:
    """Return whether the database holds its place unique."""
    return license_.key is not None and not license_.key.startswith("earlier:")


def to_issued(license_: License) -> Issued:
    """Return a license as `desired` takes it."""
    return Issued(
        license_id=license_.id,
        product=license_.terms.product,
        key=license_.key,
        number=license_.number,
        item=license_.item,
        order_id=license_.order_id,
        line_id=license_.line_id,
        subscription_id=license_.subscription_id,
        in_use=license_.in_use,
        revoked_reason=license_.revoked,
    )


def earlier(number: int, item: str, order_id: str, **more: Any) -> License:
    """Return a license that was issued before keys were stored."""
    terms = Terms(
        product=str(more.pop("product", "app")),
        slots=3,
        lifetime=False,
        expires_on=None,
        support_until=None,
        plan=None,
        floating_seats=None,
    )
    return License(f"earlier {number}".encode(), None, 1, item, order_id, terms, **more)


Mappings = Mapping[str, Mapped]


def play(kind: str, names: str, *bodies: bytes, **terms: Any) -> list[Vendor]:
    """Return a vendor for each order of deliveries, each of which arrives twice; of many, for some."""
    orders = permutations(bodies) if len(bodies) <= 4 else (bodies, bodies[::-1], bodies[::2] + bodies[1::2])
    vendors = []
    for order in orders:
        shop = Vendor(kind, mapped(*names.split(), **terms))
        shop.receive(*order, *order)
        vendors.append(shop)
    return vendors
