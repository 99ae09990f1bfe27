"""The computers of a license: what the service may answer, and how a license moves from one to another."""

import json
import pickle
import threading
import time
from datetime import UTC, date, datetime, timedelta

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.rules import settings

from licclient import LicenseClient, Reason, Source, Trust, explain
from licclient._computers.fake import FakeComputers, mask_domain, name_computer
from licclient._computers.protocol import (
    MAX_LIST_BYTES,
    MOST_COMPUTERS,
    Computer,
    ComputerList,
    MovedTo,
    computers_call,
    move_call,
    read_computers,
    read_move,
)
from licclient._core.requests import MAX_VERIFY_BYTES
from licclient._core.responses import Reply
from licclient._core.texts import LANGUAGES
from licclient.errors import (
    InvalidRequestError,
    LicclientError,
    LicenseRefusedError,
    MoveError,
    MoveObstacle,
    NotActivatedError,
    ServiceUnavailableError,
    UntrustedResponseError,
)
from licclient.testing import LicenseService, MemoryStorage

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
ENTRY = {
    "id": "9f" * 16,
    "name": "Anna's MacBook",
    "masked": "9f1c…d7e8",
    "last_seen": "2026-11-20",
    "is_this": False,
    "can_move": True,
    "retry_at": None,
}
LIST = {"slots": 3, "used": 3, "moves_left": 2, "retry_at": None, "computers": [ENTRY], "moved_to": None}
MACBOOK = Computer(
    "9f" * 16, "Anna's MacBook", "9f1c…d7e8", date(2026, 11, 20), is_this=False, is_movable=True
)


def reply(status: int, body: object) -> Reply:
    """Return a response with a JSON body, or other text."""
    return Reply(status, body.encode() if isinstance(body, str) else json.dumps(body).encode())


# --- what the service may answer --------------------------------------------------------------------


def test_a_list_is_read():
    """Whole; a computer without a limit, without a name, and one that was moved away as well."""
    assert read_computers(reply(200, LIST), KEY) == ComputerList(3, 3, (MACBOOK,), 2)
    at = {"retry_at": "2026-12-01T12:00:00Z"}
    moved_to = {"name": None, "masked": "9f1c…d7e8", "on": "2026-11-21"}
    entry = {**ENTRY, "name": None, "can_move": False, **at}
    full = {**LIST, "slots": None, "moves_left": 0, **at, "moved_to": moved_to, "computers": [entry]}
    held = Computer("9f" * 16, None, "9f1c…d7e8", date(2026, 11, 20), False, False, NOON)  # noqa: FBT003
    away = MovedTo(None, "9f1c…d7e8", date(2026, 11, 21))
    assert read_computers(reply(200, full), KEY) == ComputerList(None, 3, (held,), 0, NOON, away)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, "<html>", ServiceUnavailableError),
        (200, {**LIST, "computers": None}, ServiceUnavailableError),
        (200, {**LIST, "used": True}, ServiceUnavailableError),
        (200, {**LIST, "used": -1}, ServiceUnavailableError),
        (200, {**LIST, "slots": "3"}, ServiceUnavailableError),
        (200, {**LIST, "slots": True}, ServiceUnavailableError),
        (200, {**LIST, "moves_left": None}, ServiceUnavailableError),
        (401, {"error": "invalid_license", "message": "no"}, Reason.NOT_FOUND),
        (401, {"error": "license_expired", "message": "no"}, Reason.EXPIRED),
        (403, {"error": "license_revoked", "message": "no"}, Reason.REVOKED),
        (403, {"error": "not_allowed", "message": "no", "retry_at": None}, MoveObstacle.NOT_ALLOWED),
        (403, {"error": "not_allowed", "message": 7}, ServiceUnavailableError),
        (403, {"error": "not_allowed", "message": "\ud800"}, ServiceUnavailableError),
        (403, {"error": "Forbidden", "message": "no"}, ServiceUnavailableError),
        (404, {"error": "computer_not_found", "message": "no"}, MoveObstacle.COMPUTER_NOT_FOUND),
        (404, {"error": "computer_not_found", "message": "\0"}, ServiceUnavailableError),
        (404, {"error": "not_found", "message": "no"}, ServiceUnavailableError),
        (422, {"message": "no", "errors": {"from": ["no"]}}, InvalidRequestError),
        (503, "", ServiceUnavailableError),
    ],
)
@pytest.mark.parametrize("read", [read_computers, read_move])
def test_what_else_the_service_answers(read, status, body, kind):
    """Only its own words are a refusal, of the list as of a move; all else is an outage."""
    problem = read(reply(status, body), KEY)
    match problem:
        case LicenseRefusedError(reason=reason):
            assert reason is kind
        case MoveError(obstacle=obstacle):
            assert obstacle is kind
        case _:
            assert type(problem) is kind


