"""What the vendor can do: everything is checked first, and what is wrong changes nothing."""

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import pytest

from harness import engines
from harness.engines import sqlite_only
from licserver.domain.decisions import is_license_key
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.errors import ConflictError, InvalidInputError, SettingsError
from licserver.services.installation import open_services
from licserver.services.licenses import ISSUE_BATCH
from licserver.services.releases import MAX_CHANGELOG
from licserver.settings import Settings

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps


@pytest.fixture
def file(tmp_path):
    """A file to publish."""
    path = tmp_path / "app-1.0.zip"
    path.write_bytes(b"content of the file")
    return path


def books(world):
    """All that the vendor's books say, to see that nothing has changed."""
    return (
        world.services.products.list_all(),
        [world.services.releases.list_all(product.slug) for product in world.services.products.list_all()],
        list(world.services.licenses.list_all()),
        sorted(path.name for path in (world.folder / "data").rglob("*") if path.is_file()),
    )


ODD_SLUGS = ["", "My App", "a/b", "../x", "a\udcff", "a\x00", "x" * 101]


@pytest.mark.parametrize("slug", ODD_SLUGS, ids=repr)
def test_a_slug_that_cannot_be_is_refused_everywhere(world, file, slug):
    """Added, renamed, published, listed or sold: an invalid slug is rejected as such, and is no failure."""
    before = books(world)
    with pytest.raises(InvalidInputError):
        world.services.products.add(slug, "Name")
    for act in (
        lambda: world.services.products.rename(slug, "Name"),
        lambda: world.services.releases.publish(slug, "1.0", file),
        lambda: world.services.releases.withdraw(slug, "1.0"),
        lambda: world.services.releases.list_all(slug),
        lambda: world.services.licenses.list_all(slug),
        lambda: world.services.licenses.issue_batches(slug, LicenseTerms()),
    ):
        with pytest.raises(InvalidInputError, match="there is no product"):
            act()
    assert books(world) == before


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\x00", "a\udcff"], ids=repr)
def test_a_name_is_one_line_of_text(world, name):
    """A name that a terminal or a client could choke on is refused."""
    before = books(world)
    with pytest.raises(InvalidInputError, match="one line"):
        world.services.products.add("new", name)
    with pytest.raises(InvalidInputError, match="one line"):
        world.services.products.rename("app", name)
    assert books(world) == before


def test_a_slug_is_taken_once(world):
    """The second product of a slug is refused, and the first one keeps its name."""
    with pytest.raises(InvalidInputError, match="already"):
        world.services.products.add("app", "Other")
    assert world.services.products.get("app").name == "App"


def test_a_name_is_taken_once(world):
    """To an app a license of another product of its name would be good: added or renamed, it is refused."""
    world.services.products.add("other", "Other")
    before = books(world)
    with pytest.raises(ConflictError, match="product app has the name 'App' already"):
        world.services.products.add("second", " App ")
    with pytest.raises(ConflictError, match="product app has the name 'App' already"):
        world.services.products.rename("other", "App")
    assert books(world) == before
    assert world.services.products.rename("app", "App").name == "App"
    assert world.services.products.add("third", "app").name == "app"  # apps compare letter by letter


def test_two_who_choose_one_name_do_not_both_get_it(world):
    """At the same moment as well: one of them is refused."""
    for number in range(8):
        start = threading.Barrier(2)

        def add(slug, name=f"New {number}", start=start):
            start.wait()
            try:
                world.services.products.add(slug, name)
            except ConflictError:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            added = [pool.submit(add, f"{which}-{number}") for which in ("left", "right")]
        assert sorted(future.result() for future in added) == [False, True]


def test_a_product_keeps_its_settings(world):
    """Policy and support policy are kept, the list is by slug, and names are trimmed."""
    world.services.products.add("b-app", "  B  ", EnvironmentPolicy.EITHER, has_support_policy=True)
    assert [product.slug for product in world.services.products.list_all()] == ["app", "b-app"]
    added = world.services.products.get("b-app")
    assert (added.name, added.policy, added.has_support_policy) == ("B", EnvironmentPolicy.EITHER, True)


def test_renaming_leaves_sold_keys_alone(world):
    """A license keeps the name of the day of issue (D-12)."""
    key = world.key()
    assert world.services.products.rename("app", "App Two").name == "App Two"
    assert world.services.licenses.get(key).product_name == "App"
    assert world.services.licenses.get(world.key()).product_name == "App Two"


