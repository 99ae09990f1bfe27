"""Lines of other systems' exports as ours; whole files are in `test_moving_in`."""

import json
from datetime import UTC, date, datetime

import pytest

from licserver.protocol import license_files
from licserver.protocol.conversion import Conversion, ForeignLineError, Quantity, SkippedLineError
from licserver.protocol.foreign_exports import PRESETS
from licserver.protocol.license_files import InvalidLine, SkippedLine, read_rows, to_line

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
OPTIONS = {"products": {"": "app"}, "slots": "1", "expires": "never"}
KEY = "0123456789abcdef"
EDD = {"License Key": KEY, "License Status": "active", "Product Name": "App"}
EDD_WHOLE = EDD | {
    "Expiration Date": "1801353600",
    "Activation Limit": "3",
    "Customer Email": "jo@example.com",
    "Customer Name": "Jo",
    "License ID": "9",
    "Purchase Date": "2025-02-03 04:05:06",
}
WOO = {"license_key": KEY, "status": "SOLD", "product_id": "App"}
WOO_WHOLE = WOO | {
    "order_id": 17,
    "expires_at": "2027-01-31 12:00:00",
    "times_activated_max": "4",
    "created_at": "2025-02-03 04:05:06",
    "valid_for": "0",
}
LEMON = {"key": KEY, "status": "active", "product_id": 7}
LEMON_WHOLE = LEMON | {
    "user_email": "jo@example.com",
    "user_name": "Jo",
    "order_id": 17,
    "activation_limit": 3,
    "expires_at": "2027-01-31T12:00:00.000000Z",
    "created_at": "2025-02-03T04:05:06.000000Z",
}
KEYGEN = {"key": KEY, "status": "ACTIVE"}
KEYGEN_WHOLE = KEYGEN | {
    "expiry": "2027-01-31T23:00:00.000-05:00",
    "created": "2025-02-03T04:05:06.000Z",
    "maxMachines": 4,
    "name": "Jo",
    "metadata": {"email": "jo@example.com"},
}
GUMROAD = {"License Key": KEY, "License Key Enabled?": "1", "Item Name": "App"}
GUMROAD_COLUMNS = dict.fromkeys(PRESETS["gumroad"].columns, "")
GUMROAD_WHOLE = GUMROAD | {
    "Product ID": "abc",
    "Purchase Email": "jo@example.com",
    "Giftee Email": "kim@example.com",
    "Buyer Name": "Jo",
    "Variants": "Pro",
    "Order Number": "17",
    "Subscription End Date": "2027-01-31",
    "Purchase Time (UTC timezone)": "2025-02-03 04:05:06 UTC",
}
SOLD = "2025-02-03T04:05:06+00:00"
WHOLE = {
    "edd": (EDD_WHOLE, {"lifetime": False, "slots": "3", "note": "Jo, EDD license 9"}),
    "woocommerce": (
        WOO_WHOLE,
        {"slots": "4", "note": "WooCommerce order 17", "customer_email": None},
    ),
    "lemonsqueezy": ({"attributes": LEMON_WHOLE}, {"slots": "3", "note": "Jo, Lemon Squeezy order 17"}),
    "keygen": (
        {"id": "9", "attributes": KEYGEN_WHOLE},
        {"slots": "4", "note": "Jo, Keygen license 9", "expires_on": "2027-02-01"},
    ),
    "gumroad": (GUMROAD_WHOLE, {"note": "Jo, Pro, Gumroad order 17", "customer_email": "kim@example.com"}),
}


def convert(preset, record, products=("",)):
    """Convert one record; its product is `app`."""
    known = dict.fromkeys(products, "app")
    return Conversion(now=NOW, preset=PRESETS[preset], products=known).convert(record, ()).values


@pytest.mark.parametrize("system", WHOLE)
def test_a_line_of_each_system(system):
    """With all that it says."""
    record, special = WHOLE[system]
    always = {"license_key": KEY, "product": "app", "issued_at": SOLD, "expires_on": "2027-01-31"}
    found = {name: value for name, value in convert(system, record).items() if value is not None}
    expected = always | {"customer_email": "jo@example.com"} | special
    assert found == {name: value for name, value in expected.items() if value is not None}


def api(record, **changed: object):
    """An item of a JSON:API."""
    return {"attributes": record | changed}


