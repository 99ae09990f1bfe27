"""The batch side of the database: lookups, claims, and what they never grant (D-03, D-08)."""

import re
from contextlib import contextmanager
from datetime import date

import pytest

from harness import engines
from harness.engines import postgresql_only, sqlite_only
from licserver.database.hot_path.activations import LOCKS, ActivationRequest
from licserver.database.hot_path.lookups import LOOKUPS, Lookup
from licserver.database.hot_path.store import LICENSES, BatchStore
from licserver.database.hot_path.updates import UpdateQuery
from licserver.domain.decisions import Valid, VerifyRefusal
from licserver.domain.environments import is_known
from licserver.domain.records import Environment, EnvironmentMatch, EnvironmentPolicy
from licserver.errors import StatementRefusedError, StoreUnavailableError

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps


@pytest.fixture
def store(world):
    """The batch side of the default world's database."""
    store = BatchStore(world.services.database)
    yield store
    store.close()


@pytest.fixture
def claim(world):
    """Claim a slot of a key for an environment, judged by the rules."""
    return lambda key, environment: world.request_slot(key, *environment)


def admitted(verdicts):
    """How many of the verdicts let somebody in."""
    return sum(isinstance(verdict, Valid) for verdict in verdicts)


def test_lookups_come_back_in_the_order_asked(world, store, environment):
    """Known, unknown and repeated keys in one batch each get their own answer."""
    first, two, none = world.key(slots=1), world.key(slots=2), "CP-NO"
    keys_looked_up = [first, none, two, first, none, two, two]
    found = store.find_licenses(
        [Lookup(world.services.vault.license_id(key), environment()) for key in keys_looked_up]
    )
    assert [license_ and license_.slots for license_ in found] == [1, None, 2, 1, None, 2, 2]


def test_a_lookup_brings_all_terms_along(world, store, environment):
    """What was agreed at issue is what the rules get to see."""
    key = world.key(
        slots=7,
        expires_on=date(2027, 1, 1),
        support_until=date(2026, 7, 1),
        subscription_id="s-1",
        allowed=("B.example", "*.c.example", "192.0.2.0/24"),
    )
    world.services.subscriptions.end("s-1")
    world.services.licenses.revoke(key)
    (found,) = store.find_licenses([Lookup(world.services.vault.license_id(key), environment())])
    assert found is not None
    assert (found.slots, found.expires_on, found.support_until) == (7, date(2027, 1, 1), date(2026, 7, 1))
    assert found.allowed == ("b.example", "*.c.example", "192.0.2.0/24")
    assert found.subscription_ended_at == found.revoked_at == world.clock()


@pytest.mark.parametrize("allowed", [(), ("9.example",), ("192.0.2.9",)])
@pytest.mark.parametrize("policy", [policy.value for policy in EnvironmentPolicy])
def test_what_a_lookup_leaves_out_changes_no_verdict(world, store, claim, policy, allowed):
    """Only halves that the policy looks at are looked up: the verdict is as if all were."""
    key = world.key(world.product("other", policy), slots=5, allowed=allowed)
    store.activate([claim(key, Environment(f"{n}.example", f"192.0.2.{n}")) for n in range(5)])
    held, license_id = world.held(key), world.services.vault.license_id(key)
    environments = [
        Environment(domain, ip) for domain in ("3.example", "9.example") for ip in ("192.0.2.4", "192.0.2.9")
    ]
    for license_, found in zip(
        environments,
        store.find_licenses([Lookup(license_id, environment) for environment in environments]),
        strict=True,
    ):
        halves = EnvironmentMatch(license_.domain in dict(held), license_.ip in dict(held).values())
        assert found.slots_used == len(held)
        assert is_known(license_, found.policy, allowed, found.activated) == is_known(
            license_, found.policy, allowed, halves
        )


@sqlite_only
@pytest.mark.parametrize("policy", ["strict", "domain"])
def test_a_key_without_a_limit_is_found_as_soon_with_a_thousand_activations(world, store, claim, policy):
    """A newcomer is not looked for among all who came before: on SQLite the event loop would wait for it."""
    keys = [world.key(world.product(f"of-{count}", policy), slots=None) for count in (10, 1000)]
    for key, count in zip(keys, (10, 1000), strict=True):
        store.activate([claim(key, Environment(f"{n}.example", f"192.0.{n % 250}.1")) for n in range(count)])
    driver = store._writer._connection.connection.driver_connection
    steps = []
    for key in keys:
        taken = []
        driver.set_progress_handler(lambda taken=taken: taken.append(1), 1)
        store.find_licenses(
            [Lookup(world.services.vault.license_id(key), Environment("new.example", "192.0.2.1"))]
        )
        steps.append(len(taken))
    driver.set_progress_handler(None, 0)
    assert steps[0] == steps[1] > 0


