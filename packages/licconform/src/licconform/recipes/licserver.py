"""A seed command for licserver: makes states through its admin API.

`docs/conformance.md` has the commands. It needs the environment variable LICCONFORM_TOKEN, and for a link of
the past the secrets in the server's data folder, LICSERVER_DATA_DIR.
"""

import hashlib
import hmac
import json
import os
import secrets
import sys
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qsl, urlencode
from urllib.request import Request, urlopen

UNSUPPORTED = 77
NAME = "Conformance Product"
CHANGELOG = "Better than before."
NEVER = "2099-12-31"
PAST = "2020-01-31"
BOUNDARY = "licconform-form"
APPIMAGE = b"\x7fELF\x02\x01\x01\x00AI\x02"  # the first bytes of one
LINK_CONTEXT = b"licserver download link v1\n"

PRODUCTS: dict[str, dict[str, Any]] = {
    "support-active": {"support_policy": True},
    "support-expired": {"support_policy": True},
    "support-unset": {"support_policy": True},
    "covered": {"support_policy": True, "after_support": "covered"},
}
"""State → unusual settings of the product."""
LICENSES: dict[str, dict[str, Any]] = {
    "no-expiry": {"expires_on": None},
    "lifetime": {"expires_on": None, "lifetime": True},
    "expired": {"expires_on": PAST},
    "revoked-expired": {"expires_on": PAST},
    "subscription-ended": {"subscription": True},
    "lifetime-subscription-ended": {"subscription": True, "expires_on": None, "lifetime": True},
    "full": {"slots": 0},
    "expired-full": {"slots": 0, "expires_on": PAST},
    "allowed": {"slots": 0, "allowed": ["allowed.example.org", "127.0.0.1", "::1"]},
    "support-active": {"support_until": NEVER},
    "support-expired": {"support_until": PAST},
    "covered": {"expires_on": None, "support_until": PAST},
    "security": {"expires_on": PAST},
    "entitled": {"overrides": {"export": True, "exports": {"limit": 5, "per": "month"}, "region": "eu"}},
}
"""State → unusual settings of the license."""
RELEASES = {
    "no-versions": [],
    "unordered": ["1.9.0", "1.10.0", "1.9.1"],
    "pre-release": ["1.0.0", "2.0.0rc1"],
    "only-pre-releases": ["1.0.0rc1", "1.0.0rc2"],
    "security": ["1.0.0", "1.0.1", "2.0.0"],
}
"""State → the file versions, in this order."""


UPLOADS = {
    ("covered", "1.0.0"): {"published_on": PAST},
    ("security", "1.0.1"): {"security": "true", "cves": "CVE-2026-1234"},
    ("kinds", "1.0.0"): {"kind": "appimage"},
}
"""State and version → further fields of the upload."""


