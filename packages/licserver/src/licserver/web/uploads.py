"""Multipart forms with a large file, which is streamed to the disk and never held in memory."""

import asyncio
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from aiohttp import hdrs, web
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from licserver.errors import InvalidInputError
from licserver.limits import (
    MAX_UPLOAD_BOUNDARY_CHARS,
    MAX_UPLOAD_FIELDS_BYTES,
    MAX_UPLOAD_OVERHEAD_BYTES,
    MAX_UPLOAD_TEXT_BYTES,
    MAX_UPLOAD_TYPE_CHARS,
)
from licserver.runtime.worker_threads import WorkerThreads
from licserver.security.private_files import validate_file_name
from licserver.settings import Settings
from licserver.web.responses import ApiError, TooLargeError, send_continue

_READ_SIZE: Final = 64 << 10  # bytes parsed at a time; the event loop serves others in between
_WRITE_SIZE: Final = 1 << 20
_RESERVED: Final = 64 << 20  # bytes left free on the disk, for the database beside it
_PREFIX: Final = ".upload-"
_ABANDONED_SECONDS: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class Upload:
    """A form that has arrived whole, with a valid file name; the file exists within the context only."""

    fields: Mapping[str, str]
    path: Path
    file_name: str
    sha256: bytes


@dataclass(frozen=True, slots=True)
class TextUpload:
    """As `Upload`, of a file with secrets: it was never on the disk."""

    fields: Mapping[str, str]
    file_name: str
    content: bytes


@asynccontextmanager
async def received_in_memory(
    request: web.Request,
    settings: Settings,
    threads: WorkerThreads,
    fields: frozenset[str],
    admit: Callable[[Mapping[str, str]], None],
) -> AsyncIterator[TextUpload]:
    """Receive a form as `received` does, with a file of at most `MAX_UPLOAD_TEXT_BYTES` bytes."""
    too_large = f"a file may have at most {MAX_UPLOAD_TEXT_BYTES >> 20} MiB here; use licserver import"
    target = io.BytesIO()
    form = _Form(settings, threads, fields, admit, _Target(target, None, MAX_UPLOAD_TEXT_BYTES, too_large))
    await form.read(request)
    yield TextUpload(form.fields, form.file_name or "", target.getvalue())


@asynccontextmanager
async def received(
    request: web.Request,
    settings: Settings,
    threads: WorkerThreads,
    fields: frozenset[str],
    admit: Callable[[Mapping[str, str]], None] = lambda _fields: None,
) -> AsyncIterator[Upload]:
    """Receive a form (``multipart/form-data``) with one file, ``file``, and the given fields.

    `admit` is called with the fields before the file; what it raises ends the upload before a byte is kept.
    When nothing arrives for `send_timeout` it is a 408.
    """
    too_large = f"a file may have at most {settings.upload_limit} bytes (LICSERVER_UPLOAD_LIMIT)"
    folder = settings.data_dir / "uploads"
    path = await threads.run(_create_file, folder)
    try:
        with path.open("wb") as file:
            target = _Target(file, folder, settings.upload_limit, too_large)
            form = _Form(settings, threads, fields, admit, target)
            digest = await form.read(request)
            yield Upload(form.fields, path, form.file_name or "", digest)
    finally:
        await threads.run(path.unlink, missing_ok=True)


class _Target(NamedTuple):
    """The target of a file: at most `limit` bytes, as long as the disk of `folder` has space."""

    file: BinaryIO
    folder: Path | None
    limit: int
    too_large: str


