"""Lists may be read from a standby, which is some moments behind; all else is not (D-252)."""

import logging

import pytest

from licserver.database import migrate
from licserver.database.engine import connect
from licserver.database.hot_path.store import BatchStore, Lookup
from licserver.domain.records import Environment, EnvironmentPolicy, LicenseTerms
from licserver.errors import SettingsError
from licserver.services import LicenseFilter, open_services
from licserver.settings import Settings, load_settings


@pytest.fixture
def installation(primary_and_standby, tmp_path, clock):
    """The services of an installation with a standby, on which no change arrives from here on."""
    name = primary_and_standby.create()
    urls = {
        "database_url": primary_and_standby.primary.url(name),
        "replica_url": primary_and_standby.standby.url(name),
    }
    database = connect(urls["database_url"])
    migrate.upgrade(database)
    database.close()
    services = open_services(Settings(data_dir=tmp_path / "data", **urls), clock)
    services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
    issue(services)
    primary_and_standby.wait_until_equal()
    primary_and_standby.standby.run("SELECT pg_wal_replay_pause()")
    yield services
    services.close()


def issue(services):
    """Issue a license; return its key."""
    ((key,),) = services.licenses.issue_batches("app", LicenseTerms(), 1)
    return key


def lengths(services):
    """Return how many items each kind of list has."""
    return (
        len(services.licenses.search(LicenseFilter()).items),
        services.licenses.count(LicenseFilter())[0],
        len(list(services.licenses.list_all())),
        len([one for one in services.audit.list_page().items if one.action == "license.issue"]),
        len(list(services.transfer.export())),
    )


def test_lists_are_a_moment_behind_and_verdicts_are_not(installation):
    """What the standby has not heard of is in no list; each license by itself is as it is now."""
    key = issue(installation)
    assert lengths(installation) == (1, 1, 1, 1, 1)
    installation.licenses.revoke(key, "refund")
    store = BatchStore(installation.database)
    license_id = installation.vault.license_id(key)
    (found,) = store.find_licenses([Lookup(license_id, Environment("a.example", "192.0.2.1"))])
    store.close()
    assert found.revoked_at is not None
    assert installation.licenses.get(key).revoked_reason == "refund"
    with installation.transaction() as tx:
        assert len(tx.licenses.search(LicenseFilter()).items) == 2  # what a transaction reads, it may change


def test_without_its_standby_lists_are_those_of_the_primary(installation, primary_and_standby, caplog):
    """It is noticed at the next list, said once, and nothing fails."""
    issue(installation)
    primary_and_standby.standby.kill()
    with caplog.at_level(logging.WARNING, "licserver.database"):
        assert lengths(installation) == (2, 2, 2, 2, 2)
    assert ["the replica is not used" in line.getMessage() for line in caplog.records] == [True]


def test_a_standby_of_another_installation_is_not_read(installation, primary_and_standby, tmp_path, clock):
    """Its licenses are those of another vendor."""
    issue(installation)
    name = primary_and_standby.primary
    other = name.url("other")
    name.run("CREATE DATABASE other TEMPLATE template0")
    database = connect(other)
    migrate.upgrade(database)
    database.close()
    open_services(Settings(data_dir=tmp_path / "other", database_url=other), clock).close()
    settings = installation.settings.model_copy(
        update={"replica_url": Settings(database_url=other, replica_url=other).replica_url}
    )
    mixed = open_services(settings, clock)
    try:
        assert lengths(mixed) == (2, 2, 2, 2, 2)
    finally:
        mixed.close()


def test_only_a_standby_of_the_database_can_be_set(monkeypatch):
    """SQLite has none."""
    monkeypatch.setenv("LICSERVER_REPLICA_URL", "postgresql://replica.example/licserver")
    with pytest.raises(SettingsError, match="LICSERVER_REPLICA_URL: names a standby of the PostgreSQL"):
        load_settings()
