"""Downloads: a file, whole or in part, from the disk, from a bucket or by redirect; and its manifest."""

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass
from typing import BinaryIO, Final

from aiohttp import web

from licserver.artifacts import ArtifactRedirect, Pieces, Source
from licserver.domain import decisions
from licserver.domain.decisions import DownloadRefusal, DownloadVerdict
from licserver.domain.offers import NO_LICENSE, public_feed_license
from licserver.domain.records import Release
from licserver.errors import ArtifactsError
from licserver.protocol import public_api
from licserver.protocol.downloads import (
    LinkSubject,
    Span,
    content_md5,
    download_headers,
    etag,
    is_unmodified,
    parse_range,
    patch_headers,
    read_patch_base,
    redirect_headers,
)
from licserver.services.installation import Services
from licserver.web.public import PublicEndpoints
from licserver.web.responses import send, send_content, send_unavailable

_PART_BYTES: Final = 1 << 20  # bytes of a file that a client must accept within `send_timeout`

_log = logging.getLogger("licserver.web")


@dataclass(frozen=True, slots=True)
class Downloads:
    """Handlers of signed download links."""

    public: PublicEndpoints
    services: Services

    async def send_file(self, request: web.Request) -> web.StreamResponse:
        """Respond to a signed link with the file, or with a redirect to it."""
        verdict = await self._evaluate_link(request)
        if isinstance(verdict, DownloadRefusal):
            return await self._refuse(request, verdict)
        try:
            sent, source = await self._find(request, verdict)
            extra = {} if sent is verdict else patch_headers(verdict.artifact)
            if is_unmodified(request.headers.getall("If-None-Match", ()), etag(sent)):
                return await _send_unmodified(sent, source, extra)
            if isinstance(source, ArtifactRedirect):
                headers = redirect_headers(sent, source.address) | extra
                return web.Response(status=307, headers=headers)
            return await self._send(request, sent, source, extra)
        except ArtifactsError as problem:
            _log.error("%s", problem)
            return send_unavailable("file")

    async def send_manifest(self, request: web.Request) -> web.StreamResponse:
        """Respond to a signed link with the signed manifest of its release."""
        verdict = await self._evaluate_link(request)
        if isinstance(verdict, DownloadRefusal):
            return await self._refuse(request, verdict)
        if verdict.manifest is None:
            return send(public_api.no_manifest_response())
        return send_content(200, verdict.manifest.encode(), public_api.MANIFEST_TYPE)

    async def _find(self, request: web.Request, release: Release) -> tuple[Release, Source]:
        """Return a release and how to send its file; with a patch instead if the request accepts one.

        Raises:
            ArtifactsError: The file is not there.
        """
        artifacts, releases = self.services.artifacts, self.services.repositories.releases
        base = read_patch_base(request.headers) if request.method == "GET" else None
        patch = base and (await asyncio.to_thread(releases.list_patches, release)).get(base)
        if patch:
            try:
                source = await artifacts.find(patch, request.method)
                return release._replace(artifact=patch), source
            except ArtifactsError as problem:
                _log.error("a whole file is sent in place of a patch: %s", problem)
        return release, await artifacts.find(release.artifact, request.method)

    async def _evaluate_link(self, request: web.Request) -> DownloadVerdict:
        subject = self.public.links.read(request.rel_url.raw_query_string, self.public.clock())
        if not isinstance(subject, LinkSubject):
            return subject
        license_, release = await self.public.queries.find_download(subject)
        if subject.license_id == NO_LICENSE and release is not None:
            license_ = public_feed_license(release.product_id)
        return decisions.evaluate_download(license_, release)

    async def _refuse(self, request: web.Request, refusal: DownloadRefusal) -> web.StreamResponse:
        response = public_api.download_refusal_response(refusal)
        if refusal in decisions.MISSES:
            return await self.public.rate_limiter.respond_to_miss(request, response)
        return send(response)

    async def _send(
        self, request: web.Request, release: Release, source: BinaryIO | Pieces, extra: dict[str, str]
    ) -> web.StreamResponse:
        try:
            response, span = _begin(request, release, extra)
            if span.length == 0 or request.method == "HEAD":
                await response.prepare(request)
            elif isinstance(source, Pieces):
                await _send_pieces(request, response, source, span)
            else:
                await response.prepare(request)
                await _send_file(request, source, span, self.public.settings.send_timeout)
            await response.write_eof()
        finally:
            if not isinstance(source, Pieces):
                await asyncio.to_thread(source.close)
        return response


async def _send_unmodified(release: Release, source: Source, extra: dict[str, str]) -> web.StreamResponse:
    """Respond that the client has the file already."""
    if not isinstance(source, Pieces | ArtifactRedirect):
        await asyncio.to_thread(source.close)
    header_names = {"Cache-Control", "ETag", "Vary", *public_api.NOT_A_PAGE}
    headers = download_headers(release) | extra
    return web.Response(
        status=304, headers={name: value for name, value in headers.items() if name in header_names}
    )


def _begin(request: web.Request, release: Release, extra: dict[str, str]) -> tuple[web.StreamResponse, Span]:
    """Create the response without its content, and find which bytes belong to it."""
    size = release.artifact.size
    headers = download_headers(release) | extra
    range_field = request.headers.get("Range") if request.method == "GET" else None  # RFC 9110 section 14.2
    span = parse_range(range_field, request.headers.get("If-Range"), etag(release), size)
    if span is None:
        response, span = web.StreamResponse(headers=headers | content_md5(release)), Span(0, size)
    elif span.length == 0:
        return web.Response(status=416, headers={**headers, "Content-Range": f"bytes */{size}"}), span
    else:
        end = span.start + span.length - 1
        response = web.StreamResponse(
            status=206, headers={**headers, "Content-Range": f"bytes {span.start}-{end}/{size}"}
        )
    response.content_length = span.length
    return response, span


async def _send_file(request: web.Request, file: BinaryIO, span: Span, timeout: float) -> None:  # noqa: ASYNC109
    """Have the kernel copy the bytes; asyncio falls back to small reads where it cannot.

    A client that is gone or does not read, and a disk that fails half way, are a
    `ConnectionResetError`: the headers are sent by then, so that only a broken connection can report it.
    """
    transport = request.transport
    if transport is None:
        raise ConnectionResetError
    loop, sent = asyncio.get_running_loop(), 0
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
