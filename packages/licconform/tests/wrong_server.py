"""A small server of the protocol, right without faults, and wrong in one way with each of them.

It is called directly, without sockets: `WrongServer.transport()`; it makes its own states (`make`).
"""

import base64
import hashlib
import hmac
import ipaddress
import json
import re
import threading
import time
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from wrong_states import (
    LICENSES,
    RELEASES,
    TODAY,
    Key,
    Product,
    content_of,
    digest_of,
    is_key,
    order_of,
    same_domain,
)

BASE = "http://conform.test"
SECRET = b"a secret of tests"
HOUR = 3600
SIGNING_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
PUBLIC_KEY = "ed25519:" + base64.urlsafe_b64encode(
    SIGNING_KEY.public_key().public_bytes_raw()
).decode().rstrip("=")

FAULTS = """
accepts-expired accepts-other-product accepts-revoked accepts-subscription-ended accepts-unknown
allow-list-ignored allow-list-is-open any-ip arrays-of-errors-are-texts body-ip-takes-slots
changelog-in-the-root computers-show-domains crashes-on-no-json current-version-is-no-update
delivers-without-signature
digest-unchecked domain-as-written domains-are-shared empty-entitlements environment-before-expired
errors-without-message expired-is-revoked expiry-as-timestamp expiry-left-out
extra-field-in-refusals file-of-the-oldest file-without-headers first-fault-only
fix-is-never-installed forgets-environments hangs-up-on-no-json html-responses if-range-ignored
installed-version-is-parsed key-in-link
kind-ignored kind-in-each-answer kind-without-the-field kinds-in-any-case
lifetime-as-text lifetime-expires lifetime-has-expiry link-404-for-changed link-ends-never link-once
link-outlives-revocation link-under-another-path login-wanted lower-case-keys-too
mismatch-is-404 move-race move-takes-another-slot move-without-a-computer
needs-domain-as-hostname never-full no-413 no-field-errors
no-fixes no-last-updated no-message-without-product no-requires no-slots-at-all no-tested
no-versions-is-200 nothing-is-covered null-is-fine null-lifetime
null-link-without-support offers-without-support old-name-in-updates order-of-refusals part-digest
pre-releases-too prefix-only product-before-key product-is-slug product-null race range-ignored
reason-in-lower-case refuses-ipv6 refuses-when-full repairs-keys requires-number signs-always
signs-another-body signs-without-nonce slot-for-malformed slot-for-update-check
strict-about-unknown-fields support-unset-is-over takes-new-name text-422 text-order today-is-over
unknown-is-403 unknown-product-is-mismatch unsigned unsigned-id update-200-for-errors
update-403-for-keys update-422-is-400 update-422-of-its-own update-needs-slot updates-until-left-out
upload-is-cached
url-is-another-domain valid-as-text verify-200-for-refusals version-as-number wants-product
wrong-digest wrong-entitlements wrong-etag
""".split()  # noqa: SIM905 - a list of words