def test_batches_do_not_leak_from_one_license_to_another(world, store, claim):
    """That another key knows an environment, in the same batch too, opens nothing."""
    first, two = world.key(), world.key(slots=0)
    here = Environment("a.example", "192.0.2.1")
    verdicts = store.activate([claim(first, here), claim(two, here)])
    assert isinstance(verdicts[0], Valid)
    assert verdicts[1] is VerifyRefusal.ENVIRONMENT


@pytest.mark.parametrize("slots", [0, 1, 5, None])
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_a_batch_admits_exactly_as_many_as_there_are_slots(world, store, claim, slots, batch):
    """However claims fall into batches, N slots let N environments in."""
    key = world.key(slots=slots)
    claims = [claim(key, Environment(f"{n}.example", f"192.0.2.{n}")) for n in range(64)]
    verdicts = [
        verdict for start in range(0, 64, batch) for verdict in store.activate(claims[start : start + batch])
    ]
    assert admitted(verdicts) == (64 if slots is None else slots) == len(world.held(key))
    refused = [verdict for verdict in verdicts if not isinstance(verdict, Valid)]
    assert set(refused) <= {VerifyRefusal.ENVIRONMENT}


@pytest.mark.parametrize("policy", ["strict", "domain", "either"])
def test_one_environment_many_times_in_a_batch_takes_one_slot(world, store, claim, environment, policy):
    """Each claim sees what the ones before it took."""
    key = world.key(world.product("other", policy), slots=1)
    assert admitted(store.activate([claim(key, environment())] * 64)) == 64
    assert world.held(key) == [("a.example", "192.0.2.1")]


SECOND = {
    ("strict", "same domain"): 2,
    ("strict", "same ip"): 2,
    ("domain", "same domain"): 1,
    ("domain", "same ip"): 2,
    ("either", "same domain"): 1,
    ("either", "same ip"): 1,
}


@pytest.mark.parametrize(("policy", "moved"), SECOND)
def test_half_a_move_takes_a_slot_where_the_policy_says_so(world, store, claim, environment, policy, moved):
    """A second claim that shares one half with the first is known or new by the product's policy (D-03)."""
    key = world.key(world.product("other", policy), slots=2)
    second = environment(ip="198.51.100.9") if moved == "same domain" else environment("b.example")
    assert admitted(store.activate([claim(key, environment()), claim(key, second)])) == 2
    assert len(world.held(key)) == SECOND[policy, moved]


def test_halves_learnt_apart_are_known_together(world, store, claim):
    """Under `strict` the domain of one activation and the address of another need no third slot."""
    key = world.key(slots=2)
    verdicts = store.activate(
        [
            claim(key, Environment("a.example", "192.0.2.1")),
            claim(key, Environment("b.example", "192.0.2.2")),
            claim(key, Environment("a.example", "192.0.2.2")),
        ]
    )
    assert admitted(verdicts) == 3
    assert len(world.held(key)) == 2


def test_a_judge_that_fails_fails_its_own_claim_alone(world, store, claim, environment):
    """The neighbours of a claim that goes wrong are served, and it takes no slot."""
    key = world.key(slots=2)

    def broken(_license):
        raise LookupError("of this claim alone")

    bad = ActivationRequest(
        Lookup(world.services.vault.license_id(key), environment("bad.example")), broken, world.clock()
    )
    verdicts = store.activate(
        [claim(key, environment("a.example")), bad, claim(key, environment("b.example"))]
    )
    assert [type(verdict) for verdict in verdicts] == [Valid, LookupError, Valid]
    assert [domain for domain, _ in world.held(key)] == ["a.example", "b.example"]


def test_a_text_that_the_database_cannot_take_fails_its_own_request(world, store, environment):
    """Lookups and update checks of the same moment get their answers."""
    key = world.services.vault.license_id(world.key(slots=3))
    good, bad = (Lookup(key, environment(domain)) for domain in ("a.example", "\udcff"))
    before, failed, after = store.find_licenses([good, bad, good])
    assert (before.slots, type(failed), after.slots) == (3, StatementRefusedError, 3)
    queries = [UpdateQuery(key, slug) for slug in ("app", "\udcff", "app")]
    before, failed, after = store.find_updates(queries)
    assert (before[1].slug, type(failed), after[1].slug) == ("app", StatementRefusedError, "app")


@pytest.mark.parametrize("change", ["revoked", "ended", "full", "gone"])
def test_the_last_word_is_spoken_on_the_locked_record(world, store, claim, environment, change):
    """What changed between the first look and the claim decides: the claim is judged anew."""
    key = world.key(subscription_id="s-1")
    late = claim(key, environment("late.example"))
    if change == "revoked":
        world.services.licenses.revoke(key)
    elif change == "ended":
        world.services.subscriptions.end("s-1")
    elif change == "full":
        store.activate([claim(key, environment("first.example"))])
    else:
        late = claim("CP-NEVER0-000000-000000-000000-000000", environment())
    assert not admitted(store.activate([late]))


@contextmanager
def broken_database(meddler, table):
    """Take a table away, as a disk or an operator might, and put it back."""
    meddler.do(f"ALTER TABLE {table} RENAME TO away")
    try:
        yield
    finally:
        meddler.do(f"ALTER TABLE away RENAME TO {table}")


