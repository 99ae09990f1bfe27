"""The log: text or JSON lines, a name for each request that is written about (D-100), and never a key."""

import io
import json
import logging
import time

import pytest

from harness.engines import sqlite_only
from harness.fetching import fetch
from licserver.errors import ArtifactsError, StoreUnavailableError
from licserver.runtime import logging as logs
from licserver.runtime.logging import HEADER, LimitedHandler, make_formatter
from licserver.settings import LogFormat


def listen(monkeypatch: pytest.MonkeyPatch, name: str = "licserver.web") -> io.StringIO:
    """Have the server log as JSON into a text; called within a test, or pytest would write it as it is."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(make_formatter(LogFormat.JSON))
    log = logging.getLogger(name)
    monkeypatch.setattr(log, "handlers", [handler])
    monkeypatch.setattr(log, "propagate", False)
    return stream


@pytest.fixture
def limited(monkeypatch):
    """A log that writes two equal lines a minute, and what it wrote."""
    stream = io.StringIO()
    handler = LimitedHandler(stream, 2)
    log = logging.getLogger("licserver.limited")
    monkeypatch.setattr(log, "handlers", [handler])
    monkeypatch.setattr(log, "propagate", False)
    log.setLevel(logging.INFO)
    yield log, lambda: stream.getvalue().splitlines()
    handler.close()


def fail_often(log, times):
    """As a server does in an outage: a line a request."""
    for number in range(times):
        request_id = f"id-{number:x}"
        log.error("POST /verify: no database (%s)", request_id, extra={"request_id": request_id})


def test_equal_lines_are_counted_after_the_first_ones(limited):
    """An outage is a few lines a minute, not one a request; other lines and requests are not affected."""
    log, written = limited
    fail_often(log, 1000)
    log.error("GET /readyz: no database")
    for _ in range(5):
        log.info("GET /healthz 200")
    assert written() == [
        "POST /verify: no database (id-0)",
        "POST /verify: no database (id-1)",
        "GET /readyz: no database",
        *["GET /healthz 200"] * 5,
    ]


def test_what_was_left_out_is_counted_within_a_minute(limited, monkeypatch):
    """Also when nothing else is logged any more; then the next lines are written again."""
    monkeypatch.setattr(logs, "LOG_WINDOW", 0.2)
    log, written = limited
    fail_often(log, 50)
    deadline = time.monotonic() + 20
    while len(written()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert written()[2].startswith("left out 48 more lines in 0 s like: POST /verify: no database (id-0)")
    fail_often(log, 1)
    assert written()[3:] == ["POST /verify: no database (id-0)"]


def test_the_last_count_is_written_when_the_process_ends(limited):
    """A server that is stopped in an outage says how many lines it left out."""
    log, written = limited
    fail_often(log, 5)
    log.handlers[0].close()
    assert written()[2:] == ["left out 3 more lines in 60 s like: POST /verify: no database (id-0)"]


@pytest.fixture
def broken(monkeypatch, world, new_key):
    """A store whose every answer is a fault that quotes a key."""
    key = new_key()

    def fail(*_: object) -> None:
        raise ZeroDivisionError(f"{key} in a message\nof two lines")

    monkeypatch.setattr("licserver.database.hot_path.store.BatchStore.find_licenses", fail)
    return key


async def test_a_fault_is_one_line_with_the_request_id_that_its_caller_gets(broken, site, world, monkeypatch):
    """Who reports a 500 can name it, and the operator finds its traceback; no key is in either."""
    key, logged = world.key(), listen(monkeypatch)
    status, headers, _ = await site.call(
        "POST", "/api/v1/licenses/verify", json={"license_key": key, "domain": "x", "ip": "192.0.2.1"}
    )
    assert status == 500
    (line,) = map(json.loads, logged.getvalue().splitlines())
    assert line["request_id"] == headers[HEADER]
    assert line["level"] == "ERROR"
    assert (line["method"], line["path"], line["status"]) == ("POST", "/api/v1/licenses/verify", 500)
    assert "ZeroDivisionError" in line["exception"]
    assert broken not in json.dumps(line)
    assert key not in json.dumps(line)


@sqlite_only
@pytest.mark.parametrize(
    ("problem", "expected"),
    [(ZeroDivisionError("x"), 500), (StoreUnavailableError("x"), 503), (ArtifactsError("x"), 503)],
)
@pytest.mark.parametrize(
    ("path", "method", "side"),
    [
        ("/admin/api/v1/products", "tokens.TokenService.authenticate", "admin"),
        ("/console/sign-in", "users.UserService.list_all", "console"),
    ],
)
async def test_so_it_is_on_the_vendors_side(path, method, side, problem, expected, site, monkeypatch):
    """What fails for the shop or in the console has a name as well, and a line that can be searched."""
    logged = listen(monkeypatch, f"licserver.{side}")

    def fail(*_: object) -> None:
        raise problem

    monkeypatch.setattr(f"licserver.services.{method}", fail)
    status, headers, _ = await site.call("GET", path, headers={"Authorization": "Bearer x"})
    (line,) = map(json.loads, logged.getvalue().splitlines())
    assert status == expected
    assert line["request_id"] == headers[HEADER]
    assert (line["method"], line["path"], line["status"]) == ("GET", path, expected)
    assert ("exception" in line) is (expected == 500)


REQUEST_IDS = {
    "a proxy that is believed": ("req-7f3a:1/2", "127.0.0.1", True),
    "somebody else": ("req-7f3a:1/2", "10.0.0.1", False),
    "too long": ("x" * 65, "127.0.0.1", False),
    "line breaks, once decoded": ("a%0ab", "127.0.0.1", False),
    "blank": ("", "127.0.0.1", False),
    "a word with a key": ("CP-AAAAAA-BBBBBB", "127.0.0.1", False),
}


@pytest.mark.sampled(3)
@sqlite_only
@pytest.mark.parametrize("case", REQUEST_IDS)
async def test_whose_name_for_a_request_is_taken(case, make_world, open_site, monkeypatch):
    """A trusted proxy's, if it is short and plain; else the request gets one of ours."""
    request_id, trusted, taken = REQUEST_IDS[case]
    world = make_world(trusted_proxies=trusted)

    def fail(*_: object) -> None:
        raise StoreUnavailableError("the database is away")

    monkeypatch.setattr("licserver.database.hot_path.store.BatchStore.find_licenses", fail)
    site = await open_site(world)
    body = {"license_key": world.key(), "domain": "x", "ip": "192.0.2.1"}
    status, headers, _ = await site.call(
        "POST", "/api/v1/licenses/verify", json=body, headers={HEADER: request_id}
    )
    assert status == 503
    assert (headers[HEADER] == request_id) is taken
    assert taken or len(headers[HEADER]) == 16


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_json_lines_from_the_first_to_the_last(program, workers):
    """With LICSERVER_LOG_FORMAT=json every line is an object, and names the client behind a proxy."""
    program.environ |= {
        "LICSERVER_LOG_FORMAT": "json",
        "LICSERVER_ACCESS_LOG": "true",
        "LICSERVER_TRUSTED_PROXIES": "127.0.0.1",
    }
    with program.serve("--workers", workers) as (process, address):
        headers = {"X-Forwarded-For": "198.51.100.7", HEADER: "from-the-proxy"}
        assert fetch(f"{address}/nothing?secret=1", headers=headers)[0] == 404
        process.terminate()
        _, printed = process.communicate(timeout=30)
    (line,) = [line for line in map(json.loads, printed.splitlines()) if line["logger"] == "licserver.access"]
    assert line["request_id"] == "from-the-proxy"
    assert line["remote"] == "198.51.100.7"
    assert (line["method"], line["path"], line["status"]) == ("GET", "/nothing", 404)
    assert line["seconds"] >= 0
    assert "secret" not in printed


def test_what_is_masked_leaves_the_line_whole(new_key):
    """A private key without its end, which is masked to the end of the text, takes no bracket along."""
    record = logging.LogRecord("x", logging.INFO, "", 1, "-----BEGIN PRIVATE KEY-----\nMC4", (), None)
    record.path = f"/{new_key()}"
    line = json.loads(make_formatter(LogFormat.JSON).format(record))
    assert line["message"] == "… PRIVATE KEY …"
    assert "…" in line["path"]
