"""Forms with a large file: the file goes to the disk as it comes, and is never held in memory."""

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from aiohttp import hdrs, web
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from licserver.errors import WrongUse
from licserver.security.private_files import checked_name
from licserver.settings import Settings
from licserver.web.errors import ApiError, TooLargeError, send_continue
from licserver.web.worker_threads import WorkerThreads

MAX_FIELD: Final = 1 << 20
"""Bytes of a field that is no file; of all of them together as well."""

_MAX_OVERHEAD: Final = 64 << 10
"""Bytes that belong to no part: before, between and after them, with their headers (D-153)."""

_MAX_BOUNDARY: Final = 70
"""Characters (RFC 2046, 5.1.1)."""

_MAX_CONTENT_TYPE: Final = 512
"""Characters of the ``Content-Type`` that names the boundary."""

_READ_SIZE: Final = 64 << 10
"""Bytes parsed at a time; between two of them the event loop serves others."""

_WRITE_SIZE: Final = 1 << 20
_SPARE: Final = 64 << 20
"""Bytes that are left free on the disk, for the database beside it."""

_INCOMING: Final = ".upload-"
_ABANDONED_SECONDS: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class Upload:
    """A form that has come whole.

    Args:
        fields: What is no file, as text, by name.
        path: The file; it is gone when the form is left.
        file_name: What the caller calls it, checked.
        size: Its bytes.
        sha256: Its digest.
    """

    fields: Mapping[str, str]
    path: Path
    file_name: str
    size: int
    sha256: bytes


@asynccontextmanager
async def received(
    request: web.Request,
    settings: Settings,
    off_loop: WorkerThreads,
    fields: frozenset[str],
    admit: Callable[[Mapping[str, str]], None] = lambda _fields: None,
) -> AsyncIterator[Upload]:
    """Receive a form (``multipart/form-data``) with one file, ``file``, and some fields.

    Args:
        request: Its body has not been read yet.
        settings: How large a file may be, and how long to wait for the next piece of it.
        off_loop: Does the writing.
        fields: Names of the other fields that are taken.
        admit: Called with the fields that stand before the file; what it raises ends the upload before a
            byte of the file is kept.

    Yields:
        The form; its file is removed in the end.

    Raises:
        WrongUse: for a form that is none, without a file or with an unknown field.
        TooLargeError: as soon as it is known.
        ApiError: 408 when nothing comes for too long.
    """
    boundary = _find_boundary(request.headers.get(hdrs.CONTENT_TYPE, ""))
    if (request.content_length or 0) > settings.upload_limit + 2 * MAX_FIELD:
        raise TooLargeError(_too_large(settings))
    folder = settings.data_dir / "uploads"
    path = await off_loop.run(_new_file, folder)
    try:
        with path.open("wb") as target:
            yield await _Form(settings, off_loop, fields, admit, target, path).read(request, boundary)
    finally:
        await off_loop.run(path.unlink, missing_ok=True)


class _Form:
    """A form that is being read."""

    def __init__(
        self,
        settings: Settings,
        off_loop: WorkerThreads,
        fields: frozenset[str],
        admit: Callable[[Mapping[str, str]], None],
        target: BinaryIO,
        path: Path,
    ) -> None:
        self._settings, self._off_loop, self._wanted, self._admit = settings, off_loop, fields, admit
        self._target, self._path = target, path
        self._fields: dict[str, str] = {}
        self._digest = hashlib.sha256()
        self._file_name: str | None = None
        self._size = 0
        self._part = ""
        self._held = bytearray()
        self._fields_left = MAX_FIELD

    async def read(self, request: web.Request, boundary: str) -> Upload:
        """Read all parts, in any order."""
        parser = PushMultipartParser(boundary)
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
                        await self._take(event)
                if overhead > _MAX_OVERHEAD:
                    raise WrongUse("the form cannot be read")
                await asyncio.sleep(0)
            parser.close()
        except MultipartError:
            raise WrongUse("the form cannot be read") from None
        if self._file_name is None:
            raise WrongUse("the form has no part named file")
        await self._off_loop.run(self._target.flush)
        return Upload(self._fields, self._path, self._file_name, self._size, self._digest.digest())

    def _begin_part(self, part: MultipartSegment) -> None:
        if not part.name:
            raise WrongUse("each part of the form needs a name")
        if part.name == "file":
            if self._file_name is not None:
                raise WrongUse("the form has two files")
            self._admit(self._fields)
            self._file_name = checked_name(part.filename or "")
        elif part.name not in self._wanted or part.name in self._fields:
            raise WrongUse(f"the form takes file, {', '.join(sorted(self._wanted))}, each once")
        self._part = part.name

    async def _take(self, piece: bytes) -> None:
        self._held += piece
        if self._part != "file":
            self._fields_left -= len(piece)
            if self._fields_left < 0:
                raise TooLargeError(f"the form's fields have more than {MAX_FIELD} bytes")
            return
        self._size += len(piece)
        if self._size > self._settings.upload_limit:
            raise TooLargeError(_too_large(self._settings))
        if len(self._held) >= _WRITE_SIZE:
            await self._write()

    async def _end_part(self) -> None:
        if self._part == "file":
            await self._write()
            return
        try:
            self._fields[self._part] = self._held.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise WrongUse(f"{self._part} is not UTF-8 text") from None
        self._held.clear()

    async def _write(self) -> None:
        await self._off_loop.run(self._keep, bytes(self._held))
        self._held.clear()

    def _keep(self, piece: bytes) -> None:
        if shutil.disk_usage(self._path.parent).free < len(piece) + _SPARE:
            raise TooLargeError("the disk has no room for this file")
        self._digest.update(piece)
        self._target.write(piece)

    async def _read_piece(self, request: web.Request) -> bytes:
        """Wait for the next bytes, but not for ever."""
        try:
            async with asyncio.timeout(self._settings.send_timeout):
                return await request.content.read(_READ_SIZE)
        except TimeoutError:
            raise ApiError(408) from None


def _find_boundary(content_type: str) -> str:
    """Find what stands between the parts of a form."""
    kind, options = "", dict[str, str]()
    if len(content_type) <= _MAX_CONTENT_TYPE:
        kind, options = parse_options_header(content_type)
    if kind != "multipart/form-data":
        raise WrongUse("send a form: multipart/form-data with a part named file")
    boundary = options.get("boundary", "")
    if not boundary.isascii() or not boundary.isprintable() or not 0 < len(boundary) <= _MAX_BOUNDARY:
        raise WrongUse("the form cannot be read")
    return boundary


def _new_file(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=_INCOMING)
    now = os.fstat(handle).st_mtime
    os.close(handle)
    for left in folder.glob(f"{_INCOMING}*"):  # of processes that were killed
        with suppress(OSError):
            if now - left.stat().st_mtime > _ABANDONED_SECONDS:
                left.unlink()
    return Path(name)


def _too_large(settings: Settings) -> str:
    return f"a file may have at most {settings.upload_limit} bytes (LICSERVER_UPLOAD_LIMIT)"