REVOKED = NOW.isoformat()
BLOCKED = [
    *(("edd", {**EDD, "License Status": state}, state) for state in ("disabled", "revoked")),
    *(("woocommerce", {**WOO, "status": state.upper()}, state) for state in ("inactive", "disabled")),
    *(("keygen", api(KEYGEN, status=state.upper()), state) for state in ("suspended", "banned")),
    ("lemonsqueezy", api(LEMON, status="disabled"), "disabled"),
    ("lemonsqueezy", api(LEMON, disabled=True), "disabled"),
    ("keygen", api(KEYGEN, suspended=True), "suspended"),
    ("gumroad", {**GUMROAD, "License Key Enabled?": "0"}, "disabled"),
    ("gumroad", {**GUMROAD, "Fully Refunded?": "1"}, "refunded"),
    ("gumroad", {**GUMROAD, "Access Revoked?": "1"}, "revoked"),
    ("gumroad", {**GUMROAD, "Disputed?": "1"}, "charged back"),
]


@pytest.mark.parametrize(("system", "record", "state"), BLOCKED)
def test_what_was_blocked_is_revoked(system, record, state):
    """Now, with the other system's word."""
    values = convert(system, record)
    assert (values["revoked_at"], values["revoked_reason"]) == (REVOKED, f"{state} in the former system")


EXPIRED = {"License Status": "expired"}
VALID = [
    ("edd", EDD, {"lifetime": False, "expires_on": None, "slots": None}),
    ("edd", EDD | {"Expiration Date": "1970-01-01 00:00:00"}, {"lifetime": True, "expires_on": None}),
    ("edd", EDD | {"Email": "jo@example.com"}, {"customer_email": "jo@example.com"}),  # up to 3.5
    ("edd", EDD | {"Activation Limit": "0"}, {"slots": "unlimited"}),
    ("edd", EDD | {"Activation Limit": ""}, {"slots": "unlimited"}),
    *(("edd", EDD | {"Expiration Date": end}, {"lifetime": True}) for end in ("0", "lifetime", " ")),
    ("edd", EDD | EXPIRED, {"lifetime": False, "expires_on": "2026-11-22"}),
    ("edd", EDD | EXPIRED | {"Expiration Date": "2026-11-23"}, {"expires_on": "2026-11-22"}),
    ("edd", EDD | EXPIRED | {"Expiration Date": "1704067200"}, {"expires_on": "2024-01-01"}),
    ("edd", EDD | {"License Status": " Inactive"}, {"license_key": KEY}),
    ("edd", EDD | {"Purchase Date": "2025-02-03 04:05:06 +0200"}, {"issued_at": "2025-02-03T02:05:06+00:00"}),
    *(("woocommerce", WOO | {"status": state}, {"product": "app"}) for state in ("DELIVERED", "ACTIVE")),
    (
        "woocommerce",
        WOO | {"valid_for": "0", "times_activated_max": " "},
        {"expires_on": None, "slots": "unlimited"},
    ),
    ("lemonsqueezy", api(LEMON), {"expires_on": None, "issued_at": None, "note": None}),
    ("lemonsqueezy", api(LEMON, status="inactive"), {"license_key": KEY}),
    ("keygen", api(KEYGEN, status="INACTIVE", maxMachines=None), {"slots": "unlimited"}),
    ("lemonsqueezy", api(LEMON, status="expired"), {"expires_on": "2026-11-22"}),
    ("keygen", api(KEYGEN, status="EXPIRING", metadata=7), {"expires_on": None, "customer_email": None}),
    ("keygen", api(KEYGEN, status="EXPIRED", expiry="2026-01-31T00:00:00Z"), {"expires_on": "2026-01-31"}),
    ("gumroad", GUMROAD | {"Purchase Email": "jo@example.com"}, {"customer_email": "jo@example.com"}),
    ("gumroad", GUMROAD | {"Purchase Date": "2025-02-03"}, {"issued_at": "2025-02-03T00:00:00+00:00"}),
    ("gumroad", GUMROAD | {"Disputed?": "1", "Dispute Won?": "1"}, {"product": "app"}),
]


@pytest.mark.parametrize(("system", "record", "expected"), VALID)
def test_what_a_line_means(system, record, expected):
    """Blank fields mean no end; what has ended ended yesterday, or before."""
    values = convert(system, record)
    assert {name: values[name] for name in expected} == expected
    assert "revoked_at" not in values


