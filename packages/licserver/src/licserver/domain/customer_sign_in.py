"""Sign-in codes of the customer's page: how many a client may request, and their length (D-217). Pure."""

from collections.abc import Collection
from typing import Final, NamedTuple


class CodeCounts(NamedTuple):
    """Valid codes requested by a client and by its network: for an e-mail address, and for all addresses."""

    client_for_address: int
    client: int
    network_for_address: int
    network: int


MAX_CODES: Final = CodeCounts(3, 20, 10, 60)
"""Counted by client, not by address: requests of other clients never use up a customer's codes."""


CODE_ATTEMPTS: Final = 5


SHORT_CODES: Final = 100
"""Codes of six digits a day for an e-mail address, and for a network: 500 guesses among a million
are 0.05 % a day. Further codes have ten digits, so that no customer is locked out."""


def may_request_code(counts: CodeCounts) -> bool:
    """Return whether a client may request another code."""
    return all(count < limit for count, limit in zip(counts, MAX_CODES, strict=True))


def code_digits(sent_today: Collection[int]) -> int:
    """Return the length of a code; `sent_today` counts the codes of its address and of its network."""
    return 6 if max(sent_today) < SHORT_CODES else 10
