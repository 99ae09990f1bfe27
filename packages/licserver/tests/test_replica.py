"""Lists may be read from a standby, which is some moments behind; all else is not (D-252)."""

import logging
import re

import pytest
from pydantic import SecretStr

from harness.cluster import wait_for
from licserver.database import migrate
from licserver.database.engine import connect
from licserver.database.hot_path.lookups import Lookup
from licserver.database.hot_path.store import BatchStore
from licserver.domain.records import Environment, EnvironmentPolicy, LicenseTerms
from licserver.errors import SettingsError
from licserver.services.installation import open_services
from licserver.services.license_search import LicenseFilter
from licserver.services.self_check import Level, check_installation
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
        len([entry for entry in services.audit.list_page().items if entry.action == "license.issue"]),
        len(list(services.transfer.export())),
    )


def test_lists_are_a_moment_behind_and_verdicts_are_not(installation):
    """What the standby has not received is in no list; each license by itself is as it is now."""
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
    """It is noticed at the next list, logged once, and nothing fails."""
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


def checked(installation, replica_url=None):
    """Return the finding of `licserver check` about the replica, if it is another one."""
    settings = installation.settings
    if replica_url is not None:
        settings = settings.model_copy(update={"replica_url": SecretStr(replica_url)})
    (found,) = [
        finding
        for finding in check_installation(settings, installation.now(), reach=False)
        if finding.about == "replica"
    ]
    return found.level, found.message


def test_check_says_how_far_it_is_behind(installation, primary_and_standby, monkeypatch):
    """In bytes and seconds; above a limit that is a warning. A moment is waited for what is on its way."""
    issue(installation)
    level, message = checked(installation)
    assert level is Level.OK
    assert re.fullmatch(r"LICSERVER_REPLICA_URL is a standby, [\d,]+ bytes behind; .* is \d+ s old", message)
    monkeypatch.setattr("licserver.database.replica._MOST_BYTES", 1)
    assert checked(installation)[0] is Level.WARNING
    primary_and_standby.standby.run("SELECT pg_wal_replay_resume()")
    # It may be more than a second until it has caught up: the end of a record comes with the next flush.
    current = Level.OK, "LICSERVER_REPLICA_URL is a standby, less than 1 s behind"
    wait_for(lambda: checked(installation) == current)
    primary_and_standby.standby.kill()
    level, message = checked(installation)
    assert level is Level.WARNING
    assert "cannot be read from: " in message


def test_check_knows_what_is_no_replica(installation, empty_database):
    """The primary itself is useless; a copy that follows nobody, and another installation, are wrong."""
    level, message = checked(installation, installation.settings.database)
    assert (level, message) == (Level.WARNING, "LICSERVER_REPLICA_URL names no standby")
    database = connect(empty_database)
    migrate.upgrade(database)
    database.close()
    level, message = checked(installation, empty_database)
    assert level is Level.FAILED
    assert "this PostgreSQL database is not licserver's" in message
    open_services(
        Settings(data_dir=installation.settings.data_dir, database_url=empty_database), new_database=True
    ).close()
    level, message = checked(installation, empty_database)
    assert level is Level.FAILED
    assert message == "LICSERVER_REPLICA_URL names another database, which does not follow the primary"


def test_a_pooler_that_is_not_named_is_noticed(installation, primary_and_standby, make_pooler, caplog):
    """One by transaction would mix up settings of all its clients; lists are then the primary's."""
    pooler = make_pooler(primary_and_standby.standby)
    level, message = checked(installation, pooler.url("licserver", pooler=None))
    assert level is Level.FAILED
    assert "pooler=transaction" in message
    assert checked(installation, pooler.url("licserver"))[0] is Level.OK
    url = SecretStr(pooler.url("licserver", pooler=None))
    issue(installation)
    services = open_services(installation.settings.model_copy(update={"replica_url": url}))
    with caplog.at_level(logging.WARNING, "licserver.database"):
        assert lengths(services) == (2, 2, 2, 2, 2)
    services.close()
    assert "pooler=transaction" in caplog.text


def test_only_a_standby_of_the_database_can_be_set(monkeypatch):
    """SQLite has none."""
    monkeypatch.setenv("LICSERVER_REPLICA_URL", "postgresql://replica.example/licserver")
    with pytest.raises(SettingsError, match="LICSERVER_REPLICA_URL: names a standby of the PostgreSQL"):
        load_settings()
