"""License files for machines without a network: what a machine asks for, accepts and remembers (D-236).

A file is a JWS in the compact serialization (RFC 7515, 7.1), signed with Ed25519 (RFC 8037) by the key that
signs responses. Its payload is parsed only after a pinned key was found to have signed it.
"""

import re
from base64 import b32encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from licclient._core.lazy import lazy
from licclient._core.model import CachedLicense, FileFlaw, License, Outage, Reason, Settings, Source, Verified
from licclient._core.policy import CacheState, evaluate, from_cache, mark
from licclient._core.public_keys import encode
from licclient._core.records import Document, Storage, record_name
from licclient._core.requests import read_instant
from licclient._core.responses import Reply, read_json_object, read_verify
from licclient._core.signed_responses import decode_base64url, read_key_id, read_utc
from licclient._core.update_model import Update
from licclient.errors import (
    LicclientError,
    LicenseFileError,
    LicenseRefusedError,
    ServiceUnavailableError,
    StateUnreadableError,
)

if TYPE_CHECKING:
    from licclient._core import status
    from licclient._core.status import LicenseStatus
else:
    status = lazy("licclient._core.status")

TYPE: Final = "license-file+json"
"""The `typ` of the signature: nothing else that the service signs is taken for a license file."""

MAX_FILE: Final = 64 * 1024  # bytes
_BEGIN, _END = "-----BEGIN LICENSE FILE-----", "-----END LICENSE FILE-----"
_GROUP: Final = 6
_INSTALLATION: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class LicenseFile:
    """The statement that the vendor signed; `text` is that, without the lines around it.

    `domain` is of the installation that the file is for. It holds until `ends_at`, by the service's clock.
    """

    text: str
    verified: Verified
    slug: str
    masked_key: str
    key_digest: str
    domain: str
    issued_at: datetime
    ends_at: datetime


def write_request(domain: str, slug: str, version: str) -> str:
    """Return the request of this installation: base32 with a check, short enough to be typed."""
    head = b"\2" + domain.encode() + b"\0"
    if _INSTALLATION.fullmatch(domain):
        head = b"\1" + bytes.fromhex(domain)
    content = head + f"{slug}\0{version}".encode()
    code = b32encode(content + sha256(content).digest()[:3]).decode().rstrip("=")
    groups = [code[at : at + _GROUP] for at in range(0, len(code), _GROUP)]
    return "-".join(["REQ", *groups])


def key_digest(key: str, domain: str) -> str:
    """Return by what a file names its license key; bound to the machine."""
    return encode(sha256(f"license-file\0{domain}\0{key}".encode(errors="surrogatepass")).digest())


def unwrap(raw: bytes) -> str:
    """Return the signed text between the two lines, without the line breaks that mail may add; or nothing."""
    text = raw.decode("ascii", errors="replace") if len(raw) <= MAX_FILE else ""
    _, begin, rest = text.partition(_BEGIN)
    inner, end, _ = rest.partition(_END)
    return "".join(inner.split()) if begin and end else ""


def check_file(text: str, settings: Settings, domain: str) -> LicenseFile | LicenseFileError:
    """Return what a pinned key signed for this app on this machine; whether it has ended is not checked.

    `text` is from `unwrap`, and untrusted.
    """
    signed, _, signature = text.rpartition(".")
    header, _, payload = signed.partition(".")
    kid = read_key_id(header, TYPE)
    if not kid:
        return LicenseFileError(FileFlaw.DAMAGED, "This is not a license file, or a part of it is missing.")
    key = next((candidate for candidate in settings.public_keys if candidate.id == kid), None)
    if key is None:
        return LicenseFileError(
            FileFlaw.UNTRUSTED, "No key that this app trusts has signed the license file."
        )
    if not key.verify(decode_base64url(signature), signed.encode()):
        return LicenseFileError(FileFlaw.UNTRUSTED, "The license file was changed after it was signed.")
    file = _parse_payload(text, decode_base64url(payload))
    if file is None:
        return LicenseFileError(FileFlaw.DAMAGED, "What the vendor signed is not about a license.")
    product = file.verified.product
    if settings.product not in (None, product) or settings.slug not in (None, file.slug):
        return LicenseFileError(FileFlaw.OTHER_PRODUCT, f"This license file is for {product}.")
    if file.domain != domain:
        return LicenseFileError(
            FileFlaw.OTHER_MACHINE, "This license file is for another computer. Send the request of this one."
        )
    return file


