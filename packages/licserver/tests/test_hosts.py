"""Which host of a database URL is used: a pure decision, and what libpq's URLs mean."""

import pytest

from licserver.database.engine import connect
from licserver.database.hosts import HostRole, Server, choose, describe, split_hosts, split_libpq_url
from licserver.errors import SettingsError

OLD, NEW = Server(HostRole.PRIMARY, "s", 1), Server(HostRole.PRIMARY, "s", 2)
STANDBY, READ_ONLY = Server(HostRole.STANDBY, "s"), Server(HostRole.READ_ONLY, "s", 2)
UNKNOWN = Server(HostRole.PRIMARY)
ONE, TWO, OTHER = (
    Server(HostRole.PRIMARY, system, 2, started)
    for system, started in (("s", "noon"), ("s", "night"), ("x", "one"))
)
FOURTH = Server(HostRole.PRIMARY, "s", 4, "late")


@pytest.mark.parametrize(
    ("servers", "wanted", "newest", "chosen"),
    [
        ([STANDBY, NEW], "read-write", {}, 1),
        ([STANDBY, READ_ONLY], "read-write", {}, None),
        ([OLD, NEW], "read-write", {}, 1),
        ([NEW, OLD], "read-write", {"s": 2}, 0),
        ([OLD, STANDBY], "read-write", {"s": 2}, None),  # the promoted one was seen, and is away
        ([OLD], "read-write", {"another": 2}, 0),
        ([NEW, NEW], "read-write", {"s": 2}, 0),  # who answers first
        ([UNKNOWN, STANDBY], "read-write", {"s": 2}, 0),
        ([STANDBY, READ_ONLY], "primary", {}, 1),
        ([NEW, STANDBY], "standby", {}, 1),
        ([NEW], "standby", {}, None),
        ([NEW, STANDBY], "prefer-standby", {}, 1),
        ([NEW], "prefer-standby", {}, 0),
        ([STANDBY, NEW], "any", {}, 1),
        ([], "any", {}, None),
        ([ONE, TWO], "read-write", {}, None),  # two standbys were promoted
        ([ONE, STANDBY, OTHER], "read-write", {}, None),  # a database that was filled by itself
        ([ONE, ONE], "read-write", {}, 0),  # two names of one server
        ([ONE, UNKNOWN], "read-write", {}, 0),
        ([TWO, FOURTH], "read-write", {}, 1),
    ],
)
def test_of_the_hosts_that_answer_the_newest_primary_is_used(servers, wanted, newest, chosen):
    """A standby never is, unless the URL asks for one; a primary that was replaced never again."""
    named = {str(number): server for number, server in enumerate(servers)}
    assert choose(named, wanted, newest) == (None if chosen is None else str(chosen))


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://a:5433,b:5434/db", ["a:5433", "b:5434"]),
        ("postgresql://me:pw@a,b:5434/db?sslmode=require", ["a", "b:5434"]),
        ("postgres://me:p,w@a,b", ["a", "b"]),
        ("postgresql+psycopg://me@[::1]:5433,[::2]/db", ["::1:5433", "::2"]),
        ("postgresql://%2Frun%2Fone,%2Frun%2Ftwo/db", ["/run/one", "/run/two"]),
        ("postgresql://me@/db?host=a:5433&host=b:5434", ["a:5433", "b:5434"]),
        ("postgresql://me@/db?host=a,b&port=5433,5434", ["a:5433", "b:5434"]),
        ("postgresql://me:a,b@one:5433/db", ["one:5433"]),
        ("postgresql://me:pw,/x@one/db", ["one"]),
        ("postgresql:///db", ["the local host"]),
    ],
)
def test_urls_of_libpq_are_taken_as_they_are(url, hosts):
    """Several hosts may be written in any of its ways; the rest of the URL keeps its meaning."""
    engine = connect(url).engine
    parameters = engine.dialect.create_connect_args(engine.url)[1]
    assert list(split_hosts(parameters)) == hosts
    for own in split_hosts(parameters).values():
        assert own.get("password") in {None, "pw", "p,w", "a,b", "pw,/x"}
        assert own.get("sslmode") == ("require" if "sslmode" in url else None)


@pytest.mark.parametrize(
    "query", ["host=a,b,c&port=1,2", "host=a&host=b&port=1,2", "target_session_attrs=master"]
)
def test_hosts_that_make_no_sense_are_refused(query):
    """Before anything connects, without the password."""
    with pytest.raises(SettingsError, match="invalid query parameters") as refused:
        connect(f"postgresql://me:hunter2@/db?{query}")
    assert "hunter2" not in str(refused.value)


def test_one_port_is_that_of_all_hosts():
    """As in libpq."""
    assert list(split_hosts({"host": "a,b", "port": 5433})) == ["a:5433", "b:5433"]


def test_a_url_of_one_host_is_left_alone():
    """Nothing of it is rewritten."""
    for url in (
        "postgresql://u:p@a:5433/db?x=1,2",
        "sqlite:////tmp/a,b.sqlite3",
        "postgresql://u@/db?host=a,b",
    ):
        assert split_libpq_url(url) == (url, {})


@pytest.mark.parametrize(
    ("server", "description", "fault"),
    [
        (None, "cannot be reached", "until then it cannot take over"),
        (OLD, "is a former primary that can still be written to", "what is written to it will be lost"),
        (READ_ONLY, "is read-only", "no license can be activated"),
        (STANDBY, "is a standby", ""),
        (NEW, "is the primary", ""),
        (UNKNOWN, "is the primary", ""),
    ],
)
def test_a_host_is_described(server, description, fault):
    """What is wrong comes with what to do; only a host that is silent is away."""
    state = describe("db1:5432", server, {"s": 2})
    assert (state.name, state.description, state.is_warning) == ("db1:5432", description, server is None)
    assert state.fault.endswith(fault) or state.fault.startswith(fault)
    assert bool(state.fault) is bool(fault)


def test_check_says_that_two_hosts_are_rivals():
    """Each, because nothing says which is right; two names of one server, and a former primary, are none."""
    for first, other in ((ONE, TWO), (ONE, OTHER)):
        state = describe("db1:5432", first, {"s": 2}, [first, other])
        assert state.description == "can be written to, as another host can"
        assert "they are two databases" in state.fault
    assert not describe("db1:5432", ONE, {"s": 2}, [ONE, ONE, STANDBY]).fault
    assert not describe("db1:5432", FOURTH, {"s": 4}, [ONE, FOURTH]).fault


def test_ports_for_other_hosts_are_refused():
    """One port is for all hosts; two are not for three."""
    with pytest.raises(ValueError, match="as many ports as hosts"):
        split_hosts({"host": "a,b,c", "port": "1,2"})
