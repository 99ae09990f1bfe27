"""The error tree: failures sorted by what an app can do about them.

LicclientError
├── NotActivated         no key has been entered on this computer      → ask for one
├── LicenseRefused       the server said no                            → block the feature, show why
├── InvalidRequest       the call itself was wrong (422)               → a bug or a bad setting
│   └── MistypedKey      what was typed cannot be a key; nobody asked  → show what is wrong with it
├── ServiceUnavailable   no answer that can be trusted, and no grace   → keep calm, try later
├── UntrustedAnswer      what arrived is not what was promised         → treat as an attack
├── UnusableArchive      a verified file that may not be unpacked      → stay with this version, tell support
└── DownloadCancelled    the app itself asked to stop                  → nothing; a later try goes on

The pure rooms return these as values; the clients raise them. None of them ever holds a license key.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from licclient._model import Reason

if TYPE_CHECKING:
    from licclient._typed_key import KeyFlaw


class LicclientError(Exception):
    """Anything that licclient raises about licenses, the service or its answers."""


class NotActivated(LicclientError):
    """There is no key: none was given, and none has been activated on this computer."""

    def __init__(self) -> None:
        from licclient._texts import text_of  # noqa: PLC0415 - most starts have nothing to say

        super().__init__(text_of("error.not_activated", "en"))

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()


class LicenseRefused(LicclientError):
    """The server said no, in so many words (spec 7).

    Attributes:
        reason: What the app can branch on.
        message: The server's words, for people.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return self.message


class InvalidRequest(LicclientError):
    """The request was malformed (spec 4.1, D-11): says nothing about the key being good or bad.

    Attributes:
        errors: Field name → what is wrong with it.
    """

    def __init__(self, errors: Mapping[str, Sequence[str]]) -> None:
        self.errors: dict[str, list[str]] = {name: list(problems) for name, problems in errors.items()}
        super().__init__(self.errors)

    def __str__(self) -> str:
        problems = [problem for found in self.errors.values() for problem in found]
        return " ".join(problems) or "The service called the request malformed."


class MistypedKey(InvalidRequest):
    """What was typed cannot be a license key; nobody was asked (D-57).

    Attributes:
        flaw: What is wrong, to branch on.
        detail: Which characters are wrong, or how many are missing or too many.
        errors: The same in English, as of any invalid request.
    """

    def __init__(self, flaw: "KeyFlaw", detail: str = "") -> None:
        from licclient._texts import text_of  # noqa: PLC0415 - as above

        super().__init__({"license_key": [text_of(f"flaw.{flaw.value}", "en", detail)]})
        self.flaw = flaw
        self.detail = detail

    def __reduce__(self) -> tuple[type[Self], tuple["KeyFlaw", str]]:
        return type(self), (self.flaw, self.detail)


class ServiceUnavailable(LicclientError):
    """Nobody who can be trusted answered (D-40), and nothing remembered holds any more (D-42).

    Attributes:
        retry_after: Seconds after which the service asked to come back; None when it did not say.
    """

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UntrustedAnswer(LicclientError):
    """No pinned key signed this answer to this call (D-62) or this version (D-67), or a file is another."""


class UnusableArchive(LicclientError):
    """What the vendor published is no zip that may be unpacked; says what is wrong with it (D-80)."""


class DownloadCancelled(LicclientError):
    """The app set `cancel`. What has come stays for the next time."""
