"""Events of shops, as deliveries to `POST /events/in/NAME`: verified, read, and what follows from them. Pure.

Each kind of shop is one module with the interface `Shop`. `state` decides what an event changes.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Final

from licserver.sources import lemonsqueezy, paddle, standard, stripe, woocommerce
from licserver.sources.lemonsqueezy import MAX_SECRET
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

SECRET_FORMS: Final[Mapping[SourceKind, tuple[Callable[[str], bool], str]]] = {
    SourceKind.STRIPE: (lambda one: one.startswith("whsec_"), "begin with whsec_"),
    SourceKind.PADDLE: (lambda one: one.startswith("pdl_ntfset_"), "begin with pdl_ntfset_"),
    SourceKind.LEMONSQUEEZY: (lambda one: len(one) <= MAX_SECRET, f"have at most {MAX_SECRET} characters"),
    SourceKind.WOOCOMMERCE: (lambda one: "&" not in one, "have no &, which WooCommerce may replace"),
    SourceKind.STANDARD: (lambda one: bool(standard.read_key(one)), "be base64 after whsec_"),
}
"""Whether a text may be a signing secret, and what such a secret must be."""
