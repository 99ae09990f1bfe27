"""Forms with a large file: the file goes to the disk as it comes, and is never held in memory."""

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from licserver.errors import WrongUse
from licserver.files import checked_name
from licserver.settings import Settings
from licserver.web.offloop import OffLoop

MAX_FIELD: Final = 1 << 20
"""Bytes of a field that is no file; of all of them together as well."""

_PIECE: Final = 1 << 20
_SPARE: Final = 64 << 20
"""Bytes that are left free on the disk, for the database beside it."""

_INCOMING: Final = ".upload-"
_ABANDONED_SECONDS: Final = 24 * 3600

_BROKEN: Final = (
    HttpProcessingError,
    ValueError,
    AssertionError,
    RuntimeError,
    RuntimeWarning,  # where warnings are errors
    LookupError,
)
"""What aiohttp raises at a form that breaks its own rules."""

R = TypeVar("R")


class TooLarge(WrongUse):
    """The file is larger than the settings allow, or the disk has room for."""


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
    request: web.Request, settings: Settings, off_loop: OffLoop, fields: frozenset[str]
) -> AsyncIterator[Upload]:
    """Receive a form (``multipart/form-data``) with one file, ``file``, and some fields.

    Args:
        request: Its body has not been read yet.
        settings: How large a file may be, and how long to wait for the next piece of it.
        off_loop: Does the writing.
        fields: Names of the other fields that are taken.

    Yields:
        The form; its file is removed in the end.

    Raises:
        WrongUse: for a form that is none, without a file or with an unknown field.
        TooLarge: as soon as it is known.
        TimeoutError: when nothing comes for too long.
    """
    if not request.content_type.startswith("multipart/form-data"):
        raise WrongUse("send a form: multipart/form-data with a part named file")
    if (request.content_length or 0) > settings.upload_limit + 2 * MAX_FIELD:
        raise TooLarge(_too_large(settings))
    folder = settings.data_dir / "uploads"
    path = await off_loop.run(_new_file, folder)
    try:
        with path.open("wb") as target:
            yield await _Form(settings, off_loop, fields, target, path).read(request)
    finally:
        await off_loop.run(path.unlink, missing_ok=True)


class _Form:
    """A form that is being read."""

    def __init__(
        self, settings: Settings, off_loop: OffLoop, fields: frozenset[str], target: BinaryIO, path: Path
    ) -> None:
        self._settings, self._off_loop, self._wanted = settings, off_loop, fields
        self._target, self._path = target, path
        self._fields: dict[str, str] = {}
        self._digest = hashlib.sha256()
        self._size = 0
        self._left = MAX_FIELD

    async def read(self, request: web.Request) -> Upload:
        """Read all parts, in any order."""
        file_name = None
        try:
            parts = await request.multipart()
            while (part := await self._soon(parts.next())) is not None:
                if not isinstance(part, BodyPartReader) or part.name is None:
                    raise WrongUse("each part of the form needs a name")
                if part.name == "file":
                    if file_name is not None:
                        raise WrongUse("the form has two files")
                    file_name = checked_name(part.filename or "")
                    await self._write(part)
                elif part.name in self._wanted and part.name not in self._fields:
                    self._fields[part.name] = await self._text(part)
                else:
                    raise WrongUse(f"the form takes file, {', '.join(sorted(self._wanted))}, each once")
        except _BROKEN:
            raise WrongUse("the form cannot be read") from None
        if file_name is None:
            raise WrongUse("the form has no part named file")
        await self._off_loop.run(self._target.flush)
        return Upload(self._fields, self._path, file_name, self._size, self._digest.digest())

    async def _write(self, part: BodyPartReader) -> None:
        held = bytearray()
        while chunk := await self._soon(part.read_chunk(_PIECE)):
            self._size += len(chunk)
            if self._size > self._settings.upload_limit:
                raise TooLarge(_too_large(self._settings))
            held += chunk
            if len(held) >= _PIECE:
                await self._off_loop.run(self._keep, bytes(held))
                held.clear()
        await self._off_loop.run(self._keep, bytes(held))

    def _keep(self, piece: bytes) -> None:
        if shutil.disk_usage(self._path.parent).free < len(piece) + _SPARE:
            raise TooLarge("the disk has no room for this file")
        self._digest.update(piece)
        self._target.write(piece)

    async def _text(self, part: BodyPartReader) -> str:
        held = bytearray()
        while chunk := await self._soon(part.read_chunk()):
            self._left -= len(chunk)
            if self._left < 0:
                raise TooLarge(f"the form's fields have more than {MAX_FIELD} bytes")
            held += chunk
        try:
            return held.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise WrongUse(f"{part.name} is not UTF-8 text") from None

    async def _soon(self, coming: Awaitable[R]) -> R:
        """Wait for what comes next, but not for ever."""
        async with asyncio.timeout(self._settings.send_timeout):
            return await coming


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