@pytest.mark.parametrize(("body", "expected"), [({"moved": True}, True), ({"moved": False}, False)])
def test_a_move_is_read(body, expected):
    """Whether the license came from there, or was here already."""
    assert read_move(reply(200, {**body, "from": {"name": None, "masked": "x"}}), KEY) is expected
    assert isinstance(read_move(reply(200, {"moved": "true"}), KEY), ServiceUnavailableError)


@pytest.mark.parametrize(
    ("change", "is_kept"),
    [
        ({"id": ""}, False),
        ({"id": 7}, False),
        ({"id": "x" * 129}, False),
        ({"id": "a\nb"}, False),
        ({"id": "é"}, False),
        ({"is_this": None}, False),
        ({"can_move": 1}, False),
        ({"name": 7}, True),
        ({"name": "\ud800"}, True),
        ({"name": "\u202e \t\n"}, True),
        ({"last_seen": "yesterday"}, True),
        ({"retry_at": "soon"}, True),
    ],
)
def test_an_entry_that_cannot_be_read_is_left_out(change, is_kept):
    """Without an id it cannot be chosen; a name or a day that cannot be read counts as absent."""
    listed = read_computers(reply(200, {**LIST, "computers": [{**ENTRY, **change}, ENTRY, "x"]}), KEY)
    assert len(listed.computers) == 1 + is_kept
    if is_kept:
        field = {"name": "name", "last_seen": "last_seen", "retry_at": "retry_at"}[next(iter(change))]
        assert getattr(listed.computers[0], field) is None


def test_names_are_shown_in_one_line_and_without_keys():
    """What another computer called itself is text of a stranger."""
    name = f"  Anna's\n\u202eMac {KEY} " + "x" * 500
    listed = read_computers(reply(200, {**LIST, "computers": [{**ENTRY, "name": name, "masked": None}]}), KEY)
    assert listed.computers[0].name == ("Anna's Mac … " + "x" * 500)[:80]
    assert listed.computers[0].masked_id == "9f9f…"


@pytest.mark.parametrize("moved_to", [{}, {"on": "2026-13-01"}, [], "x", {"on": 7, "name": "x"}])
def test_a_move_that_cannot_be_read_counts_as_absent(moved_to):
    """It is no reason to show nothing."""
    assert read_computers(reply(200, {**LIST, "moved_to": moved_to}), KEY).moved_to is None


def test_a_list_has_a_budget():
    """So many entries, and so many bytes: each name written with escapes only fits."""
    entries = [{**ENTRY, "id": f"{number}", "name": "\U0001f5a5" * 80} for number in range(MOST_COMPUTERS)]
    body = json.dumps({**LIST, "computers": [*entries, ENTRY]})
    assert MAX_VERIFY_BYTES < len(body) < MAX_LIST_BYTES
    assert len(read_computers(reply(200, body), KEY).computers) == MOST_COMPUTERS
    assert computers_call(settings(), KEY, "d").max_bytes == MAX_LIST_BYTES


@given(
    body=st.dictionaries(
        st.sampled_from(list(LIST)), st.none() | st.integers() | st.text() | st.lists(st.text())
    )
)
def test_no_body_breaks_the_reader(body):
    """Whatever stands in the members."""
    assert isinstance(read_computers(reply(200, {**LIST, **body}), KEY), ComputerList | LicclientError)


