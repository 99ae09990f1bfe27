"""The seed command: it brings the server under test into a state, and prints what it made as JSON."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from licconform.cases import NotApplicableError, SetupError, mask_secrets

UNSUPPORTED = 77
"""Exit status of a seed command that cannot make a state; cases that need it are skipped."""

STATES = {
    "valid": "expires in the future; two free slots",
    "no-expiry": "no expiry date, and not lifetime",
    "lifetime": "never expires",
    "expires-today": "expires today (UTC)",
    "expired": "its expiry date is passed",
    "revoked": "revoked",
    "revoked-expired": "revoked, and its expiry date is passed",
    "subscription-ended": "valid, but its subscription has ended",
    "lifetime-subscription-ended": "never expires, although its subscription has ended",
    "full": "no free slot, and an empty allow-list",
    "expired-full": "expired, and no free slot",
    "allowed": "no free slot; the allow-list has allowed.example.org and the address of licconform",
    "renamed": "the product got a new name after the key was issued, printed as new_name",
    "support-active": "the product has a Support Policy, and the key is in its support period",
    "support-expired": "the product has a Support Policy, and the support period is over",
    "support-unset": "the product has a Support Policy, and the key has no support period",
    "no-versions": "the product has no file version",
    "unordered": "file versions 1.9.0, 1.10.0 and 1.9.1, uploaded in this order",
    "pre-release": "file versions 1.0.0 and 2.0.0rc1",
    "only-pre-releases": "file versions 1.0.0rc1 and 1.0.0rc2",
    "entitled": "valid, with entitlements (an extension)",
    "covered": "support ended on 2020-01-31, when 1.0.0 was published; 2.0.0 came later, and the product "
    "offers covered versions (an extension)",
    "security": "expired; 1.0.0, the security release 1.0.1 with CVE-2026-1234, and 2.0.0 (an extension)",
    "kinds": "1.0.0 is an AppImage, and 2.0.0 a file of no kind (an extension)",
    "old-link": "valid; download_url is a link that was made more than an hour ago",
}
"""State → what `SEED key STATE` must have made."""


@dataclass(frozen=True, slots=True)
class Seed:
    """A license key in some state, with the expected response."""

    license_key: str
    slug: str
    product: str
    expiry: str | None = None
    version: str | None = None
    changelog: str | None = None
    new_name: str | None = None
    sha256: str | None = None
    download_url: str | None = None


class Seeds(Protocol):
    """Makes states."""

    def make(self, *words: str) -> dict[str, Any]:
        """Return what the seed command prints for these words."""


class SeedCommand:
    """Runs a command with the words at its end."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def make(self, *words: str) -> dict[str, Any]:
        """Run the command.

        Raises:
            NotApplicableError: It exits with status 77.
            SetupError: It fails otherwise, or prints no JSON object.
        """
        called = mask_secrets(" ".join(words))
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command
                [*self._command, *words], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SetupError(f"The seed command could not be run: {mask_secrets(str(error))}") from error
        if done.returncode == UNSUPPORTED:
            raise NotApplicableError(done.stderr.strip() or f"The seed command does not support `{called}`.")
        if done.returncode != 0:
            output = mask_secrets((done.stderr or done.stdout)[-2000:])
            raise SetupError(f"The seed command failed for `{called}` ({done.returncode}): {output}")
        try:
            document = json.loads(done.stdout or "{}")
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise SetupError(f"The seed command printed no JSON object for `{called}`.")
        return document


class KeyStore:
    """Requests keys from the seed command: a new one for a case that changes it, else one for all cases."""

    def __init__(self, seeds: Seeds) -> None:
        self._seeds = seeds
        self._shared: dict[str, Seed | NotApplicableError] = {}

    def new(self, state: str) -> Seed:
        """Return a new key in a state."""
        document = self._seeds.make("key", state)
        known = {name: document[name] for name in Seed.__slots__ if name in document}
        if missing := [name for name in ("license_key", "slug", "product") if name not in known]:
            raise SetupError(f"The seed command for `key {state}` printed JSON without {', '.join(missing)}")
        return Seed(**known)

    def shared(self, state: str) -> Seed:
        """Return a key in a state, which other cases use as well."""
        if state not in self._shared:
            try:
                self._shared[state] = self.new(state)
            except NotApplicableError as reason:
                self._shared[state] = reason
        seed = self._shared[state]
        if isinstance(seed, NotApplicableError):
            raise NotApplicableError(str(seed))
        return seed

    def act(self, *words: str) -> dict[str, Any]:
        """Change something that was made."""
        return self._seeds.make(*words)
