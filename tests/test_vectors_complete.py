"""The contract leaves nothing out: everything that the specification names occurs in a vector."""

import re
from collections import Counter
from pathlib import Path

import pytest

from harness.vectors import Case, load

CASES = load()
VERIFY, UPDATE, DOWNLOAD = "/api/v1/licenses/verify", "/api/v1/update-check", "/api/v1/update-download"


def _answers(path: str) -> list[tuple[int, dict[str, object]]]:
    return [
        (case.answer["status"], case.answer["json"])
        for case in CASES
        if case.request["path"] == path and "json" in case.answer
    ]


def _fields(path: str, status: int) -> set[str]:
    return {name for found, body in _answers(path) if found == status for name in body}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (403, "Invalid license format."),
        (404, "License not found."),
        (403, "License has been revoked."),
        (403, "License expired."),
        (403, "Max activations exceeded or unrecognized environment."),
    ],
)
def test_every_reason_of_verify(status: int, reason: str) -> None:
    """Each row of the specification's table of reasons (section 7) is answered in a vector."""
    assert (status, {"valid": False, "reason": reason}) in _answers(VERIFY)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, "invalid_license"),
        (401, "license_expired"),
        (403, "product_mismatch"),
        (404, "product_not_found"),
        (404, "no_versions"),
        (422, "validation"),
    ],
)
def test_every_code_of_update_check(status: int, code: str) -> None:
    """Each row of the table of codes (section 7), and the 422 of D-21, is answered in a vector."""
    assert (status, code) in {(found, body.get("error")) for found, body in _answers(UPDATE)}


def test_every_code_of_download() -> None:
    """Each refusal of a link (D-31, D-33) is answered in a vector."""
    codes = {(status, body["error"]) for status, body in _answers(DOWNLOAD)}
    assert codes == {
        (403, "invalid_link"),
        (403, "link_expired"),
        (403, "license_revoked"),
        (404, "release_withdrawn"),
    }


def test_every_status() -> None:
    """The endpoints answer with the specified statuses, and with no other but 413 (D-11)."""
    assert {status for status, _ in _answers(VERIFY)} - {405} == {200, 403, 404, 413, 422}
    assert {status for status, _ in _answers(UPDATE)} - {405} == {200, 401, 403, 404, 422}


def test_every_field() -> None:
    """Each field of sections 2 and 7 occurs, and no body has a field beyond them."""
    specified = {"valid", "product", "expiry", "lifetime"}
    assert _fields(VERIFY, 200) - specified == {"entitlements", "trial", "updates_until"}
    assert _fields(VERIFY, 403) == _fields(VERIFY, 404) == {"valid", "reason"}
    assert _fields(VERIFY, 422) == {"message", "errors"}
    extensions = {"channel", "minimum_version", "updates_until", "latest_version", "security", "kind"}
    assert _fields(UPDATE, 200) - extensions == {  # D-187, D-227, D-229, D-330, D-331
        "name",
        "slug",
        "version",
        "download_url",
        "sections",
        "last_updated",
        "requires",
        "tested",
        "requires_php",
        "details_url",
        "critical",
    }
    for status in (401, 403, 404):
        assert _fields(UPDATE, status) == {"error", "message"}
    assert _fields(UPDATE, 422) == {"error", "message", "errors"}


def test_every_decision_about_the_wire_has_a_case() -> None:
    """Each reading of the specification that rules the wire (D-01 to D-33) is cited by a vector."""
    text = Path(__file__).parents[1].joinpath("docs/decisions.md").read_text(encoding="utf-8")
    decided = {found for found in re.findall(r"D-\d\d\b", text) if found < "D-40"}
    cited = {rule for case in CASES for rule in case.raw["rules"]}
    # Calls that race are in tests/test_together.py, files in a bucket in tests/test_together_bucket.py.
    assert decided - cited == {"D-08", "D-34"}


def test_ids_are_unique_and_every_case_says_what_it_shows() -> None:
    """A failing vector can be found by its id and understood by its sentence."""
    assert [case_id for case_id, count in Counter(case.id for case in CASES).items() if count > 1] == []
    assert [case.id for case in CASES if not _is_described(case)] == []


def _is_described(case: Case) -> bool:
    return bool(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", case.id)) and case.raw["shows"].endswith(".")