@pytest.mark.parametrize("table", ["licenses", "activations"])
def test_a_database_that_fails_grants_nothing(world, store, claim, environment, meddler, table):
    """A failure is one exception without a word of what was asked; afterwards all is as before."""
    key = world.key()
    with broken_database(meddler, table), pytest.raises(StoreUnavailableError) as failure:
        store.activate([claim(key, environment("secret.example"))])
    assert "secret.example" not in str(failure.value)
    assert world.held(key) == []
    assert admitted(store.activate([claim(key, environment())])) == 1


def test_a_claim_that_the_database_refuses_fails_alone(world, store, claim, environment, meddler):
    """Its neighbours in the batch are admitted, each on its own, and share the slots exactly."""
    key = world.key(slots=2)
    meddler.do(
        "CREATE TRIGGER no_b BEFORE INSERT ON activations WHEN NEW.domain = 'b.example' "
        "BEGIN SELECT RAISE(ABORT, 'refused'); END",
        "ALTER TABLE activations ADD CONSTRAINT no_b CHECK (domain <> 'b.example')",
    )
    verdicts = store.activate([claim(key, environment(f"{name}.example")) for name in "abcd"])
    meddler.do("DROP TRIGGER no_b", "ALTER TABLE activations DROP CONSTRAINT no_b")
    assert [type(verdict) for verdict in verdicts] == [Valid, StatementRefusedError, Valid, VerifyRefusal]
    assert "b.example" not in str(verdicts[1])
    assert [domain for domain, _ in world.held(key)] == ["a.example", "c.example"]


def test_update_lookups_bring_key_and_product_together(world, store):
    """Each ask gets its own license and its own product; without a key no product is looked up."""
    world.product("other")
    world.publish("1.0")
    key = world.key()
    known = world.services.vault.license_id(key)
    answers = store.find_updates(
        [
            UpdateQuery(known, "app"),
            UpdateQuery(known, "nope"),
            UpdateQuery(None, "app"),
            UpdateQuery(known, "other"),
        ]
    )
    assert [(bool(license_), product and product.slug) for license_, product in answers] == [
        (True, "app"),
        (True, None),
        (False, None),
        (True, "other"),
    ]
    assert answers[0][1].latest.version == "1.0"
    assert store.find_updates([UpdateQuery(None, "app")]) == [(None, None)]


def test_a_release_that_a_promotion_lost_is_not_offered(world, store, meddler):
    """Where another one was published since, on the new primary, which never had the first."""
    world.publish("1.0")
    query = UpdateQuery(world.services.vault.license_id(world.key()), "app")
    ((number, shown),) = meddler.do("SELECT release_changes, latest_release_id FROM products")
    world.publish("1.2")
    ((_, product),) = store.find_updates([query])
    assert product.latest.version == "1.2"
    meddler.do(f"UPDATE products SET release_changes = {number}, latest_release_id = {shown}")  # noqa: S608
    meddler.do("DELETE FROM manifests WHERE release_id = (SELECT max(id) FROM releases)")
    meddler.do("DELETE FROM releases WHERE version = '1.2'")
    world.publish("1.1")
    ((_, product),) = store.find_updates([query])
    assert product.latest.version == "1.1"
    assert [release.version for release in store.find_releases("app").releases] == ["1.0", "1.1"]


def test_a_download_lookup_finds_what_the_link_names(world, store):
    """License and release are looked up apart: either may be gone."""
    release, known = world.publish("1.0"), world.services.vault.license_id(world.key())
    license_, found = store.find_download(known, release.id)
    assert license_ is not None
    assert found == release
    assert store.find_download(b"x" * 16, release.id) == (None, release)
    assert store.find_download(known, 999)[1] is None


@postgresql_only
def test_a_batch_reads_the_rows_of_its_own_licenses_only(world, store, claim, environment):
    """However PostgreSQL plans a batch, before any statistics are taken, no table is read as a whole."""
    keys = [world.key(slots=9) for _ in range(40)]
    store.activate([claim(key, environment()) for key in keys])
    rows = [(world.services.vault.license_id(key), "a.example", "192.0.2.1") for key in keys[:32]]

    def explain(connection):
        for table, width in ((LOOKUPS, 3), (LOCKS, 1), (LICENSES, 1)):
            sql, _ = table._statement(connection.dialect, len(rows))
            values = [value for row in rows for value in row[:width]]
            explained = f"EXPLAIN (VERBOSE) {sql}"
            cursor = connection.connection.driver_connection.cursor_for(explained)
            cursor.execute(explained, values)
            yield from (line for (line,) in cursor.fetchall())

    plan = "\n".join(store._lookup_reader.run(lambda connection: list(explain(connection))))
    assert "pk_activations" in plan
    assert "hashed" not in plan
    assert not re.search(r"Seq Scan on \S*(licenses|activations)", plan)