class Seed:
    """Makes states on one server."""

    def __init__(self, base_url: str, token: str) -> None:
        self._url, self._api, self._token = base_url, f"{base_url}/admin/api/v1", token

    def key(self, state: str) -> dict[str, Any]:
        """Make a product and a key in a state."""
        if state == "old-link" and "LICSERVER_DATA_DIR" not in os.environ:
            print("Set LICSERVER_DATA_DIR, to sign a link of the past.", file=sys.stderr)  # noqa: T201 - the reason
            sys.exit(UNSUPPORTED)
        number = secrets.token_hex(4)
        slug, name = f"conform-{number}", f"{NAME} {number}"  # licserver has each name once
        self._post("/products", {"slug": slug, "name": name, **PRODUCTS.get(state, {})})
        digest = None
        for version in RELEASES.get(state, ["1.0.0", "2.0.0"]):
            digest = self.release(slug, version, **UPLOADS.get((state, version), {}))["sha256"]
        terms = {"product": slug, "slots": 2, "expires_on": NEVER, **LICENSES.get(state, {})}
        if state == "expires-today":
            terms["expires_on"] = datetime.now(UTC).date().isoformat()  # noqa: TID251 - a program of its own
        if terms.pop("subscription", False):
            terms["subscription"] = f"sub-{slug}"
        issued = self._post("/licenses", terms)
        seed = {
            "license_key": issued["license_key"],
            "slug": slug,
            "product": name,
            "expiry": terms["expires_on"],
            "version": (RELEASES.get(state) or ["2.0.0"])[-1],
            "changelog": CHANGELOG,
            "sha256": digest,
        }
        if state.startswith("revoked"):
            self.revoke(issued["license_key"])
        if "subscription" in terms:
            ended = datetime.now(UTC) - timedelta(minutes=1)  # noqa: TID251 - as above
            self._post(f"/subscriptions/sub-{slug}/end", {"at": ended.isoformat()})
        if state == "renamed":
            seed["new_name"] = f"{name} 2"
            self._send("PATCH", f"/products/{slug}", json.dumps({"name": seed["new_name"]}).encode())
        if state == "old-link":
            seed["download_url"] = self._old_link(issued["license_key"], slug)
        return seed

    def _old_link(self, key: str, slug: str) -> str:
        """Return a link of two hours ago, signed with the server's secret."""
        parameters = {
            "license_key": key,
            "slug": slug,
            "current_version": "1.0.0",
            "domain": "conform.example.org",
        }
        url = f"{self._url}/api/v1/update-check?{urlencode(parameters)}"
        with urlopen(url, timeout=30) as response:  # noqa: S310 - the user's URL
            address, _, query = json.load(response)["download_url"].partition("?")
        fields = dict(parse_qsl(query))
        del fields["signature"]
        fields["expires"] = str(int(fields["expires"]) - 2 * 3600)
        kept = json.loads(Path(os.environ["LICSERVER_DATA_DIR"], "secrets.json").read_text(encoding="utf-8"))
        secret = next(entry["secret"] for entry in kept["link_secrets"] if entry["id"] == fields["key"])
        query = urlencode(sorted(fields.items()))
        signature = hmac.digest(b64decode(secret), LINK_CONTEXT + query.encode(), "sha256")
        return f"{address}?{query}&signature={urlsafe_b64encode(signature).rstrip(b'=').decode()}"

    def revoke(self, key: str) -> dict[str, Any]:
        """Revoke a key."""
        license_ = self._post("/licenses/lookup", {"license_key": key})
        return self._post(f"/licenses/{license_['id']}/revoke", {"reason": "conformance test"})

    def release(self, slug: str, version: str, **more: str) -> dict[str, Any]:
        """Upload a file version."""
        content = APPIMAGE if more.get("kind") == "appimage" else b""
        content += f"{slug} {version}\n".encode() * 20
        fields = [("version", version), ("changelog", CHANGELOG), *more.items()]
        parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{text}' for name, text in fields]
        file = f'Content-Disposition: form-data; name="file"; filename="{slug}-{version}.zip"\r\n\r\n'
        form = "".join(f"--{BOUNDARY}\r\n{part}\r\n" for part in parts) + f"--{BOUNDARY}\r\n{file}"
        body = form.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
        kind = f"multipart/form-data; boundary={BOUNDARY}"
        self._send("POST", f"/products/{slug}/releases", body, kind)
        return {"sha256": hashlib.sha256(content).hexdigest()}

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._send("POST", path, json.dumps(body).encode())

    def _send(self, method: str, path: str, body: bytes, kind: str = "application/json") -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        request = Request(f"{self._api}{path}", body, headers, method=method)  # noqa: S310 - the user's URL
        try:
            with urlopen(request, timeout=30) as response:  # noqa: S310 - as above
                return dict(json.load(response))
        except HTTPError as error:
            sys.exit(f"{method} {path}: {error.code} {error.read().decode()}")


def main() -> None:
    """Run one seed command: BASE_URL (key STATE | revoke KEY | release SLUG VERSION)."""
    base_url, verb, *words = sys.argv[1:]
    if "LICCONFORM_TOKEN" not in os.environ:
        sys.exit("Set LICCONFORM_TOKEN to a token with the scope write: `licserver token create`.")
    seed = Seed(base_url, os.environ["LICCONFORM_TOKEN"])
    verbs: dict[str, Callable[..., dict[str, Any]]]
    verbs = {"key": seed.key, "revoke": seed.revoke, "release": seed.release}
    result = verbs[verb](*words)
    print(json.dumps(result))  # noqa: T201 - its result


if __name__ == "__main__":
    main()
