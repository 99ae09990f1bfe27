"""Artifacts in an S3-compatible bucket, through obstore (the extra ``licserver[s3]``).

obstore reads the ``AWS_*`` variables itself, so that no credential passes through this code. Its messages
quote addresses and the bucket's responses: they never leave this file (`_reason`).
"""

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, cast
from urllib.parse import urlsplit

from licserver.artifacts.folder import ArtifactRedirect, Digests, Pieces
from licserver.domain.records import Artifact
from licserver.errors import ArtifactsError, InvalidInputError, SettingsError
from licserver.protocol.downloads import attachment
from licserver.settings import Settings

try:
    import obstore
    from obstore.exceptions import BaseError, NotSupportedError, PermissionDeniedError
    from obstore.store import S3Store
except ImportError:
    raise SettingsError(
        "LICSERVER_ARTIFACTS_URL needs obstore; install it with: pip install 'licserver[s3]'"
    ) from None

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

ADDRESS_LIFETIME: Final = timedelta(minutes=5)  # how long a presigned address can be used to start a download
_PIECE_BYTES: Final = 1 << 20
_PART_BYTES: Final = 8 << 20
_MAX_PARTS: Final = 10_000  # S3's limit for a multipart upload
_FIND_SECONDS: Final = 2.0  # until a client gets a 503
_KNOWN_SECONDS: Final = 60.0
_MAX_KNOWN: Final = 1000  # how long, and for how many artifacts, a check of the bucket is remembered
_READING: Final[tuple["ClientConfig", "RetryConfig"]] = (
    {"connect_timeout": timedelta(seconds=2), "timeout": timedelta(seconds=10)},
    {"max_retries": 2, "retry_timeout": timedelta(seconds=5)},
)
_WRITING: Final[tuple["ClientConfig", "RetryConfig"]] = (
    {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(minutes=5)},
    {"max_retries": 5, "retry_timeout": timedelta(minutes=1)},
)


