"""Lines of other systems' exports that are not like the others; whole files are in `test_moving_in`."""

from datetime import UTC, datetime

import pytest

from licserver.protocol import license_files
from licserver.protocol.foreign_exports import PRESETS, Conversion, ForeignLineError, SkippedLineError
from licserver.protocol.license_files import read_rows

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
KEY = "0123456789abcdef"
EDD = {"License Key": KEY, "License Status": "active", "Product Name": "App"}
EXPIRED = {**EDD, "License Status": "expired"}
WOO = {"license_key": KEY, "status": "SOLD", "product_id": "App"}
GUMROAD = {"License Key": KEY, "License Key Enabled?": "1", "Item Name": "App"}


def convert(preset, record, products=("",)):
    """Convert one record; its product is `app`."""
    known = dict.fromkeys(products, "app")
    return Conversion(now=NOW, preset=PRESETS[preset], products=known).convert(record, ())


@pytest.mark.parametrize(
    ("preset", "record", "expected"),
    [
        ("edd", EDD, {"lifetime": True, "expires_on": None}),
        (
            "edd",
            {**EDD, "License Status": "expired", "Expiration Date": "1704067200"},
            {"expires_on": "2024-01-01"},
        ),
        ("woocommerce", WOO, {"expires_on": None, "product": "app"}),
        ("gumroad", GUMROAD, {"license_key": KEY}),
        ("gumroad", {**GUMROAD, "Access Revoked?": "1"}, {"revoked_reason": "revoked in the former system"}),
        ("gumroad", {**GUMROAD, "Disputed?": "1"}, {"revoked_reason": "charged back in the former system"}),
        ("gumroad", {**GUMROAD, "Disputed?": "1", "Dispute Won?": "1"}, {"product": "app"}),
    ],
)
def test_what_a_line_means(preset, record, expected):
    """Fields that are missing mean no end; what was blocked is revoked."""
    values = convert(preset, record)
    assert {name: values[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("preset", "record", "error", "reason"),
    [
        ("woocommerce", {**WOO, "valid_for": "365"}, SkippedLineError, "not sold yet"),
        ("lemonsqueezy", {"attributes": {"key": KEY}}, ForeignLineError, "key and status are required"),
    ],
)
def test_a_line_that_is_no_license(preset, record, error, reason):
    """It is skipped or refused, with the reason and without the key."""
    with pytest.raises(error, match=reason) as raised:
        convert(preset, record)
    assert KEY not in str(raised.value)


def test_a_product_that_nobody_named():
    """The message has the option to add."""
    with pytest.raises(ForeignLineError, match="--product 'App'=SLUG"):
        convert("edd", EDD, products=())


def test_a_column_can_be_ignored():
    """Although it bears the name of a field."""
    conversion = Conversion(now=NOW, columns={"note": "", "Key": "license_key"}, products={"": "app"})
    values = conversion.convert({"note": "private", "Key": KEY}, ("note", "slots"))
    assert values == {"license_key": KEY, "product": "app"}
    ((_, row),) = read_rows("jsonl", [f'{{"note": "private", "Key": "{KEY}"}}'], conversion)
    assert (row.license_key, row.note) == (KEY, None)


def test_a_product_of_ones_own():
    """A file with other columns may name our products."""
    conversion = Conversion(now=NOW, columns={"Key": "license_key"})
    assert conversion.convert({"Key": KEY, "product": " app "}, ("product",))["product"] == "app"


def test_documents_have_a_limit(monkeypatch):
    """A file of JSON documents is read whole, so not one of any size."""
    monkeypatch.setattr(license_files, "MAX_DOCUMENTS", 1 << 20)
    conversion = Conversion(now=NOW, preset=PRESETS["keygen"], products={"": "app"})
    ((line, problem),) = read_rows("json", ["[" + " " * (1 << 20)], conversion)
    assert (line, problem.message) == (1, "longer than 1 MiB; split it")