@dataclass(slots=True)
class _Form:
    """Reads a form."""

    settings: Settings
    threads: WorkerThreads
    allowed: frozenset[str]
    admit: Callable[[Mapping[str, str]], None]
    target: _Target
    fields: dict[str, str] = field(default_factory=dict)
    file_name: str | None = None
    _digest: Any = field(default_factory=hashlib.sha256)
    _size: int = 0
    _part: str = ""
    _buffer: bytearray = field(default_factory=bytearray)
    _fields_left: int = MAX_UPLOAD_FIELDS_BYTES

    async def read(self, request: web.Request) -> bytes:
        """Read all parts, in any order; return the file's SHA-256."""
        parser = PushMultipartParser(_find_boundary(request.headers.get(hdrs.CONTENT_TYPE, "")))
        if (request.content_length or 0) > self.target.limit + 2 * MAX_UPLOAD_FIELDS_BYTES:
            raise TooLargeError(self.target.too_large)
        overhead = 0
        await send_continue(request)
        try:
            while piece := await self._read_piece(request):
                overhead += len(piece)
                for event in parser.parse(piece):
                    if isinstance(event, MultipartSegment):
                        self._begin_part(event)
                    elif event is None:
                        await self._end_part()
                    else:
                        overhead -= len(event)
                        await self._append(event)
                if overhead > MAX_UPLOAD_OVERHEAD_BYTES:
                    raise InvalidInputError("the form is not valid multipart/form-data")
                await asyncio.sleep(0)
            parser.close()
        except MultipartError:
            raise InvalidInputError("the form is not valid multipart/form-data") from None
        if self.file_name is None:
            raise InvalidInputError("the form has no part named file")
        await self.threads.run(self.target.file.flush)
        digest: bytes = self._digest.digest()
        return digest

    def _begin_part(self, part: MultipartSegment) -> None:
        if not part.name:
            raise InvalidInputError("each part of the form must have a name")
        if part.name == "file":
            if self.file_name is not None:
                raise InvalidInputError("the form has more than one file")
            self.admit(self.fields)
            self.file_name = validate_file_name(part.filename or "")
        elif part.name not in self.allowed or part.name in self.fields:
            raise InvalidInputError(f"the form may have file, {', '.join(sorted(self.allowed))}, each once")
        self._part = part.name

    async def _append(self, piece: bytes) -> None:
        self._buffer += piece
        if self._part != "file":
            self._fields_left -= len(piece)
            if self._fields_left < 0:
                raise TooLargeError(
                    f"the form's fields may have at most {MAX_UPLOAD_FIELDS_BYTES} bytes together"
                )
            return
        self._size += len(piece)
        if self._size > self.target.limit:
            raise TooLargeError(self.target.too_large)
        if len(self._buffer) >= _WRITE_SIZE:
            await self._write()

    async def _end_part(self) -> None:
        if self._part == "file":
            await self._write()
            return
        try:
            self.fields[self._part] = self._buffer.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InvalidInputError(f"{self._part} is not UTF-8 text") from None
        self._buffer.clear()

    async def _write(self) -> None:
        await self.threads.run(self._append_to_file, bytes(self._buffer))
        self._buffer.clear()

    def _append_to_file(self, piece: bytes) -> None:
        folder = self.target.folder
        if folder is not None and shutil.disk_usage(folder).free < len(piece) + _RESERVED:
            raise TooLargeError("the disk has no space for this file")
        self._digest.update(piece)
        self.target.file.write(piece)

    async def _read_piece(self, request: web.Request) -> bytes:
        """Read the next bytes within `send_timeout`."""
        try:
            async with asyncio.timeout(self.settings.send_timeout):
                return await request.content.read(_READ_SIZE)
        except TimeoutError:
            raise ApiError(408) from None


def _find_boundary(content_type: str) -> str:
    kind, options = "", dict[str, str]()
    if len(content_type) <= MAX_UPLOAD_TYPE_CHARS:
        kind, options = parse_options_header(content_type)
    if kind != "multipart/form-data":
        raise InvalidInputError("send multipart/form-data with a part named file")
    boundary = options.get("boundary", "")
    if (
        not boundary.isascii()
        or not boundary.isprintable()
        or not 0 < len(boundary) <= MAX_UPLOAD_BOUNDARY_CHARS
    ):
        raise InvalidInputError("the form is not valid multipart/form-data")
    return boundary


def _create_file(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=_PREFIX)
    now = os.fstat(handle).st_mtime
    os.close(handle)
    for file in folder.glob(f"{_PREFIX}*"):  # left by processes that were killed
        with suppress(OSError):
            if now - file.stat().st_mtime > _ABANDONED_SECONDS:
                file.unlink()
    return Path(name)
