"""Shops: what each platform reports of its objects, and the licenses that follow from it. Pure.

Each shop is a module with the interface `Shop`, and a row here. `facts` are what it reports, and
`desired` derives the licenses.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from licserver.shops import dodo, gumroad, lemonsqueezy, paddle, polar, standard, stripe, woocommerce
from licserver.shops.reading import Shop


class ShopKind(enum.StrEnum):
    """A platform that reports sales."""

    STRIPE = "stripe"
    PADDLE = "paddle"
    LEMONSQUEEZY = "lemonsqueezy"
    WOOCOMMERCE = "woocommerce"
    POLAR = "polar"
    DODO = "dodo"
    GUMROAD = "gumroad"
    STANDARD = "standard"


class ShopRow(NamedTuple):
    """The properties of a shop beside its module.

    Args:
        name: As it calls itself.
        shop: Its module.
        is_secret: Returns whether a text may be a signing secret.
        secret_form: What such a secret must do, for a sentence.
        test_is_marked: Whether deliveries name the test mode; otherwise the secret separates it.
        is_own: Whether the vendor's own program delivers; it has no API to query.
        is_ping: Returns whether a body is an unsigned test of the address, which reports nothing.
        is_test_key: Returns whether an API key is of the test mode; None if keys do not show it.
        has_addresses: Whether deliveries name the customer's address; otherwise only the API does.
        state_prefix: Begins states of orders on the shop's own pages, and not in its deliveries.
        names_by_subscription: Whether earlier versions stored orders under the id of their subscription.
    """

    name: str
    shop: Shop
    is_secret: Callable[[str], bool]
    secret_form: str
    test_is_marked: bool = True
    is_own: bool = False
    is_ping: Callable[[bytes], bool] = lambda _body: False
    is_test_key: Callable[[str], bool] | None = None
    has_addresses: bool = True
    state_prefix: str = ""
    names_by_subscription: bool = False


ROWS: Final[Mapping[ShopKind, ShopRow]] = {
    ShopKind.STRIPE: ShopRow(
        "Stripe",
        stripe,
        lambda secret: secret.startswith("whsec_"),
        "begin with whsec_",
        names_by_subscription=True,
    ),
    ShopKind.PADDLE: ShopRow(
        "Paddle",
        paddle,
        lambda secret: secret.startswith("pdl_ntfset_"),
        "begin with pdl_ntfset_",
        test_is_marked=False,
        is_test_key=paddle.is_sandbox,
        has_addresses=False,
    ),
    ShopKind.LEMONSQUEEZY: ShopRow(
        "Lemon Squeezy",
        lemonsqueezy,
        lambda secret: len(secret) <= lemonsqueezy.MAX_SECRET,
        f"have at most {lemonsqueezy.MAX_SECRET} characters",
    ),
    ShopKind.WOOCOMMERCE: ShopRow(
        "WooCommerce",
        woocommerce,
        lambda secret: "&" not in secret,
        "have no &, which WooCommerce may replace",
        test_is_marked=False,
        is_ping=woocommerce.is_ping,
        state_prefix="wc-",
    ),
    ShopKind.POLAR: ShopRow(
        "Polar",
        polar,
        lambda secret: secret.startswith(polar.PREFIXES),
        "begin with polar_whs_ or whsec_",
        test_is_marked=False,
    ),
    ShopKind.DODO: ShopRow(
        "Dodo Payments",
        dodo,
        lambda secret: secret.startswith("whsec_") and bool(standard.read_key(secret)),
        "be base64 after whsec_",
        test_is_marked=False,
    ),
    ShopKind.GUMROAD: ShopRow(
        "Gumroad",
        gumroad,
        lambda secret: len(secret) >= gumroad.MIN_SECRET and secret.isascii() and secret.isalnum(),
        f"have at least {gumroad.MIN_SECRET} letters and digits, since it is part of the address",
    ),
    ShopKind.STANDARD: ShopRow(
        "Standard Webhooks",
        standard,
        lambda secret: bool(standard.read_key(secret)),
        "be base64 after whsec_",
        is_own=True,
    ),
}

SHOPS: Final[Mapping[ShopKind, Shop]] = {kind: row.shop for kind, row in ROWS.items()}
