"""Nothing that a client sends makes the server fail (D-11): raw sockets, rubbish, wrong methods."""

import asyncio
import logging
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from licserver.serving import connections

VERIFY, UPDATE, DOWNLOAD = "/api/v1/licenses/verify", "/api/v1/update-check", "/api/v1/update-download"
PATHS = {VERIFY: {"POST"}, UPDATE: {"GET", "HEAD"}, DOWNLOAD: {"GET", "HEAD"}, "/healthz": {"GET", "HEAD"}}
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]


async def test_a_method_that_an_address_does_not_take(site):
    """405 with the methods that it does take, as JSON."""
    for path, allowed in PATHS.items():
        for method in METHODS:
            status, headers, body = await site.call(method, path)
            if method in allowed:
                assert status != 405
                continue
            assert status == 405, (method, path)
            assert set(headers["Allow"].split(",")) == allowed
            assert method == "HEAD" or body["error"] == "method_not_allowed"


async def test_every_other_address_is_not_found(site):
    """404 in the one format of errors."""
    expected = (404, {"error": "not_found", "message": "There is nothing at this address."})
    for path in (
        "/api",
        "/api/v1",
        f"{VERIFY}/",
        "/API/v1/update-check",
        "/healthz/x",
        "/%ff%fe",
        "/...",
    ):
        assert (await site.call("GET", path))[::2] == expected, path
    assert (await site.call("GET", "/%252e%252e/console"))[::2] == expected


async def test_healthz_says_that_the_process_runs(site):
    """Cheap to ask, by GET and by HEAD."""
    assert (await site.call("GET", "/healthz"))[::2] == (200, {"status": "ok"})
    assert (await site.call("HEAD", "/healthz"))[::2] == (200, b"")


