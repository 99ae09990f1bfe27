"""Artifacts in an S3-compatible bucket, by way of obstore, which the extra ``licserver[s3]`` brings.

obstore reads the standard ``AWS_*`` variables itself: no credential ever passes through this code.
Its messages name addresses and quote the bucket's answers, so they end here (`_why`).
"""

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncGenerator, Iterator
from datetime import timedelta
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, cast
from urllib.parse import urlsplit

from licserver.artifacts.protocol import ArtifactRedirect, Pieces
from licserver.domain.records import Artifact
from licserver.errors import ArtifactsError, SettingsError, WrongUse
from licserver.protocol.public_api import attachment
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

ADDRESS_LIFETIME: Final = timedelta(minutes=5)
"""How long a presigned address is good: to begin with; what has begun may take longer (D-34)."""

_PIECE_BYTES: Final = 1 << 20
_PART_BYTES: Final = 8 << 20
_MAX_PARTS: Final = 10_000
"""S3's own limit for one multipart upload."""

_ASK_SECONDS: Final = 2.0
"""Within this a caller is answered, with 503 if it must be."""

_KNOWN_SECONDS: Final = 60.0
_KNOWN_COUNT: Final = 1000
"""How long, and of how many artifacts, we believe that the bucket holds them without asking again."""

_READING: Final[tuple["ClientConfig", "RetryConfig"]] = (
    {"connect_timeout": timedelta(seconds=2), "timeout": timedelta(seconds=10)},
    {"max_retries": 2, "retry_timeout": timedelta(seconds=5)},
)
_WRITING: Final[tuple["ClientConfig", "RetryConfig"]] = (
    {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(minutes=5)},
    {"max_retries": 5, "retry_timeout": timedelta(minutes=1)},
)


