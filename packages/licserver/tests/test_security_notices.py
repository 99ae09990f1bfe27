"""What a security release reports: validated, stored and read again."""

import pytest

from licserver.domain.records import SecurityNotice
from licserver.domain.security_notices import MAX_CVES, dump_notice, load_notice, read_notice
from licserver.errors import InvalidInputError


def test_a_notice_is_stored_and_read_again():
    """In the order in which it was typed, each CVE once; a release without one has none."""
    notice = read_notice(" https://example.com/1 ", ["cve-2026-1234", "CVE-2026-1234"], is_security=True)
    assert notice == SecurityNotice("https://example.com/1", ("CVE-2026-1234",))
    assert load_notice(dump_notice(notice)) == notice
    assert read_notice(is_security=True) == SecurityNotice()
    assert read_notice(is_security=False) is None
    assert (dump_notice(None), load_notice(None)) == (None, None)


@pytest.mark.parametrize(
    ("advisory", "cves", "problem"),
    [
        (
            "http://example.com",
            [],
            r"^the advisory must be an address like https://example\.com/a",
        ),
        ("https://example.com/" + "a" * 500, [], "of at most 500 characters"),
        ("", ["2026-1234"], "'2026-1234' is not a CVE id; write it like CVE-2026-1234"),
        ("", ["a" * 41], f"'{'A' * 40}' is not a CVE id"),
        ("", ["CVE-2026-1234 "] + [f"CVE-2026-{number}" for number in range(1000, 1060)], "at most 50 CVEs"),
    ],
)
def test_a_mistake_is_named(advisory, cves, problem):
    """With what to write."""
    with pytest.raises(InvalidInputError, match=problem):
        read_notice(advisory, cves, is_security=True)


def test_as_many_cves_as_there_may_be():
    """A release that fixes more names the advisory."""
    names = [f"CVE-2026-{number}" for number in range(1000, 1000 + MAX_CVES)]
    notice = read_notice(cves=names, is_security=True)
    assert notice == SecurityNotice(None, tuple(names))


@pytest.mark.parametrize(("advisory", "cves"), [("https://example.com", []), ("", ["CVE-2026-1234"])])
def test_what_belongs_to_no_security_release_is_refused(advisory, cves):
    """It was left out in silence otherwise: no customer would be offered the fix."""
    with pytest.raises(InvalidInputError, match=r"^an advisory and CVEs are for security releases only$"):
        read_notice(advisory, cves, is_security=False)