async def test_one_connection_serves_many_requests(site):
    """Refusals of every kind leave a connection good for the next request."""
    requests = [
        ("GET", "/healthz"),
        ("POST", VERIFY),
        ("GET", "/x"),
        ("PUT", VERIFY),
        ("GET", UPDATE),
        ("GET", "/healthz"),
    ]
    lines = b"".join(
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()
        for method, path in requests
    )
    answer = await site.raw(lines + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [
        b"200",
        b"422",
        b"404",
        b"405",
        b"422",
        b"200",
        b"200",
    ]


def post(*headers: bytes, body: bytes = b"", path: str = VERIFY) -> bytes:
    """A raw POST."""
    lines = [b"POST " + path.encode() + b" HTTP/1.1", b"Host: x", b"Connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


JSON_ERRORS = {  # errors that the server reports as JSON
    "expectation": (post(b"Expect: miracles", b"Content-Length: 0"), 417),
    "expected continue": (post(b"Expect: 100-continue", b"Content-Length: 2", body=b"[]"), 422),
    "gzip": (post(b"Content-Encoding: gzip", b"Content-Length: 4", body=b"rubb"), 415),
    "unknown encoding": (post(b"Content-Encoding: rot13", b"Content-Length: 2", body=b"{}"), 415),
    "identity": (post(b"Content-Encoding: identity", b"Content-Length: 2", body=b"{}"), 415),
    "unknown charset": (
        post(b"Content-Type: application/json; charset=klingon", b"Content-Length: 2", body=b"{}"),
        422,
    ),
    "multipart": (post(b"Content-Type: multipart/form-data", b"Content-Length: 2", body=b"{}"), 422),
    "pieces": (post(b"Transfer-Encoding: chunked", body=b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"), 422),
    "form on the query": (
        b"GET " + UPDATE.encode() + b"?\xff\xfe=\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        None,
    ),
}


async def test_an_odd_request_is_read_or_refused(site):
    """Encodings, expectations and pieces are read or refused with a status of their own."""
    for name, (request, status) in JSON_ERRORS.items():
        answer = await site.raw(request)
        found = int(answer.split(b" ", 2)[1])
        assert found == status or (status is None and 400 <= found < 500), name
        assert status is None or b"Content-Type: application/json" in answer, name


BROKEN = {
    "nothing": b"",
    "line break": b"\r\n\r\n",
    "a method of its own": b"BREW / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    "no version": b"GET /healthz\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/9.9": b"GET / HTTP/9.9\r\n\r\n",
    "HTTP/1.0": b"GET /healthz HTTP/1.0\r\n\r\n",
    "1.0 without a host": b"GET " + UPDATE.encode() + b" HTTP/1.0\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
    "raw bytes in the path": b"GET /\xff\xfe\x80 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "raw UTF-8 in the path": "GET /möbel?ä=ö HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode(),
    "NUL in the path": b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "blank in the path": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "absolute": b"GET http://evil.example/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "absolute without a host": b"GET http:// HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "bad port": b"GET http://a:99999/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "open bracket": b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "CONNECT": b"CONNECT a.example:443 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "star": b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "only a query": b"GET ? HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "long path": b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    "header without a colon": b"GET / HTTP/1.1\r\nHost: x\r\nrubbish\r\n\r\n",
    "raw bytes in a header": b"GET / HTTP/1.1\r\nHost: x\r\nX-Y: \xff\x80\r\nConnection: close\r\n\r\n",
    "raw bytes in X-Forwarded-For": post(b"X-Forwarded-For: \xff, \x80", b"Content-Length: 0"),
    "raw bytes in a range": b"GET "
    + DOWNLOAD.encode()
    + b" HTTP/1.1\r\nHost: x\r\nRange: \xff\r\nConnection: close\r\n\r\n",
    "NUL in a header": b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\nConnection: close\r\n\r\n",
    "lone line feeds": b"GET /healthz HTTP/1.1\nHost: x\n\n",
    "negative length": post(b"Content-Length: -1"),
    "length of letters": post(b"Content-Length: ten"),
    "endless length": post(b"Content-Length: " + b"9" * 400),
    "two lengths": post(b"Content-Length: 1", b"Content-Length: 2", body=b"ab"),
    "length and pieces": post(b"Content-Length: 3", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "piece of letters": post(b"Transfer-Encoding: chunked", body=b"zz\r\n"),
    "negative piece": post(b"Transfer-Encoding: chunked", body=b"-1\r\n"),
    "endless piece": post(b"Transfer-Encoding: chunked", body=b"f" * 40 + b"\r\n"),
    "piece longer than announced": post(b"Transfer-Encoding: chunked", body=b"1\r\nabc\r\n0\r\n\r\n"),
    "unknown coding": post(b"Transfer-Encoding: rot13", body=b"x"),
    "cut short": post(b"Content-Length: 50", body=b'{"license_key": "'),
    "bad upgrade": b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "bad cookie": b'GET /healthz HTTP/1.1\r\nHost: x\r\nCookie: \xff="\r\nConnection: close\r\n\r\n',
}


async def survives(site, data):
    """Send bytes and then the end; whatever comes back is no 5xx, and the server lives."""
    answer = await site.raw(data, end=True)
    assert b"HTTP/1.1 5" not in answer
    assert b"HTTP/1.0 5" not in answer
    assert b"Traceback" not in answer
    for response in answer.split(b"HTTP/1.")[1:]:  # also what never became a request gets our own format
        if b" 4" in response[:6] and b"\r\nContent-Length: 0\r\n" not in response:
            assert b"\r\nContent-Type: application/json\r\n" in response
            assert b"\r\nX-Content-Type-Options: nosniff\r\n" in response
            assert b"\r\nCache-Control: no-store\r\n" in response
    assert (await site.call("GET", "/healthz"))[0] == 200


@pytest.mark.sampled(6)
@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
async def test_broken_http_is_no_failure_of_the_server(site, data):
    """Whatever comes over the socket is the sender's fault, or nothing."""
    await survives(site, data)
    assert b"HTTP/1.1 5" not in await asyncio.wait_for(first_bytes(site, data), 5)


async def first_bytes(site, data):
    """Send bytes and leave the connection open; what comes back within a moment."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(data)
    try:
        async with asyncio.timeout(0.05):
            return await reader.read(2000)
    except (TimeoutError, ConnectionError):
        return b""
    finally:
        writer.close()


RUBBISH = st.one_of(
    st.binary(max_size=60),
    st.builds(
        lambda method, path, name, value, body: (
            b"%s %s HTTP/1.1\r\nHost: x\r\n%s: %s\r\nConnection: close\r\n\r\n%s"
            % (method, path, name, value, body)
        ),
        st.sampled_from([b"GET", b"POST", b"HEAD", b"get", b"\xff"]),
        st.one_of(
            st.binary(max_size=20),
            st.binary(max_size=30).map(lambda query: UPDATE.encode() + b"?" + query),
            st.binary(max_size=30).map(lambda query: DOWNLOAD.encode() + b"?" + query),
            st.just(VERIFY.encode()),
        ),
        st.sampled_from(
            [b"Content-Length", b"Transfer-Encoding", b"Content-Encoding", b"Range", b"Expect", b"X"]
        ),
        st.one_of(st.binary(max_size=12), st.sampled_from([b"0", b"5", b"chunked", b"gzip", b"bytes=0-"])),
        st.binary(max_size=20),
    ),
)


@pytest.mark.slow
async def test_no_bytes_make_the_server_fail(site):
    """Two hundred requests of half-correct HTTP, with raw bytes in every place, never give a 5xx."""
    loop = asyncio.get_running_loop()

    @given(RUBBISH)
    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    def hammer(data):
        with socket.create_connection(("127.0.0.1", site.port), timeout=10) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            except OSError:
                answer = b""
        assert b"HTTP/1.1 5" not in answer
        assert b"HTTP/1.0 5" not in answer

    await loop.run_in_executor(None, hammer)
    assert (await site.call("GET", "/healthz"))[0] == 200


async def test_the_access_log_has_no_query_and_one_line_a_request(site, world, caplog):
    """Keys stand in queries, so these are never logged; nor does a path bring a line break along."""
    caplog.set_level(logging.INFO, "aiohttp.access")
    key = world.key()
    await site.check(key)
    await site.raw(b"GET /a%0d%0ab%1b%5b31m HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    lines = [record.getMessage() for record in caplog.records if record.name == "aiohttp.access"]
    assert len(lines) == 2
    assert UPDATE in lines[0]
    assert key not in caplog.text
    assert "?" not in lines[0]
    assert all(line.isprintable() for line in lines)


async def test_strangers_do_not_write_the_log(site, caplog, monkeypatch):
    """Broken bodies and what is no request: a line a second, whoever sends how many; no traceback."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(connections, "_UNREADABLE", connections.ThrottledLog())  # nothing was logged yet
    broken = post(b"Transfer-Encoding: chunked", body=b"zz\r\n")
    for data in [broken, BROKEN["TLS"]] * 20:
        await site.raw(data)
    lines = [
        line for line in caplog.messages if "Error" in line or "unreadable" in line or "Unhandled" in line
    ]
    assert 1 <= len(lines) <= 10  # forty would be one for each
    assert all("unreadable request" in line for line in lines)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("name", ["CONNECT", "star"])
async def test_what_has_no_path_is_not_found_in_our_own_shape(site, name):
    """JSON as everywhere, and not a word of what answers."""
    head, _, body = (await site.raw(BROKEN[name])).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ")
    assert b'"not_found"' in body
    assert b"\r\nServer:" not in head
