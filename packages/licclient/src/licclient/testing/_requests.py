"""What a test sees of the requests of an app, and what can go wrong with them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Misbehaviour(StrEnum):
    """What a service, or something in its place, can do to an app."""

    SLOW = "slow"
    """No response within the client's time limit; the test does not wait for it."""
    ERROR = "error"
    """500 with an HTML page."""
    BUSY = "busy"
    """429."""
    LOGIN_PAGE = "login_page"
    """200 with the login page of a hotel's network."""
    REDIRECT = "redirect"
    """302 to another address."""
    GARBAGE = "garbage"
    """200 with JSON that does not follow the protocol."""
    CUT = "cut"
    """Downloads break off half way; everything else works."""
    WRONG_FILE = "wrong_file"
    """Downloads have other bytes than announced; everything else works."""
    NO_DIGEST = "no_digest"
    """Downloads come without a digest, as from a server of the plain protocol; everything else works."""
    UNSIGNED = "unsigned"
    """Nothing is signed, so an app that pins keys can trust nothing; everything else works."""


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request that arrived.

    Attributes:
        kind: `verify`, `deactivate`, `trial`, `seat`, `consume`, `update-check`, `download`, `rolled-back` or
            `other`.
        license_key: The key in it, or None.
        fields: The JSON body of a verify; else the query.
        headers: With names in lower case.
    """

    kind: str
    license_key: str | None = field(repr=False)
    fields: Mapping[str, Any] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
