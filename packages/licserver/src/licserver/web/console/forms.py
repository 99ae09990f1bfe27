"""Reading what a browser posts: small forms whole, files piece by piece to the disk."""

import asyncio
import re
import secrets
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from licserver.vendor import MAX_CHANGELOG

R = TypeVar("R")

_MAX_FIELDS: Final = 50
_MAX_TEXT: Final = 4 * MAX_CHANGELOG
"""Bytes of all text fields beside a file; a character has up to four."""
_CHUNK: Final = 1 << 20
_MAX_NAME: Final = 150
"""Characters of a file's name."""


class FormError(Exception):
    """What was posted cannot be read; the message is for the user."""


class Upload(NamedTuple):
    """A form with a file.

    Args:
        form: Its text fields.
        folder: Holds the file and nothing else; the receiver's to remove.
        file: Under the name that customers will see; None when none was chosen.
    """

    form: Mapping[str, str]
    folder: Path
    file: Path | None

    def discard(self) -> None:
        """Remove the file and its folder, if they are still there."""
        shutil.rmtree(self.folder, ignore_errors=True)


def parse_form(body: bytes) -> dict[str, str]:
    """Read an urlencoded form; of a name that comes twice, the last.

    Raises:
        FormError: when it cannot be read.
    """
    try:
        fields = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"
        )
    except ValueError:  # UnicodeDecodeError is one
        raise FormError("this form cannot be read") from None
    return {name: _lines(value) for name, value in fields}


def safe_name(sent: str | None) -> str | None:
    """The name of an uploaded file as it is kept: the last part of whatever path was sent.

    Args:
        sent: As the browser sent it, which may be anybody's invention.

    Returns:
        A name without a path and without control characters; None when nothing is left of it.
    """
    name = re.split(r"[/\\]", sent or "")[-1]
    name = "".join(char for char in name if char.isprintable() and char not in '<>:"|?*').strip(" .")
    if len(name) > _MAX_NAME:  # the ending tells customers what it is
        stem, dot, ending = name.rpartition(".")
        name = f"{stem[: _MAX_NAME - 21]}{dot}{ending[:20]}" if stem else name[:_MAX_NAME]
    return name or None


async def receive(
    request: web.Request,
    into: Path,
    patience: float,
    allow: Callable[[Mapping[str, str]], bool],
) -> Upload:
    """Take a form with one file, which goes to the disk as it comes: a MiB of it is held in memory.

    Args:
        request: Its body has not been touched.
        into: A folder for what is being uploaded, on the disk where the files of releases end up.
        patience: Seconds in which the browser must send something.
        allow: Asked with the fields before the file; what it does not let pass is not read.

    Returns:
        The form; `Upload.discard` is the caller's to call.

    Raises:
        FormError: for what is no such form, breaks off, or has too much text.
        web.HTTPForbidden: when `allow` says no.
        OSError: when the disk does not take it.
    """
    folder = into / secrets.token_hex(8)
    await asyncio.to_thread(folder.mkdir, parents=True, mode=0o700)
    upload = Upload({}, folder, None)
    try:
        return await _read_parts(request, upload, patience, allow)
    except BaseException:
        await asyncio.to_thread(upload.discard)
        raise


async def _read_parts(
    request: web.Request, upload: Upload, patience: float, allow: Callable[[Mapping[str, str]], bool]
) -> Upload:
    form: dict[str, str] = {}
    file: Path | None = None
    room = _MAX_TEXT
    try:
        reader = await request.multipart()
        while (part := await _soon(reader.next(), patience)) is not None:
            if not isinstance(part, BodyPartReader) or part.name is None or len(form) >= _MAX_FIELDS:
                raise FormError("this form cannot be read")
            if part.filename is None:
                text = await _read_text(part, room, patience)
                room -= len(text)
                form[part.name] = _lines(text.decode())
                continue
            if not allow(form):
                raise web.HTTPForbidden
            name = safe_name(part.filename)
            if name is None:  # no file was chosen
                continue
            if file is not None:
                raise FormError("one file at a time")
            file = upload.folder / name
            await _store(part, file, patience)
    except (HttpProcessingError, ValueError, AssertionError, TimeoutError, web.RequestPayloadError):
        # aiohttp's reader raises the first three for broken parts
        raise FormError("the upload broke off or cannot be read; try again") from None
    if not allow(form):
        raise web.HTTPForbidden
    return upload._replace(form=form, file=file)


async def _read_text(part: BodyPartReader, room: int, patience: float) -> bytes:
    text = bytearray()
    while chunk := await _soon(part.read_chunk(), patience):
        text += chunk
        if len(text) > room:
            raise FormError("the text of this form is too long")
    return bytes(text)


async def _store(part: BodyPartReader, file: Path, patience: float) -> None:
    with await asyncio.to_thread(file.open, "xb") as target:
        held = bytearray()
        while chunk := await _soon(part.read_chunk(1 << 16), patience):
            held += chunk
            if len(held) >= _CHUNK:
                await asyncio.to_thread(target.write, held)
                held = bytearray()
        await asyncio.to_thread(target.write, held)


async def _soon(waited_for: Awaitable[R], patience: float) -> R:
    async with asyncio.timeout(patience):
        return await waited_for


def _lines(text: str) -> str:
    """Browsers send line breaks as two characters."""
    return text.replace("\r\n", "\n")