def test_the_requests():
    """As a verify: key, domain and address; the label if there is one."""
    call = computers_call(settings(), KEY, "d")
    assert (call.method, call.url) == ("POST", "https://store.example/api/v1/licenses/computers")
    assert json.loads(call.body or b"") == {"license_key": KEY, "domain": "d"}
    own = settings()._replace(machine={"label": "Anna's laptop", "app_version": "1.0"})
    call = move_call(own, KEY, "d", "192.0.2.1", "9f9f")
    assert call.url == "https://store.example/api/v1/licenses/move"
    fields = {"license_key": KEY, "domain": "d", "ip": "192.0.2.1", "from": "9f9f"}
    assert json.loads(call.body or b"") == {**fields, "label": "Anna's laptop", "app_version": "1.0"}


# --- what people read -------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
def test_people_see_where_the_license_is(language):
    """How many use it; where it was moved to, and when; when it can be moved again, or who can."""
    day = date(2026, 11, 21)
    used = explain(ComputerList(3, 2, (), 1), language)
    assert "3" in used
    assert "2" in used
    moved = ComputerList(1, 1, (), 1, None, MovedTo("Annas Laptop", "9f…", day))
    assert "Annas Laptop" in explain(moved, language)
    assert "2026" in explain(moved, language)
    nameless = explain(ComputerList(1, 1, (), 1, None, MovedTo(None, "9f1c…d7e8", day)), language)
    assert "9f1c…d7e8" in nameless
    later = explain(ComputerList(None, 2, (), 0, NOON), language)
    assert "2026" in later
    never = explain(ComputerList(None, 2, (), 0), language)
    assert len({used, explain(moved, language), nameless, later, never}) == 5


@pytest.mark.parametrize("language", LANGUAGES)
def test_people_see_why_it_was_not_moved(language):
    """With a date where there is one; whether support forbids it or cannot do it makes no difference."""
    said = {obstacle: explain(MoveError(obstacle, "No.", NOON), language) for obstacle in MoveObstacle}
    assert said[MoveObstacle.NOT_ALLOWED] == said[MoveObstacle.NOT_SUPPORTED]
    assert len(set(said.values())) == len(MoveObstacle) - 1
    for obstacle in (MoveObstacle.TOO_MANY_MOVES, MoveObstacle.FILE_HELD):
        assert "2026" in said[obstacle]
        assert explain(MoveError(obstacle, "No."), language) == said[MoveObstacle.NOT_ALLOWED]


def test_the_english_sentences():
    """As the documentation shows them."""
    moved = ComputerList(1, 1, (), 2, None, MovedTo("Anna's laptop", "9f…", date(2026, 11, 20)))
    assert explain(moved, "en") == "This license was moved to Anna's laptop on Nov 20, 2026."
    assert explain(ComputerList(3, 3, (), 0, NOON), "en") == (
        "Computers that use this license: 3 of 3. This license was moved to another computer too often."
        " It can be moved again on Dec 1, 2026."
    )


def test_an_error_survives_a_process_boundary():
    """With its values."""
    error = pickle.loads(pickle.dumps(MoveError(MoveObstacle.FILE_HELD, "No.", NOON)))  # noqa: S301 - our own
    assert (error.obstacle, error.retry_at, str(error)) == (MoveObstacle.FILE_HELD, NOON, "No.")


# --- stories ----------------------------------------------------------------------------------------


@pytest.fixture
def desk(license_service: LicenseService):
    """A service with a license of a single slot that Anna's MacBook has; and a second computer."""
    key = license_service.issue("App", slots=1)
    old = license_service.client(label="Anna's MacBook")
    new = license_service.client(storage=MemoryStorage(), label="Anna's laptop")
    old.activate(key)
    with pytest.raises(LicenseRefusedError):
        new.activate(key)
    return license_service, key, old, new


