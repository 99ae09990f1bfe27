"""A license service in memory: the rules of the protocol (D-01 to D-33) that an app meets."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from packaging.version import Version

from licclient._protocol.requests import UPDATE_CHECK_PATH, VERIFY_PATH
from licclient._typed_key import GROUP_LENGTH, GROUPS, PREFIX, Mistyped, repair_key
from licclient.testing._told import Answer, Misbehaviour, NoResponseError, SeenRequest

DOWNLOAD_PATH: Final = "/api/v1/update-download"
LINK_LIVES: Final = timedelta(hours=1)
RELEASE_LIVES: Final = timedelta(days=180)


@dataclass(slots=True)
class _Sold:
    product: str
    slug: str | None
    expires: date | None
    lifetime: bool
    slots: int | None
    support_until: date | None
    revoked: bool = False
    domains: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Release:
    version: str
    slug: str | None
    changelog: str
    content: bytes
    filename: str
    published_at: datetime


class LicenseService:
    """A license service that says what it is told to say, and remembers what it was asked.

    Args:
        clock: Returns the present instant; aware, UTC.

    Attributes:
        requests: What has arrived, oldest first.
        activated_key: The key that a computer without an activation turns out to have; see `issue`.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._sold: dict[str, _Sold] = {}
        self._releases: list[_Release] = []
        self._links: dict[str, tuple[str, _Release, datetime]] = {}
        self._is_offline = False
        self._misbehaviour: Misbehaviour | None = None
        self.requests: list[SeenRequest] = []
        self.activated_key: str | None = None

    # --- what the vendor does -----------------------------------------------------------------

    def issue(
        self,
        product: str,
        *,
        slug: str | None = None,
        expires: date | None = None,
        lifetime: bool = False,
        slots: int | None = None,
        support_until: date | None = None,
        key: str | None = None,
        activated: bool = False,
    ) -> str:
        """Issue a license.

        Args:
            product: The product's name, as in `LicenseClient(product=…)`.
            slug: The product's slug; None for a license that fits every slug.
            expires: Last valid day, UTC; None for no end.
            lifetime: Whether it never expires.
            slots: How many installations may use it; None for any number.
            support_until: Last day with updates; None for no end.
            key: The key; None to make one up.
            activated: Whether the app finds this key on its computer, as if it had been entered earlier.

        Returns:
            The license key.
        """
        if key is None:
            key = _made_up_key(len(self._sold) + 1)
        elif isinstance(repair_key(key), Mistyped):
            raise ValueError("the key must have the shape CP- and five groups of six letters or digits")
        self._sold[key] = _Sold(product, slug, expires, lifetime, slots, support_until)
        if activated:
            self.activated_key = key
        return key

    def revoke(self, key: str) -> None:
        """Revoke a license, as after a refund."""
        self._sold[key].revoked = True

    def reinstate(self, key: str) -> None:
        """Take a revocation back."""
        self._sold[key].revoked = False

    def expire(self, key: str) -> None:
        """Let a license end yesterday."""
        self._sold[key].lifetime = False
        self._sold[key].expires = self._clock().date() - timedelta(days=1)

    def end_support(self, key: str) -> None:
        """Let the support period end yesterday: newer versions are listed, but without a link (D-25)."""
        self._sold[key].support_until = self._clock().date() - timedelta(days=1)

    def publish(
        self,
        version: str,
        *,
        slug: str | None = None,
        changelog: str = "",
        content: bytes = b"the new version",
        filename: str | None = None,
    ) -> None:
        """Publish a version.

        Args:
            version: As PEP 440 reads it.
            slug: The product's slug; None for every product's.
            changelog: Plain text or basic HTML.
            content: The file.
            filename: Its name; None for one made of slug and version.

        Raises:
            InvalidVersion: PEP 440 cannot read the version.
        """
        Version(version)
        name = filename or f"{slug or 'app'}-{version}.zip"
        self._releases.append(_Release(version, slug, changelog, content, name, self._clock()))

    # --- what goes wrong ----------------------------------------------------------------------

    def go_offline(self) -> None:
        """Be out of reach from now on."""
        self._is_offline = True

    def come_back(self) -> None:
        """Be in reach again, and behave."""
        self._is_offline = False
        self._misbehaviour = None

    def misbehave(self, how: "Misbehaviour | str") -> None:
        """Go wrong from now on, until `come_back`."""
        self._misbehaviour = Misbehaviour(how)

    @contextmanager
    def offline(self) -> Iterator[None]:
        """Be out of reach for a block."""
        self.go_offline()
        try:
            yield
        finally:
            self.come_back()

    # --- what was asked -----------------------------------------------------------------------

    def count(self, kind: str | None = None) -> int:
        """Return how many requests there were, in all or of a kind: `verify`, `update-check`, `download`."""
        return sum(kind in (None, request.kind) for request in self.requests)

    def answer(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """Answer a request. This is what the client's HTTP library is led to.

        Args:
            method: As `GET`.
            url: Absolute, or a path with a query; host and path prefix do not matter.
            headers: Names in any case.
            body: For a verify, JSON.

        Raises:
            NoResponseError: The service is offline, or slow.
        """
        parts = urlsplit(url)
        told = {name.lower(): value for name, value in (headers or {}).items()}
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        asked = _read_json(body) if method == "POST" else query
        kinds = {VERIFY_PATH: "verify", UPDATE_CHECK_PATH: "update-check", DOWNLOAD_PATH: "download"}
        kind = next((kind for path, kind in kinds.items() if parts.path.endswith(path)), "other")
        self.requests.append(SeenRequest(kind, asked.get("license_key"), asked, told))
        if self._is_offline:
            raise NoResponseError(slow=False)
        if (wrong := self._wrong_answer()) is not None:
            return wrong
        match method, kind:
            case "POST", "verify":
                return self._own_word(self._verify(asked))
            case "GET", "update-check":
                prefix = url.partition("?")[0].removesuffix(UPDATE_CHECK_PATH)
                return self._own_word(self._check(asked, prefix))
            case "GET", "download":
                return self._download(asked, told)
            case _, "other":
                return _error(404, "not_found", "There is nothing at this address.")
            case _:
                return _error(405, "method_not_allowed", "This address does not take this method.")

    def _own_word(self, answer: Answer) -> Answer:
        if self._misbehaviour is Misbehaviour.UNSIGNED:
            return replace(answer, release=None)
        return replace(answer, is_own_word=True)

    def _wrong_answer(self) -> Answer | None:
        html = {"Content-Type": "text/html"}
        match self._misbehaviour:
            case Misbehaviour.SLOW:
                raise NoResponseError(slow=True)
            case Misbehaviour.ERROR:
                return Answer(500, b"<h1>Internal Server Error</h1>", html)
            case Misbehaviour.BUSY:
                return Answer(429, b"", {"Retry-After": "60"})
            case Misbehaviour.LOGIN_PAGE:
                return Answer(200, b"<h1>Welcome to our hotel</h1>", html)
            case Misbehaviour.REDIRECT:
                return Answer(302, b"", {"Location": "https://elsewhere.example/login"})
            case Misbehaviour.GARBAGE:
                return _json(200, {"valid": "true", "version": 2})
            case _:
                return None

    # --- verify (spec 4.1) --------------------------------------------------------------------

    def _verify(self, asked: Mapping[str, Any]) -> Answer:
        missing = {
            name: [f"The {name.replace('_', ' ')} field is required."]
            for name in ("license_key", "domain", "ip")
            if not (isinstance(asked.get(name), str) and asked[name].strip())
        }
        if missing:
            return _json(422, {"message": next(iter(missing.values()))[0], "errors": missing})
        key, domain = asked["license_key"], asked["domain"].strip().lower()
        sold = self._sold.get(key)
        # D-01: the order of refusals.
        if repair_key(key) != key:
            return _refusal(403, "Invalid license format.")
        if sold is None:
            return _refusal(404, "License not found.")
        if sold.revoked:
            return _refusal(403, "License has been revoked.")
        if self._is_expired(sold):
            return _refusal(403, "License expired.")
        if domain not in sold.domains and sold.slots is not None and len(sold.domains) >= sold.slots:
            return _refusal(403, "Max activations exceeded or unrecognized environment.")
        sold.domains.add(domain)
        expiry = sold.expires.isoformat() if sold.expires and not sold.lifetime else None
        told = {"valid": True, "product": sold.product, "expiry": expiry, "lifetime": sold.lifetime}
        return _json(200, told)

    def _is_expired(self, sold: _Sold) -> bool:
        return not sold.lifetime and sold.expires is not None and self._clock().date() > sold.expires  # D-09

    # --- update check (spec 4.2) --------------------------------------------------------------

    def _check(self, asked: Mapping[str, Any], prefix: str) -> Answer:
        missing = {
            name: [f"The {name.replace('_', ' ')} field is required."]
            for name in ("license_key", "slug", "current_version", "domain")
            if not asked.get(name, "").strip()
        }
        if missing:
            message = next(iter(missing.values()))[0]
            return _json(422, {"error": "validation", "message": message, "errors": missing})
        key, slug = str(asked["license_key"]), str(asked["slug"])
        sold = self._sold.get(key)
        # D-20: the order of errors.
        if sold is None or sold.revoked:
            return _error(401, "invalid_license", "The license key is not valid.")
        if self._is_expired(sold):
            return _error(401, "license_expired", "The license has expired.")
        known = {sold.slug for sold in self._sold.values()} | {release.slug for release in self._releases}
        if None not in known and slug not in known:
            return _error(404, "product_not_found", "There is no product with this slug.")
        if sold.slug not in (None, slug):
            return _error(403, "product_mismatch", "The license was issued for another product.")
        latest = self._latest(slug)
        if latest is None:
            return _error(404, "no_versions", "The product has no published version yet.")
        told: dict[str, Any] = {
            "name": sold.product,
            "slug": slug,
            "version": latest.version,
            "sections": {"changelog": latest.changelog},
            "last_updated": f"{latest.published_at:%Y-%m-%d %H:%M:%S}",
            "requires": None,
            "tested": None,
        }
        if sold.support_until is None or self._clock().date() <= sold.support_until:  # D-25
            name = f"{len(self._links) + 1}"
            self._links[name] = key, latest, self._clock()
            told["download_url"] = f"{prefix}{DOWNLOAD_PATH}?id={name}"
        return replace(_json(200, told), release=self._signed_release(latest, slug))

    def _signed_release(self, release: _Release, slug: str) -> dict[str, Any]:
        now = self._clock()
        return {
            "slug": slug,
            "version": release.version,
            "size": len(release.content),
            "sha256": sha256(release.content).hexdigest(),
            "published_at": f"{release.published_at:%Y-%m-%dT%H:%M:%SZ}",
            "expires_at": f"{now + RELEASE_LIVES:%Y-%m-%dT%H:%M:%SZ}",
        }

    def _latest(self, slug: str) -> _Release | None:
        found = [release for release in self._releases if release.slug in (None, slug)]
        stable = [release for release in found if not Version(release.version).is_prerelease]
        return max(stable or found, key=lambda release: Version(release.version), default=None)  # D-23

    # --- download (D-30 to D-32) --------------------------------------------------------------

    def _download(self, asked: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        link = self._links.get(asked.get("id", ""))
        if link is None:
            return _error(403, "invalid_link", "This download address is not valid.")
        key, release, signed_at = link
        if self._clock() - signed_at >= LINK_LIVES:
            words = "This download address has run out; check for the update again."
            return _error(403, "link_expired", words)
        if self._sold[key].revoked:
            return _error(403, "license_revoked", "The license has been revoked.")
        content, digest = release.content, sha256(release.content)
        told = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f'attachment; filename="{release.filename}"',
            "Repr-Digest": f"sha-256=:{b64encode(digest.digest()).decode()}:",
            "ETag": f'"{digest.hexdigest()}"',
            "Accept-Ranges": "bytes",
        }
        if self._misbehaviour is Misbehaviour.WRONG_FILE:
            content = bytes(byte ^ 0xFF for byte in content)
        status, start = 200, _range_start(headers, told["ETag"], len(content))
        if start:
            status = 206
            told["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        rest = content[start:]
        told["Content-Length"] = str(len(rest))
        # The last byte comes: an app that resumes gets there in the end.
        cut = len(rest) // 2 if self._misbehaviour is Misbehaviour.CUT and len(rest) > 1 else None
        return Answer(status, rest, told, cut)


def _range_start(headers: Mapping[str, str], etag: str, size: int) -> int:
    """Read the only range that a client which resumes asks for; 0 for the whole file."""
    first = headers.get("range", "").removeprefix("bytes=").removesuffix("-")
    if not first.isdecimal() or headers.get("if-range", etag) != etag:
        return 0
    return int(first) if int(first) < size else 0


def _made_up_key(number: int) -> str:
    return "-".join([PREFIX, *["TEST00"] * (GROUPS - 1), f"{number:0{GROUP_LENGTH}}"])


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _json(status: int, document: Mapping[str, Any]) -> Answer:
    return Answer(status, json.dumps(document).encode(), {"Content-Type": "application/json"})


def _refusal(status: int, reason: str) -> Answer:
    return _json(status, {"valid": False, "reason": reason})


def _error(status: int, code: str, message: str) -> Answer:
    return _json(status, {"error": code, "message": message})
