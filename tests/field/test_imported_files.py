"""Files that reach an import otherwise than the former system has written them."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from harness.commands import Cli

KEY = "0123456789abcdef"


def write(file: Path, *rows: dict[str, Any]) -> None:
    """Write a CSV file."""
    with file.open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, rows[0])
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def shop(bare_cli: Cli) -> Cli:
    """The command line of a vendor whose product accepts keys that were sold elsewhere."""
    bare_cli("product", "add", "app", "--name", "App", "--accept-imported-keys")
    return bare_cli


@pytest.mark.parametrize("column", ["slots", "lifetime"])
def test_a_missing_column_is_no_default(shop: Cli, tmp_path: Path, column: str) -> None:
    """usethesource/rascal#1750: a reader of CSV fills in a default for a column that the file has not."""
    row = {"license_key": KEY, "product": "app", "slots": "3", "lifetime": "yes"}
    write(tmp_path / "keys.csv", {name: text for name, text in row.items() if name != column})
    output = shop("import", str(tmp_path / "keys.csv"), expect=2)
    assert "there is no column" in output
    assert "add --" in output


def test_a_missing_column_deletes_nothing(shop: Cli, tmp_path: Path) -> None:
    """instride-ch/pimcore-data-definitions#191: an import without a column sets its field to nothing."""
    row = {"license_key": KEY, "product": "app", "slots": "3", "lifetime": "yes"}
    write(tmp_path / "keys.csv", {**row, "note": "from the shop", "customer_email": "jo@example.com"})
    shop("import", str(tmp_path / "keys.csv"))
    write(tmp_path / "keys.csv", {**row, "slots": "5"})
    shop("import", str(tmp_path / "keys.csv"), "--existing", "change")
    shown = json.loads(shop("license", "show", KEY, "--json"))
    assert [shown[name] for name in ("slots", "note", "customer_email")] == [
        5,
        "from the shop",
        "jo@example.com",
    ]


def test_copies_are_not_lost(shop: Cli) -> None:
    """antiwork/gumroad#532, antiwork/gumroad#5931: five copies have one key, and a column of its own."""
    sample = Path(__file__).parents[2] / "docs/server/exports/gumroad.csv"
    command = ("import", str(sample), "--preset", "gumroad", "--product", "app", "--slots", "1", "--dry-run")
    assert "5 were bought; add --quantity slots" in shop(*command, expect=2)
    assert "app, 5 slots" in shop(*command, "--quantity", "slots")


@pytest.mark.parametrize("blank", ["", ",,,", " ,,\t,\u00a0", ",,,,,,", ","])
def test_a_row_without_a_value_is_no_license(shop: Cli, tmp_path: Path, blank: str) -> None:
    """bardsoftware/ganttproject#1634, firefly-iii/firefly-iii#691, microsoft/AzureStorageExplorer#3136.

    A spreadsheet writes rows whose cells were emptied. Each one issued a license without an end.
    """
    file = tmp_path / "keys.csv"
    row = f"{KEY},app,3,2027-01-31"
    file.write_text(f"license_key,product,slots,expires_on\n{blank}\n{row}\n{blank}\n{blank}\n", "utf-8")
    for command in (("import", str(file)), ("import", str(file), "--product", "app")):
        output = shop(*command, "--dry-run")
        assert "line 3: create" in output
        assert "1 license can be imported" in output