def test_a_license_moves_to_the_new_computer_and_back(desk):
    """Chosen from the list; the key is remembered, and the old computer learns where the license is."""
    service, key, old, new = desk
    (macbook,) = new.computers.list(key).computers
    assert (macbook.name, macbook.last_seen, macbook.is_this) == ("Anna's MacBook", date(2030, 1, 15), False)
    assert new.computers.move_here(macbook, key).source is Source.SERVER
    assert new.require().source is Source.CACHE
    with pytest.raises(LicenseRefusedError):
        old.verify(force=True)
    listed = old.computers.list()
    assert listed.moved_to == MovedTo("Anna's laptop", listed.computers[0].masked_id, date(2030, 1, 15))
    assert explain(listed, "en") == "This license was moved to Anna's laptop on Jan 15, 2030."
    assert old.computers.move_here(listed.computers[0])
    assert old.computers.list().computers[0].is_this
    assert old.computers.list().moved_to is None
    assert service.count("move") == 2


def test_a_move_that_is_repeated_counts_once(desk):
    """As when the answer was lost: the license is here already."""
    _, key, _, new = desk
    (macbook,) = new.computers.list(key).computers
    new.computers.move_here(macbook, key)
    left = new.computers.list().moves_left
    assert new.computers.move_here(macbook).product == "App"
    assert new.computers.list().moves_left == left


def test_a_refusal_that_was_under_way_does_not_answer_a_move(desk):
    """A verify of the same key was refused before the move, and its answer comes after it."""
    service, key, _, _ = desk
    refused, may_come = threading.Event(), threading.Event()

    def handle(request):
        response = service._handle(request)
        if request.url.path.endswith("verify") and response.status_code == 403:
            refused.set()
            may_come.wait(20)
        return response

    storage, results = MemoryStorage(), []
    client = service.client(storage=storage, transport=httpx.MockTransport(handle))
    (macbook,) = client.computers.list(key).computers

    def verify():
        with pytest.raises(LicenseRefusedError):
            client.verify(key)

    threads = [
        threading.Thread(target=verify),
        threading.Thread(target=lambda: results.append(client.computers.move_here(macbook, key))),
    ]
    threads[0].start()
    assert refused.wait(20)
    threads[1].start()
    time.sleep(0.3)
    may_come.set()
    for thread in threads:
        thread.join(20)
    assert [license_.product for license_ in results] == ["App"]


def test_moves_end_and_begin_again_after_thirty_days(license_service):
    """A third computer each time: no more than the vendor allows; the error says when."""
    key = license_service.issue("App", slots=1, moves=2)
    computers = [license_service.client(storage=MemoryStorage()) for _ in range(4)]
    computers[0].activate(key)
    for moved, client in enumerate(computers[1:3], 1):
        listed = client.computers.list(key)
        assert (listed.moves_left, listed.retry_at) == (3 - moved, None)
        client.computers.move_here(listed.computers[0], key)
    again = license_service.clock() + timedelta(days=30)
    listed = computers[3].computers.list(key)
    assert (listed.moves_left, listed.retry_at) == (0, again)
    with pytest.raises(MoveError) as refused:
        computers[3].computers.move_here(listed.computers[0], key)
    assert (refused.value.obstacle, refused.value.retry_at) == (MoveObstacle.TOO_MANY_MOVES, again)
    license_service.clock.move(days=30)
    assert computers[3].computers.move_here(listed.computers[0], key)


def test_what_stands_in_the_way(desk):
    """Moves by support alone, an entry that is stale, a license that ended: nothing is remembered."""
    service, key, _, new = desk
    (macbook,) = new.computers.list(key).computers
    with pytest.raises(MoveError) as refused:
        new.computers.move_here(Computer("00" * 16, None, "x", None, is_this=False, is_movable=True), key)
    assert refused.value.obstacle is MoveObstacle.COMPUTER_NOT_FOUND
    by_support = service.issue("App", moves=0)
    for act in (new.computers.list, lambda typed: new.computers.move_here(macbook, typed)):
        with pytest.raises(MoveError) as refused:
            act(by_support)
        assert refused.value.obstacle is MoveObstacle.NOT_ALLOWED
        for end, reason in ((service.expire, Reason.EXPIRED), (service.revoke, Reason.REVOKED)):
            end(key)
            with pytest.raises(LicenseRefusedError) as ended:
                act(key)
            assert ended.value.reason is reason
        service.reinstate(key)
    with pytest.raises(NotActivatedError):
        new.computers.list()
    with pytest.raises(TypeError, match="computer must be an item"):
        new.computers.move_here("9f" * 16, key)