class WrongServer:
    """Answers requests; `faults` are names of `FAULTS`."""

    def __init__(self, *faults: str) -> None:
        assert set(faults) <= set(FAULTS), faults
        self.faults = set(faults)
        self.keys: dict[str, Key] = {}
        self.products: dict[str, Product] = {}
        self.used_links: set[str] = set()
        self.cached: dict[str, str] = {}
        self._lock = threading.Lock()

    def has(self, fault: str) -> bool:
        """Return whether the server has a fault."""
        return fault in self.faults

    # --- states ---------------------------------------------------------------------------------

    def make(self, *words: str) -> dict[str, Any]:
        """Do what a seed command does."""
        return {"key": self._make_key, "revoke": self._revoke, "release": self._release}[words[0]](*words[1:])

    def _make_key(self, state: str) -> dict[str, Any]:
        slug = f"product-{len(self.keys)}"
        versions = list(RELEASES.get(state, ["1.0.0", "2.0.0"]))
        product = Product(f"Product {len(self.keys)}", state.startswith(("support", "covered")), versions)
        product.covered = "1.0.0" if state == "covered" and not self.has("nothing-is-covered") else None
        product.appimage = "1.0.0" if state == "kinds" else None
        product.fix = "1.0.1" if state == "security" and not self.has("no-fixes") else None
        self.products[slug] = product
        text = f"CP-AAAAAA-BBBBBB-CCCCCC-DDDDDD-{len(self.keys):06}"
        key = Key(text, slug, product.name)
        self.keys[text] = key = replace(key, known=set(), **LICENSES.get(state, {}))
        made = {
            "license_key": text, "slug": slug, "product": product.name, "expiry": key.expiry,
            "version": versions[-1] if versions else None, "changelog": "Better.",
            "sha256": hashlib.sha256(content_of(slug, self.latest(slug))).hexdigest() if versions else None,
        }  # fmt: skip
        if state == "renamed":
            made["new_name"] = product.name = f"{product.name} Pro"
        if state == "old-link":
            made["download_url"] = self.link(key, time.time() - HOUR - 60)
        return made

    def _revoke(self, text: str) -> dict[str, Any]:
        self.keys[text].revoked = True
        return {}

    def _release(self, slug: str, version: str) -> dict[str, Any]:
        self.products[slug].versions.append(version)
        return {}

    # --- requests -------------------------------------------------------------------------------

    def transport(self) -> httpx.MockTransport:
        """Return what httpx calls."""
        return httpx.MockTransport(self.answer)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        if self.has("login-wanted") and "Authorization" not in request.headers:
            return httpx.Response(401, json={"message": "Log in."})
        path = request.url.path
        if (request.method, path) == ("POST", "/api/v1/licenses/verify"):
            return self._sign(request, self._verify(request))
        if request.method == "POST" and path in {
            f"/api/v1/licenses/{name}" for name in ("computers", "move")
        }:
            return self._answer_about_computers(json.loads(request.content), path.rpartition("/")[2])
        if (request.method, path) == ("GET", "/api/v1/update-check"):
            return self._sign(request, self._check(request))
        if path in {"/api/v1/update-download", "/files"}:
            return self._download(request)
        return httpx.Response(404, json={"message": "Not found."})

    # --- verify ---------------------------------------------------------------------------------

    def _verify(self, request: httpx.Request) -> httpx.Response:
        digest = request.headers.get("Content-Digest")
        if digest and not self.has("digest-unchecked") and digest != digest_of(request.content):
            return httpx.Response(400, json={"error": "bad_digest"})
        if len(request.content) > 16 << 10 and not self.has("no-413"):
            return httpx.Response(413, json={"message": "Too large."})
        try:
            body = json.loads(request.content)
        except ValueError:
            if self.has("hangs-up-on-no-json"):
                raise httpx.RemoteProtocolError("Server disconnected.") from None
            if self.has("crashes-on-no-json"):
                return httpx.Response(500, text="Internal Server Error")
            body = None
        body = body if isinstance(body, dict) else {}
        faults = self._malformed(body)
        if self.has("strict-about-unknown-fields") and body.keys() - {"license_key", "domain", "ip"}:
            faults = {"body": ["Unknown field."]}
        if faults and not (self.has("order-of-refusals") and not is_key(str(body.get("license_key")))):
            if self.has("slot-for-malformed") and body.get("license_key") in self.keys:
                self.keys[body["license_key"]].known.add(str(body.get("domain")))
            return self._malformed_answer(faults)
        status, reason = self._refusal(str(body["license_key"]), str(body["domain"]), str(body["ip"]), body)
        if status:
            return self._refuse(status, reason)
        return self._succeed(self._find(str(body["license_key"])))

    def _malformed(self, body: dict[str, Any]) -> dict[str, list[str]]:
        faults = {}
        for name in ("license_key", "domain", "ip"):
            value = body.get(name)
            if self.has("null-is-fine") and name in body and value is None:
                continue
            if not isinstance(value, str) or not value.strip():
                faults[name] = [f"The {name} field is required."]
            elif name == "ip" and not self.has("any-ip"):
                try:
                    version = ipaddress.ip_address(value).version
                except ValueError:
                    version = 0
                if not version or (version == 6 and self.has("refuses-ipv6")):
                    faults[name] = ["The ip field must be a valid IP address."]
            elif name == "domain" and ("\0" in value or len(value) > 253):
                faults[name] = ["The domain field is too long."]
        return dict(list(faults.items())[:1]) if self.has("first-fault-only") else faults

    def _malformed_answer(self, faults: dict[str, list[str]]) -> httpx.Response:
        if self.has("text-422"):
            return httpx.Response(422, text="Unprocessable")
        errors: Any = {} if self.has("no-field-errors") else faults
        if self.has("arrays-of-errors-are-texts"):
            errors = {name: texts[0] for name, texts in faults.items()}
        message = {} if self.has("errors-without-message") else {"message": "Invalid."}
        return httpx.Response(422, json={**message, "errors": errors})

    def _find(self, text: str) -> Key:
        return self.keys.get(text) or self.keys.get(text.strip().upper()) or Key(text, "x", "Any")

    def _refusal(self, text: str, domain: str, ip: str, body: dict[str, Any]) -> tuple[int, str]:
        if self.has("repairs-keys"):
            text = text.strip().upper()
        shaped = text.startswith("CP-") if self.has("prefix-only") else is_key(text)
        if not shaped and not (self.has("lower-case-keys-too") and is_key(text.upper())):
            return 403, "Invalid license format."
        key = self.keys.get(text)
        if key is None and not self.has("accepts-unknown"):
            return (403 if self.has("unknown-is-403") else 404), "License not found."
        key = key or self._find(text)
        if self.has("wants-product") and body.get("slug", key.slug) != key.slug:
            return 403, "Wrong product."
        refusals = [
            (key.revoked and not self.has("accepts-revoked"), "License has been revoked."),
            (self._is_expired(key), "License expired."),
            (not self._enter(key, domain, ip), "Max activations exceeded or unrecognized environment."),
        ]
        if self.has("expired-is-revoked"):
            refusals[1] = (refusals[1][0], refusals[0][1])
        if self.has("order-of-refusals"):
            refusals[:2] = refusals[1::-1]
        if self.has("environment-before-expired"):
            refusals[1:] = refusals[:0:-1]
        reason = next((reason for applies, reason in refusals if applies), "")
        return (403 if reason else 0), reason

    def _is_expired(self, key: Key) -> bool:
        if self.has("accepts-expired"):
            return False
        if key.lifetime and not self.has("lifetime-expires"):
            return False
        if key.ended and not self.has("accepts-subscription-ended"):
            return True
        return key.expiry is not None and (
            key.expiry <= TODAY if self.has("today-is-over") else key.expiry < TODAY
        )

    def _enter(self, key: Key, domain: str, ip: str) -> bool:
        """Let an environment in: known, allowed, or with a slot."""
        host = domain if self.has("domain-as-written") else same_domain(domain)
        if self.has("url-is-another-domain") and "/" in domain:
            host = domain
        if self.has("body-ip-takes-slots"):
            host += ip
        if self.has("domains-are-shared") and any(host in other.known for other in self.keys.values()):
            return True
        if self.has("needs-domain-as-hostname") and not re.fullmatch(r"[\w.-]+", domain):
            return False
        if key.revoked or self._is_expired(key):
            return not self.has("environment-before-expired") or key.slots > 0
        if host in key.allowed and not self.has("allow-list-ignored"):
            return True
        if key.allowed and self.has("allow-list-is-open"):
            return True
        if self.has("never-full"):
            return True
        if self.has("race"):
            return self._take(key, host, pause=0.01)
        with self._lock:
            return self._take(key, host)

    def _take(self, key: Key, host: str, pause: float = 0) -> bool:
        full = len(key.known) >= key.slots
        if host in key.known and not self.has("forgets-environments"):
            return not (self.has("refuses-when-full") and full)
        if full or self.has("no-slots-at-all"):
            return False
        time.sleep(pause)
        taken = f"{host} {len(key.known)}" if self.has("forgets-environments") else host
        key.known.add(taken)
        return True

    def _refuse(self, status: int, reason: str) -> httpx.Response:
        if self.has("reason-in-lower-case"):
            reason = reason.lower()
        body: dict[str, Any] = {"valid": False, "reason": reason}
        if self.has("extra-field-in-refusals"):
            body["code"] = 7
        return httpx.Response(200 if self.has("verify-200-for-refusals") else status, json=body)

    def _succeed(self, key: Key) -> httpx.Response:
        body: dict[str, Any] = {
            "valid": "true" if self.has("valid-as-text") else True,
            "product": self.products[key.slug].name if self.has("takes-new-name") else key.product,
            "expiry": key.expiry,
            "lifetime": key.lifetime,
        }
        if self.has("product-is-slug"):
            body["product"] = key.slug
        if self.has("product-null"):
            body["product"] = None
        if self.has("expiry-as-timestamp") and key.expiry:
            body["expiry"] += "T00:00:00Z"
        if self.has("lifetime-has-expiry") and key.lifetime:
            body["expiry"] = "2099-12-31"
        if self.has("lifetime-as-text"):
            body["lifetime"] = str(key.lifetime).lower()
        if self.has("null-lifetime") and not key.lifetime:
            body["lifetime"] = None
        if self.has("expiry-left-out"):
            del body["expiry"]
        if key.entitlements or self.has("empty-entitlements"):
            body["entitlements"] = ["export"] if self.has("wrong-entitlements") else key.entitlements or {}
        body |= self._updates_until(key)
        if self.has("html-responses"):
            return httpx.Response(200, text=json.dumps(body), headers={"Content-Type": "text/html"})
        return httpx.Response(200, json=body)

    # --- computers of a license -----------------------------------------------------------------

    def _answer_about_computers(self, body: dict[str, Any], what: str) -> httpx.Response:
        key = self.keys.get(body["license_key"])
        if key is None:
            return httpx.Response(401, json={"error": "invalid_license", "message": "No."})
        if what == "move":
            return self._move(key, body)
        moved_to = key.moved.get(body["domain"])
        named = [
            {
                "id": self._name(domain),
                "name": None,
                "masked": domain if self.has("computers-show-domains") else f"{domain[:1]}…",
                "last_seen": TODAY,
                "is_this": domain == body["domain"],
                "can_move": True,
                "retry_at": None,
            }
            for domain in sorted(key.known)
        ]
        return httpx.Response(
            200,
            json={
                "slots": key.slots,
                "used": len(key.known),
                "moves_left": 3,
                "retry_at": None,
                "computers": named,
                "moved_to": moved_to and {"name": None, "masked": "…", "on": TODAY},
            },
        )

    def _move(self, key: Key, body: dict[str, Any]) -> httpx.Response:
        with threading.Lock() if self.has("move-race") else self._lock:
            if body["domain"] in key.known:
                return httpx.Response(200, json={"moved": False})
            source = next((domain for domain in key.known if self._name(domain) == body["from"]), None)
            if source is None and not self.has("move-without-a-computer"):
                return httpx.Response(404, json={"error": "computer_not_found", "message": "No."})
            if self.has("move-race"):
                time.sleep(0.01)
            if source is not None and not self.has("move-takes-another-slot"):
                key.known.discard(source)
                key.moved[source] = body["domain"]
            key.known.add(body["domain"])
            return httpx.Response(200, json={"moved": True, "from": {"name": None, "masked": "…"}})

    @staticmethod
    def _name(domain: str) -> str:
        return hashlib.sha256(domain.encode()).hexdigest()[:32]

    # --- update check ---------------------------------------------------------------------------

    def _check(self, request: httpx.Request) -> httpx.Response:
        query = dict(parse_qsl(request.url.query.decode()))
        missing = [
            name
            for name in ("license_key", "slug", "current_version", "domain")
            if not query.get(name, "").strip()
        ]
        if missing:
            return self._missing(missing)
        key = self.keys.get(query["license_key"])
        product = self.products.get(query["slug"])
        if key is not None and product is not None and product.fix and not key.revoked:
            has_it = query["current_version"] == product.fix and not self.has("fix-is-never-installed")
            if not has_it:
                return self._offer(key, query, product.fix)
        errors = self._update_errors(key, product, query)
        for applies, status, code in errors:
            if applies:
                shown = 403 if self.has("update-403-for-keys") and status == 401 else status
                body = {"error": code, "message": "No update."}
                if self.has("errors-without-message") or (
                    self.has("no-message-without-product") and code == "product_not_found"
                ):
                    del body["message"]
                return httpx.Response(200 if self.has("update-200-for-errors") else shown, json=body)
        assert key is not None
        if self.has("slot-for-update-check"):
            key.known.add(query["domain"])
        if self.has("needs-domain-as-hostname") and "/" in query["domain"]:
            return httpx.Response(422, json={"error": "validation", "message": "No host.", "errors": {}})
        if self.has("installed-version-is-parsed") and not re.match(r"[\d.]+$", query["current_version"]):
            return httpx.Response(422, json={"error": "validation", "message": "No version.", "errors": {}})
        return self._offer(key, query)

    def _missing(self, missing: list[str]) -> httpx.Response:
        if self.has("update-422-is-400"):
            return httpx.Response(400, json={"error": "validation", "message": "Missing."})
        if self.has("update-422-of-its-own"):
            return httpx.Response(422, json={"detail": "Missing."})
        errors = {name: ["Required."] for name in missing}
        return httpx.Response(422, json={"error": "validation", "message": "Missing.", "errors": errors})

    def _update_errors(
        self, key: Key | None, product: Product | None, query: dict[str, str]
    ) -> list[tuple[bool, int, str]]:
        unknown = key is None and not self.has("accepts-unknown")
        revoked = key is not None and key.revoked and not self.has("accepts-revoked")
        invalid = (unknown or revoked, 401, "invalid_license")
        expired = (key is not None and self._is_expired(key), 401, "license_expired")
        if self.has("order-of-refusals"):
            invalid, expired = expired, invalid
        if self.has("expired-is-revoked"):
            expired = (expired[0], 401, "invalid_license")
        code = "product_mismatch" if self.has("unknown-product-is-mismatch") else "product_not_found"
        no_product = (product is None, 404, code)
        other = key is not None and key.slug != query["slug"] and not self.has("accepts-other-product")
        mismatch = (other, 404 if self.has("mismatch-is-404") else 403, "product_mismatch")
        kind = self._kind(query)
        empty = product is not None and (not product.versions or kind == "msi")
        no_versions = (empty, 200 if self.has("no-versions-is-200") else 404, "no_versions")
        room = key is None or key.slots > len(key.known) or query["domain"] in key.known
        slot = (self.has("update-needs-slot") and not room, 403, "product_mismatch")
        order = [invalid, expired, no_product, mismatch, no_versions, slot]
        if self.has("product-before-key"):
            order = [no_product, invalid, expired, no_versions, mismatch, slot]
        if self.has("accepts-unknown"):
            order = [no_product, *order]
        return order

    def _offer(self, key: Key, query: dict[str, str], fix: str | None = None) -> httpx.Response:
        product = self.products[query["slug"]]
        kind = self._kind(query)
        own = product.appimage if kind == "appimage" else None
        version = own or fix or product.covered or self.latest(query["slug"])
        body: dict[str, Any] = {
            "name": key.product if self.has("old-name-in-updates") else product.name,
            "slug": query["slug"].upper() if self.has("product-is-slug") else query["slug"],
            "version": version,
            "download_url": self.link(key, time.time(), query["slug"]),
            "sections": {"changelog": "Better."},
            "last_updated": "2026-11-05 06:07:08",
            "requires": 6.0 if self.has("requires-number") else None,
            "tested": 6.0 if self.has("requires-number") else None,
        }
        over = product.policy and (
            key.support_until < TODAY if key.support_until else self.has("support-unset-is-over")
        )
        body |= self._updates_until(key) | self._extensions(product, query["slug"], fix, kind)
        if over and not product.covered and not self.has("offers-without-support"):
            del body["download_url"]
            if self.has("null-link-without-support"):
                body["download_url"] = None
        if self.has("current-version-is-no-update") and query["current_version"] == version:
            del body["download_url"]
        if self.has("changelog-in-the-root"):
            body["changelog"] = body.pop("sections")["changelog"]
        if self.has("version-as-number"):
            body["version"] = float(version[:3])
        if self.has("expiry-as-timestamp"):
            body["last_updated"] = "2026-11-05T06:07:08Z"
        for name in ("last_updated", "requires", "tested"):
            if self.has(f"no-{name.replace('_', '-')}"):
                del body[name]
        return httpx.Response(200, json=body)

    def _kind(self, query: dict[str, str]) -> str | None:
        """Return the kind that an update check names."""
        kind = query.get("kind", "")
        kind = kind.lower() if self.has("kinds-in-any-case") else kind
        return kind if kind in ("appimage", "msi") and not self.has("kind-ignored") else None

    def _updates_until(self, key: Key) -> dict[str, Any]:
        is_named = self.products[key.slug].covered and not self.has("updates-until-left-out")
        return {"updates_until": key.support_until} if is_named else {}

    def _extensions(self, product: Product, slug: str, fix: str | None, kind: str | None) -> dict[str, Any]:
        newer = {"latest_version": self.latest(slug)} if product.covered else {}
        is_named = kind is not None and not self.has("kind-without-the-field")
        newer |= {"kind": kind or "folder"} if is_named or self.has("kind-in-each-answer") else {}
        return newer | ({"security": {"advisory": None, "cves": ["CVE-2026-1234"]}} if fix else {})

    def latest(self, slug: str) -> str:
        """Return the version that is offered."""
        versions = self.products[slug].versions
        if self.has("upload-is-cached"):
            return self.cached.setdefault(slug, max(versions, key=order_of))
        if self.has("text-order"):
            return max(versions)
        if self.has("pre-releases-too"):
            return max(versions, key=order_of)
        return max([version for version in versions if "rc" not in version] or versions, key=order_of)

    # --- download -------------------------------------------------------------------------------

    def file(self, slug: str) -> bytes:
        """Return the content of the latest version."""
        version = self.products[slug].versions[0] if self.has("file-of-the-oldest") else self.latest(slug)
        return content_of(slug, version)

    def link(self, key: Key, now: float, slug: str | None = None) -> str:
        """Return a download link made at `now`."""
        query = {
            "slug": slug or key.slug,
            "id": str(list(self.keys).index(key.key)),
            "until": str(int(now) + HOUR),
        }
        if self.has("key-in-link"):
            query["license_key"] = key.key
        path = "/files" if self.has("link-under-another-path") else "/api/v1/update-download"
        return f"{BASE}{path}?{urlencode({**query, 'signature': self.signature(query)})}"

    def signature(self, query: dict[str, str]) -> str:
        """Return the signature of a link's parameters."""
        covered = {name: value for name, value in query.items() if name != "signature"}
        if self.has("unsigned-id"):
            del covered["slug"]
        return hmac.new(SECRET, urlencode(covered).encode(), "sha256").hexdigest()

    def _download(self, request: httpx.Request) -> httpx.Response:
        query = dict(parse_qsl(request.url.query.decode()))
        if self.has("delivers-without-signature") and not query:
            return httpx.Response(200, content=b"any file")
        wanted = {"slug", "id", "until", "signature"}
        right = wanted <= query.keys() and hmac.compare_digest(query["signature"], self.signature(query))
        if not right:
            if self.has("link-404-for-changed"):
                return httpx.Response(404, text="Not found")
            return httpx.Response(403, json={"error": "invalid_link", "message": "Invalid."})
        if int(query["until"]) < time.time() and not self.has("link-ends-never"):
            code = "invalid_link" if self.has("link-404-for-changed") else "link_expired"
            return httpx.Response(403, json={"error": code, "message": "Late."})
        if self.has("link-once") and query["signature"] in self.used_links:
            return httpx.Response(403, json={"error": "link_expired", "message": "Used."})
        self.used_links.add(query["signature"])
        key = list(self.keys.values())[int(query["id"])]
        if key.revoked and not self.has("link-outlives-revocation"):
            return httpx.Response(403, json={"error": "license_revoked", "message": "Revoked."})
        return self._deliver(request, self.file(query["slug"]))

    def _deliver(self, request: httpx.Request, content: bytes) -> httpx.Response:
        etag = '"' + hashlib.sha256(content).hexdigest()[:16] + '"'
        digest = digest_of(b"other" if self.has("wrong-digest") else content)
        headers = {
            "ETag": etag.strip('"') if self.has("wrong-etag") else etag,
            "Accept-Ranges": "bytes",
            "Content-Disposition": 'attachment; filename="file.zip"',
            "Repr-Digest": digest,
        }
        if self.has("file-without-headers"):
            return httpx.Response(200, stream=httpx.ByteStream(content))
        start = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        same = request.headers.get("If-Range", headers["ETag"]) == headers["ETag"] or self.has(
            "if-range-ignored"
        )
        if start is None or not same or self.has("range-ignored"):
            return httpx.Response(200, content=content, headers=headers)
        part = content[int(start[1]) :]
        if self.has("part-digest"):
            headers["Repr-Digest"] = digest_of(part)
        headers["Content-Range"] = f"bytes {start[1]}-{len(content) - 1}/{len(content)}"
        return httpx.Response(206, content=part, headers=headers)

    # --- signatures -----------------------------------------------------------------------------

    def _sign(self, request: httpx.Request, response: httpx.Response) -> httpx.Response:
        accept_signature = request.headers.get("Accept-Signature")
        if self.has("signs-always"):
            response.headers["Signature"] = "sig0=:AAAA:"
        if accept_signature is None or self.has("unsigned"):
            return response
        digest = digest_of(response.content)
        components = accept_signature.partition("=")[2].partition(")")[0] + ")"
        nonce = re.search(r';nonce="[^"]*"', accept_signature)
        shown = nonce[0] if nonce and not self.has("signs-without-nonce") else ""
        parameters = f'{components};created=1;expires=2;keyid="k"{shown};alg="ed25519";tag="licensing-answer"'
        values = [
            ('"@status"', str(response.status_code)),
            ('"content-type"', response.headers.get("Content-Type", "")),
            ('"content-digest"', digest_of(b"") if self.has("signs-another-body") else digest),
            ('"@method";req', request.method),
            ('"@target-uri";req', str(request.url)),
            ('"content-digest";req', request.headers["Content-Digest"]),
            ('"@signature-params"', parameters),
        ]
        base = "\n".join(f"{name}: {value}" for name, value in values)
        signature = base64.b64encode(SIGNING_KEY.sign(base.encode())).decode()
        response.headers["Content-Digest"] = digest
        response.headers["Signature-Input"] = f"sig0={parameters}"
        response.headers["Signature"] = f"sig0=:{signature}:"
        return response