def _parse_payload(text: str, payload: bytes) -> LicenseFile | None:
    match read_json_object(payload), read_verify(Reply(200, payload), ""):
        case {
            "slug": str(slug),
            "license": str(masked_key),
            "key_digest": str(digest),
            "domain": str(domain),
            "issued_at": str(issued),
            "ends_at": str(ends),
        }, Verified() as verified:
            issued_at, ends_at = read_utc(issued), read_utc(ends)
            if issued_at is not None and ends_at is not None and issued_at < ends_at:
                about = slug, masked_key, digest, domain
                return LicenseFile(text, verified, *about, issued_at, ends_at)
        case _:
            pass
    return None


# --- the license file of this computer ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InstalledLicenseFile:
    """A license file, and what it comes to now: a license, or the error that `verify` raises."""

    file: LicenseFile
    result: License | LicclientError

    @property
    def ends_at(self) -> datetime:
        """When it ends, by the clock of the service."""
        return self.file.ends_at

    def describe(self, now: datetime, update: Update | None) -> "LicenseStatus":
        """Return what a settings page shows; `grace_ends_at` is the end of the file."""
        license_file, result = self.file, self.result
        about = (
            license_file.masked_key,
            license_file.verified.product,
            license_file.verified.expiry,
            license_file.verified.lifetime,
        )
        days_left = (license_file.ends_at.date() - now.date()).days
        if isinstance(result, License):
            when = license_file.issued_at, Source.FILE, None, license_file.ends_at
            valid = status.LicenseStatus(status.LicenseState.VALID, *about, days_left, *when, update)
            until = result.updates_until
            return replace(
                valid,
                is_trial=result.is_trial,
                entitlements=result.entitlements,
                updates_until=until,
                updates_days_left=None if until is None else (until - now.date()).days,
            )
        reason = result.reason if isinstance(result, LicenseRefusedError) else None
        state = status.LicenseState.UNCONFIRMED if reason is None else status.LicenseState.REFUSED
        return status.LicenseStatus(
            state,
            *about,
            days_left,
            license_file.issued_at,
            reason=reason,
            message=str(result),
            is_trial=license_file.verified.is_trial,
            outage=result.outage if isinstance(result, ServiceUnavailableError) else None,
        )