WRONG = [
    ("woocommerce", {**WOO, "valid_for": "365"}, SkippedLineError, "not sold yet"),
    ("gumroad", {**GUMROAD, "License Key": " "}, SkippedLineError, "has no license key"),
    ("gumroad", {**GUMROAD, "Recurring Charge?": 1}, SkippedLineError, "a renewal; the first payment has"),
    ("gumroad", {**GUMROAD, "Quantity": "2"}, ForeignLineError, "2 were bought; add --quantity slots"),
    *(
        ("gumroad", {**GUMROAD, "Quantity": text}, ForeignLineError, "whole number from 1 to 10,000")
        for text in ("0", "-1", "1.5", "10001", "9" * 5000, "²")
    ),
    ("gumroad", {**GUMROAD, "Recurrence": "monthly"}, ForeignLineError, "add --expires YYYY-MM-DD"),
    ("lemonsqueezy", api({"key": KEY}), ForeignLineError, "attributes: key and status are required"),
    ("keygen", {"attributes": KEY}, ForeignLineError, "attributes: key and status are required"),
    ("edd", {**EDD, "License Key": " "}, ForeignLineError, "license_key: is required"),
    (
        "edd",
        {**EDD, "License Status": "odd"},
        ForeignLineError,
        "status: 'odd' is not known; known are: active, disabled, expired, inactive, revoked",
    ),
    ("edd", {**EDD, "Expiration Date": "31.01.2027"}, ForeignLineError, "must be a date like 2027-01-31"),
    (
        "edd",
        {**EDD, "Purchase Date": "0001-01-01T00:00+23:59"},
        ForeignLineError,
        "Purchase Date: must be a date",
    ),
]


@pytest.mark.parametrize(("system", "record", "error", "reason"), WRONG)
def test_a_line_that_is_no_license(system, record, error, reason):
    """It is skipped or refused, with the reason and without the key."""
    with pytest.raises(error, match=reason) as raised:
        convert(system, record)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    ("products", "item", "slug"),
    [
        ({"p-1": "app", "q-1": "pro"}, {"product": {"data": {"id": "p-1"}}}, "app"),
        ({"q-1": "pro"}, {"product": {"data": {"id": "p-1"}}, "policy": {"data": {"id": "q-1"}}}, "pro"),
        ({"p-1": "app", "": "other"}, {"product": {"data": None}}, "other"),
    ],
)
def test_a_product_is_known_by_any_of_its_names(products, item, slug):
    """An id of Keygen's product or policy; else what stands for all others."""
    conversion = Conversion(now=NOW, preset=PRESETS["keygen"], products=products)
    assert conversion.convert(api(KEYGEN) | {"relationships": item}, ()).values["product"] == slug


@pytest.mark.parametrize(
    ("system", "record", "name"),
    [
        ("woocommerce", WOO, "App"),
        ("lemonsqueezy", {"attributes": LEMON}, "7"),
        ("gumroad", GUMROAD_WHOLE, "abc"),
        ("gumroad", GUMROAD_WHOLE, "App"),
    ],
)
def test_the_product_is_named_as_the_system_names_it(system, record, name):
    """By its id or its name."""
    assert convert(system, record, products=(name,))["product"] == "app"


def test_slots_of_a_line_without_any():
    """They are those of the command; a line that has some keeps them."""
    conversion = Conversion(now=NOW, preset=PRESETS["gumroad"], products={"": "app"}, slots="2")
    assert conversion.convert(GUMROAD, ()).values["slots"] == "2"
    mapped = Conversion(now=NOW, columns={"Seats": "slots"}, products={"": "app"}, slots="2")
    assert mapped.convert({"Seats": "5"}, ()).values["slots"] == "5"
    assert (mapped.is_foreign, Conversion(now=NOW).is_foreign) == (True, False)


def test_all_problems_of_a_line_are_shown_at_once():
    """A date, a product that is not mapped, and a quantity."""
    conversion = Conversion(now=NOW, columns={"End": "expires_on", "Number": "quantity"}, preset=None)
    with pytest.raises(ForeignLineError) as raised:
        conversion.convert({"End": "soon", "Number": "3"}, ())
    assert str(raised.value).startswith("expires_on: must be a date like 2027-01-31")
    assert "; quantity: 3 were bought; add --quantity" in str(raised.value)
    unmapped = Conversion(now=NOW, preset=PRESETS["edd"], columns={"Number": "quantity"}, slots="1")
    with pytest.raises(ForeignLineError, match=r"no product is mapped for 'App'.*; quantity: 3 were bought"):
        unmapped.convert({**EDD, "Number": "3"}, ())


