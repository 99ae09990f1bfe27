"""What the fake service is told, what it saw, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Misbehaviour(StrEnum):
    """What a service, or something that stands in its place, can do to an app."""

    SLOW = "slow"
    """Nothing comes within the client's time limit; the test does not wait for that."""
    ERROR = "error"
    """500 with a page of HTML."""
    BUSY = "busy"
    """429."""
    LOGIN_PAGE = "login_page"
    """200 with the page of a hotel's network."""
    REDIRECT = "redirect"
    """302 to somewhere else."""
    GARBAGE = "garbage"
    """200 with JSON that says something else than the protocol."""
    CUT = "cut"
    """Downloads break off half way; everything else works."""
    WRONG_FILE = "wrong_file"
    """Downloads bring other bytes than were promised; everything else works."""
    UNSIGNED = "unsigned"
    """Nothing is signed; to an app that pins keys, nothing of it can be trusted; everything else works."""


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request that arrived.

    Attributes:
        kind: `verify`, `update-check`, `download` or `other`.
        license_key: The key in it, or None.
        fields: The JSON body of a verify; else the query.
        headers: With names in lower case.
    """

    kind: str
    license_key: str | None = field(repr=False)
    fields: Mapping[str, Any] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back.

    Attributes:
        status: As in HTTP.
        body: All of it.
        headers: Names in any case.
        cut_at: The connection breaks after so many bytes of the body; None: it does not.
        is_own_word: Whether the service itself says it, and signs it to those who ask.
        release: What a vendor signs about the version that is told; None when none is.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_at: int | None = None
    is_own_word: bool = False
    release: Mapping[str, Any] | None = None


class NoResponseError(Exception):
    """Nothing goes back; `slow` tells a service that is silent from one that cannot be reached."""

    def __init__(self, *, slow: bool) -> None:
        super().__init__(slow)
        self.slow = slow
