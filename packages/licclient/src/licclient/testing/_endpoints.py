"""The endpoints of the fake service: the rules of the protocol (D-01 to D-33) that an app meets."""

from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, Final, Protocol
from urllib.parse import quote

import httpx
from packaging.version import Version

from licclient._computers.fake import FakeComputers
from licclient._core.kinds import PUBLISHED_KINDS, read_published_kind
from licclient._core.model import Entitlements, read_entitlements, write_entitlements
from licclient._core.policy import is_below, is_newer, is_version
from licclient._core.requests import is_https_address
from licclient._core.responses import MANIFEST_HEADER, is_cve
from licclient._core.settings import read_slug
from licclient._core.typed_key import is_license_key
from licclient._trials.fake import FakeTrials
from licclient._uses.fake import use
from licclient.testing._clients import LicenseClock, Misbehaviour
from licclient.testing._signing import Signer

DOWNLOAD_PATH: Final = "/api/v1/update-download"
LINK_LIFETIME: Final = timedelta(hours=1)
RELEASE_LIFETIME: Final = timedelta(days=180)

_TYPES: Final = {
    **dict.fromkeys(("product", "version", "changelog", "platform", "kind", "channel"), str),
    **dict.fromkeys(("slug", "filename", "critical_below", "advisory"), str | None),
    **dict.fromkeys(("expires", "support_until", "updates_until"), date | None),
    "slots": int | None,
    **dict.fromkeys(("lifetime", "rolled_out", "security"), bool),
    "content": bytes,
    **dict.fromkeys(("channels", "cves"), list | tuple | set | frozenset),
}
"""Field of a license or release → its type: in a response a wrong one would look like a server's fault."""


_KINDS: Final = ("folder", "appimage", "nsis", "inno", "msi", "app")
"""The order in which an app that names no kind is offered the files of a version (D-187)."""


def check_fields(record: object) -> None:
    """Raise `TypeError` or `ValueError` for what a test cannot issue or publish."""
    for name, kind in _TYPES.items():
        value = getattr(record, name, None)
        if hasattr(record, name) and (not isinstance(value, kind) or isinstance(value, datetime)):
            type_name = getattr(kind, "__name__", kind)
            raise TypeError(f"{name} must be {type_name}, not {type(value).__name__}")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{name} must not be negative")
    read_slug(getattr(record, "slug", None))


