"""The endpoints of the fake service: the rules of the protocol (D-01 to D-33) that an app meets."""

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, Final

import httpx
from packaging.version import Version

from licclient._protocol.responses import MANIFEST_HEADER
from licclient._typed_key import is_license_key
from licclient.testing._clients import LicenseClock
from licclient.testing._signing import Signer

DOWNLOAD_PATH: Final = "/api/v1/update-download"
LINK_LIFETIME: Final = timedelta(hours=1)
RELEASE_LIFETIME: Final = timedelta(days=180)


@dataclass(slots=True)
class IssuedLicense:
    """A license; the fields are those of `LicenseService.issue`."""

    product: str
    slug: str | None
    expires: date | None
    lifetime: bool
    slots: int | None
    support_until: date | None
    revoked: bool = False
    domains: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Release:
    """A published version; the fields are those of `LicenseService.publish`."""

    version: str
    slug: str | None
    changelog: str
    content: bytes
    filename: str
    published_at: datetime


class Endpoints:
    """What the service has, and its responses."""

    def __init__(self, clock: LicenseClock) -> None:
        self.clock = clock
        self.licenses: dict[str, IssuedLicense] = {}
        self.releases: list[Release] = []
        self._links: dict[str, tuple[str, Release, datetime]] = {}

    @cached_property
    def release_signer(self) -> Signer:
        """The vendor's key pair."""
        return Signer("licclient.testing vendor")

    def verify(self, fields: Mapping[str, Any]) -> httpx.Response:
        """Respond to a verify (spec 4.1)."""
        names = ("license_key", "domain", "ip")
        missing = _find_missing({name: isinstance(fields.get(name), str) and fields[name] for name in names})
        if missing:
            return httpx.Response(422, json={"message": next(iter(missing.values()))[0], "errors": missing})
        key, domain = fields["license_key"], fields["domain"].strip().lower()
        license_ = self.licenses.get(key)
        # D-01: the order of refusals.
        if license_ is None:
            known = is_license_key(key)
            return _refuse(404, "License not found.") if known else _refuse(403, "Invalid license format.")
        if license_.revoked:
            return _refuse(403, "License has been revoked.")
        if self._is_expired(license_):
            return _refuse(403, "License expired.")
        slots, domains = license_.slots, license_.domains
        if domain not in domains and slots is not None and len(domains) >= slots:
            return _refuse(403, "Max activations exceeded or unrecognized environment.")
        domains.add(domain)
        expiry = license_.expires.isoformat() if license_.expires and not license_.lifetime else None
        body = {"valid": True, "product": license_.product, "expiry": expiry, "lifetime": license_.lifetime}
        return httpx.Response(200, json=body)

    def _is_expired(self, license_: IssuedLicense) -> bool:
        expires = license_.expires
        return not license_.lifetime and expires is not None and self.clock().date() > expires  # D-09

    def check(self, fields: Mapping[str, str], prefix: str) -> httpx.Response:
        """Respond to an update check (spec 4.2); `prefix` is the address before the endpoint's path."""
        names = ("license_key", "slug", "current_version", "domain")
        missing = _find_missing({name: fields.get(name) for name in names})
        if missing:
            message = next(iter(missing.values()))[0]
            return httpx.Response(422, json={"error": "validation", "message": message, "errors": missing})
        key, slug = fields["license_key"], fields["slug"]
        license_ = self.licenses.get(key)
        # D-20: the order of errors.
        if license_ is None or license_.revoked:
            return refuse_with_code(401, "invalid_license", "The license key is not valid.")
        if self._is_expired(license_):
            return refuse_with_code(401, "license_expired", "The license has expired.")
        slugs = {one.slug for one in self.licenses.values()} | {one.slug for one in self.releases}
        if None not in slugs and slug not in slugs:
            return refuse_with_code(404, "product_not_found", "There is no product with this slug.")
        if license_.slug not in (None, slug):
            return refuse_with_code(403, "product_mismatch", "The license was issued for another product.")
        found = [release for release in self.releases if release.slug in (None, slug)]
        stable = [release for release in found if not Version(release.version).is_prerelease]
        latest = max(stable or found, key=lambda release: Version(release.version), default=None)  # D-23
        if latest is None:
            return refuse_with_code(404, "no_versions", "The product has no published version yet.")
        body: dict[str, Any] = {
            "name": license_.product,
            "slug": slug,
            "version": latest.version,
            "sections": {"changelog": latest.changelog},
            "last_updated": f"{latest.published_at:%Y-%m-%d %H:%M:%S}",
            "requires": None,
            "tested": None,
        }
        if license_.support_until is None or self.clock().date() <= license_.support_until:  # D-25
            link = f"{len(self._links) + 1}"
            self._links[link] = key, latest, self.clock()
            body["download_url"] = f"{prefix}{DOWNLOAD_PATH}?id={link}"
        headers = {MANIFEST_HEADER: self._sign(latest, slug)} if find_spec("cryptography") else {}
        return httpx.Response(200, json=body, headers=headers)

    def _sign(self, release: Release, slug: str) -> str:
        expires_at = self.clock() + RELEASE_LIFETIME
        return self.release_signer.sign_release(
            {
                "slug": slug,
                "version": release.version,
                "size": len(release.content),
                "sha256": sha256(release.content).hexdigest(),
                "published_at": f"{release.published_at:%Y-%m-%dT%H:%M:%SZ}",
                "expires_at": f"{expires_at:%Y-%m-%dT%H:%M:%SZ}",
            }
        )

    def download(
        self, fields: Mapping[str, str], headers: Mapping[str, str], *, wrong: bool, cut: bool
    ) -> httpx.Response:
        """Respond to a download (D-30 to D-32): with other bytes if `wrong`, half of the rest if `cut`."""
        link = self._links.get(fields.get("id", ""))
        if link is None:
            return refuse_with_code(403, "invalid_link", "This download address is not valid.")
        key, release, signed_at = link
        if self.clock() - signed_at >= LINK_LIFETIME:
            message = "This download address has run out; check for the update again."
            return refuse_with_code(403, "link_expired", message)
        if self.licenses[key].revoked:
            return refuse_with_code(403, "license_revoked", "The license has been revoked.")
        content, digest = release.content, sha256(release.content)
        sent = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f'attachment; filename="{release.filename}"',
            "Repr-Digest": f"sha-256=:{b64encode(digest.digest()).decode()}:",
            "ETag": f'"{digest.hexdigest()}"',
            "Accept-Ranges": "bytes",
        }
        start = _read_range(headers, sent["ETag"], len(content))
        if start:
            sent["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        rest = (bytes(byte ^ 0xFF for byte in content) if wrong else content)[start:]
        sent["Content-Length"] = str(len(rest))
        # The last byte is sent: an app that resumes gets the file in the end.
        body = _Body(rest, len(rest) // 2 if cut and len(rest) > 1 else None)
        return httpx.Response(206 if start else 200, headers=sent, stream=body)


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that may break off; for both kinds of client."""

    def __init__(self, content: bytes, cut_at: int | None) -> None:
        self._content = content
        self._cut_at = cut_at

    def __iter__(self) -> Iterator[bytes]:
        yield self._content[: self._cut_at]
        if self._cut_at is not None:
            raise httpx.ReadError("the fake service cut the connection")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part


def _find_missing(fields: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        name: [f"The {name.replace('_', ' ')} field is required."]
        for name, value in fields.items()
        if not (value and value.strip())
    }


def _read_range(headers: Mapping[str, str], etag: str, size: int) -> int:
    """Return where the only kind of range begins that a resuming client asks for; 0 for the whole file."""
    first = headers.get("range", "").removeprefix("bytes=").removesuffix("-")
    if not first.isdecimal() or headers.get("if-range", etag) != etag:
        return 0
    return int(first) if int(first) < size else 0


def _refuse(status: int, reason: str) -> httpx.Response:
    return httpx.Response(status, json={"valid": False, "reason": reason})


def refuse_with_code(status: int, code: str, message: str) -> httpx.Response:
    """Return an error as the update check and the download have it."""
    return httpx.Response(status, json={"error": code, "message": message})
