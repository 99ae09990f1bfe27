"""Licenses of other systems (D-185, D-186): imported, found as they were sold, exported again."""

import csv
import io
import json
import logging
import re
from pathlib import Path
from uuid import UUID

import pytest

from licserver.domain.decisions import is_imported_key, mask_key
from licserver.protocol.conversion import Conversion
from licserver.protocol.foreign_exports import PRESETS
from licserver.protocol.license_files import read_rows
from licserver.services.license_search import LicenseFilter

UUIDS = [str(UUID(int=(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC834 % 2**128)) for number in range(2_000)]
TERMS = {"slots": 3, "expires_on": "2027-01-31", "issued_at": "2025-02-03T04:05:06+00:00", "revoked": False}


def table(*rows: dict):
    """Write rows of one shape as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def edd(keys, blocked):
    """As `EDD_SL_License_Export` writes it."""
    expires, bought = {"Expiration Date": "1801353600"}, {"Purchase Date": "2025-02-03 04:05:06"}
    limit = {"Activation Limit": "3", "Activation Count": "1", "Activated URLs": "a.example/, b.example/"}
    who = {"Customer Email": "jo@example.com", "Customer Name": "Jo", "Product Name": "My App"}
    states = {key: "disabled" if key in blocked else "active" for key in keys}
    return table(
        *(
            {"License Key": key, "License Status": states[key], **expires, **bought, **limit, **who}
            for key in keys
        )
    )


def woocommerce(keys, blocked):
    """As License Manager for WooCommerce writes it."""
    row = {"id": 1, "order_id": 17, "product_id": "My App", "user_id": 4, "license_key": "", "valid_for": ""}
    row |= {
        "expires_at": "2027-01-31 12:00:00",
        "status": "",
        "times_activated": "",
        "times_activated_max": 3,
    }
    row |= {"created_at": "2025-02-03 04:05:06"}
    return table(
        *(
            {**row, "license_key": key, "status": "INACTIVE" if key in blocked else "DELIVERED"}
            for key in keys
        )
    )


def lemonsqueezy(keys, blocked):
    """Two pages of its API."""
    row = {"user_email": "jo@example.com", "activation_limit": 3, "expires_at": "2027-01-31T12:00:00.000000Z"}
    row |= {"product_id": "My App", "created_at": "2025-02-03T04:05:06.000000Z", "order_id": 17}
    items = [
        {
            "type": "license-keys",
            "id": "1",
            "attributes": {**row, "key": key, "disabled": key in blocked, "status": "active"},
        }
        for key in keys
    ]
    middle = len(items) // 2
    return "\n".join(
        json.dumps({"jsonapi": {"version": "1.0"}, "data": part}) for part in (items[:middle], items[middle:])
    )


def keygen(keys, blocked):
    """A page of its API."""
    row = {
        "expiry": "2027-01-31T12:00:00.000Z",
        "maxMachines": 3,
        "created": "2025-02-03T04:05:06.000Z",
        "name": None,
    }
    row |= {"suspended": False, "metadata": {"email": "jo@example.com"}}
    product = {"product": {"data": {"type": "products", "id": "My App"}}}
    return json.dumps(
        {
            "data": [
                {
                    "id": str(number),
                    "type": "licenses",
                    "attributes": {**row, "key": key, "status": "BANNED" if key in blocked else "ACTIVE"},
                    "relationships": product,
                }
                for number, key in enumerate(keys)
            ]
        }
    )


def gumroad(keys, blocked):
    """Sales; a renewal has the same key again, some have none, and the last line has totals."""
    row = {"Purchase ID": "x", "Item Name": "My App", "Purchase Email": "jo@example.com", "Product ID": "abc"}
    row |= {"Purchase Time (UTC timezone)": "2025-02-03 04:05:06 UTC", "Subscription End Date": "2027-01-31"}
    row |= {"Recurring Charge?": 0, "License Key": "", "License Key Enabled?": 1, "Fully Refunded?": 0}
    row |= {"Access Revoked?": 0, "Disputed?": 0, "Dispute Won?": 0, "Quantity": 1, "Recurrence": ""}
    rows = [{**row, "License Key": key, "Fully Refunded?": int(key in blocked)} for key in keys]
    extra = [
        {**row, "License Key": keys[0], "Recurring Charge?": 1},
        row,
        {**dict.fromkeys(row, ""), "Purchase ID": "Totals"},
    ]
    return table(*rows, *extra)


SYSTEMS = {
    "edd": edd,
    "woocommerce": woocommerce,
    "lemonsqueezy": lemonsqueezy,
    "keygen": keygen,
    "gumroad": gumroad,
}
KEYS = {
    "edd": [key.replace("-", "") for key in UUIDS],
    "woocommerce": [f"Pro=x{key[:8]}+{key[9:13]}" for key in UUIDS],
    "lemonsqueezy": UUIDS,
    "keygen": [f"{key[:6]}-{key[9:13]}-{key[-6:]}-V3".upper() for key in UUIDS],
    "gumroad": [key.replace("-", "").upper() for key in UUIDS],
}


def import_export(world, system, text):
    """Import a system's export into the product `app`: how many, what is wrong, and the plan."""
    world.services.products.change("app", accepts_imported_keys=True)
    conversion = Conversion(now=world.clock(), preset=PRESETS[system], products={"My App": "app"}, slots="3")
    rows = read_rows(PRESETS[system].form, io.StringIO(text, newline=""), conversion)
    with world.services.transfer.start_import() as incoming:
        incoming.read(rows)
        plan = list(incoming.plan())
        return (0 if incoming.wrong else incoming.commit()), incoming.problems, plan


@pytest.mark.sampled(3)
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("count", [4, pytest.param(2_000, marks=pytest.mark.slow)])
async def test_the_licenses_of_another_system_move_in(world, site, system, count, caplog):
    """All are imported; over a socket keys verify and find the update; exported they are the same."""
    keys = KEYS[system][:count]
    text = SYSTEMS[system](keys, blocked={keys[1]})
    made, problems, plan = import_export(world, system, text)
    assert (made, problems) == (count, [])
    assert [entry.action.value for entry in plan if entry.action.value != "skip"] == ["create"] * count
    assert not any(key in str(plan) for key in keys[:100])
    rows = {row.license_key: row for row in world.services.transfer.export()}
    assert rows.keys() == set(keys)
    row = rows[keys[0]]
    fields = {name: getattr(row, name) for name in ("slots", "expires_on", "issued_at")}
    assert {name: value.isoformat() if name != "slots" else value for name, value in fields.items()} == {
        name: TERMS[name] for name in fields
    }
    assert row.customer_email == (None if system == "woocommerce" else "jo@example.com")
    assert import_export(world, system, text)[:2] == (0, [])  # again: nothing to do

    world.publish("2.0", b"new")
    with caplog.at_level(logging.DEBUG):
        for key in keys[:: max(1, count // 20)]:
            assert (await site.verify(key))[0] == (403 if key == keys[1] else 200)
        assert (await site.verify(keys[1]))[1]["reason"] == "License has been revoked."
        assert (await site.verify(keys[0] + "0"))[1]["reason"] == "Invalid license format."
        assert (await site.call("GET", await site.link(keys[0])))[2] == b"new"
        world.services.products.change("app", accepts_imported_keys=False)
        assert (await site.verify(keys[0]))[1]["reason"] == "Invalid license format."
        assert (await site.check(keys[0]))[0] == 401
    assert not any(key in caplog.text for key in keys[:100])


def test_what_a_vendor_does_with_such_a_key(world):
    """It is found by the whole key, also one like an id, and no reason or note of its license stores it."""
    key = KEYS["edd"][0]
    import_export(world, "edd", edd([key], ()))
    assert world.services.licenses.get(key).slots == 3
    (found,) = world.services.licenses.search(LicenseFilter(query=key)).items
    world.services.licenses.revoke(key, f"{key} was shared")
    assert world.services.licenses.get(found.id.hex()).revoked_reason == f"{mask_key(key)} was shared"
    assert world.services.licenses.change(key, note=f"see {key}").note == f"see {mask_key(key)}"


SAMPLES = Path(__file__).parents[3] / "docs/server/exports"
LIFETIME, REVOKED = "lifetime", "revoked"
SAMPLE_LICENSES = {  # slots, end, and the customer of each license in the sample
    "edd": [
        (3, "2027-01-31", "ada@example.com"),
        (None, LIFETIME, "bo@example.com"),
        (3, "2024-05-06", "cy@example.com"),
        (3, REVOKED, "di@example.com"),
    ],
    "woocommerce": [(3, "2027-01-31", None), (None, None, None), (3, REVOKED, None)],
    "lemonsqueezy": [
        (3, "2027-01-31", "ada@example.com"),
        (None, None, "bo@example.com"),
        (3, REVOKED, "cy@example.com"),
    ],
    "keygen": [(3, "2027-01-31", "ada@example.com"), (None, None, None), (3, REVOKED, None)],
    "gumroad": [
        (2, None, "ada@example.com"),
        (10, None, "bo@example.com"),
        (2, REVOKED, "di@example.com"),
        (2, "2027-02-03", "ed@example.com"),
    ],
}


@pytest.mark.parametrize("system", PRESETS)
def test_the_sample_of_each_export_is_imported(world, system):
    """The files of the guide have all columns that each system writes, and each kind of line."""
    preset = PRESETS[system]
    world.services.products.change("app", accepts_imported_keys=True)
    conversion = world.services.transfer.make_conversion(
        system, products=["app"], slots=None if preset.slots else "2", quantity="slots"
    )
    text = (SAMPLES / f"{system}.{preset.form}").read_text("utf-8")
    with world.services.transfer.start_import() as incoming:
        incoming.read(read_rows(preset.form, io.StringIO(text, newline=""), conversion))
        assert (incoming.problems, incoming.warnings) == ([], [])
        incoming.commit()
    licenses = sorted(
        world.services.licenses.list_all(), key=lambda license_: text.index(license_.masked_key[:5])
    )
    imported = [
        (
            license_.slots,
            (
                REVOKED
                if license_.revoked_at
                else LIFETIME
                if license_.lifetime
                else license_.expires_on and str(license_.expires_on)
            ),
            license_.customer_email,
        )
        for license_ in licenses
    ]
    assert imported == SAMPLE_LICENSES[system]


@pytest.mark.parametrize("system", PRESETS)
def test_no_column_that_decides_may_be_missing(world, system):
    """Without a column for product, block, end or number a file is refused, and the column named."""
    preset = PRESETS[system]
    conversion = world.services.transfer.make_conversion(
        system, products=["app"], quantity="slots", slots=None if preset.slots else "1"
    )
    columns = [*preset.columns, *filter(None, (preset.end, preset.slots, preset.quantity))]
    text = (SAMPLES / f"{system}.{preset.form}").read_text("utf-8")
    for column in columns:
        (_, first), *_ = read_rows(
            preset.form, io.StringIO(text.replace(f"{column}", "Other"), newline=""), conversion
        )
        assert re.search(rf"no columns? ('.+', )?{re.escape(repr(column))}", first.message)


@pytest.mark.slow
def test_copies_become_slots_or_licenses(bare_cli, tmp_path):
    """As the vendor chooses, and a second import makes no license again."""
    cli, sample = bare_cli, str(SAMPLES / "gumroad.csv")
    cli("product", "add", "app", "--name", "App", "--accept-imported-keys")
    command = ("import", sample, "--preset", "gumroad", "--product", "app", "--slots", "2")
    assert "line 3: quantity: 5 were bought; add --quantity slots" in cli(*command, expect=2)
    assert "line 3: create C84E0…925D app, 10 slots" in cli(*command, "--quantity", "slots", "--dry-run")
    plan = cli(*command, "--quantity", "licenses", "--dry-run")
    assert plan.count("line 3: create a new key app, 2 slots, without an end, customer email") == 4
    assert "8 licenses can be imported" in plan
    keys = cli(*command, "--quantity", "licenses").split()
    assert len(keys) == 4
    assert all(
        json.loads(cli("license", "show", key, "--json"))["customer_email"] == "bo@example.com"
        for key in keys
    )
    assert "0 licenses can be imported, 4 unchanged" in cli(*command, "--quantity", "licenses", "--dry-run")
    assert len(json.loads(cli("license", "list", "--json"))) == 8
    assert "with other terms: slots" in cli(*command, "--quantity", "slots", expect=2)
    mine = tmp_path / "mine.csv"
    mine.write_text("product,Copies,lifetime\napp,3,yes\n")
    mapped = ("import", str(mine), "--map", "Copies=quantity", "--slots", "2")
    assert "app, 6 slots, for a lifetime" in cli(*mapped, "--quantity", "slots", "--dry-run")
    assert len(cli(*mapped, "--quantity", "licenses").split()) == 3


def test_a_subscription_that_goes_on_needs_an_end(world):
    """A membership of Gumroad without an end is no license for ever, unless the vendor says so."""
    world.services.products.change("app", accepts_imported_keys=True)
    text = (SAMPLES / "gumroad.csv").read_text("utf-8").replace("2027-02-03", "")

    def read(**options: str):
        conversion = world.services.transfer.make_conversion(
            "gumroad", products=["app"], slots="1", quantity="slots", **options
        )
        with world.services.transfer.start_import() as incoming:
            incoming.read(read_rows("csv", io.StringIO(text, newline=""), conversion))
            return incoming.problems, [planned.detail for planned in incoming.plan() if planned.line == 5]

    ((problem,), _) = read()
    assert (problem.line, "a subscription with regular payments has no end here" in problem.message) == (
        5,
        True,
    )
    assert read(expires="never") == ([], ["app, 1 slot, without an end, customer email, note"])
    assert read(expires="2027-12-31")[1] == ["app, 1 slot, until 2027-12-31, customer email, note"]


WRONG = {
    "short": "must have 8 to 1,024",
    "x" * 1025: "must have 8 to 1,024",
    "Schlüssel-0001": "must have 8 to 1,024",
    "two words": "one key without blanks",
    "one-key-0001\none-key-0002": "one key without blanks",
    "CP-1234-5678": "must be CP- and five groups of six",
    "CP" + "a1" * 15: "reads like a mistyped CP- key",
    "": "license_key: is required",
}


@pytest.mark.parametrize("key", WRONG, ids=range(len(WRONG)))
def test_what_cannot_be_imported_is_reported(world, key):
    """A line with a wrong key is refused with the reason, and nothing is written."""
    _, (problem,), (plan,) = import_export(world, "edd", edd([key], ()))
    assert WRONG[key] in problem.message
    assert plan.action.value == "refuse"
    assert not is_imported_key(key)


@pytest.mark.slow
def test_the_command(bare_cli, tmp_path):
    """Wrong preset, missing column, a key twice, other terms, a spreadsheet's file, and a line too long."""
    cli, file = bare_cli, tmp_path / "keys.csv"
    cli("product", "add", "app", "--name", "App")
    old = ("import", str(file), "--preset", "edd", "--product", "app")
    key = KEYS["edd"][0]
    file.write_text(edd([key], ()))
    output = cli(*old, "--dry-run", expect=2)
    assert f"line 2: refuse {mask_key(key)} " in output
    assert "licserver product change app --accept-imported-keys" in output
    cli("product", "change", "app", "--accept-imported-keys")
    output = cli(*old, "--dry-run")
    assert f"line 2: create {mask_key(key)} app, 3 slots, until 2027-01-31" in output
    assert "1 license can be imported; nothing was written" in output
    cli(*old)
    file.write_text(edd([key], {key}))
    assert "in the database already, with other terms: revoked_at" in cli(*old, expect=2)
    unchanged = json.loads(cli(*old, "--dry-run", "--existing", "keep", "--json"))
    assert unchanged["unchanged"] == 1
    assert unchanged["lines"][0]["license_key"] == mask_key(key)
    assert f"line 2: change {mask_key(key)} revoked_at" in cli(*old, "--dry-run", "--existing", "change")
    cli(*old, "--existing", "change")
    assert (
        json.loads(cli("license", "show", key, "--json"))["revoked_reason"] == "disabled in the former system"
    )
    file.write_text(edd([key], ()).replace(",3,", ",5,"))
    cli(*old, "--existing", "change")
    shown = json.loads(cli("license", "show", key, "--json"))
    assert (shown["revoked_at"], shown["slots"]) == (None, 5)
    file.write_text(edd([KEYS["edd"][1]] * 2, ()))
    output = cli(*old, "--dry-run", expect=2)
    assert f"line 3: refuse {mask_key(KEYS['edd'][1])} license_key: is also in line 2" in output
    assert "not a complete export of Gumroad" in cli(
        "import", str(file), "--preset", "gumroad", "--slots", "1", expect=2
    )
    assert "add --slots N" in cli("import", str(file), "--preset", "gumroad", expect=2)
    assert "JSON document" in cli("import", str(file), "--preset", "keygen", expect=2)

    file.write_text(
        "\ufeffKey;Seats;Product;Colour\r\nA-key-0001;2;;red\r\nB-key-0002;;;blue\r\n", encoding="utf-8"
    )
    mapped = ("import", str(file), "--map", "Key=license_key", "--product", "app", "--slots", "unlimited")
    mapped = (*mapped, "--expires", "never")
    assert "there is no column 'Seat'" in cli(*mapped, "--map", "Seat=slots", expect=2)
    assert "write COLUMN=FIELD" in cli(*mapped, "--map", "Seats=seats", expect=2)
    output = cli(*mapped, "--map", "Seats=slots", "--dry-run")
    assert "2 slots" in output.splitlines()[0]
    assert "unlimited slots" in output.splitlines()[1]
    assert cli(*mapped, "--map", "Seats=slots") == ""
    assert "--expires 'soon': write a day like 2027-01-31, or never" in cli(
        *mapped, "--expires", "soon", expect=2
    )
    file.write_text("license_key,expire_on\nC-key-0003,2027-01-31\n")
    assert "there is no field 'expire_on'" in cli("import", str(file), "--product", "app", expect=2)
    file.write_text("Key\n" + "x" * (5 << 20) + "\n")
    assert "must have 8 to 1,024" in cli(*mapped, expect=2)