def test_a_file_is_recognised_by_its_columns():
    """A column that is missing is named, of a preset as of a mapping."""
    assert Conversion(now=NOW, preset=PRESETS["edd"]).check_columns([*EDD]) is None
    assert Conversion(now=NOW, preset=PRESETS["gumroad"]).check_columns([*EDD]) == (
        "this is not a complete export of Gumroad: there are no columns 'License Key Enabled?', "
        "'Product ID', 'Quantity', 'Recurrence', 'Recurring Charge?', 'Fully Refunded?', 'Access Revoked?', "
        "'Disputed?', 'Dispute Won?'"
    )
    both = Conversion(now=NOW, columns={"Key": "license_key", "Seats": "slots"})
    assert both.check_columns(["A"]) == "there are no columns 'Key', 'Seats'; the file has: A"
    assert Conversion(now=NOW, preset=PRESETS["keygen"]).check_columns([]) is None
    mapped = Conversion(now=NOW, columns={"Key": "license_key"})
    assert mapped.check_columns(["A", "B"]) == "there is no column 'Key'; the file has: A, B"


def test_a_product_that_nobody_named():
    """The message has the option to add."""
    with pytest.raises(ForeignLineError, match="no product is mapped for 'App'; add --product 'App'=SLUG"):
        convert("edd", EDD, products=())
    with pytest.raises(ForeignLineError, match="no product is mapped; add --product SLUG"):
        convert("edd", EDD | {"Product Name": ""}, products=())


def test_a_column_can_be_ignored():
    """Although it bears the name of a field."""
    conversion = Conversion(now=NOW, columns={"note": "", "Key": "license_key"}, **OPTIONS)
    values = conversion.convert({"note": "private", "Key": KEY}, ("note", "slots")).values
    assert values == {"license_key": KEY, "product": "app", "slots": "1"}
    ((_, row),) = read_rows("jsonl", [f'{{"note": "private", "Key": "{KEY}"}}'], conversion)
    assert (row.license_key, row.note) == (KEY, None)


def test_a_product_of_ones_own():
    """A file with other columns may name our products."""
    conversion = Conversion(now=NOW, columns={"Key": "license_key"})
    row = {"Key": KEY, "product": " app ", "expires_on": "2027-01-31T12:00", "support_until": " "}
    values = conversion.convert(row, ("product", "expires_on", "support_until")).values
    assert values == {"product": "app", "expires_on": "2027-01-31", "support_until": " ", "license_key": KEY}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('\ufeff{"data": [1, {}]}, [{}] ', ["not a JSON object", None, None]),
        ("{} {", [None, "from here on not a JSON document"]),
        ("7", ["not a JSON object"]),
        (" ,\n", []),
    ],
)
def test_documents_in_a_row(text, found):
    """Pages of an API, lists and single licenses; counted from 1 to the end of what can be read."""
    conversion = Conversion(now=NOW, columns={"": ""}, **OPTIONS)
    rows = [*read_rows("json", text.splitlines(keepends=True), conversion)]
    assert [line for line, _ in rows] == [*range(1, len(found) + 1)]
    assert [row.message if isinstance(row, InvalidLine) else None for _, row in rows] == found


def test_each_kind_of_line_in_a_file():
    """Licenses, lines that are none, and what is wrong; of two columns with a name the first counts."""
    names = [*GUMROAD_COLUMNS, "License Key"]
    charge = names.index("Recurring Charge?")
    row = [KEY, *("" for _ in names[2:]), "other"]
    renewal = [*row[:charge], "1", *row[charge + 1 :]]
    lines = [to_line(names), to_line(row), to_line(renewal), to_line(row[:3])]
    conversion = Conversion(now=NOW, preset=PRESETS["gumroad"], **OPTIONS)
    (_, row), (_, skipped), (_, problem) = read_rows("csv", lines, conversion)
    assert (row.license_key, row.slots) == (KEY, 1)
    assert (skipped, problem) == (
        SkippedLine(3, "a renewal; the first payment has the key"),
        InvalidLine(4, f"expected {len(names)} cells, found 3"),
    )
    other = Conversion(now=NOW, preset=PRESETS["edd"], slots="1", expires="never")
    ((_, wrong),) = read_rows("csv", lines, other)
    assert "not a complete export of Easy Digital Downloads" in wrong.message
    ((_, refused),) = read_rows("jsonl", [json.dumps(EDD)], other)
    assert "--product 'App'=SLUG" in refused.message