def check_grants(entitlements: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return entitlements; raise `ValueError` for those that a client would leave out."""
    sent = write_entitlements(Entitlements(entitlements))
    wrong = sorted(sent.keys() - read_entitlements(sent).keys(), key=str)
    if wrong:
        raise ValueError(
            f"entitlements are named like export-pdf, and are flags, numbers, texts or a Quota; not {wrong}"
        )
    return entitlements


class Part(Protocol):
    """A license's state of an optional feature: the feature's part of the service."""

    def respond(self, fields: Mapping[str, Any], now: datetime) -> tuple[int, dict[str, Any]]:
        """Return status and body of a response; the license holds."""
        ...

    def release(self, fields: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """Return the response to a request with `release`, which a license that has ended gets as well."""
        ...


@dataclass(slots=True)
class IssuedLicense:
    """A license; the fields are those of `LicenseService.issue`."""

    product: str
    slug: str | None
    expires: date | None
    lifetime: bool
    slots: int | None
    support_until: date | None = None
    entitlements: Mapping[str, Any] | None = None
    is_trial: bool = False
    channels: Collection[str] = ()
    updates_until: date | None = None
    revoked: bool = False
    is_activated: bool = False  # on a computer that has sent nothing yet
    domains: set[str] = field(default_factory=set)
    computers: FakeComputers = field(default_factory=FakeComputers)
    parts: dict[str, Part] = field(default_factory=dict)  # of optional features, by the kind of request
    uses: dict[str, tuple[str, datetime, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the fields."""
        check_fields(self)

    def terms(self) -> dict[str, Any]:
        """Return what a response contains of it."""
        expiry = self.expires.isoformat() if self.expires and not self.lifetime else None
        return {"product": self.product, "expiry": expiry, "lifetime": self.lifetime}

    def coverage(self) -> dict[str, Any]:
        """Return what a response contains of covered versions; nothing without them."""
        return {} if self.updates_until is None else {"updates_until": self.updates_until.isoformat()}

    def allows(self, release: "Release", today: date) -> bool:
        """Return whether it may have a release, leaving aside whether that fixes a vulnerability (D-25)."""
        if self.updates_until is not None:
            return release.published_at.date() <= self.updates_until
        return self.support_until is None or today <= self.support_until


@dataclass(frozen=True, slots=True)
class Release:
    """A published version; the fields are those of `LicenseService.publish`."""

    version: str
    slug: str | None
    changelog: str
    content: bytes
    filename: str
    published_at: datetime
    platform: str = ""
    channel: str = "stable"
    rolled_out: bool = True
    critical_below: str | None = None
    security: bool = False
    advisory: str | None = None
    cves: Collection[str] = ()
    kind: str = "folder"

    def __post_init__(self) -> None:
        """Check the fields, as clients do: they would leave a wrong advisory or id out."""
        check_fields(self)
        if self.advisory is not None and not is_https_address(self.advisory):
            raise ValueError(f"advisory must be an https address, not {self.advisory[:40]!r}")
        if read_published_kind(self.kind) is None:
            raise ValueError(f"kind must be one of {', '.join(sorted(PUBLISHED_KINDS))}")
        wrong = [cve for cve in self.cves if not is_cve(cve)]
        if wrong:
            raise ValueError(f"cves must be ids such as CVE-2026-1234, not {str(wrong[0])[:40]!r}")
        if (self.advisory is not None or self.cves) and not self.security:
            raise ValueError("advisory and cves are for a release with security=True")

    def describe_kind(self, fields: Mapping[str, str]) -> dict[str, Any]:
        """Return the field of an update check that names a kind."""
        return {} if read_published_kind(fields.get("kind")) is None else {"kind": self.kind}

    def is_critical(self, installed: str) -> bool:
        """Return whether it is important for an installed version."""
        return self.critical_below is not None and is_newer(self.critical_below, installed)

    def is_security_fix(self, installed: str) -> bool:
        """Return whether it fixes a vulnerability of an installed version."""
        return self.security and is_below(installed, self.version)

    def notice(self, installed: str) -> dict[str, Any]:
        """Return what an update check contains of the vulnerabilities that it fixes."""
        if not self.is_security_fix(installed):
            return {}
        return {"security": {"advisory": self.advisory, "cves": list(self.cves)}}

    def reaches(self, fields: Mapping[str, str]) -> bool:
        """Return whether an update check may be offered it (D-230)."""
        installed = fields["current_version"]
        has_it = is_version(installed) and not is_newer(self.version, installed)
        return self.rolled_out or has_it or fields.get("manual") == "1" or self.is_critical(installed)


class RefusedError(Exception):
    """An error in the form that all endpoints but verify have."""

    def __init__(self, status: int, code: str, message: str, **more: Any) -> None:
        self.response = httpx.Response(status, json={"error": code, "message": message, **more})


class Endpoints:
    """The state of the service, and its responses."""

    def __init__(self, clock: LicenseClock, parts: Mapping[str, Callable[[], Part]]) -> None:
        self.clock = clock
        self._parts = parts
        self.licenses: dict[str, IssuedLicense] = {}
        self.releases: list[Release] = []
        self.minimum_versions: dict[str, str] = {}
        self.trials = FakeTrials()
        self._links: dict[str, tuple[str, Release, datetime]] = {}

    @cached_property
    def release_signer(self) -> Signer:
        """The vendor's key pair."""
        return Signer("licclient.testing vendor")

    def verify(self, fields: Mapping[str, Any]) -> httpx.Response:
        """Respond to a verify (spec 4.1)."""
        names = ("license_key", "domain", "ip")
        texts = {name: fields[name] if isinstance(fields.get(name), str) else "" for name in names}
        if missing := _find_missing(texts):
            return httpx.Response(422, json={"message": next(iter(missing.values()))[0], "errors": missing})
        key, domain = fields["license_key"], fields["domain"].strip().lower()
        license_ = self.licenses.get(key)
        # D-01: the order of refusals.
        if license_ is None:
            if is_license_key(key):
                return _refuse(404, "License not found.")
            return _refuse(403, "Invalid license format.")
        if license_.revoked:
            return _refuse(403, "License has been revoked.")
        if self._is_expired(license_):
            return _refuse(403, "License expired.")
        domains = license_.domains
        if domain not in domains and license_.slots is not None and len(domains) >= license_.slots:
            return _refuse(403, "Max activations exceeded or unrecognized environment.")
        domains.add(domain)
        license_.computers.note(domain, fields.get("label"), self.clock())
        body: dict[str, Any] = {"valid": True, **license_.terms(), **license_.coverage()}
        if license_.entitlements is not None:
            body["entitlements"] = write_entitlements(Entitlements(license_.entitlements))
        return httpx.Response(200, json={**body, "trial": True} if license_.is_trial else body)

    def start_trial(self, fields: Mapping[str, Any], new_key: str) -> httpx.Response:
        """Respond to a request for a trial; `new_key` is the key of a new one."""
        slug, machine = (str(fields.get(name, "")) for name in ("slug", "machine"))
        if (offer := self.trials.find_offer(slug)) is None:
            raise RefusedError(403, "trials_not_offered", "There are no trials of this product.")
        product, days = offer
        key = self.trials.start(slug, machine, new_key)
        if key == new_key:
            end = self.clock().date() + timedelta(days=days)
            self.licenses[key] = IssuedLicense(product, slug, end, lifetime=False, slots=1, is_trial=True)
        license_ = self.licenses[key]
        if license_.revoked or not license_.is_trial or self._is_expired(license_):
            raise RefusedError(403, "trial_ended", "This machine has had its trial of this product.")
        domain = str(fields.get("domain", "")).strip().lower()
        if domain not in {"", *license_.domains}:
            license_.domains.clear()  # of an earlier installation on this machine
        return httpx.Response(200, json={"license_key": key, **license_.terms(), "trial": True})

    def deactivate(self, fields: Mapping[str, Any]) -> httpx.Response:
        """Respond to a request to free the slot of a domain; any number of times."""
        key, domain = _require(fields, "license_key", "domain")
        license_, domain = self._find(key), domain.strip().lower()
        freed = domain in license_.domains
        license_.domains.discard(domain)
        license_.is_activated = False
        return httpx.Response(200, json={"deactivated": int(freed)})

    def computers(self, fields: Mapping[str, Any]) -> httpx.Response:
        """Respond to a request for the computers of a license."""
        key, domain = _require(fields, "license_key", "domain")
        license_ = self._find_current(key)
        slots, domains = license_.slots, license_.domains
        status, body = license_.computers.respond(domains, domain.strip().lower(), slots, self.clock())
        return httpx.Response(status, json=body)

    def move(self, fields: Mapping[str, Any]) -> httpx.Response:
        """Respond to a request to move a license."""
        key, domain, _, computer_id = _require(fields, "license_key", "domain", "ip", "from")
        license_, domain = self._find_current(key), domain.strip().lower()
        status, body = license_.computers.move(license_.domains, domain, computer_id, self.clock())
        if body.get("moved") is True:
            license_.computers.note(domain, fields.get("label"), self.clock())
        return httpx.Response(status, json=body)

    def _find_current(self, key: str) -> IssuedLicense:
        """Return a license that is neither revoked nor expired."""
        license_ = self._find(key)
        if license_.revoked:
            raise RefusedError(403, "license_revoked", "The license has been revoked.")
        return self._find(key, is_valid=True)

    def part(self, kind: str, fields: Mapping[str, Any]) -> httpx.Response:
        """Respond to a request of an optional feature, whose id is in the field of that name."""
        key, *_ = _require(fields, "license_key", "domain", kind)
        license_, now = self._find(key), self.clock()
        part = license_.parts.setdefault(kind, self._parts[kind]())
        if fields.get("release") is True:
            return httpx.Response(200, json=part.release(fields, now))
        other = license_.slug is not None and fields.get("slug", license_.slug) != license_.slug
        refusals = [
            (license_.revoked, 403, "license_revoked", "The license has been revoked."),
            (self._is_expired(license_), 401, "license_expired", "The license has expired."),
            (other, 403, "product_mismatch", "The license was issued for another product."),
        ]
        for applies, status, code, message in refusals:
            if applies:
                raise RefusedError(status, code, message)
        status, body = part.respond(fields, now)
        return httpx.Response(status, json=body)

    def consume(self, fields: Mapping[str, Any]) -> httpx.Response:
        """Respond to a use of a metered entitlement: each id counts once, and nothing above the limit."""
        license_ = self._find(str(fields.get("license_key")), is_valid=True)
        domain = str(fields.get("domain")).strip().lower()
        if license_.is_activated and not license_.domains:
            license_.domains.add(domain)  # where the key was entered before the test
        if domain not in license_.domains:
            raise RefusedError(403, "not_activated", "The license is not activated here.")
        quota = (license_.entitlements or {}).get(str(fields["name"]))
        status, body = use(license_.uses, quota, fields, self.clock())
        return httpx.Response(status, json=body)

    def rolled_back(self, fields: Mapping[str, Any]) -> httpx.Response:
        """Respond to a report of a version that was rolled back; `SeenRequest` has its fields."""
        self._find(str(fields.get("license_key")))
        return httpx.Response(200, json={"counted": True})

    def _find(self, key: str, *, is_valid: bool = False) -> IssuedLicense:
        """Return the license of a key, whether valid or not unless `is_valid` demands it."""
        license_ = self.licenses.get(key)
        if license_ is None or (is_valid and license_.revoked):
            raise RefusedError(401, "invalid_license", "The license key is not valid.")
        if is_valid and self._is_expired(license_):
            raise RefusedError(401, "license_expired", "The license has expired.")
        return license_

    def _is_expired(self, license_: IssuedLicense) -> bool:
        expires = license_.expires
        return not license_.lifetime and expires is not None and self.clock().date() > expires  # D-09

    def check(self, fields: Mapping[str, str], prefix: str) -> httpx.Response:
        """Respond to an update check (spec 4.2); `prefix` is the address before the endpoint's path."""
        key, slug, installed, _ = _require(fields, "license_key", "slug", "current_version", "domain")
        license_ = self._find(key)  # D-20: the order of errors
        fix = self._find_fix(license_, slug, fields)
        if fix is None:
            self._find(key, is_valid=True)
        slugs = {license_.slug for license_ in self.licenses.values()} | {
            release.slug for release in self.releases
        }
        if None not in slugs and slug not in slugs:
            raise RefusedError(404, "product_not_found", "There is no product with this slug.")
        if license_.slug not in (None, slug):
            raise RefusedError(403, "product_mismatch", "The license was issued for another product.")
        reached = [release for release in self.releases if release.reaches(fields)]
        candidates = _list_candidates(reached, license_, slug, fields)
        latest, offer = _find_highest(candidates), self._find_offer(candidates, license_)
        if fix is not None and (offer is None or Version(offer.version) < Version(fix.version)):
            offer = fix
        listed = offer or latest
        if listed is None:
            raise RefusedError(404, "no_versions", "The product has no published version yet.")
        body: dict[str, Any] = {"name": license_.product, "slug": slug, "version": listed.version}
        body |= {"sections": {"changelog": listed.changelog}, "requires": None, "tested": None}
        body["last_updated"] = f"{listed.published_at:%Y-%m-%d %H:%M:%S}"
        if listed.channel != "stable":
            body["channel"] = listed.channel
        if (minimum := self.minimum_versions.get(slug)) is not None:  # D-229
            body["minimum_version"] = minimum
        body |= {"critical": True} if listed.is_critical(installed) else {}
        body |= license_.coverage()
        if latest is not None and is_below(listed.version, latest.version):
            body["latest_version"] = latest.version
        if offer is not None:
            body |= offer.notice(installed)
            link = f"{len(self._links) + 1}"
            self._links[link] = key, offer, self.clock()
            body["download_url"] = f"{prefix}{DOWNLOAD_PATH}?id={link}"
        body |= listed.describe_kind(fields)
        headers = {MANIFEST_HEADER: self._sign(listed, slug)} if find_spec("cryptography") else {}
        return httpx.Response(200, json=body, headers=headers)

    def _find_offer(self, candidates: Iterable[Release], license_: IssuedLicense) -> Release | None:
        """Return the highest release that a license covers."""
        today = self.clock().date()
        if self._is_expired(license_):
            return None
        return _find_highest(release for release in candidates if license_.allows(release, today))

    def _find_fix(self, license_: IssuedLicense, slug: str, fields: Mapping[str, str]) -> Release | None:
        """Return the security release that a license may have, whatever it covers (D-331).

        It is the highest with the installed major version, or of all without such a one: after the fix of the
        installed major version, no higher one comes for nothing.
        """
        if license_.revoked or (license_.is_trial and self._is_expired(license_)):
            return None
        installed = fields["current_version"]
        if not is_version(installed):
            return None
        candidates = _list_candidates(self.releases, license_, slug, fields)
        fixes, major = [release for release in candidates if release.security], Version(installed).major
        highest = _find_highest([fix for fix in fixes if Version(fix.version).major == major] or fixes)
        return highest if highest is not None and highest.is_security_fix(installed) else None

    def _sign(self, release: Release, slug: str) -> str:
        content = {
            "slug": slug,
            "version": release.version,
            "size": len(release.content),
            "sha256": sha256(release.content).hexdigest(),
            "published_at": _format(release.published_at),
            "expires_at": _format(self.clock() + RELEASE_LIFETIME),
        }
        return self.release_signer.sign_release(content)

    def download(
        self, fields: Mapping[str, str], headers: Mapping[str, str], how: Misbehaviour | None
    ) -> httpx.Response:
        """Respond to a download (D-30 to D-32)."""
        if (link := self._links.get(fields.get("id", ""))) is None:
            raise RefusedError(403, "invalid_link", "This download address is not valid.")
        key, release, signed_at = link
        if self.clock() - signed_at >= LINK_LIFETIME:
            message = "This download address has run out; check for the update again."
            raise RefusedError(403, "link_expired", message)
        if self.licenses[key].revoked:
            raise RefusedError(403, "license_revoked", "The license has been revoked.")
        content, digest = release.content, sha256(release.content)
        sent = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(release.filename, safe='')}",
            "Repr-Digest": f"sha-256=:{b64encode(digest.digest()).decode()}:",
            "ETag": f'"{digest.hexdigest()}"',
            "Accept-Ranges": "bytes",
        }
        if how is Misbehaviour.NO_DIGEST:
            del sent["Repr-Digest"]
        start = _read_range(headers, sent["ETag"], len(content))
        if start:
            sent["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        rest = (bytes(byte ^ 0xFF for byte in content) if how is Misbehaviour.WRONG_FILE else content)[start:]
        sent["Content-Length"] = str(len(rest))
        # The last byte is sent: an app that resumes gets the file in the end.
        body = _Body(rest, len(rest) // 2 if how is Misbehaviour.CUT and len(rest) > 1 else None)
        return httpx.Response(206 if start else 200, headers=sent, stream=body)


def _list_candidates(
    releases: Iterable[Release], license_: IssuedLicense, slug: str, fields: Mapping[str, str]
) -> list[Release]:
    """Return the releases for the channels, the platform and the kind of an update check."""
    if license_.slug not in (None, slug):
        return []
    platforms, kind = ("", fields.get("platform", "")), read_published_kind(fields.get("kind"))
    candidates = [
        release
        for release in releases
        if release.slug in (None, slug) and release.platform in platforms and kind in (None, release.kind)
    ]
    channels = {*fields.get("channels", "").split(","), *license_.channels} - {"stable"}
    of_channels = [release for release in candidates if release.channel in channels]  # D-227
    stable = [release for release in candidates if release.channel == "stable"]
    final = [release for release in stable if not Version(release.version).is_prerelease]
    return of_channels + (final or stable)


def _find_highest(releases: Iterable[Release]) -> Release | None:
    # D-23, D-187: of one version the first kind, and of that the platform's own file before the default.
    return max(
        releases,
        key=lambda release: (Version(release.version), -_KINDS.index(release.kind), release.platform),
        default=None,
    )


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


def _find_missing(fields: Mapping[str, str]) -> dict[str, list[str]]:
    missing = [name for name, value in fields.items() if not value.strip()]
    return {name: [f"The {name.replace('_', ' ')} field is required."] for name in missing}


def _require(fields: Mapping[str, Any], *names: str) -> list[str]:
    texts = {name: str(fields.get(name, "")) for name in names}
    if missing := _find_missing(texts):
        raise RefusedError(422, "validation", next(iter(missing.values()))[0], errors=missing)
    return list(texts.values())


def _read_range(headers: Mapping[str, str], etag: str, size: int) -> int:
    """Return where the only kind of range begins that a resuming client asks for; 0 for the whole file."""
    first = headers.get("range", "").removeprefix("bytes=").removesuffix("-")
    if not first.isdecimal() or headers.get("if-range", etag) != etag:
        return 0
    return int(first) if int(first) < size else 0


def _format(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _refuse(status: int, reason: str) -> httpx.Response:
    return httpx.Response(status, json={"valid": False, "reason": reason})
