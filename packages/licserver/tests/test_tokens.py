"""Tokens of the admin API, and what happens once."""

from datetime import date, timedelta

import pytest
from sqlalchemy import select

from harness import engines
from licserver.database.repositories.tokens import IdempotencyKey
from licserver.database.tables.access import idempotency_keys, tokens
from licserver.domain.records import ActorKind, Scope
from licserver.errors import ConflictError, InvalidInputError, NotFoundError, SecretsError
from licserver.security.redaction import mask
from licserver.services.tokens import Response

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps


def test_a_token_is_kept_as_a_hash_and_known_again(world):
    """The text is shown once; the database holds its hash, and the day of its last use."""
    made, text = world.services.tokens.create(" shop ", Scope.WRITE, date(2026, 6, 16))
    assert (made.name, made.scope, made.last_used_on) == ("shop", Scope.WRITE, None)
    with world.services.database.reading() as connection:
        (row,) = connection.execute(select(tokens))
    assert text not in str(row)
    assert len(row.token_hash) == 32
    assert world.services.tokens.authenticate(text).name == "shop"
    assert world.services.tokens.list_all()[0].last_used_on == date(2026, 6, 15)
    assert mask(f"Authorization: Bearer {text}") == "Authorization: Bearer lsv_…"


def test_a_token_ends_with_its_day_and_when_it_is_taken_back(world):
    """Its last day counts whole; what was never made is not known either."""
    _, short = world.services.tokens.create("short", Scope.READ, date(2026, 6, 15))
    _, long = world.services.tokens.create("long", Scope.READ)
    world.clock.forward(hours=11, minutes=59)
    assert world.services.tokens.authenticate(short)
    world.clock.forward(minutes=1)
    assert world.services.tokens.authenticate(short) is None
    assert world.services.tokens.authenticate(long)
    assert world.services.tokens.revoke("long").revoked_at == world.clock()
    world.clock.forward(days=1)
    assert world.services.tokens.revoke("long").revoked_at == world.clock() - timedelta(days=1)
    for text in (long, "", "lsv_", "\udcff", "é", long[:-1]):
        assert world.services.tokens.authenticate(text) is None


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x00", "\udcff", "x" * 101])
def test_a_token_needs_a_name(world, name):
    """It stands in the audit log."""
    with pytest.raises(InvalidInputError, match="one line"):
        world.services.tokens.create(name, Scope.READ)
    with pytest.raises(NotFoundError):
        world.services.tokens.revoke(name)
    assert world.services.tokens.list_all() == []


def test_a_name_is_used_once_and_no_token_is_born_dead(world):
    """Also after the token was taken back: the log must be clear."""
    world.services.tokens.create("shop", Scope.READ)
    world.services.tokens.revoke("shop")
    with pytest.raises(ConflictError, match="another name"):
        world.services.tokens.create("shop", Scope.READ)
    with pytest.raises(InvalidInputError, match="has passed"):
        world.services.tokens.create("late", Scope.READ, date(2026, 6, 14))


@pytest.fixture
def receipt(world):
    """A creation that is to happen once."""
    token, _ = world.services.tokens.create("shop", Scope.WRITE)
    return IdempotencyKey(ActorKind.TOKEN, token.id, "order-17", b"d" * 32)


def test_an_answer_is_given_again_for_a_day(world, receipt):
    """The same for the same request, a refusal for another one, and nothing after a day."""
    answer = Response(201, b'{"license_key": "CP-..."}')
    assert world.services.idempotency.find(receipt) is None
    world.services.idempotency.record(receipt, answer)
    assert world.services.idempotency.find(receipt) == answer
    with pytest.raises(ConflictError, match="another request"):
        world.services.idempotency.find(receipt._replace(digest=b"e" * 32))
    assert world.services.idempotency.find(receipt._replace(key="order-18")) is None
    world.clock.forward(days=1, seconds=1)
    assert world.services.idempotency.find(receipt) is None
    world.services.idempotency.record(receipt, answer)
    with world.services.database.reading() as connection:
        assert len(connection.execute(select(idempotency_keys)).all()) == 1


def test_an_answer_is_encrypted_to_its_request(world, receipt):
    """It may hold a license key: the database alone gives it away to nobody, nor to another request."""
    world.services.idempotency.record(receipt, Response(201, b"the whole key"))
    with world.services.database.writing() as connection:
        (row,) = connection.execute(select(idempotency_keys))
        assert b"key" not in row.answer
        connection.execute(idempotency_keys.update().values(key="order-18"))
    with pytest.raises(SecretsError):
        world.services.idempotency.find(receipt._replace(key="order-18"))
