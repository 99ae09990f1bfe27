"""The proof of a signed response. Apart from `model`: only apps with pinned keys need it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Proof:
    """A signed success as it came, so that it can be verified again when it is read from the disk.

    Attributes:
        ip: What the call sent as our own address; with server, key and domain it makes the call again.
        machine: What the call sent about this computer; the same.
        headers: Those of the answer that the signature needs; names in lower case.
        body: The answer's bytes.
        signed_at: When the service signed it, by its own clock.
    """

    ip: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    signed_at: datetime
    machine: Mapping[str, str] = field(default_factory=dict, repr=False)
