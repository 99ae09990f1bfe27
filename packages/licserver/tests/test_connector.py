"""Connecting to all hosts at once, with hosts that are functions."""

import threading
import time

import psycopg
import pytest

from harness.standstill import Standstill
from licserver.database.connector import Connector
from licserver.database.hosts import HostRole, Server
from licserver.database.limited_connection import NoResponseError
from licserver.database.timelines import Timelines

ONE, TWO = "127.0.0.1", "127.0.0.2"
OLD, NEW, STANDBY = (
    Server(HostRole.PRIMARY, "s", 1),
    Server(HostRole.PRIMARY, "s", 2),
    Server(HostRole.STANDBY, "s"),
)


Answer = Server | Exception | None


class Connection:
    """A connection to a server, which may be closed."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.is_closed = threading.Event()

    def close(self):
        """Note it."""
        self.is_closed.set()


class Hosts:
    """What each address answers: a server, an error, or nothing until the end of the test."""

    def __init__(self, first: Answer, second: Answer) -> None:
        self.answers = {ONE: first, TWO: second}
        self.end = threading.Event()
        self.opened = []

    def open(self, parameters):
        """Open a connection, as psycopg does."""
        answer = self.answers[parameters["host"]]
        if answer is None:
            self.end.wait(10)
            answer = OLD
        if isinstance(answer, Exception):
            raise answer
        self.opened.append(Connection(answer))
        return self.opened[-1]


@pytest.fixture
def hosts():
    """Make hosts; those that are silent answer at the end."""
    made = []

    def make(first: Answer, second: Answer) -> Hosts:
        made.append(Hosts(first, second))
        return made[-1]

    yield make
    for hosts_ in made:
        hosts_.end.set()


def connector(folder=None):
    """A connector to both, of a process with a data folder."""
    return Connector({"host": f"{ONE},{TWO}"}, Timelines(folder))


def timed(work):
    """Call a function; gives what it returned, and the seconds that it took."""
    began = time.monotonic()
    return work(), time.monotonic() - began


def test_a_silent_host_is_waited_for_once(hosts):
    """A moment, because it might have been promoted later; and its late connection is closed."""
    both, connector_ = hosts(first=None, second=NEW), connector()
    (first, waited), (second, again) = (timed(lambda: connector_.connect(both.open)) for _ in range(2))
    assert first.server is second.server is NEW
    assert again < 0.15 < waited < 1
    both.end.set()
    deadline = time.monotonic() + 5
    while sum(late.is_closed.is_set() for late in both.opened) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not first.is_closed.is_set()


def test_a_standby_that_is_promoted_meanwhile_is_found(hosts):
    """While the other host is silent, it is asked again and again."""
    both = hosts(first=None, second=STANDBY)
    threading.Timer(0.3, both.answers.update, [{TWO: NEW}]).start()
    connection, took = timed(lambda: connector().connect(both.open))
    assert connection.server is NEW
    assert took < 1


def test_a_former_primary_is_never_used_again(hosts):
    """Although it can be written to, and the new one is away; open connections to it are known."""
    both, connector_ = hosts(first=OLD, second=STANDBY), connector()
    before = connector_.connect(both.open)
    assert not connector_.is_former(before)
    both.answers[TWO] = NEW
    assert connector_.connect(both.open).server is NEW
    assert connector_.is_former(before)
    both.answers[TWO] = psycopg.OperationalError("connection refused\nby it")
    with pytest.raises(psycopg.OperationalError) as refused:
        connector_.connect(both.open)
    message = (
        f"no host can be used: {ONE} is a former primary (its timeline is 1, and another host had 2); {TWO}: "
        "connection refused; if an older state was restored on purpose, stop licserver on every machine, and "
        "start it again"
    )
    assert str(refused.value) == message


@pytest.mark.slow
def test_a_former_primary_is_known_after_a_restart(hosts, tmp_path):
    """By what the data folder keeps; a fresh cluster that was filled from a backup is another system."""
    connector(tmp_path).connect(hosts(first=OLD, second=NEW).open)
    with pytest.raises(psycopg.OperationalError, match="former primary") as refused:
        connector(tmp_path).connect(hosts(first=OLD, second=None).open)
    assert f"delete {tmp_path / 'timelines.json'}" in str(refused.value)
    fresh = Server(HostRole.PRIMARY, "fresh", 1)
    assert connector(tmp_path).connect(hosts(first=fresh, second=None).open).server is fresh
    (tmp_path / "timelines.json").unlink()  # after a restore to the older state
    assert connector(tmp_path).connect(hosts(first=OLD, second=None).open).server is OLD


def test_two_hosts_that_were_both_promoted_are_not_used(hosts):
    """Each would take activations that the other does not know."""
    noon, night = (Server(HostRole.PRIMARY, "s", 2, started) for started in ("noon", "night"))
    with pytest.raises(psycopg.OperationalError, match="they are two databases, and neither follows"):
        connector().connect(hosts(first=noon, second=night).open)


def test_one_name_that_moves_to_another_host_is_noticed(hosts):
    """Although open connections to the old one work."""
    both, connector_ = hosts(first=OLD, second=OLD), Connector({"host": ONE})
    before = connector_.connect(both.open)
    both.answers[ONE] = NEW
    assert connector_.look(both.open) == 10
    deadline = time.monotonic() + 5
    while not connector_.is_former(before):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_no_answer_at_all_is_reported_in_time(hosts):
    """Of both hosts: after a second and a half."""
    began = time.monotonic()
    with Standstill() as machine:
        with pytest.raises(NoResponseError, match=f"{ONE} does not answer; {TWO} does not answer"):
            connector().connect(hosts(first=None, second=None).open)
        ended = time.monotonic()
    assert ended - began < 2 + machine.within(began, ended)


def test_what_has_not_ended_yet_bounds_the_connections(hosts, monkeypatch):
    """While two dozen that were given up are still being ended, no other is opened."""
    monkeypatch.setattr("licserver.database.cancellation._ending", set(range(24)))
    both = hosts(first=NEW, second=STANDBY)
    with pytest.raises(NoResponseError, match="too many connections"):
        connector().connect(both.open)
    assert both.opened == []
