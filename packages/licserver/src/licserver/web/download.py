"""Downloads of a release's file, whole or in part: from the disk, from a bucket, or by redirect."""

import asyncio
import logging
from contextlib import aclosing
from typing import BinaryIO, Final

from aiohttp import web

from licserver.artifacts import ArtifactRedirect, Pieces
from licserver.domain import decisions
from licserver.domain.decisions import DownloadRefusal, DownloadVerdict
from licserver.domain.records import Release
from licserver.errors import ArtifactsError
from licserver.protocol import public_api
from licserver.protocol.downloads import LinkSubject, Span, parse_range
from licserver.web.app_state import ARTIFACTS, CLOCK, LIMITS, LINKS, QUERIES, SEND_TIMEOUT
from licserver.web.responses import send, send_unavailable

_PART_BYTES: Final = 1 << 20  # bytes that a client must accept within `send_timeout`

_log = logging.getLogger("licserver.web")


async def update_download(request: web.Request) -> web.StreamResponse:
    """Respond to a signed link with the file, or with a redirect to it (D-30 … D-34)."""
    verdict = await _decide(request)
    if isinstance(verdict, DownloadRefusal):
        return await _refuse(request, verdict)
    try:
        source = await request.app[ARTIFACTS].find(verdict.artifact, request.method)
        if isinstance(source, ArtifactRedirect):
            return web.Response(status=307, headers=public_api.redirect_headers(verdict, source.address))
        return await _send(request, verdict, source)
    except ArtifactsError as problem:
        _log.error("%s", problem)
        return send_unavailable("file")


async def update_manifest(request: web.Request) -> web.StreamResponse:
    """Respond to a signed link with the signed manifest of its release (D-67)."""
    verdict = await _decide(request)
    if isinstance(verdict, DownloadRefusal):
        return await _refuse(request, verdict)
    if verdict.manifest is None:
        return send(public_api.no_manifest_response())
    headers = {"Content-Type": public_api.MANIFEST_TYPE, "Cache-Control": "no-store", **public_api.NOT_A_PAGE}
    return web.Response(body=verdict.manifest.encode(), headers=headers)


async def _decide(request: web.Request) -> DownloadVerdict:
    app = request.app
    subject = app[LINKS].read(request.rel_url.raw_query_string, app[CLOCK]())
    if not isinstance(subject, LinkSubject):
        return subject
    return decisions.evaluate_download(*await app[QUERIES].find_download(subject))


async def _refuse(request: web.Request, refusal: DownloadRefusal) -> web.StreamResponse:
    response = public_api.download_refusal_response(refusal)
    if refusal in decisions.MISSES:
        return await request.app[LIMITS].answer_miss(request, response)
    return send(response)


async def _send(request: web.Request, release: Release, source: BinaryIO | Pieces) -> web.StreamResponse:
    try:
        response, span = _begin(request, release)
        if span.length == 0 or request.method == "HEAD":
            await response.prepare(request)
        elif isinstance(source, Pieces):
            await _send_pieces(request, response, source, span)
        else:
            await response.prepare(request)
            await _send_file(request, source, span)
        await response.write_eof()
    finally:
        if not isinstance(source, Pieces):
            await asyncio.to_thread(source.close)
    return response


def _begin(request: web.Request, release: Release) -> tuple[web.StreamResponse, Span]:
    """Create the response without its content, and find which bytes belong to it."""
    size = release.artifact.size
    headers = public_api.download_headers(release)
    wanted = request.headers.get("Range") if request.method == "GET" else None  # RFC 9110 section 14.2
    span = parse_range(wanted, request.headers.get("If-Range"), public_api.etag(release), size)
    if span is None:
        response, span = web.StreamResponse(headers=headers), Span(0, size)
    elif span.length == 0:
        return web.Response(status=416, headers={**headers, "Content-Range": f"bytes */{size}"}), span
    else:
        end = span.start + span.length - 1
        response = web.StreamResponse(
            status=206, headers={**headers, "Content-Range": f"bytes {span.start}-{end}/{size}"}
        )
    response.content_length = span.length
    return response, span


async def _send_file(request: web.Request, file: BinaryIO, span: Span) -> None:
    """Have the kernel copy the bytes; asyncio falls back to small reads where it cannot.

    A client that is gone or does not read (D-72), and a disk that fails half way, are a
    `ConnectionResetError`: the headers are sent by then, so that only a broken connection can report it.
    """
    transport = request.transport
    if transport is None:
        raise ConnectionResetError
    loop, timeout, sent = asyncio.get_running_loop(), request.app[SEND_TIMEOUT], 0
    try:
        while sent < span.length:
            async with asyncio.timeout(timeout):
                part = min(_PART_BYTES, span.length - sent)
                copied = await loop.sendfile(transport, file, span.start + sent, part)
            sent += copied
            if copied != part:
                break
    except TimeoutError:
        transport.abort()
        raise ConnectionResetError from None
    except (ConnectionError, RuntimeError):  # RuntimeError: the transport was closing already
        raise ConnectionResetError from None
    except OSError as problem:
        _log.error("reading an artifact failed half way: %s", problem)
        transport.abort()
        raise ConnectionResetError from None
    if sent != span.length:  # the client would wait for the rest
        _log.error("an artifact ended %d bytes early", span.length - sent)
        transport.abort()
        raise ConnectionResetError


async def _send_pieces(
    request: web.Request, response: web.StreamResponse, source: Pieces, span: Span
) -> None:
    """Forward what the bucket sends; the headers are sent when the first piece has arrived.

    Without a first piece it is an `ArtifactsError`, later a `ConnectionResetError`, as in `_send_file`.
    """
    async with aclosing(source.read(span.start, span.length)) as pieces:
        piece = await anext(pieces)
        await response.prepare(request)
        await response.write(piece)
        try:
            async for piece in pieces:
                await response.write(piece)
        except ArtifactsError as problem:
            _log.error("half way through a download: %s", problem)
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError from None