def test_a_published_file_is_kept_under_its_digest(world, file):
    """The release says name, size and digest; the bytes are the file's, and the original may go."""
    release = world.services.releases.publish("app", "1.0", file, "New:\n\t<b>all</b>")
    file.unlink()
    with world.services.artifacts.open(release.artifact) as kept:
        assert kept.read() == b"content of the file"
    assert release.artifact.sha256 == hashlib.sha256(b"content of the file").digest()
    assert (release.artifact.file_name, release.artifact.size) == ("app-1.0.zip", 19)
    assert release.changelog == "New:\n\t<b>all</b>"
    assert world.services.products.get("app").latest == release


def test_the_same_file_can_be_two_versions(world, file):
    """Publishing equal bytes twice keeps them once, under both versions."""
    world.services.releases.publish("app", "1.0", file)
    second = world.services.releases.publish("app", "1.1", file)
    with world.services.artifacts.open(second.artifact) as kept:
        assert kept.read() == b"content of the file"


@pytest.mark.parametrize("again", ["1.0", "1.0.0", "v1.0", " 1.0 ", "1", "01.0"])
def test_a_version_is_published_once_however_it_is_spelt(world, file, again):
    """1.0 and 1.0.0 are one version, and a published one never changes (D-23)."""
    world.services.releases.publish("app", "1.0", file)
    before = books(world)
    with pytest.raises(InvalidInputError, match="already"):
        world.services.releases.publish("app", again, file)
    assert books(world) == before


def test_a_withdrawn_version_is_not_published_again(world, file):
    """Withdrawing does not free the version: customers may have it."""
    world.services.releases.publish("app", "1.0", file)
    world.services.releases.withdraw("app", "1.0.0")
    with pytest.raises(InvalidInputError, match="already"):
        world.services.releases.publish("app", "1.0", file)


def test_a_version_is_kept_without_the_blanks_around_it(world, file):
    """What the shell brought along with a version never reaches a customer."""
    assert world.services.releases.publish("app", " 2.0rc1\n", file).version == "2.0rc1"


def test_what_cannot_be_published_changes_nothing(world, file, tmp_path):
    """Versions, files and changelogs are checked before the first byte is copied."""
    before = books(world)
    control = tmp_path / "a\nb.zip"
    control.write_bytes(b"")
    for version, path, changelog in [
        ("banana", file, ""),
        ("", file, ""),
        ("9" * 5000, file, ""),
        ("1.0+" + "a" * 5000, file, ""),
        ("1.0", tmp_path / "missing", ""),
        ("1.0", tmp_path, ""),
        ("1.0", control, ""),
        ("1.0", file, "a\x00b"),
        ("1.0", file, "\udcff"),
        ("1.0", file, "x" * (MAX_CHANGELOG + 1)),
    ]:
        with pytest.raises(InvalidInputError):
            world.services.releases.publish("app", version, path, changelog)
    assert books(world) == before


def test_a_copy_that_fails_leaves_nothing(world, file):
    """A source that breaks half way leaves no release and no half file."""

    class Breaking:
        def read(self, _size):
            raise OSError("disk gone")

    before = books(world)
    with pytest.raises(OSError, match="disk gone"):
        world.services.artifacts.store(Breaking(), "x")
    assert books(world) == before


def test_withdrawing_chooses_the_next_latest(world):
    """The offer falls back to what is left; withdrawing again keeps the first date."""
    world.publish("1.0")
    world.publish("1.1")
    assert world.services.releases.withdraw("app", "1.1").withdrawn_at == world.clock()
    assert world.services.products.get("app").latest.version == "1.0"
    world.clock.forward(days=1)
    assert world.services.releases.withdraw("app", "1.1").withdrawn_at < world.clock()
    world.services.releases.withdraw("app", "1.0")
    assert world.services.products.get("app").latest is None
    with pytest.raises(InvalidInputError, match="no version"):
        world.services.releases.withdraw("app", "7.0")


