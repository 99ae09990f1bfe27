"""Values of a contract: the rules and licenses that go in, the licenses that should exist, what is asked.

A contract is what belongs together for a customer: an order with its lines, refunds and disputes, or a
subscription with its orders, items and periods. `desired` is a function of the newest facts alone.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from licserver.shops.facts import OrderState

MAX_QUANTITY: Final = 1_000
"""License keys that are issued for a line of an order; more is a mistake that a person should see."""

MAX_LICENSES: Final = 10 * MAX_QUANTITY
"""License keys of a contract, those that were replaced or revoked as well."""


MAX_REFUNDS: Final = 1_000
"""Refunds and disputes of an order: with 10,000 of them each delivery of it took half a second."""


class ItemMapping(Protocol):
    """The licenses that a product or a price of a shop issues; without a product it issues none."""

    @property
    def external_id(self) -> str:
        """The id in the shop."""
        ...

    @property
    def product(self) -> str | None:
        """The slug of our product."""
        ...

    @property
    def slots(self) -> int | None:
        """Activations; None is unlimited."""
        ...

    @property
    def lifetime(self) -> bool:
        """Never expires."""
        ...

    @property
    def expires_in(self) -> str | None:
        """From the payment, as ``1y``."""
        ...

    @property
    def support(self) -> str | None:
        """From the payment to the end of the support period."""
        ...

    @property
    def plan(self) -> str | None:
        """The plan of each license."""
        ...

    @property
    def floating_seats(self) -> int | None:
        """The number of floating seats."""
        ...

    @property
    def quantity(self) -> int | None:
        """Licenses of a purchase, where the shop does not report their number; None: a person is asked."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """The vendor's choices for a source."""

    grace: timedelta
    revokes_partial_refunds: bool = False
    follows_changes: bool = True  # of plan, price and quantity; otherwise a person is asked
    states: Mapping[str, OrderState] = field(default_factory=dict)  # the shop's word → what it means
    source: str = "NAME"  # the source, for sentences with its commands
    has_api: bool = True  # which `source sync` can ask
    unset_key: str | None = None  # the variable that should have the key of the API, and is not set

    @property
    def key_advice(self) -> str:
        """What gives the source an API key, for a sentence."""
        if self.unset_key is None:
            return "give the source an API key"
        return f"set {self.unset_key}, which the server does not have, to the API key"


class Issued(NamedTuple):
    """A license that a source has issued.

    Args:
        license_id: The license.
        product: The slug of its product.
        key: As `DesiredLicense.key` was; None of what was issued before keys were stored, or by hand.
        number: As `DesiredLicense.number` was.
        item: As `DesiredLicense.item` was. Before keys were stored, the id that was mapped.
        order_id: The order for which it was issued.
        line_id: The line for which it was issued, as it was stored before keys were.
        subscription_id: The license's subscription.
        in_use: How many activations it has.
        revoked_reason: Why it is revoked; None if it is not.
    """

    license_id: bytes
    product: str
    key: str | None = None
    number: int = 1
    item: str | None = None
    order_id: str | None = None
    line_id: str | None = None
    subscription_id: str | None = None
    in_use: int = 0
    revoked_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a license."""

    product: str
    slots: int | None
    lifetime: bool
    expires_on: date | None
    support_until: date | None
    plan: str | None
    floating_seats: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredLicense:
    """A license that should exist, under `key` and `number`."""

    key: str | None  # of what was bought; None: an issued license that no line describes
    number: int = 1  # from 1
    license_id: bytes | None = None  # the issued license that it is; None: it is to be issued, unless revoked
    item: str | None = None  # what it is issued for; to be stored
    order_id: str | None = None
    subscription_id: str | None = None
    terms: Terms | None = None  # None: as they are
    ends_at: datetime | None = None  # with its subscription
    revoked_reason: str | None = None  # why it is to be revoked; None if it is to be valid
    email: str | None = field(default=None, repr=False)
    language: str | None = None


class End(NamedTuple):
    """The end of a subscription."""

    at: datetime
    is_final: bool  # it was cancelled or has ended: no payment is awaited


class ProblemKind(enum.StrEnum):
    """The kind of a question to a person."""

    UNMAPPED = "not mapped"  # map it
    LINES = "lines not known"  # fetch them, or issue by hand
    QUANTITY = "quantity not known"  # fetch it, set a quantity for the mapping, or issue by hand
    MANY = "too many"  # issue by hand
    STATE = "state not known"  # map the state, or issue by hand
    CHANGE = "change"  # follow it, or leave it
    FEWER = "fewer than in use"  # follow it, or leave it
    UNCLEAR = "licenses not matched"  # issue by hand what is missing
    SUBSCRIPTION = "subscription not known"  # fetch it, or extend by hand
    PERIOD = "period not known"  # fetch it, or extend by hand
    LATE = "paid after its end"  # extend, reinstate or issue by hand, or refund
    REFUND = "share of a refund not known"  # revoke by hand
    BY_HAND = "refunded, and issued by hand"  # revoke by hand
    DELIVERY = "delivery not readable"  # correct the sender
    ADDRESS = "address not usable"  # correct it at the license
    REFUSED = "refused by the database"  # report it
    NO_ADDRESS = "no address"  # add it to the license


class Answer(enum.StrEnum):
    """A person's answer to a question."""

    FOLLOW = "follow"  # of a change: do what the shop reports
    LEAVE = "leave"  # leave it as it is
    ISSUED = "issued"  # a person has issued by hand what is missing: nothing more is issued for it


ISSUABLE: Final = frozenset(
    {
        ProblemKind.UNMAPPED,
        ProblemKind.LINES,
        ProblemKind.QUANTITY,
        ProblemKind.MANY,
        ProblemKind.STATE,
        ProblemKind.CHANGE,
        ProblemKind.UNCLEAR,
        ProblemKind.SUBSCRIPTION,
        ProblemKind.LATE,
    }
)
"""Questions that a license issued by hand can solve: a customer may have none."""


MAPPABLE: Final = frozenset({ProblemKind.UNMAPPED, ProblemKind.QUANTITY})
"""Questions that a mapping solves; in others the product is mapped already."""


class SaleProblem(NamedTuple):
    """A question about a sale that a person has to decide.

    Args:
        id: The same as long as the same is in question.
        kind: Why.
        text: A sentence that names what happened, and what to do.
        about: The object, as ``order:5`` or ``subscription:77``.
        external_ids: What could be mapped.
        answers: What a person can choose; mapping and issuing by hand aside.
    """

    id: str
    kind: ProblemKind
    text: str
    about: str
    external_ids: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = (Answer.LEAVE,)


class Fetch(NamedTuple):
    """An object that the shop's API may know and the facts do not contain.

    Args:
        kind: ``lines`` or ``refunds`` of an order, ``customer``, ``payment`` (of which order) or
            ``subscription``.
        id: The shop's.
        about: The object whose facts lack it, as ``order:5`` or ``subscription:77``.
    """

    kind: str
    id: str
    about: str

    @property
    def is_needed(self) -> bool:
        """Whether nothing is done before it is known; refunds hold up no payment."""
        return self.kind != "refunds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The desired state of a contract, derived from its facts."""

    licenses: tuple[DesiredLicense, ...] = ()
    ends: Mapping[str, End] = field(
        default_factory=dict
    )  # subscription → when its licenses end; also by hand
    problems: tuple[SaleProblem, ...] = ()
    fetches: tuple[Fetch, ...] = ()
    nothing: str = ""  # why there are no licenses, in a sentence, as far as that is known
    notes: tuple[str, ...] = ()  # what was reported and changes nothing, in sentences