LINES = {
    "edd": EDD_WHOLE,
    "woocommerce": WOO_WHOLE,
    "lemonsqueezy": LEMON_WHOLE,
    "keygen": KEYGEN_WHOLE,
    "gumroad": GUMROAD_COLUMNS | GUMROAD_WHOLE,
}


def read_one(system, record, **options: str):
    """Read a file of one record in the system's own format."""
    preset = PRESETS[system]
    conversion = Conversion(now=NOW, preset=preset, products={"": "app"}, **options)
    if preset.form == "csv":
        lines = [to_line([*record]), to_line([*record.values()])]
    else:
        lines = [json.dumps({"data": [{"id": "1", "attributes": record}]})]
    ((_, read),) = read_rows(preset.form, lines, conversion)
    return read


@pytest.mark.parametrize("system", PRESETS)
@pytest.mark.parametrize("option", ["slots", "expires"])
def test_a_missing_column_decides_nothing(system, option):
    """Without the column of the end, or of the slots, a file is refused unless an option says what it is."""
    preset, options = PRESETS[system], {"slots": "4", "expires": "2028-02-29"}
    column = preset.slots if option == "slots" else preset.end
    record = {name: value for name, value in LINES[system].items() if name != column}
    others = {name: text for name, text in options.items() if name != option}
    refused = read_one(system, record, **others)
    assert isinstance(refused, InvalidLine)
    assert f"there is no column {(column or 'slots')!r}; add --{option} " in refused.message
    row, whole = read_one(system, record, **options), read_one(system, LINES[system], slots="4")
    assert (row.slots, row.lifetime) == (4 if option == "slots" else whole.slots, False)
    assert row.expires_on == (date(2028, 2, 29) if option == "expires" else whole.expires_on)
    unlimited = read_one(system, record, slots="unlimited", expires="never")
    assert (unlimited.slots if option == "slots" else unlimited.expires_on) is None


def test_documents_have_a_limit(monkeypatch):
    """A file of JSON documents is read whole, so not one of any size."""
    monkeypatch.setattr(license_files, "MAX_DOCUMENTS", 1 << 20)
    conversion = Conversion(now=NOW, preset=PRESETS["keygen"], products={"": "app"})
    ((line, problem),) = read_rows("json", ["[" + " " * (1 << 20)], conversion)
    assert (line, problem.message) == (1, "longer than 1 MiB; split it")


@pytest.mark.parametrize(
    ("quantity", "fields", "expected"),
    [
        (None, {}, "quantity: 3 were bought; add --quantity slots"),
        (Quantity.SLOTS, {}, ("3", 1)),
        (Quantity.SLOTS, {"slots": "2"}, ("6", 1)),
        (Quantity.SLOTS, {"slots": "unlimited"}, ("unlimited", 1)),
        (Quantity.LICENSES, {}, (None, 3)),
        (Quantity.LICENSES, {"revoked_at": "2026-01-31"}, (None, 1)),
    ],
)
def test_several_copies_in_a_line(quantity, fields, expected):
    """They are slots or licenses, as the vendor says; a revoked line stays one license."""
    conversion = Conversion(now=NOW, products={"": "app"}, quantity=quantity, columns={"n": "quantity"})
    record = {"license_key": KEY, "n": "3", **fields}
    if isinstance(expected, str):
        with pytest.raises(ForeignLineError, match=expected):
            conversion.convert(record, tuple(fields))
        return
    converted = conversion.convert(record, ("license_key", *fields))
    assert (converted.values.get("slots"), converted.copies) == expected


def test_a_complete_export_lacks_nothing():
    """Of one that is not, the missing columns are named."""
    assert Conversion(now=NOW, columns={"n": "slots"}).check_columns(["n"]) is None
    for preset in PRESETS.values():
        conversion = Conversion(now=NOW, preset=preset)
        assert conversion.check_columns(list(preset.columns)) is None
        assert "not a complete export" in (conversion.check_columns(["x"]) or "not a complete export")