WRONG_TERMS = {
    "both lifetime and date": LicenseTerms(lifetime=True, expires_on=date(2027, 1, 1)),
    "negative slots": LicenseTerms(slots=-1),
    "too many slots": LicenseTerms(slots=2**31),
    "blank subscription": LicenseTerms(subscription_id=" "),
    "subscription of surrogates": LicenseTerms(subscription_id="\udcff"),
    "endless subscription": LicenseTerms(subscription_id="s" * 256),
    "bad entry": LicenseTerms(allowed=("good.example", "*")),
}


@pytest.mark.parametrize("terms", WRONG_TERMS.values(), ids=WRONG_TERMS.keys())
def test_terms_that_cannot_be_issue_nothing(world, terms):
    """All terms are checked before the first key is drawn."""
    with pytest.raises(InvalidInputError):
        world.services.licenses.issue_batches("app", terms, 3)
    with pytest.raises(InvalidInputError):
        world.services.licenses.issue_batches("app", LicenseTerms(), 0)
    assert list(world.services.licenses.list_all()) == []


@pytest.mark.slow
def test_many_keys_come_in_batches_that_are_in_the_books(world):
    """Each batch is durable when it is handed out; stopping between two keeps the first."""
    batches = world.services.licenses.issue_batches("app", LicenseTerms(), ISSUE_BATCH + 5)
    first = next(batches)
    assert len(first) == len(set(first)) == ISSUE_BATCH
    assert sum(1 for _ in world.services.licenses.list_all()) == ISSUE_BATCH
    (second,) = batches
    assert len(second) == 5
    assert all(map(is_license_key, first[:50] + second))
    assert world.services.licenses.decrypt_key(world.services.licenses.get(second[0])) == second[0]


def test_a_license_is_found_by_key_and_by_id(world):
    """Either names it; a message about an unknown one does not repeat the key."""
    key = world.key()
    found = world.services.licenses.get(f" {key}\n")
    assert world.services.licenses.get(found.id.hex()) == found
    assert world.services.licenses.get(key.lower()) == found, "as a customer writes it in a mail"
    unknown = key[:-6] + ("000000" if key[-6:] != "000000" else "111111")
    for reference in (unknown, "00" * 16, "rubbish", "", "\udcff"):
        with pytest.raises(InvalidInputError) as refusal:
            world.services.licenses.get(reference)
        assert unknown not in str(refusal.value)


def test_revoking_twice_keeps_the_first_word_and_reinstating_takes_it_back(world):
    """The first date and reason stand until they are taken back."""
    key = world.key()
    first = world.services.licenses.revoke(key, "refund")
    world.clock.forward(days=1)
    assert world.services.licenses.revoke(key, "again") == first
    assert (first.revoked_reason, first.revoked_at) == ("refund", world.clock() - timedelta(days=1))
    assert world.services.licenses.reinstate(key).revoked_at is None
    assert world.services.licenses.reinstate(key).revoked_reason is None
    with pytest.raises(InvalidInputError, match="one line"):
        world.services.licenses.revoke(key, "a\nb")


DEACTIVATE = {
    "domain": ("a.example", 2),
    "domain as a URL": ("https://A.example:80/", 2),
    "address": ("192.0.2.1", 2),
    "address as IPv4 in IPv6": ("::ffff:192.0.2.1", 2),
    "IPv6": ("2001:DB8::7", 1),
    "another domain": ("b.example", 2),
}


@pytest.mark.parametrize(("what", "freed"), DEACTIVATE.values(), ids=DEACTIVATE.keys())
def test_deactivating_frees_the_slots_of_a_domain_or_an_address(world, activate, what, freed):
    """However it is written, all activations that share it are gone, and their slots can be taken again."""
    key = world.key(slots=4)
    for domain, ip in [
        ("a.example", "192.0.2.1"),
        ("a.example", "192.0.2.2"),
        ("b.example", "192.0.2.1"),
        ("b.example", "2001:db8::7"),
    ]:
        activate(key, domain, ip)
    assert world.services.licenses.deactivate(key, what) == freed
    assert len(world.held(key)) == 4 - freed
    with pytest.raises(InvalidInputError, match="not activated"):
        world.services.licenses.deactivate(key, what)


def test_entries_are_kept_once_and_take_no_slot(world):
    """Two spellings of an entry are one; what is no entry changes nothing."""
    key = world.key(allowed=("A.example", "a.example."))
    world.services.licenses.allow(key, "https://a.example/")
    assert world.services.licenses.allow(key, "*.b.example").allowed == ("a.example", "*.b.example")
    with pytest.raises(InvalidInputError, match="pattern"):
        world.services.licenses.allow(key, "*")
    assert world.services.licenses.get(key).slots_used == 0


