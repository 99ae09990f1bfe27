"""A small client of the protocol, right without faults, and wrong in one way with each of them.

It is called in the process of the test: `WrongClient(…).run(arguments, environ)` is what a program would be.
"""

import base64
import hashlib
import http.client
import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from packaging.version import InvalidVersion, Version

YES, NO, NO_ANSWER = 0, 1, 3
DAY, HOUR = 86400, 3600

FAULTS = """
accepts-any-200 accepts-number-as-version accepts-truthy always-asks-updates asks-always
asks-never-again asks-twice at-the-root body-as-form builds-the-link cache-for-all-keys
cache-forever cache-of-an-hour cache-without-expiry checks-each-hour checks-never-again
clock-back-is-fine clock-locks-out crashes-on-broken-cache crashes-on-expiry-null
crashes-on-requires crashes-on-unknown-fields cut-file-is-fine digest-is-for-nothing
disposition-is-a-path download-writes-errors downloads-anything downloads-by-post downloads-the-same
errors-are-updates follows-redirects forgets-offers form-content-type grace-forever
grace-ignores-refusals grace-none ignores-force ignores-force-for-updates ignores-other-product
installed-is-left-out key-as-typed key-with-the-link leaves-out-domain leaves-out-ip leaves-out-key
leaves-out-slug leaves-out-domain-of-updates localhost-as-ip malformed-is-valid needs-digest
new-domain-each-time no-accept no-answer-is-no no-link-is-offer no-pre-releases-for-anyone
offers-errors offers-old-versions offers-pre-releases offers-unreadable old-link
other-reasons-are-no-answer outage-is-update outage-is-valid product-wanted-is-slug raw-query
redirects-never refusal-is-cached refusal-keeps-cache refuses-404 refuses-lifetime
remembers-withdrawn-offers requires-every-section resumes-never retries-no-link sends-put-verify
sends-post-check slug-as-key success-is-no text-order valid-is-no-field
""".split()  # noqa: SIM905 - a list of words


