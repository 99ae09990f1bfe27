"""Validate and sign the vendor's files; write our own durably, as their owner, and never through a link."""

import hashlib
import mmap
import os
import re
import secrets
import stat
import tempfile
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, Final

from licserver.domain.environments import is_printable
from licserver.errors import InvalidInputError
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.file_signatures import FileSignatures, check_start, sign_digest, trusted_comment
from licserver.protocol.release_manifests import FileSigner, Manifest
from licserver.security.key_vault import decrypt_bytes, encrypt_bytes

MAX_NAME_BYTES: Final = 200  # bytes of a file name: leaves room for what browsers append


def validate_file(file: Path) -> Path:
    """Return a path that can be published."""
    if not is_printable(file.name):
        raise InvalidInputError("the file's name must not contain control characters")
    # Not `is_file`: in newer Pythons it returns False for a file that this user may not read.
    try:
        is_file = stat.S_ISREG(file.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_file = False
    if not is_file:
        raise InvalidInputError(f"{file} is not a file")
    return file


def validate_file_name(text: str) -> str:
    """Return the last part of a file name that a browser or program has sent."""
    name = text.replace("\\", "/").rpartition("/")[2].strip()
    if name.strip(".") == "" or not is_printable(name) or len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidInputError(
            f"a file name must be one line of at most {MAX_NAME_BYTES} bytes, and not consist of dots"
        )
    return name


def digest_file(file: Path) -> tuple[int, bytes]:
    """Return a file's size in bytes and its SHA-256."""
    with file.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").digest()
        return source.tell(), digest


def file_signer(file: Path, key: PrivateKey) -> FileSigner:
    """Return what signs a file as the version that a manifest names."""

    def signer(manifest: Manifest) -> FileSignatures:
        comment = trusted_comment(manifest.published_at, file.name, manifest.version)
        with validate_file(file).open("rb") as source:
            check_start(source.peek(3))
            digest = hashlib.file_digest(source, "blake2b").digest()
        return sign_digest(key, _sign_content(file, key), digest, comment)

    return signer


def _sign_content(file: Path, key: PrivateKey) -> bytes:
    """Sign the bytes of a file; mapped, because OpenSSL wants all at once, and libsodium copies them."""
    # Imported here: servers do not sign files, and cryptography takes 7 MiB.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    private = Ed25519PrivateKey.from_private_bytes(key.seed)
    with file.open("rb") as source:
        if not file.stat().st_size:  # cannot be mapped
            return private.sign(b"")
        with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as content:
            return private.sign(content)


def describe_link(path: Path) -> str | None:
    """Return why a path is no regular file with a single name, and what to do; None if it is, or missing."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a symbolic link, which licserver does not follow; put the file itself in its place"
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a regular file; move it away"
    if status.st_nlink > 1:
        return (
            f"{path} has another name (a hard link), under which it can be changed; remove that name, or put "
            "a copy of the file in its place"
        )
    return None


def open_unlinked(path: Path) -> BinaryIO:
    """Open a file for reading; an `OSError` with ``ELOOP`` for a symbolic link."""
    no_follow = getattr(os, "O_NOFOLLOW", 0)  # Windows has none
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | no_follow))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    if os.name == "nt":  # Windows cannot open folders, and needs no sync
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_leftovers(folder: Path, prefix: str, now: float, older_than: float) -> None:
    """Remove temporary files of killed processes; files younger than `older_than` seconds may be in use."""
    for file in folder.glob(f"{prefix}*"):
        with suppress(OSError):  # removed by another process, or not ours: harmless
            if now - file.stat().st_mtime > older_than:
                file.unlink()


@contextmanager
def new_file(path: Path, *, replace: bool) -> Iterator[IO[bytes]]:
    """Yield a file of mode 0600 that appears at `path`, complete and durable, unless the block raises."""
    if path.exists() and not replace:
        raise InvalidInputError(f"the file {path} exists already")
    if not path.parent.is_dir():
        raise InvalidInputError(f"there is no folder {path.parent}")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


# --- uploads with secrets that wait for a confirmation (D-198) --------------------------------

KEPT_SECONDS: Final = 3600
_KEPT: Final = ".import-"
_TICKET: Final = re.compile(r"([0-9a-f]{32})\.([A-Za-z0-9_-]{43})")


def keep_upload(folder: Path, content: bytes, owner: str) -> str:
    """Write a file, and return the ticket with which its owner takes it back within an hour."""
    folder.mkdir(mode=0o700, exist_ok=True)
    name, key = secrets.token_hex(16), secrets.token_bytes(32)
    handle = os.open(folder / (_KEPT + name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        remove_leftovers(folder, _KEPT, os.fstat(handle).st_mtime, KEPT_SECONDS)
        file.write(encrypt_bytes(key, content, owner.encode()))
    return f"{name}.{urlsafe_b64encode(key).decode().rstrip('=')}"


def take_upload(folder: Path, ticket: str, owner: str) -> bytes | None:
    """Remove a file and return its content; None if there is none, or not for this owner."""
    found = _TICKET.fullmatch(ticket)
    if found is None:
        return None
    path = folder / (_KEPT + found[1])
    try:
        content = path.read_bytes()
        path.unlink()  # of two that come at once, one fails here
        return decrypt_bytes(urlsafe_b64decode(found[2] + "="), content, owner.encode())
    except (OSError, ValueError):
        return None


# --- the owner of a folder --------------------------------------------------------------------


def become_owner(folder: Path) -> None:
    """As root, become the owner of a folder for the rest of the process (D-157); otherwise do nothing.

    The owner could plant a link wherever root is about to write. If the folder does not exist, its nearest
    existing parent counts.
    """
    if os.name == "nt" or os.geteuid() != 0:
        return
    while not folder.exists():
        folder = folder.parent
    status = folder.stat()
    if status.st_uid == 0:
        return
    import pwd  # noqa: PLC0415 - does not exist on Windows

    try:
        try:
            user = pwd.getpwuid(status.st_uid)
        except KeyError:  # a container often has a user id without a name
            gid = status.st_gid
            os.setgroups([gid])
        else:
            gid = user.pw_gid
            os.setgroups(os.getgrouplist(user.pw_name, gid))
            os.environ["HOME"] = user.pw_dir  # libpq looks for certificates there, and fails if it may not
        os.setgid(gid)
        os.setuid(status.st_uid)  # last: afterwards the process may not call the others
    except OSError as error:
        name = user_name(status.st_uid)
        raise InvalidInputError(
            f"cannot act as {name}, the owner of {folder}: {error.strerror}; run this command as {name}"
        ) from None


def user_name(uid: int) -> str:
    """Return a user's name, or 'user 1000' if there is none."""
    import pwd  # noqa: PLC0415 - does not exist on Windows

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
