"""Which data is taken for a request of a hot route; aiohttp parses all other data itself."""

import asyncio

import pytest
from aiohttp import web

from licserver.serving.hot_requests import HotRequestParser, request_beginnings

ROUTES = [("POST", "/api/verify"), ("GET", "/api/check")]
HEAD = b"POST /api/verify HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
GET = b"GET /api/check?a=1 HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
async def parser():
    """The parser of a new connection."""
    loop = asyncio.get_running_loop()
    return HotRequestParser(web.RequestHandler(web.Server(None), loop=loop), request_beginnings(ROUTES))


async def test_whole_requests_are_parsed_one_after_another(parser):
    """Each with its own body, on one connection."""
    for _ in range(3):
        message, body = parser.parse(HEAD + b"\r\n{}")
        assert (message.method, message.path, body.read_nowait()) == ("POST", "/api/verify", b"{}")
        message, body = parser.parse(GET)
        assert (message.method, message.url.raw_query_string, body.is_eof()) == ("GET", "a=1", True)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GET[:-2],
        HEAD + b"\r\n{",
        GET + GET,
        GET + b"G",
        HEAD + b"\r\n{}" + HEAD,
        GET.replace(b"check", b"checks"),
        GET.replace(b"check", b"check/"),
        GET.replace(b"GET", b"HEAD"),
        GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        GET.replace(b"/api", b"http://x/api"),
        GET.replace(b"Host", b"Ho st"),
        GET.replace(b"a=1", b"a=\x00"),
        GET.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
        GET.replace(b"\r\n\r\n", b"\r\nX: " + b"y" * 70_000 + b"\r\n\r\n"),
        HEAD.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked") + b"\r\n0\r\n\r\n",
    ],
    ids=lambda data: repr(data[:60]),
)
async def test_other_data_is_left_to_aiohttp(parser, data):
    """Parts of a request, several, other routes, and what aiohttp has to refuse or to read in parts."""
    assert parser.parse(GET) is not None
    assert parser.parse(data) is None
