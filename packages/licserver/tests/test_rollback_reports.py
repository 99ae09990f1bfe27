"""Reports of apps that went back to the version before (D-232): read and answered."""

import json

import pytest

from licserver.protocol.public_api import InvalidRequest
from licserver.protocol.rollbacks import RollbackReport, parse_report, report_response

SENT = {"license_key": "CP-X", "slug": "app", "version": "1.5", "domain": "https://A.example/"}


@pytest.mark.parametrize(
    ("sent", "platform"),
    [({}, ""), *(({"platform": p}, p if p == "win-arm64" else "") for p in ("win-arm64", "A b", 7))],
)
def test_a_report_is_read(sent, platform):
    """A platform that is no name counts as none; the key is in no repr."""
    report = parse_report(json.dumps(SENT | sent).encode())
    assert report == RollbackReport("CP-X", "app", "1.5", "a.example", platform, None)
    assert "CP-X" not in repr(report)


@pytest.mark.parametrize(
    ("sent", "code"),
    [(0, 0), (2**32 - 1, 2**32 - 1), *((wrong, None) for wrong in (-1, 2**32, "5", True, 5.0, [], None))],
)
def test_an_exit_code_is_a_number_of_32_bits(sent, code):
    """Anything else counts as none, as a platform does (D-393)."""
    report = parse_report(json.dumps(SENT | {"exit_code": sent}).encode())
    assert not isinstance(report, InvalidRequest)
    assert (report.exit_code, type(report.exit_code)) == (code, type(code))


@pytest.mark.parametrize("name", SENT)
def test_each_field_is_required(name):
    """And named if it is missing."""
    report = parse_report(json.dumps({**SENT, name: None}).encode())
    assert isinstance(report, InvalidRequest)
    assert [*report.errors] == [name]


@pytest.mark.parametrize("counted", [True, False])
def test_a_report_is_answered(counted):
    """Whether it counts, and no more."""
    answer = report_response(counted)
    assert (answer.status, json.loads(answer.content)) == (200, {"counted": counted})
