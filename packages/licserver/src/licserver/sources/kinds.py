"""The kinds of shops."""

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