@pytest.mark.sampled(4, "options")
@pytest.mark.parametrize(
    "expires", ["2027-01-31/2028-01-31", "2027-01-31/10", "2027-01-31510", "2027-01-31\x0010"]
)
@pytest.mark.parametrize("options", [(), ("--product", "app")])
def test_a_period_is_no_date(shop: Cli, tmp_path: Path, expires: str, options: tuple[str, ...]) -> None:
    """python/cpython#107779: the standard library takes any character between date and time."""
    for column in ("expires_on", "issued_at"):
        row = {"license_key": KEY, "product": "app", "slots": 1, "expires_on": "2027-01-31", column: expires}
        write(tmp_path / "keys.csv", row)
        assert f"{column}: must be a date" in shop("import", str(tmp_path / "keys.csv"), *options, expect=2)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("key", "message"),
    [
        pytest.param("4,687E+11", "as a spreadsheet shortens it", id="react-csv/react-csv#136"),
        pytest.param("1.00E+12", "as a spreadsheet shortens it", id="Quartz/bad-data-guide#33"),
        pytest.param(
            "8.96529e+19", "as a spreadsheet shortens it", id="microsoftgraph/powershell-intune-samples#140"
        ),
        pytest.param(
            "CP–AAAAAA–BBBBBB–CCCCCC–DDDDDD–EEEEEE", "the dash – (U+2013)", id="KELLIA/dictionary#95"
        ),
        pytest.param("ABCD—1234—EFGH", "the dash — (U+2014)", id="Zettlr/Zettlr#3861"),
        pytest.param("ABCD\u22121234", "the dash \u2212 (U+2212)", id="microsoft/PowerToys#41162"),
        pytest.param("ABCD\u200b12345", "invisible character U+200B", id="zero-width-space"),
        pytest.param("ABCD\u00a012345", "invisible character U+00A0", id="no-break-space"),
        pytest.param("Schlüssel-0001", "must have 8 to 1,024 letters, digits and ASCII signs", id="letters"),
    ],
)
def test_a_damaged_key_is_refused(shop: Cli, tmp_path: Path, key: str, message: str) -> None:
    """No customer has such a key: the line says what a program has done to it."""
    write(tmp_path / "keys.csv", {"license_key": key, "product": "app", "slots": 1, "lifetime": ""})
    output = shop("import", str(tmp_path / "keys.csv"), expect=2)
    assert message in output
    assert key not in output


@pytest.mark.parametrize(
    ("key", "message"),
    [
        pytest.param("1914310000010100000", "ends in zeros after 15 digits", id="dfinke/ImportExcel#830"),
        pytest.param("'00012345", "begins with an apostrophe", id="apostrophe"),
        pytest.param('="0001234567"', "is a formula", id="formula"),
        pytest.param("01-31-2027", "is a date", id="cds-snc/platform-forms-client#4240"),
    ],
)
def test_a_doubtful_key_is_warned_of(shop: Cli, tmp_path: Path, key: str, message: str) -> None:
    """It may be what was sold: it is imported, and the line is named."""
    write(tmp_path / "keys.csv", {"license_key": key, "product": "app", "slots": 1, "lifetime": ""})
    file = str(tmp_path / "keys.csv")
    (warning,) = json.loads(shop("import", file, "--dry-run", "--json"))["warnings"]
    assert (warning["line"], message in warning["message"]) == (2, True)
    shop("import", file)
    assert f"line 2: warning: license_key: {message}" in shop.errors
    assert key not in shop.errors


def test_keys_without_their_first_zeros_are_warned_of(shop: Cli, tmp_path: Path) -> None:
    """proompteng/bilig#28: a spreadsheet removes zeros at the beginning of what it takes for a number."""

    def warnings_of(*keys: str) -> list[int]:
        write(
            tmp_path / "keys.csv",
            *({"license_key": key, "product": "app", "slots": 1, "lifetime": ""} for key in keys),
        )
        shop("import", str(tmp_path / "keys.csv"), "--dry-run")
        return [
            int(line.split(":")[0].removeprefix("line "))
            for line in shop.errors.splitlines()
            if "warning: " in line
        ]

    assert warnings_of("112345678901", "112345678902", "12345678902", "a1234567890") == [4]
    assert warnings_of("112345678901", *(f"9{number:08}" for number in range(3))) == []  # most are short
    whole, short = (f"9{number:011}" for number in range(150)), (f"9{number:08}" for number in range(120))
    assert len(warnings_of(*whole, *short)) == 100
    assert "20 more warnings are not shown" in shop.errors