def test_a_computer_with_a_license_file_keeps_its_slot(license_service):
    """Until the file ends: it cannot be taken back."""
    key = license_service.issue("App", slots=1)
    pinned = Trust(public_keys=[license_service.public_key])
    offline = license_service.client(slug="app", trust=pinned)
    offline.license_file.install(license_service.issue_file(key, offline.license_file.request(), days=20))
    new = license_service.client(storage=MemoryStorage())
    (held,) = new.computers.list(key).computers
    ends = license_service.clock() + timedelta(days=20)
    assert (held.is_movable, held.retry_at) == (False, ends)
    with pytest.raises(MoveError) as refused:
        new.computers.move_here(held, key)
    assert (refused.value.obstacle, refused.value.retry_at) == (MoveObstacle.FILE_HELD, ends)
    license_service.clock.move(days=20)
    assert new.computers.move_here(held, key)


@pytest.mark.parametrize("status", [404, 405, 501])
def test_another_service_is_said_calmly(tmp_path, status):
    """It may have no such requests: no outage, and no refusal of the license."""
    transport = httpx.MockTransport(lambda _: httpx.Response(status))
    with LicenseClient("https://licenses.example", storage=tmp_path, transport=transport) as client:
        for act in (client.computers.list, lambda key: client.computers.move_here(MACBOOK, key)):
            with pytest.raises(MoveError) as refused:
                act(KEY)
            assert refused.value.obstacle is MoveObstacle.NOT_SUPPORTED
            assert refused.value.http_status == status


def test_pinned_keys_are_for_lists_and_moves_as_well(desk):
    """An unsigned answer is not believed, and nothing is moved."""
    service, key, _, _ = desk
    pinned = {"trust": Trust(public_keys=[service.public_key]), "storage": MemoryStorage()}
    client = service.client(**pinned)
    (macbook,) = client.computers.list(key).computers
    service.misbehave("unsigned")
    for act in (client.computers.list, lambda typed: client.computers.move_here(macbook, typed)):
        with pytest.raises(UntrustedResponseError):
            act(key)
    service.come_back()
    assert client.computers.move_here(macbook, key).is_authenticated


async def test_the_asynchronous_client_moves_licenses(desk):
    """As the synchronous one."""
    service, key, _, _ = desk
    client = service.async_client(storage=MemoryStorage())
    (macbook,) = (await client.computers.list(key)).computers
    assert (await client.computers.move_here(macbook, key)).source is Source.SERVER
    assert (await client.require()).source is Source.CACHE
    assert (await client.computers.list()).computers[0].is_this
    await client.aclose()


def test_no_key_is_shown_by_what_was_read(desk):
    """Nor by the requests in a debugger."""
    _, key, _, new = desk
    assert key not in repr(new.computers.list(key))
    assert key not in repr(computers_call(settings(), key, "d"))


# --- the fake ---------------------------------------------------------------------------------------


def test_going_to_and_fro_uses_nothing_up():
    """A return is free, and so is the move before it; with a third computer each one counts (D-218)."""
    fake, domains = FakeComputers(2), {"a" * 32}
    for source, target in (("a", "b"), ("b", "a"), ("a", "b"), ("b", "a")):
        status, body = fake.move(domains, target * 32, name_computer(source * 32), NOON)
        assert (status, body["moved"]) == (200, True)
    left = {name: fake.respond(domains, name * 32, 1, NOON)[1]["moves_left"] for name in "bc"}
    assert left == {"b": 2, "c": 1}, "b takes the license back for free"
    assert fake.move(domains, "c" * 32, name_computer("a" * 32), NOON)[0] == 200
    assert fake.move(domains, "d" * 32, name_computer("c" * 32), NOON)[1]["error"] == "too_many_moves"


def test_a_domain_is_masked():
    """Never enough to call with."""
    assert mask_domain("2602cccccccccccccea84") == "2602…ea84"
    assert mask_domain("store.example") == "s…"


def test_the_fake_service_has_no_negative_number_of_moves(license_service):
    """A slip is an error where it is made."""
    with pytest.raises(ValueError, match="moves must not be negative"):
        license_service.issue("App", moves=-1)
