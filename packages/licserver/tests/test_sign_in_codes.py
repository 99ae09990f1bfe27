"""How many sign-in codes a client may request, and how long they are (D-217)."""

import pytest

from licserver.domain.customer_sign_in import (
    MAX_CODES,
    SHORT_CODES,
    CodeCounts,
    code_digits,
    may_request_code,
)


@pytest.mark.parametrize("limit", CodeCounts._fields)
def test_each_limit_ends_the_requests(limit):
    """One code below all of them, the client may request another."""
    last = CodeCounts(*(count - 1 for count in MAX_CODES))
    assert may_request_code(last)
    assert not may_request_code(last._replace(**{limit: getattr(MAX_CODES, limit)}))


def test_codes_become_longer_after_many_guesses():
    """Whether of the address or of the network."""
    assert code_digits((SHORT_CODES - 1, 0)) == 6
    assert code_digits((0, SHORT_CODES)) == code_digits((SHORT_CODES, 0)) == 10
