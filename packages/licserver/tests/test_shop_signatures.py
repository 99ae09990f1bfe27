"""Whose signature counts, for each kind of shop."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import shops
from licserver.shops import SHOPS, ShopKind, signatures, standard
from licserver.shops.gumroad import SECRET
from licserver.shops.reading import UnreadableDeliveryError

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
TOLERANCE = timedelta(seconds=300)
kinds = pytest.mark.parametrize("kind", ShopKind)
TIMED = [
    kind
    for kind in ShopKind
    if shops.sign(kind, b"{}", NOW) != shops.sign(kind, b"{}", NOW + timedelta(hours=1))
]
"""The shops that sign a time."""


def lower(headers: dict[str, str]) -> dict[str, str]:
    """Headers as the server hands them on."""
    return {name.lower(): value for name, value in headers.items()}


@kinds
def test_a_body_is_verified_by_any_of_the_secrets(kind: ShopKind) -> None:
    """While a secret is replaced, deliveries signed with either are accepted, and no others."""
    body, verify = b'{"a": 1}', SHOPS[kind].verify
    headers = lower(shops.sign(kind, body, NOW))
    is_base64 = kind in {ShopKind.STANDARD, ShopKind.DODO}
    other = "whsec_b3RoZXItc2VjcmV0LW9mLW91ci1zaG9wLWFnYWlu" if is_base64 else f"{shops.SECRETS[kind]}x"
    assert verify(headers, body, [other, shops.SECRETS[kind]], NOW, TOLERANCE)
    assert not verify(headers, body, [other], NOW, TOLERANCE)
    # Gumroad signs nothing.
    assert verify(headers, body + b" ", [shops.SECRETS[kind]], NOW, TOLERANCE) is (kind is ShopKind.GUMROAD)
    for name in headers:
        rest = {other: value for other, value in headers.items() if other != name}
        assert not verify(rest, body, [shops.SECRETS[kind]], NOW, TOLERANCE)


@kinds
def test_an_empty_secret_verifies_nothing(kind: ShopKind) -> None:
    """A secret that was never set must not let everybody sign."""
    headers = lower(shops.sign(kind, b"{}", NOW, secret=""))
    assert not SHOPS[kind].verify(
        headers, b"{}", ["", "whsec_", "whsec_%"][: 3 if kind in {"standard", "dodo"} else 1], NOW, TOLERANCE
    )


@pytest.mark.parametrize("kind", TIMED)
def test_a_delivery_of_another_time_is_refused(kind: ShopKind) -> None:
    """A recorded delivery cannot be sent again later, nor one with a time ahead for longer."""
    headers, verify = lower(shops.sign(kind, b"{}", NOW)), SHOPS[kind].verify
    secrets, second = [shops.SECRETS[kind]], timedelta(seconds=1)
    for at in (NOW - TOLERANCE, NOW, NOW + TOLERANCE):
        assert verify(headers, b"{}", secrets, at, TOLERANCE)
    for at in (NOW - TOLERANCE - second, NOW + TOLERANCE + second):
        assert not verify(headers, b"{}", secrets, at, TOLERANCE)


def test_the_shops_that_sign_a_time() -> None:
    """The others sign none: the test above must not lose a shop unnoticed."""
    assert set(ShopKind) - {*TIMED} == {ShopKind.LEMONSQUEEZY, ShopKind.WOOCOMMERCE, ShopKind.GUMROAD}


@pytest.mark.parametrize(
    ("kind", "secret", "body", "headers"),
    [
        (
            "standard",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            b'{"test": 2432232314}',
            {
                "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
                "webhook-timestamp": "1614265330",
                "webhook-signature": "v2,x v1,%% v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            },
        ),
    ],
)
def test_published_vectors_are_verified(kind: str, secret: str, body: bytes, headers: dict[str, str]) -> None:
    """The vector of the Standard Webhooks specification is accepted."""
    now = datetime.fromtimestamp(1614265330, UTC)
    assert SHOPS[ShopKind(kind)].verify(headers, body, [secret], now, TOLERANCE)


def test_headers_are_read_strictly() -> None:
    """A signature is hexadecimal or base64 as a whole; of many signatures the first twenty count."""
    assert (signatures.from_hex("0aFF"), signatures.from_hex("0aF")) == (b"\n\xff", b"")
    assert (signatures.from_base64("YQ=="), signatures.from_base64("Y Q==")) == (b"a", b"")
    fields = signatures.split_fields("t=1, v1=a=, v1=b", ",")
    assert fields == {"t": ["1"], "v1": ["a=", "b"]}
    many = ",".join(f"v1={number}" for number in range(30))
    assert signatures.split_fields(many, ",") == {"v1": [str(number) for number in range(20)]}
    assert signatures.encode_keys(["a", "", "b"]) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("timestamp", "is_recent"),
    [
        ("1000", True),
        ("700", True),
        ("699", False),
        ("1300", True),
        ("1301", False),
        ("99999999999", False),
        ("100000000000", False),
        ("-1000", False),
        ("\u0661000", False),
        ("", False),
    ],
)
def test_a_timestamp_is_recent(timestamp: str, is_recent: bool) -> None:
    """To the second, in the past and ahead; one of too many digits is refused."""
    now = datetime.fromtimestamp(1000, UTC)
    assert signatures.is_recent(timestamp, now, TOLERANCE) is is_recent


def test_a_secret_without_prefix_is_its_text() -> None:
    """Polar signs with the bytes of the whole secret."""
    assert standard.read_key("polar_whs_abc") == b"polar_whs_abc"


@pytest.mark.slow
@given(
    kind=st.sampled_from(ShopKind),
    value=st.text(st.characters(codec="latin-1")) | st.from_regex(r"t=[0-9]*,v1=.*|ts=[0-9]*;h1=.*|v1,.*"),
)
def test_no_header_is_more_than_wrong(kind: ShopKind, value: str) -> None:
    """A malformed header is a bad signature, and no exception."""
    names = ["stripe-signature", "paddle-signature", "x-signature", "x-wc-webhook-signature"]
    names += ["webhook-id", "webhook-timestamp", "webhook-signature", SECRET]
    assert not SHOPS[kind].verify(dict.fromkeys(names, value), b"{}", ["secret"], NOW, TOLERANCE)
    surrogates = dict.fromkeys(names, "v1,\udcff") | {"webhook-timestamp": str(int(NOW.timestamp()))}
    assert not SHOPS[kind].verify(surrogates, b"{}", ["secret"], NOW, TOLERANCE)


@kinds
@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"type": []}', b'{"type": {}}', b'{"a":' * 500])
def test_a_body_without_the_fields_is_unreadable(kind: ShopKind, body: bytes) -> None:
    """What a shop signs but nobody can read is an error that names the field, without values."""
    if kind is ShopKind.GUMROAD:  # a form may have any fields: one of a sale has to have them
        body = b"sale_id=1&a=" + body
    with pytest.raises(UnreadableDeliveryError):
        SHOPS[kind].read({}, body)