class ArtifactBucket:
    """Keeps artifacts in a bucket, as ``{prefix}/{digest}/{tag of the file's name}``.

    The name is part of the key because it is a property of the object: no presigned address can
    carry it (obstore signs no response headers), so the object itself says what it is called.

    Args:
        bucket: Its name.
        prefix: What all keys begin with; may be empty.
        endpoint: Address of the store; None for AWS.
        redirect: Whether callers are sent to presigned addresses.
    """

    def __init__(self, bucket: str, prefix: str, endpoint: str | None, *, redirect: bool) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._endpoint = endpoint
        self._redirect = redirect
        self._known: dict[str, float] = {}

    # Made when first needed: their threads would not survive the fork into workers.

    @cached_property
    def _reader(self) -> S3Store:
        return self._connect(*_READING)

    @cached_property
    def _writer(self) -> S3Store:
        return self._connect(*_WRITING)

    def _connect(self, client: "ClientConfig", retry: "RetryConfig") -> S3Store:
        config = {"endpoint": self._endpoint} if self._endpoint else {}
        allow_http = bool(self._endpoint and self._endpoint.startswith("http://"))
        try:
            return S3Store(
                self._bucket,
                prefix=self._prefix or None,
                client_options={**client, "allow_http": allow_http},
                retry_config=retry,
                **config,  # type: ignore[arg-type] # one key of many
            )
        except BaseError as problem:
            raise ArtifactsError(self._says(problem)) from None

    # --- storing ------------------------------------------------------------------------------

    def store(self, source: BinaryIO, file_name: str) -> Artifact:
        """Upload a file (`face.Artifacts.store`); an object appears whole or not at all.

        The file is read twice: its digest must be known before the first byte goes out under it.

        Raises:
            OSError: when the file cannot be read.
            WrongUse: when the file changed between the two readings.
            ArtifactsError: when the bucket does not take it.
        """
        beginning = source.tell()
        digest, size = hashlib.sha256(), 0
        while chunk := source.read(_PIECE_BYTES):
            digest.update(chunk)
            size += len(chunk)
        artifact = Artifact(file_name, size, digest.digest())
        if not self._holds(artifact):
            source.seek(beginning)
            self._upload(source, artifact)
            if not self._holds(artifact):
                raise ArtifactsError(f"bucket {self._bucket!r} took the file, but does not hold it whole")
        return artifact

    def _holds(self, artifact: Artifact) -> bool:
        try:
            return bool(obstore.head(self._reader, _key(artifact))["size"] == artifact.size)
        except (FileNotFoundError, PermissionDeniedError):  # S3 says 403 for both without ListBucket
            return False
        except BaseError as problem:
            raise ArtifactsError(self._says(problem)) from None

    def _upload(self, source: BinaryIO, artifact: Artifact) -> None:
        try:
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
        except (FileNotFoundError, BaseError) as problem:
            raise ArtifactsError(self._says(problem)) from None

    def holds(self, artifact: Artifact) -> bool:
        """Tell whether an object is there (`face.Artifacts.holds`)."""
        return self._holds(artifact)

    def probe(self) -> None:
        """Ask for an object that is not there (`face.Artifacts.probe`)."""
        try:
            # not HEAD: its answer has no body, which alone tells a bucket that is not there from an object
            obstore.get(self._reader, _NOBODYS)
        except (FileNotFoundError, PermissionDeniedError) as problem:
            code = _code(problem)
            if code is not None and code not in _NO_OBJECT:
                raise ArtifactsError(self._says(problem)) from None
        except BaseError as problem:
            raise ArtifactsError(self._says(problem)) from None

    def read(self, artifact: Artifact) -> Iterator[bytes]:
        """Read an object (`face.Artifacts.read`), with a request for each piece."""
        digest, key = hashlib.sha256(), _key(artifact)
        for offset in range(0, artifact.size, _PIECE_BYTES):
            wanted = min(_PIECE_BYTES, artifact.size - offset)
            try:
                piece = bytes(obstore.get_range(self._reader, key, start=offset, length=wanted))
            except (FileNotFoundError, BaseError) as problem:
                raise ArtifactsError(self._says(problem, artifact)) from None
            digest.update(piece)
            yield piece
        if digest.digest() != artifact.sha256:
            raise ArtifactsError(
                f"artifact {artifact.sha256.hex()} has other bytes than when it was published"
            )

    # --- sending ------------------------------------------------------------------------------

    async def find(self, artifact: Artifact, method: str) -> Pieces | ArtifactRedirect:
        """Presign an address, or open the object where that is not wanted or not possible.

        Raises:
            ArtifactsError: when the bucket does not hold it, or cannot be asked.
        """
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                await self._check(artifact)
                if self._redirect:
                    verb = cast("Literal['GET', 'HEAD']", method)
                    return ArtifactRedirect(
                        await obstore.sign_async(self._reader, verb, _key(artifact), ADDRESS_LIFETIME)
                    )
        except (NotImplementedError, NotSupportedError):
            pass  # nothing to sign with: the object itself could be read
        except (FileNotFoundError, BaseError, TimeoutError) as problem:
            raise ArtifactsError(self._says(problem, artifact)) from None
        return Pieces(partial(self._read, artifact))

    async def _check(self, artifact: Artifact) -> None:
        """Ask whether the object is there, once a minute: better a 503 here than a 404 elsewhere."""
        key, now = _key(artifact), monotonic()
        if self._known.get(key, now) > now:
            return
        found = await obstore.head_async(self._reader, key)
        if found["size"] != artifact.size:
            raise ArtifactsError(
                f"artifact {artifact.sha256.hex()} has another size than when it was published"
            )
        if len(self._known) >= _KNOWN_COUNT:
            self._known.clear()
        self._known[key] = now + _KNOWN_SECONDS

    async def _read(self, artifact: Artifact, start: int, length: int) -> AsyncGenerator[memoryview, None]:
        """Fetch a span (`face.Pieces`) with a request for each piece: a slow caller holds none open."""
        key, end = _key(artifact), start + length
        for offset in range(start, end, _PIECE_BYTES):
            wanted = min(_PIECE_BYTES, end - offset)
            try:
                piece = await obstore.get_range_async(self._reader, key, start=offset, length=wanted)
            except (FileNotFoundError, BaseError) as problem:
                self._known.pop(key, None)
                raise ArtifactsError(self._says(problem, artifact)) from None
            if len(piece) != wanted:
                raise ArtifactsError(f"artifact {artifact.sha256.hex()} ended early")
            yield memoryview(piece)

    def _says(self, problem: Exception, artifact: Artifact | None = None) -> str:
        about = f", asked for artifact {artifact.sha256.hex()}," if artifact else ""
        return f"bucket {self._bucket!r}{about} {_why(problem)}"