class LicenseFiles:
    """The license file of one app. Safe to share among threads.

    The record stays when the file is forgotten: neither may a clock that was set back bring a file to life
    again, nor may a revoked one be installed again.
    """

    def __init__(self, settings: Settings, state: Storage, domain: Callable[[], str]) -> None:
        self._settings, self._state, self._domain = settings, state, domain
        self._name = record_name("file", settings.server, settings.product or "", settings.slug or "")
        self._read: tuple[Document, LicenseFile | None] | None = None

    def find(self, now: datetime, key: str | None = None) -> InstalledLicenseFile | None:
        """Return the installed file of this app and computer, and of this key if given."""
        if (current := self._current(key)) is None:
            return None
        document, file = current
        if _is_revoked(document, file):
            words = "The license of the license file has been revoked. The file is kept, but not used."
            return InstalledLicenseFile(file, LicenseRefusedError(Reason.REVOKED, words))
        cached, settings = self._as_cached(document, file)
        if (marked := mark(cached, now, settings)) is not cached:
            seen = {"seen_at": marked.seen_at.isoformat()}
            with suppress(StateUnreadableError):  # since it was read: nothing is noted this time
                self._state.change(self._name, lambda stored: stored and {**stored, **seen})
        return InstalledLicenseFile(file, _evaluate(file, marked, now, settings))

    def install(self, raw: bytes, now: datetime) -> License:
        """Check a file, and remember it in place of any other; a `LicenseFileError` leaves that."""
        file = check_file(unwrap(raw), self._settings, self._domain())
        if isinstance(file, LicenseFileError):
            raise file
        results = list[License | LicenseFileError]()

        def add(before: Document | None) -> Document | None:
            document, result = self._add(before or {}, file, now)
            results.append(result)
            return document if isinstance(result, License) else before

        self._state.change(self._name, add)
        result = results[-1]
        if isinstance(result, LicenseFileError):
            raise result
        return result

    def _add(
        self, before: Document, file: LicenseFile, now: datetime
    ) -> tuple[Document, License | LicenseFileError]:
        """Return the record with a file in place of any other, and what the file comes to now."""
        if _is_revoked(before, file):
            words = "The license of this file has been revoked. Ask for a new file."
            return before, LicenseFileError(FileFlaw.REVOKED, words)
        issued_at, seen_at = file.issued_at, max(now, file.issued_at)
        # Only a file later than all others is a reason to believe a clock that shows less than before.
        if (latest := _instant(before, "issued_at")) is not None and latest >= issued_at:
            issued_at, seen_at = latest, max(seen_at, _instant(before, "seen_at") or seen_at)
        instants = {"issued_at": issued_at.isoformat(), "seen_at": seen_at.isoformat()}
        document = {**before, "file": file.text, **instants}
        cached, settings = self._as_cached(document, file)
        result = _evaluate(file, cached, now, settings)
        if isinstance(result, License):
            return document, result
        is_over = isinstance(result, LicenseRefusedError)
        return before, LicenseFileError(FileFlaw.ENDED if is_over else FileFlaw.CLOCK, result.message)

    def note_answer(self, key: str, answer: object, now: datetime) -> None:
        """Stop using the file when the service has revoked its license, until it confirms that again (D-237).

        A success or refusal in `answer` was signed by a pinned key.
        """
        if (current := self._current(key)) is None:
            return
        document, file = current
        if isinstance(answer, LicenseRefusedError) and answer.reason is Reason.REVOKED:
            revoked = {"revoked": {"key": file.key_digest, "at": now.isoformat()}}
            self._state.change(self._name, lambda stored: stored and {**stored, **revoked})
        elif isinstance(answer, Verified) and "revoked" in document:
            self._state.change(self._name, lambda stored: _without(stored, "revoked"))

    def forget(self, *, unless_of: str | None = None) -> None:
        """Forget the file, but not one for the key `unless_of`."""
        is_there = "file" in (self._state.load(self._name) or {})
        if is_there and (unless_of is None or self._current(unless_of) is None):
            self._state.change(self._name, lambda stored: _without(stored, "file"))

    def _current(self, key: str | None) -> tuple[Document, LicenseFile] | None:
        """Return the record and its file, if that can be trusted and is for this key (None: for any)."""
        document = self._state.load(self._name)
        if document is None or "file" not in document:
            return None

        if self._read is None or self._read[0] is not document:
            checked = check_file(str(document["file"]), self._settings, self._domain())
            self._read = document, None if isinstance(checked, LicenseFileError) else checked
        file = self._read[1]
        if file is None or (key is not None and file.key_digest != key_digest(key, file.domain)):
            return None
        return document, file

    def _as_cached(self, document: Document, file: LicenseFile) -> tuple[CachedLicense, Settings]:
        """Return the file as a success that stays fresh until its end, with the settings for that."""
        seen_at = max(_instant(document, "seen_at") or file.issued_at, file.issued_at)
        cached = CachedLicense(file.verified, file.issued_at, seen_at)
        return cached, self._settings._replace(cache_for=file.ends_at - file.issued_at, grace=timedelta(0))


def _evaluate(
    file: LicenseFile, cached: CachedLicense, now: datetime, settings: Settings
) -> License | LicclientError:
    if (license_ := from_cache(cached, now, settings)) is not None:
        return replace(license_, source=Source.FILE, is_authenticated=True)
    if evaluate(cached, now, settings) is CacheState.CLOCK_SET_BACK:
        words = "The clock of this computer is behind the license file. Set it right."
        return ServiceUnavailableError(words, outage=Outage.CLOCK)
    words = f"The license file ended on {file.ends_at:%Y-%m-%d %H:%M} UTC. Ask for a new one."
    return LicenseRefusedError(Reason.EXPIRED, words)


def _is_revoked(document: Document, file: LicenseFile) -> bool:
    match document.get("revoked"):
        case {"key": key, "at": str(at)} if key == file.key_digest:
            revoked_at = read_instant(at)
            return revoked_at is None or file.issued_at <= revoked_at
        case _:
            return False


def _instant(document: Document, name: str) -> datetime | None:
    return read_instant(document.get(name))


def _without(document: Document | None, name: str) -> Document | None:
    return document and {key: value for key, value in document.items() if key != name}