def test_entries_follow_the_ipv6_prefix_of_the_settings(make_world):
    """Where environments are distinguished by prefix, an owner's entry is the prefix too."""
    key = (world := make_world(ipv6_prefix=64)).key()
    assert world.services.licenses.allow(key, "2001:db8::7").allowed == ("2001:db8::",)


def test_ending_a_subscription_ends_its_licenses_and_those_issued_later(world):
    """The instant is noted on each license, can be moved, and holds for keys sold afterwards."""
    first, other = world.key(subscription_id="s-1"), world.key(subscription_id="s-2")
    assert world.services.subscriptions.end("s-1") == 1
    later = datetime(2027, 1, 1, tzinfo=UTC)
    assert world.services.subscriptions.end("s-1", later) == 1
    assert world.services.licenses.get(first).subscription_ended_at == later
    assert world.services.licenses.get(other).subscription_ended_at is None
    assert world.services.licenses.get(world.key(subscription_id="s-1")).subscription_ended_at == later


def test_a_subscription_that_ends_while_its_keys_are_issued(world, monkeypatch):
    """A long order takes many transactions: what is sold after the end has ended, too."""
    monkeypatch.setattr("licserver.services.licenses.ISSUE_BATCH", 1)
    batches = world.services.licenses.issue_batches("app", LicenseTerms(subscription_id="s-1"), 3)
    keys = next(batches)
    world.services.subscriptions.end("s-1")
    keys += [key for batch in batches for key in batch]
    assert [world.services.licenses.get(key).subscription_ended_at for key in keys] == [world.clock()] * 3


def test_a_sale_that_meets_the_end_of_its_subscription(world):
    """Whichever comes first, no license is left that does not end; several times at the same moment."""
    for number in range(12):
        terms = LicenseTerms(subscription_id=f"s-{number}")
        first = world.key(subscription_id=terms.subscription_id)
        start = threading.Barrier(2)

        def sell(terms=terms, start=start):
            start.wait()
            return world.services.licenses.issue("app", terms)[1]

        def end(terms=terms, start=start):
            start.wait()
            world.services.subscriptions.end(terms.subscription_id)

        with ThreadPoolExecutor(2) as pool:
            sold, ended = pool.submit(sell), pool.submit(end)
            ended.result()
        held = [world.services.licenses.get(key).subscription_ended_at for key in (first, sold.result())]
        assert held == [world.clock()] * 2


def test_two_who_change_one_product_both_have_their_way(world):
    """One renames it while the other sets its support policy, repeatedly: neither change is lost."""
    for number in range(8):
        name, policy, start = f"App {number}", number % 2 == 0, threading.Barrier(2)

        def rename(name=name, start=start):
            start.wait()
            world.services.products.change("app", name=name)

        def support(policy=policy, start=start):
            start.wait()
            world.services.products.change("app", has_support_policy=policy)

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(rename), pool.submit(support)]:
                done.result()
        product = world.services.products.get("app")
        assert (product.name, product.has_support_policy) == (name, policy)


@pytest.mark.parametrize("name", ["", " ", "nope", "\udcff", "a\x00"], ids=repr)
def test_an_unknown_subscription_is_rejected(world, name):
    """Whatever is typed, nothing ends by accident."""
    with pytest.raises(InvalidInputError, match="subscription"):
        world.services.subscriptions.end(name)


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps no modes")
def test_the_data_folder_is_private(world):
    """A folder that we make is the owner's alone."""
    assert (world.folder / "data").stat().st_mode & 0o777 == 0o700


@sqlite_only
def test_a_database_is_closed_when_the_artifacts_cannot_be_opened(world, monkeypatch):
    """SQLite removes its log with the last connection: none is left open by a bucket that cannot be."""
    world.services.close()
    log = world.settings.data_dir / "licserver.sqlite3-wal"
    assert not log.exists()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no address")
    with pytest.raises(SettingsError, match="AWS_ENDPOINT_URL"):
        open_services(Settings(data_dir=world.settings.data_dir, artifacts_url="s3://bucket"))
    assert not log.exists()
