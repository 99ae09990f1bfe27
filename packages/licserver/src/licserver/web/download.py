"""Sending a release's file: from the disk to the socket, whole or in part."""

import asyncio
import logging
from typing import BinaryIO

from aiohttp import web

from licserver import rules, wire
from licserver.model import Release
from licserver.rules import DownloadRefusal
from licserver.signing import LinkSubject, read_link
from licserver.web.errors import send
from licserver.web.state import ARTIFACTS, CLOCK, DESK, VAULT

_log = logging.getLogger("licserver.web")


async def update_download(request: web.Request) -> web.StreamResponse:
    """Answer a signed link with the file (D-30 … D-33)."""
    app = request.app
    subject = read_link(request.rel_url.raw_query_string, app[VAULT].link_secrets, app[CLOCK]())
    if not isinstance(subject, LinkSubject):
        return send(wire.answer_download_refusal(subject))
    verdict = rules.judge_download(*await app[DESK].look_up_download(subject))
    if isinstance(verdict, DownloadRefusal):
        return send(wire.answer_download_refusal(verdict))
    return await _send_file(request, verdict)


async def _send_file(request: web.Request, release: Release) -> web.StreamResponse:
    size = release.artifact.size
    headers = wire.download_headers(release)
    asked = request.headers.get("Range") if request.method == "GET" else None  # RFC 9110 section 14.2
    span = wire.parse_range(asked, request.headers.get("If-Range"), wire.etag(release), size)
    if span is None:
        response, span = web.StreamResponse(headers=headers), wire.Span(0, size)
    elif span.length == 0:
        return web.Response(status=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    else:
        end = span.start + span.length - 1
        response = web.StreamResponse(
            status=206, headers={**headers, "Content-Range": f"bytes {span.start}-{end}/{size}"}
        )
    response.content_length = span.length
    file = await asyncio.to_thread(request.app[ARTIFACTS].open, release.artifact)
    try:
        await response.prepare(request)
        if span.length and request.method != "HEAD":
            await _stream(request, file, span)
        await response.write_eof()
    finally:
        await asyncio.to_thread(file.close)
    return response


async def _stream(request: web.Request, file: BinaryIO, span: wire.Span) -> None:
    """Let the kernel copy the bytes; the loop falls back to small reads where it cannot.

    Raises:
        ConnectionResetError: when the caller has gone, or the disk failed half way. The headers
            are out by then, so the connection must break: a short body is all that can be said.
    """
    transport = request.transport
    if transport is None:
        raise ConnectionResetError
    try:
        sent = await asyncio.get_running_loop().sendfile(transport, file, span.start, span.length)
    except (ConnectionError, RuntimeError):  # RuntimeError: the transport was closing already
        raise ConnectionResetError from None
    except OSError as problem:
        _log.error("reading an artifact failed half way: %s", problem)
        transport.abort()
        raise ConnectionResetError from None
    if sent != span.length:  # else the caller would wait on this connection for the rest
        _log.error("an artifact ended %d bytes early", span.length - sent)
        transport.abort()
        raise ConnectionResetError