class ArtifactBucket:
    """Implements `Artifacts`, with the keys ``{prefix}/{digest}/{tag of the file's name}``.

    The name is a property of the object, because obstore's presigned addresses cannot carry it. So a file
    with two names is stored as two objects. The default endpoint is AWS.
    """

    def __init__(self, bucket: str, prefix: str, endpoint: str | None, *, redirect: bool) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._endpoint = endpoint
        self._redirect = redirect
        self._known: dict[str, float] = {}

    # Created on first use: obstore's threads would not survive the fork into workers.

    @cached_property
    def _reader(self) -> S3Store:
        return self._connect(*_READING)

    @cached_property
    def _writer(self) -> S3Store:
        return self._connect(*_WRITING)

    def _connect(self, client: "ClientConfig", retry: "RetryConfig") -> S3Store:
        config = {"endpoint": self._endpoint} if self._endpoint else {}
        allow_http = bool(self._endpoint and self._endpoint.startswith("http://"))
        with self._translated():
            return S3Store(
                self._bucket,
                prefix=self._prefix or None,
                client_options={**client, "allow_http": allow_http},
                retry_config=retry,
                **config,  # type: ignore[arg-type] # obstore types each key of its configuration
            )

    @contextmanager
    def _translated(self, artifact: Artifact | None = None) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, BaseError, TimeoutError) as error:
            about = f", requested artifact {artifact.sha256.hex()}," if artifact else ""
            raise ArtifactsError(f"bucket {self._bucket!r}{about} {_reason(error)}") from None

    def store(self, source: BinaryIO, file_name: str) -> Artifact:
        """Upload a file. It is read twice, because the object's key is its digest."""
        start = source.tell()
        digests = Digests()
        while chunk := source.read(_PIECE_BYTES):
            digests.update(chunk)
        artifact = digests.describe(file_name)
        if not self.holds(artifact):
            source.seek(start)
            with self._translated():
                obstore.put(
                    self._writer,
                    _key(artifact),
                    _read_again(source, artifact),
                    attributes={
                        "Content-Disposition": attachment(artifact.file_name),
                        "Content-Type": "application/octet-stream",
                    },
                    use_multipart=artifact.size > _PART_BYTES,
                    chunk_size=max(_PART_BYTES, -(-artifact.size // (_MAX_PARTS - 1))),
                    max_concurrency=2,
                )
            if not self.holds(artifact):
                raise ArtifactsError(f"bucket {self._bucket!r} took the file, but does not hold all of it")
        return artifact

    def holds(self, artifact: Artifact) -> bool:
        """Return whether the object exists, with its size."""
        with self._translated():
            try:
                return bool(obstore.head(self._reader, _key(artifact))["size"] == artifact.size)
            except (FileNotFoundError, PermissionDeniedError):  # S3 responds 403 for both without ListBucket
                return False

    def probe(self) -> None:
        """Request an object that does not exist."""
        with self._translated():
            try:
                # not HEAD: only the body of a GET distinguishes a missing bucket from a missing object
                obstore.get(self._reader, _NO_KEY)
            except (FileNotFoundError, PermissionDeniedError) as error:
                code = _error_code(error)
                if code is not None and code not in _NO_OBJECT:
                    raise

    def read(self, artifact: Artifact) -> Iterator[bytes]:
        """Yield an object with one request for each piece, and check its digest."""
        digest, key = hashlib.sha256(), _key(artifact)
        for offset in range(0, artifact.size, _PIECE_BYTES):
            length = min(_PIECE_BYTES, artifact.size - offset)
            with self._translated(artifact):
                piece = bytes(obstore.get_range(self._reader, key, start=offset, length=length))
            digest.update(piece)
            yield piece
        if digest.digest() != artifact.sha256:
            raise ArtifactsError(
                f"artifact {artifact.sha256.hex()} has other bytes than when it was published"
            )

    async def find(self, artifact: Artifact, method: str) -> Pieces | ArtifactRedirect:
        """Return a presigned address, or pieces if redirects are off or not possible."""
        with self._translated(artifact):
            try:
                async with asyncio.timeout(_FIND_SECONDS):
                    await self._check(artifact)
                    if self._redirect:
                        verb = cast("Literal['GET', 'HEAD']", method)
                        return ArtifactRedirect(
                            await obstore.sign_async(self._reader, verb, _key(artifact), ADDRESS_LIFETIME)
                        )
            except (NotImplementedError, NotSupportedError):
                pass  # there are no credentials to sign with, but the object can be read
        return Pieces(partial(self._read, artifact))

    async def _check(self, artifact: Artifact) -> None:
        """Check once a minute that the object exists: better a 503 here than a 404 of the bucket."""
        key, now = _key(artifact), monotonic()
        if self._known.get(key, now) > now:
            return
        metadata = await obstore.head_async(self._reader, key)
        if metadata["size"] != artifact.size:
            raise ArtifactsError(
                f"artifact {artifact.sha256.hex()} has another size than when it was published"
            )
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[key] = now + _KNOWN_SECONDS

    async def _read(self, artifact: Artifact, start: int, length: int) -> AsyncGenerator[memoryview, None]:
        """Read a span with one request for each piece, so that a slow client keeps none open."""
        key, end = _key(artifact), start + length
        for offset in range(start, end, _PIECE_BYTES):
            length_ = min(_PIECE_BYTES, end - offset)
            try:
                with self._translated(artifact):
                    piece = await obstore.get_range_async(self._reader, key, start=offset, length=length_)
            except ArtifactsError:
                self._known.pop(key, None)
                raise
            if len(piece) != length_:
                raise ArtifactsError(f"artifact {artifact.sha256.hex()} ended early")
            yield memoryview(piece)


def _key(artifact: Artifact) -> str:
    return f"{artifact.sha256.hex()}/{hashlib.sha256(artifact.file_name.encode()).hexdigest()[:16]}"


def _read_again(source: BinaryIO, artifact: Artifact) -> Iterator[bytes]:
    """Yield the file; an exception at its end aborts the upload, and no object appears."""
    digest = hashlib.sha256()
    while chunk := source.read(_PIECE_BYTES):
        digest.update(chunk)
        yield chunk
    if digest.digest() != artifact.sha256:
        raise InvalidInputError("the file changed while it was being published; publish it again")


_NO_KEY: Final = f"{'0' * 64}/probe"  # no artifact has this key
_NO_OBJECT: Final = frozenset({"NoSuchKey", "AccessDenied"})
"""Codes for a missing object; the second code without permission to list the bucket."""

_CREDENTIALS: Final = re.compile(r"/latest/api/token|169\.254\.169\.254|169\.254\.170\.2|/latest/meta-data")
"""The address at which obstore finds the role of a cloud machine, if the environment has no credentials."""


def _reason(error: Exception) -> str:
    """Describe an error by the bucket's code only; the rest of the response may hold secrets."""
    text = str(error)
    if _CREDENTIALS.search(text):
        return "cannot be used without credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if code := _error_code(error):
        return f"answers {code}"
    if status := re.search(r"status code: ([0-9]{3})", text):
        return f"answers {status[1]}"
    return "does not answer in time" if isinstance(error, TimeoutError) else "cannot be reached"


def _error_code(error: Exception) -> str | None:
    code = re.search(r"<Code>([A-Za-z]{1,60})</Code>", str(error))
    return None if code is None else code[1]


# --- settings ---------------------------------------------------------------------------------

_LOOPBACK: Final = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1")


def open_bucket(settings: Settings) -> ArtifactBucket:
    """Return the configured bucket, without accessing it; plain http to another machine is refused."""
    url = urlsplit(settings.artifacts_url or "")
    endpoint = _read_endpoint()
    # No client should follow a redirect from https to http.
    downgrade = (endpoint or "").startswith("http://") and (settings.base_url or "").startswith("https://")
    return ArtifactBucket(
        url.netloc, url.path.strip("/"), endpoint, redirect=settings.artifacts_redirect and not downgrade
    )


def _read_endpoint() -> str | None:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    name, value = next(((name, os.environ[name]) for name in names if os.environ.get(name)), ("", None))
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        is_valid = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
    except ValueError:
        is_valid = False
    if not is_valid:
        raise SettingsError(f"{name}: must look like https://s3.example.com")
    allowed = os.environ.get("AWS_ALLOW_HTTP", "").lower() in {"1", "true", "yes"}
    if parts.scheme == "http" and not (allowed or _LOOPBACK.fullmatch(parts.hostname or "")):
        raise SettingsError(f"{name}: http to another machine needs AWS_ALLOW_HTTP=true; better, use https")
    return value.rstrip("/")
