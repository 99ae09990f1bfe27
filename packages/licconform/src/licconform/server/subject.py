"""The server under test, as the cases see it."""

import itertools
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from licconform.cases import Catalogue, DeviationError, SetupError, expect, mask_secrets
from licconform.server.seeds import KeyStore, Seed

_PATIENCE: Final = 70.0
"""The longest `Retry-After` of a 429 that is waited for, in seconds."""
_HANGS_UP: Final = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.DecodingError)
"""Faults of a server over one request; others may be answered."""
IP: Final = "192.0.2.10"

FORMAT, NOT_FOUND = "Invalid license format.", "License not found."
REVOKED, EXPIRED = "License has been revoked.", "License expired."
ENVIRONMENT = "Max activations exceeded or unrecognized environment."

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, and the request in words."""

    request: str
    response: httpx.Response

    def __str__(self) -> str:
        text = self.response.text
        return mask_secrets(f"{self.request}\nanswered {self.response.status_code} {text[:500]}")

    @property
    def status(self) -> int:
        """The status code."""
        return self.response.status_code

    def json(self) -> dict[str, Any]:
        """Return the body, which must be a JSON object."""
        try:
            body = json.loads(self.response.content)
        except ValueError:
            body = None
        expect(isinstance(body, dict), f"expected a JSON object\n{self}")
        assert isinstance(body, dict)  # noqa: S101 - as `expect` holds
        return body


class Server:
    """Sends the requests of the specification to the server under test."""

    def __init__(
        self, base_url: str, keys: KeyStore, client: httpx.Client, public_key: str | None = None
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.keys = keys
        self.new = keys.new  # a key in a state, for one case
        self.shared = keys.shared  # a key in a state, for all cases that change nothing
        self.public_key = public_key
        self._client = client
        self._has_answered = False

    def verify(self, key: Any, domain: Any = None, ip: Any = IP, **more: Any) -> Answer:
        """Send a verify; without a `domain` from one that no other call names."""
        fields = {"license_key": key, "domain": domain or self.new_domain(), "ip": ip, **more}
        return self.verify_body({name: value for name, value in fields.items() if value is not MISSING})

    def verify_body(self, body: Any, **headers: str) -> Answer:
        """Send any body to verify; bytes as they are, all else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Content-Type": "application/json", "Accept": "application/json", **headers}
        return self.send("POST", f"{self.base_url}/api/v1/licenses/verify", content=content, headers=fields)

    def check(self, key: Any, slug: Any, version: Any = "1.0.0", domain: Any = None, **more: Any) -> Answer:
        """Send an update check."""
        fields = {"license_key": key, "slug": slug, "current_version": version}
        query = {**fields, "domain": domain or self.new_domain(), **more}
        sent = {name: value for name, value in query.items() if value is not MISSING}
        return self.send("GET", f"{self.base_url}/api/v1/update-check", params=sent)

    def check_shared(self, state: str, version: Any = "1.0.0", **more: Any) -> tuple[Seed, Answer]:
        """Send an update check of a shared key for its own product; `more` are further parameters."""
        key = self.shared(state)
        return key, self.check(key.license_key, key.slug, version, **more)

    def get(self, url: str, **headers: str) -> Answer:
        """Get an address, such as a download link."""
        return self.send("GET", url, headers=headers)

    def send(self, method: str, url: str, **options: Any) -> Answer:
        """Send a request; wait once if the server answers 429 with `Retry-After`.

        Raises:
            DeviationError: The server hangs up, although it has answered before.
            SetupError: It cannot be reached, or gives no response in time.
        """
        body = options.get("content", b"")[:300].decode(errors="replace")
        path = url.partition("?")[0]  # a link's query is a credential
        request = mask_secrets(f"{method} {path} {options.get('params') or body}")
        try:
            response = self._client.request(method, url, **options)
            after = response.headers.get("Retry-After", "")
            if response.status_code == httpx.codes.TOO_MANY_REQUESTS and after.isdigit():
                if int(after) > _PATIENCE:
                    raise SetupError(f"The server wants a wait of {after} s: raise its rate limits.")
                print(f"waiting {after} s: the server limits wrong requests (429)", file=sys.stderr)  # noqa: T201
                time.sleep(int(after))
                response = self._client.request(method, url, **options)
        except httpx.HTTPError as error:
            reason = mask_secrets(str(error)) or type(error).__name__
            if self._has_answered and isinstance(error, _HANGS_UP):
                raise DeviationError(f"{request}\nhad no response: {reason}") from error
            raise SetupError(f"No response: {reason}") from error
        self._has_answered = True
        return Answer(request, response)

    @staticmethod
    def new_domain() -> str:
        """Return a domain that no other call of this run has."""
        return f"site-{next(_numbers)}.example.org"


CASES: Catalogue[Server] = Catalogue()

MISSING: Final = object()
"""Leaves a field out."""


# --- what a response must be ------------------------------------------------------------------


def expect_valid(answer: Answer) -> Mapping[str, Any]:
    """Return the body of a success of verify."""
    expect(answer.status == httpx.codes.OK, f"expected 200\n{answer}")
    body = answer.json()
    expect(body.get("valid") is True, f"expected valid: true\n{answer}")
    return body


def expect_refusal(answer: Answer, status: int, reason: str) -> None:
    """Compare a refusal of verify."""
    expect(answer.status == status, f"expected {status} {reason!r}\n{answer}")
    body = answer.json()
    expect(body.get("valid") is False, f"expected valid: false\n{answer}")
    expect(body.get("reason") == reason, f"expected the reason {reason!r}\n{answer}")


def expect_malformed(answer: Answer, *fields: str) -> None:
    """Compare the 422 of verify: it has a message, and errors of these fields at least."""
    expect(answer.status == httpx.codes.UNPROCESSABLE_ENTITY, f"expected 422\n{answer}")
    errors = answer.json().get("errors")
    named = set(errors) if isinstance(errors, dict) else set()
    expect(named >= set(fields), f"expected errors of {', '.join(fields)}\n{answer}")


def expect_update(answer: Answer) -> Mapping[str, Any]:
    """Return the body of a success of the update check."""
    expect(answer.status == httpx.codes.OK, f"expected 200\n{answer}")
    return answer.json()


def expect_link(answer: Answer) -> str:
    """Return the download link of a success of the update check."""
    url = expect_update(answer).get("download_url")
    expect(isinstance(url, str), f"expected a download_url\n{answer}")
    return str(url)


def expect_error(answer: Answer, status: int, code: str) -> None:
    """Compare an error of the update check."""
    expect(answer.status == status, f"expected {status} {code}\n{answer}")
    expect(answer.json().get("error") == code, f"expected the error {code}\n{answer}")


def today() -> str:
    """Return today's date, UTC."""
    return datetime.now(UTC).date().isoformat()  # noqa: TID251 - the kit shares a clock with what it tests