@dataclass(frozen=True, slots=True)
class Response:
    """What came back; `status` 0 is nothing."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> dict[str, Any]:
        """Return the body, or nothing."""
        try:
            body = json.loads(self.content)
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}


class WrongClient:
    """A client; `faults` are names of `FAULTS`."""

    def __init__(self, *faults: str) -> None:
        assert set(faults) <= set(FAULTS), faults
        self._faults = set(faults)

    def run(self, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
        """Run a verb."""
        return _Run(self._faults, environ).run(*arguments)


class _Run:
    def __init__(self, faults: set[str], environ: Mapping[str, str]) -> None:
        self._faults = faults
        self._environ = environ
        self._now = time.time() + int(environ["LICCONFORM_CLOCK"])
        self._memory = Path(environ["LICCONFORM_STATE"], "memory.json")
        self._state = self._load()
        if "domain" not in self._state or self.has("new-domain-each-time"):
            self._state["domain"] = str(uuid.uuid4())

    def has(self, fault: str) -> bool:
        """Return whether the client has a fault."""
        return fault in self._faults

    def run(self, verb: str, key: str, *words: str) -> int:
        """Run a verb, and remember."""
        try:
            if not self.has("key-as-typed"):
                key = key.strip().upper()
            return {"verify": self._verify, "check": self._check, "download": self._download}[verb](
                key, *words
            )
        finally:
            self._memory.write_text(json.dumps(self._state))

    def _load(self) -> dict[str, Any]:
        try:
            state = json.loads(self._memory.read_bytes())
        except (OSError, ValueError):
            if self.has("crashes-on-broken-cache") and self._memory.exists():
                raise
            return {}
        return state if isinstance(state, dict) else {}

    @property
    def _forced(self) -> bool:
        return bool(self._environ["LICCONFORM_FORCE"])

    # --- verify ---------------------------------------------------------------------------------

    def _verify(self, key: str) -> int:
        product = self._environ["LICCONFORM_PRODUCT"]
        wanted = hashlib.sha256(key.encode()).hexdigest()
        cached = self._state.get("success") or {}
        if cached.get("key") != wanted and not self.has("cache-for-all-keys"):
            cached = {}
        age = self._now - cached.get("at", -1e12)
        latest = self._state.get("latest", 0)
        if self.has("clock-locks-out") and self._now < latest - 300:
            return NO_ANSWER
        self._state["latest"] = max(latest, self._now)
        if age < -300 and not self.has("clock-back-is-fine"):
            cached, age = {}, 1e12
        if not self.has("cache-without-expiry") and cached.get("ends", 1e12) <= self._now:
            cached, age = {}, 1e12
        fresh = age < self._lifetime() and bool(cached)
        if fresh and not (self._forced and not self.has("ignores-force")) and not self.has("asks-always"):
            return YES
        return self._ask(key, wanted, product, bool(cached), age)

    def _lifetime(self) -> float:
        if self.has("cache-forever"):
            return 1e11
        return HOUR if self.has("cache-of-an-hour") else DAY

    def _ask(self, key: str, wanted: str, product: str, known: bool, age: float) -> int:
        if self._state.get("refused") or (self.has("asks-never-again") and self._state.get("asked")):
            return NO
        self._state["asked"] = True
        response = self._send_verify(key)
        if self.has("asks-twice"):
            response = self._send_verify(key)
        status = self._judge(response, product)
        if status == YES:
            expiry = response.json().get("expiry")
            ends = 1e12
            if isinstance(expiry, str) or self.has("crashes-on-expiry-null"):
                ends = time.mktime(time.strptime(expiry, "%Y-%m-%d")) - time.timezone + DAY  # type: ignore[arg-type]
            self._state["success"] = {"key": wanted, "at": self._now, "ends": ends}
        elif status == NO:
            if not self.has("refusal-keeps-cache"):
                self._state["success"] = None
            self._state["refused"] = self.has("refusal-is-cached")
            if self.has("grace-ignores-refusals") and known and not self._forced:
                return YES
        elif (known and age < 4 * DAY and not self.has("grace-none")) or (
            known and self.has("grace-forever")
        ):
            return YES
        elif self.has("no-answer-is-no"):
            return NO
        return status

    def _send_verify(self, key: str) -> Response:
        body = {"license_key": key, "domain": self._state["domain"], "ip": "192.0.2.1"}
        if self.has("localhost-as-ip"):
            body["ip"] = "localhost"
        for name, fault in (("license_key", "key"), ("domain", "domain"), ("ip", "ip")):
            if self.has(f"leaves-out-{fault}"):
                del body[name]
        content = urlencode(body) if self.has("body-as-form") else json.dumps(body)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.has("form-content-type"):
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        if self.has("no-accept"):
            del headers["Accept"]
        method = "PUT" if self.has("sends-put-verify") else "POST"
        return self._send(method, "/api/v1/licenses/verify", content.encode(), headers)

    def _judge(self, response: Response, product: str) -> int:
        body = response.json()
        if self.has("crashes-on-unknown-fields") and body.keys() - {"valid", "product", "expiry", "lifetime"}:
            return NO_ANSWER if response.status == 200 else NO
        if self.has("success-is-no"):
            return NO
        if self.has("outage-is-valid") and response.status in {0, 500, 502, 503}:
            return YES
        if self.has("malformed-is-valid") and response.status == 422:
            return YES
        if response.status == 200:
            return self._judge_success(body, product)
        if self.has("accepts-any-200") and body.get("valid") is True:
            return YES
        is_refusal = body.get("valid") is False and isinstance(body.get("reason"), str)
        if response.status not in {403, 404} or not is_refusal:
            return NO_ANSWER
        if self.has("refuses-404") and response.status == 404:
            return NO_ANSWER
        if self.has("other-reasons-are-no-answer") and "Sunday" in body["reason"]:
            return NO_ANSWER
        return NO

    def _judge_success(self, body: dict[str, Any], product: str) -> int:
        valid = body.get("valid")
        right = valid is True or (self.has("accepts-truthy") and bool(valid)) or self.has("valid-is-no-field")
        if not right:
            return NO_ANSWER
        if self.has("refuses-lifetime") and body.get("lifetime"):
            return NO
        if product and body.get("product") != product and not self.has("ignores-other-product"):
            return NO
        if product and self.has("product-wanted-is-slug"):
            return NO
        return YES

    # --- update check ---------------------------------------------------------------------------

    def _check(self, key: str, slug: str, installed: str) -> int:
        remembered = self._state.get("check") or {}
        age = self._now - remembered.get("at", -1e12)
        cycle = (
            HOUR if self.has("checks-each-hour") else 1e12 if self.has("checks-never-again") else 12 * HOUR
        )
        asks = self._forced and not self.has("ignores-force-for-updates")
        if not 0 <= age < cycle or asks or self.has("always-asks-updates"):
            remembered = self._ask_for_update(key, slug, installed)
        elif self.has("forgets-offers"):
            return NO
        return YES if remembered.get("url") else NO

    def _ask_for_update(self, key: str, slug: str, installed: str) -> dict[str, Any]:
        query = {
            "license_key": key,
            "slug": slug,
            "current_version": installed,
            "domain": self._state["domain"],
        }
        if self.has("slug-as-key"):
            query["license_key"] = slug
        for name, fault in (
            ("slug", "leaves-out-slug"),
            ("current_version", "installed-is-left-out"),
            ("domain", "leaves-out-domain-of-updates"),
        ):
            if self.has(fault):
                del query[name]
        text = "&".join(f"{name}={value if self.has('raw-query') else quote(value, safe='')}"
                        for name, value in query.items())  # fmt: skip
        method = "POST" if self.has("sends-post-check") else "GET"
        response = self._send(method, f"/api/v1/update-check?{text}", b"", {"Accept": "application/json"})
        offer = self._read_offer(response, installed)
        before = self._state.get("check") or {}
        if not offer and self.has("remembers-withdrawn-offers"):
            offer = {"url": before.get("url")}
        self._state["check"] = {**offer, "at": self._now}
        return offer

    def _read_offer(self, response: Response, installed: str) -> dict[str, Any]:
        body = response.json()
        if self.has("errors-are-updates") and response.status >= 400:
            return {"url": "x"}
        if self.has("outage-is-update") and not body:
            return {"url": "x"}
        if response.status != 200 and not self.has("offers-errors"):
            return {}
        if self._stumbles(body):
            return {}
        url, version = body.get("download_url"), body.get("version")
        if self.has("no-link-is-offer") and isinstance(version, str):
            url = url or "x"
        if self.has("retries-no-link") and url is None and "version" in body:
            url = f"{self._environ['LICCONFORM_URL']}/api/v1/update-download"
        if self.has("accepts-number-as-version"):
            url, version = str(url), "2.0.0" if version in {2, None} else version
        if not isinstance(url, str) or not url or not isinstance(version, str):
            return {}
        return {"url": url, "link_at": self._now} if self._is_newer(version, installed) else {}

    def _stumbles(self, body: dict[str, Any]) -> bool:
        if self.has("crashes-on-requires") and (body.get("requires") or body.get("tested")):
            return True
        sections = body.get("sections")
        if self.has("requires-every-section") and not (isinstance(sections, dict) and all(sections.values())):
            return True
        return self.has("crashes-on-unknown-fields") and "icons" in body

    def _is_newer(self, offered: str, installed: str) -> bool:
        if self.has("offers-old-versions"):
            return True
        if self.has("text-order"):
            return offered > installed
        try:
            new, old = Version(offered), Version(installed)
        except InvalidVersion:
            return self.has("offers-unreadable")
        if new.is_prerelease:
            if self.has("no-pre-releases-for-anyone"):
                return False
            if not old.is_prerelease and not self.has("offers-pre-releases"):
                return False
        return new > old

    # --- download -------------------------------------------------------------------------------

    def _download(self, key: str, slug: str, installed: str) -> int:
        offer = self._state.get("check") or {}
        if not offer.get("url") or not (
            self.has("old-link") or self._now - offer.get("link_at", 0) < HOUR / 2
        ):
            offer = self._ask_for_update(key, slug, installed)
        if self.has("downloads-the-same"):
            offer = offer or {"url": f"{self._environ['LICCONFORM_URL']}/api/v1/update-download?x=1"}
        if self.has("downloads-anything"):
            offer = (
                offer
                if offer.get("url")
                else {"url": f"{self._environ['LICCONFORM_URL']}/api/v1/update-download"}
            )
        for attempt in range(2):
            url = offer.get("url")
            if not url:
                return NO
            done = self._fetch(url, key)
            if done is not None:
                return self._store(done)
            if self.has("resumes-never"):
                return NO_ANSWER
            if attempt == 0:
                offer = self._ask_for_update(key, slug, installed)
        return NO_ANSWER

    def _fetch(self, url: str, key: str) -> Response | None:
        if self.has("builds-the-link"):
            url = f"{self._environ['LICCONFORM_URL']}/api/v1/update-download?id=1"
        headers = {"X-License-Key": key} if self.has("key-with-the-link") else {}
        method = "POST" if self.has("downloads-by-post") else "GET"
        response = self._send(method, url, b"", headers)
        if response.status == 307 and not self.has("redirects-never"):
            response = self._send("GET", response.headers["location"], b"", {})
        if response.status != 200 and not self.has("download-writes-errors"):
            return None
        digest = response.headers.get("repr-digest")
        actual = f"sha-256=:{base64.b64encode(hashlib.sha256(response.content).digest()).decode()}:"
        if digest is None and self.has("needs-digest"):
            return None
        if digest not in {None, actual} and not self.has("digest-is-for-nothing"):
            return None
        return response

    def _store(self, response: Response) -> int:
        name = re.search('filename="([^"]*)"', response.headers.get("content-disposition", ""))
        folder = Path(self._environ["LICCONFORM_DOWNLOADS"])
        if name and self.has("disposition-is-a-path"):
            (folder / name[1].replace("\\", "/")).write_bytes(response.content)
        else:
            (folder / "download").write_bytes(response.content)
        return YES

    # --- HTTP -----------------------------------------------------------------------------------

    def _send(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> Response:
        if not url.startswith("http"):
            url = self._environ["LICCONFORM_URL"] + url
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        if self.has("at-the-root") and "/api/" in path:
            path = path[path.index("/api/") :]
        connection = http.client.HTTPConnection(parts.netloc, timeout=10)
        try:
            connection.request(method, path.replace(" ", "%20"), body or None, headers)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            if self.has("follows-redirects") and "location" in found and answer.status < 400:
                answer.read()
                return self._send(method, found["location"], body, headers)
            return Response(answer.status, found, answer.read())
        except http.client.IncompleteRead as error:
            cut = self.has("cut-file-is-fine")
            return Response(200 if cut else 0, {}, error.partial)
        except (OSError, http.client.HTTPException):
            return Response(0, {}, b"")
        finally:
            connection.close()
