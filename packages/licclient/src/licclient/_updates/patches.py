"""Smaller updates: make a file out of the one that was downloaded last and a patch (RFC 9842).

The only module that names the extra's library. Whatever is wrong with a patch, the whole file is fetched.
"""

import sys
from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from licclient._core.records import Document
from licclient._core.responses import Head
from licclient._core.storage import open_plain
from licclient._core.update_model import Downloaded
from licclient._updates.part_file import PartFile

MAX_PATCHED_BYTES: Final = 512 << 20
"""Largest file that is made of a patch, and that one is made of: both are in memory."""

MAX_PATCH_BYTES: Final = 128 << 20
"""Largest patch: it is in memory beside both files."""

ENCODING: Final = "dcz"
"""Dictionary-Compressed Zstandard."""

_MAGIC: Final = bytes.fromhex("5e2a4d1820000000")  # the digest of the old file follows, then a frame
_FRAME: Final = len(_MAGIC) + 32
_MAX_FRAME_HEADER: Final = 18
_PIECE: Final = 1024 * 1024


class PatchError(Exception):
    """The patch cannot be used."""


def has_library() -> bool:
    """Return whether the extra `licclient[delta]` is installed."""
    try:
        _zstd()
    except ImportError:
        return False
    return True


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 - loaded for a download only
    else:
        from backports import zstd  # noqa: PLC0415 - as above
    return zstd


def note_download(file: Downloaded) -> Document:
    """Return the stored record of a file: a patch may start from it, or take its name."""
    return {"path": str(file.path), "sha256": file.sha256}


def is_patch(head: Head) -> bool:
    """Return whether the response to a request for a patch is one; behind a redirect only that may say so."""
    is_encoded = "Unencoded-Digest" in head.headers or head.headers.get("Content-Encoding") == ENCODING
    return is_encoded and head.status == 200  # noqa: PLR2004 - HTTP's own number


@dataclass(frozen=True, slots=True)
class Base:
    """The file that was downloaded last."""

    content: bytes = field(repr=False)
    digest: bytes

    def request_headers(self) -> dict[str, str]:
        """Return headers that ask for a patch; others than our servers send the whole file."""
        dictionary = b64encode(self.digest).decode()
        return {"Accept-Encoding": ENCODING, "Available-Dictionary": f":{dictionary}:"}

    def apply(self, patch: bytes, head: Head, part: PartFile, version: str) -> None:
        """Make the whole file, and verify it.

        Raise `PatchError` for a patch that is broken or of another file, a `LicclientError` for a result that
        is not what was declared or signed, and `OSError` if the disk has no room for it.
        """
        zstd, frame = _zstd(), memoryview(patch)[_FRAME:]
        if patch[:_FRAME] != _MAGIC + self.digest:
            raise PatchError
        try:
            size = zstd.get_frame_info(frame[:_MAX_FRAME_HEADER]).decompressed_size
            if not size or size > MAX_PATCHED_BYTES:
                raise PatchError
            headers = {
                "Content-Length": str(size),
                "Repr-Digest": head.headers.get("Unencoded-Digest", ""),
                "Content-Disposition": head.headers.get("Content-Disposition", ""),
            }
            part.begin(Head(200, headers), version)
            limit = {zstd.DecompressionParameter.window_log_max: MAX_PATCHED_BYTES.bit_length() - 1}
            prefix = zstd.ZstdDict(self.content, is_raw=True).as_prefix
            decoder = zstd.ZstdDecompressor(zstd_dict=prefix, options=limit)
            while not decoder.eof:
                piece = decoder.decompress(frame, _PIECE)
                frame = frame[:0]
                if not piece and decoder.needs_input:
                    raise PatchError
                part.write([piece])  # refuses more than was declared
        except (zstd.ZstdError, ValueError, MemoryError):
            raise PatchError from None
        part.end()


def find_base(noted: Document | None) -> Base | None:
    """Return the file that was downloaded last, if it is still as it was and the library is there."""
    match noted:
        case {"path": str(path), "sha256": str(expected)} if has_library():
            try:
                with open_plain(Path(path)) as file:
                    content = file.read(MAX_PATCHED_BYTES + 1)
            except (OSError, ValueError, MemoryError):
                return None
            digest = sha256(content)
            is_same = digest.hexdigest() == expected and len(content) <= MAX_PATCHED_BYTES
            return Base(content, digest.digest()) if is_same else None
        case _:
            return None