def _key(artifact: Artifact) -> str:
    return f"{artifact.sha256.hex()}/{hashlib.sha256(artifact.file_name.encode()).hexdigest()[:16]}"


def _read_again(source: BinaryIO, artifact: Artifact) -> Iterator[bytes]:
    """Yield what was read before; an exception ends the upload, and nothing appears.

    Raises:
        WrongUse: when it is no longer the same.
    """
    digest = hashlib.sha256()
    while chunk := source.read(_PIECE_BYTES):
        digest.update(chunk)
        yield chunk
    if digest.digest() != artifact.sha256:
        raise WrongUse("the file changed while it was being published; publish it again")


_NOBODYS: Final = f"{'0' * 64}/probe"
"""A key that no file has."""

_NO_OBJECT: Final = frozenset({"NoSuchKey", "AccessDenied"})
"""The latter is said of an object that is not there to who may not list the bucket."""

_CREDENTIALS: Final = re.compile(r"/latest/api/token|169\.254\.169\.254|169\.254\.170\.2|/latest/meta-data")
"""Where obstore looks for a machine's role, when there is nothing in the environment."""


def _why(problem: Exception) -> str:
    """Say what went wrong, in the bucket's own code where it gave one, and nothing else of its answer."""
    text = str(problem)
    if _CREDENTIALS.search(text):
        return "cannot be used without credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if code := _code(problem):
        return f"answers {code}"
    if status := re.search(r"status code: ([0-9]{3})", text):
        return f"answers {status[1]}"
    return "does not answer in time" if isinstance(problem, TimeoutError) else "cannot be reached"


def _code(problem: Exception) -> str | None:
    code = re.search(r"<Code>([A-Za-z]{1,60})</Code>", str(problem))
    return None if code is None else code[1]


# --- settings ---------------------------------------------------------------------------------

_LOOPBACK: Final = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1")


def open_bucket(settings: Settings) -> ArtifactBucket:
    """Read where the bucket is.

    Raises:
        SettingsError: for an endpoint that is no address, or an open one on the network.
    """
    url = urlsplit(settings.artifacts_url or "")
    endpoint = _read_endpoint()
    # No customer would follow a redirect from https to http, and none should.
    downgrade = (endpoint or "").startswith("http://") and (settings.base_url or "").startswith("https://")
    return ArtifactBucket(
        url.netloc, url.path.strip("/"), endpoint, redirect=settings.artifacts_redirect and not downgrade
    )


def _read_endpoint() -> str | None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if value := os.environ.get(name):
            break
    else:
        return None
    try:
        parts = urlsplit(value)
        good = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
    except ValueError:
        good = False
    if not good:
        raise SettingsError(f"{name}: must look like https://s3.example.com")
    allowed = os.environ.get("AWS_ALLOW_HTTP", "").lower() in {"1", "true", "yes"}
    if parts.scheme == "http" and not (allowed or _LOOPBACK.fullmatch(parts.hostname or "")):
        raise SettingsError(f"{name}: http to another machine needs AWS_ALLOW_HTTP=true; better, use https")
    return value.rstrip("/")
