"""Dates of licenses: in files for an import, at the end of a day, and after the restore of a backup."""

import io
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.commands import Cli
from harness.world import World
from licserver.database.repositories.webhooks import DELIVERIES
from licserver.domain.decisions import license_state
from licserver.domain.records import LicenseState, LicenseTerms
from licserver.services.backup import write_backup
from licserver.services.installation import open_services
from licserver.services.restore import restore_backup
from licserver.settings import StandaloneSettings

KEY = "0123456789abcdef"


@pytest.fixture
def shop(bare_cli: Cli) -> Cli:
    """The command line of a vendor whose product accepts keys that were sold elsewhere."""
    bare_cli("product", "add", "app", "--name", "App", "--accept-imported-keys")
    return bare_cli


def write(file: Path, day: str, column: str = "expires_on", *, separator: str = ",") -> str:
    """Write a file for an import with one license; return its path."""
    columns = ("license_key", "product", "slots", "lifetime", column)
    rows = (columns, (KEY, "app", "3", "no", f'"{day}"'))
    file.write_text("\n".join(map(separator.join, rows)), "utf-8")
    return str(file)


UNREADABLE = ["31/12/2027", "12/01/2027", "01/12/2027", "12-01-2027", "31.12.2027", "12/31/27", "46387"]
UNREADABLE += ["N/A", "never", "0000-00-00", "Dec 31, 2027", "2027-02-30", "2027/12/31", "2027-13-01"]


@pytest.mark.sampled(3, "column")
@pytest.mark.parametrize("column", ["expires_on", "support_until", "issued_at", "revoked_at"])
@pytest.mark.parametrize("day", UNREADABLE)
def test_no_date_is_guessed(shop: Cli, tmp_path: Path, day: str, column: str) -> None:
    """grokability/snipe-it#19310, dannymcc/may#250, nocodb/nocodb#10584: 1970, and days taken for months."""
    refused = shop("import", write(tmp_path / "keys.csv", day, column), expect=2)
    assert f"line 2: {column}" in refused
    assert json.loads(shop("license", "list", "--json")) == []


DOUBTFUL = ["1970-01-01", "1970-01-01 00:00:00", "1899-12-30", "1899-12-31", "1900-01-01", "0001-01-01"]


@pytest.mark.sampled(3, "column")
@pytest.mark.parametrize("column", ["expires_on", "support_until", "issued_at", "revoked_at"])
@pytest.mark.parametrize("day", DOUBTFUL)
def test_a_date_that_stands_for_none_is_warned_of(shop: Cli, tmp_path: Path, day: str, column: str) -> None:
    """grokability/snipe-it#19310: its export has 1970-01-01 where there was a date that it could not read."""
    shop("import", write(tmp_path / "keys.csv", day, column))
    assert f"line 2: warning: {column}: is {day[:10]}, which programs write" in shop.errors


@pytest.mark.parametrize("column", ["issued_at", "revoked_at"])
def test_an_instant_that_has_not_come_is_warned_of(shop: Cli, tmp_path: Path, column: str) -> None:
    """None public: a clock that was ahead has written it, or a column was taken for another one."""
    shop("import", write(tmp_path / "keys.csv", "2999-01-01 10:00:00", column))
    assert f"line 2: warning: {column}: is 2999-01-01, which has not come yet" in shop.errors


def test_a_right_date_is_not_warned_of(shop: Cli, tmp_path: Path) -> None:
    """Nor is an empty one, which the vendor has chosen by having the column."""
    for day in ("2027-12-31", "2020-01-01", "2027-12-31 10:00:00", ""):
        shop("import", write(tmp_path / "keys.csv", day), "--existing", "change")
        assert "line 2" not in shop.errors


@pytest.mark.sampled(3, "mark", "separator")
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("mark", ["", "\N{BYTE ORDER MARK}"], ids=["plain", "mark"])
def test_files_of_spreadsheets(shop: Cli, tmp_path: Path, separator: str, mark: str) -> None:
    """CodeCabin/wp-google-maps#394, oroinc/crm#96: a byte order mark, and semicolons between the columns."""
    file = tmp_path / "keys.csv"
    write(file, "2027-12-31", separator=separator)
    file.write_text(mark + file.read_text("utf-8"), "utf-8")
    shop("import", str(file))
    (found,) = json.loads(shop("license", "list", "--json"))
    assert found["expires_on"] == "2027-12-31"


@pytest.mark.parametrize(
    ("at", "state"),
    [
        (datetime(2026, 6, 26, 0, 0, tzinfo=UTC), LicenseState.ACTIVE),
        (datetime(2026, 6, 26, 23, 59, 59, 999_999, tzinfo=UTC), LicenseState.ACTIVE),
        (datetime(2026, 6, 27, tzinfo=UTC), LicenseState.EXPIRED),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Pacific/Kiritimati"])
def test_a_license_is_valid_through_its_last_day(
    world: World, monkeypatch: pytest.MonkeyPatch, at: datetime, state: LicenseState, zone: str
) -> None:
    """tldraw/tldraw#9431, owncloud/core#39735: in UTC, wherever the server is."""
    monkeypatch.setenv("TZ", zone)
    world.services.products.add("app", "App")
    license_, _ = world.services.licenses.issue("app", LicenseTerms(expires_on=date(2026, 6, 26)))
    assert license_state(license_, at) is state


@pytest.mark.slow
@pytest.mark.usefixtures("suspicious")
def test_a_backup_of_a_clock_ahead_is_brought_back(world: World, tmp_path: Path) -> None:
    """duplicati/duplicati#1369: jobs of a date in the future were in the database, and never ran."""
    services, begin = world.services, world.clock()
    services.products.add("app", "App")
    endpoint, _ = services.webhooks.add("https://hooks.example/in")
    world.clock.forward(days=200)
    services.webhooks.send_test(endpoint.id)
    content = io.BytesIO()
    write_backup(services, content, world.clock())
    world.clock.now = begin
    content.seek(0)
    settings = StandaloneSettings(data_dir=tmp_path / "restored")
    restore_backup(content, settings, force=False)
    restored = open_services(settings, world.clock)
    try:
        restored.context.settled_now()
        world.clock.forward(minutes=16)
        due: Any = restored.repositories.queue.find_due([DELIVERIES], world.clock())
        assert due == {DELIVERIES}
        assert world.clock() - begin < timedelta(hours=1)
    finally:
        restored.close()
