"""Events of shops, as deliveries to `POST /events/in/NAME`: verified, read, and what follows from them. Pure.

Each kind of shop is one module with the interface `Shop`. `state` decides what an event changes.
"""

import enum
from collections.abc import Mapping
from typing import Final

from licserver.sources import lemonsqueezy, paddle, standard, stripe, woocommerce
from licserver.sources.records import Shop


class SourceKind(enum.StrEnum):
    """A kind of shop."""

    STRIPE = "stripe"
    PADDLE = "paddle"
    LEMONSQUEEZY = "lemonsqueezy"
    WOOCOMMERCE = "woocommerce"
    STANDARD = "standard"


SHOPS: Final[Mapping[SourceKind, Shop]] = {
    SourceKind.STRIPE: stripe,
    SourceKind.PADDLE: paddle,
    SourceKind.LEMONSQUEEZY: lemonsqueezy,
    SourceKind.WOOCOMMERCE: woocommerce,
    SourceKind.STANDARD: standard,
}
