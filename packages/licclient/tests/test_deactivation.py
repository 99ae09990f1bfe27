"""An app gives up the slot of its computer: what the service may answer, and what the app then remembers."""

from datetime import UTC, datetime

import httpx
import pytest

from licclient import LicenseClient, explain
from licclient._core.responses import Reply, read_deactivate
from licclient.errors import (
    DeactivationError,
    InvalidRequestError,
    LicenseRefusedError,
    ServiceUnavailableError,
)
from licclient.testing import MemoryStorage

KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
TOO_MANY = b'{"error": "too_many_moves", "message": "too often", "retry_at": "2026-12-01T10:00:00Z"}'
NEVER = b'{"error": "not_allowed", "message": "by support", "retry_at": null}'


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b'{"deactivated": 1}', None),
        (200, b'{"deactivated": 0}', None),
        (200, b"<html>", ServiceUnavailableError),
        (403, TOO_MANY, DeactivationError),
        (403, NEVER, DeactivationError),
        (403, b"<html>", ServiceUnavailableError),
        (401, b'{"error": "invalid_license", "message": "no"}', LicenseRefusedError),
        (401, b"", ServiceUnavailableError),
        (404, b"", DeactivationError),  # a server of somebody else
        (405, b"", DeactivationError),
        (422, b'{"message": "no", "errors": {"domain": ["no"]}}', InvalidRequestError),
        (503, b"", ServiceUnavailableError),
    ],
)
def test_what_the_service_answers(status, body, kind):
    """Only the service's own words end it; a server without this endpoint is no outage."""
    found = read_deactivate(Reply(status, body), KEY)
    assert found is None if kind is None else isinstance(found, kind)


@pytest.mark.parametrize("at", ["null", '"2026-12-01"', '"nonsense"', '"0001-01-01T00:00:00+14:00"', "7"])
def test_an_instant_that_makes_no_sense_is_none(at):
    """What cannot be read as an instant with a zone is not shown."""
    found = read_deactivate(Reply(403, TOO_MANY.replace(b'"2026-12-01T10:00:00Z"', at.encode())), KEY)
    assert isinstance(found, DeactivationError)
    assert found.retry_at is None


def test_the_key_in_a_message_is_masked():
    """Should the server repeat the key, nobody sees it."""
    found = read_deactivate(Reply(403, NEVER.replace(b"by support", KEY.encode())), KEY)
    assert isinstance(found, DeactivationError)
    assert found.message == "…"


@pytest.mark.parametrize("language", ["en", "de", "fr", "es", "ja", "zh"])
def test_people_see_when_or_whom_to_ask(language):
    """A date where there is one, and support where there is none."""
    again = explain(DeactivationError("", datetime(2026, 12, 1, 12, tzinfo=UTC)), language)
    assert "2026" in again
    assert "2026" not in explain(DeactivationError(""), language)


def test_the_key_is_forgotten_only_when_the_slot_is_free(tmp_path):
    """A refusal and an outage leave the app as it was."""
    answers = [
        httpx.Response(200, json={"valid": True, "product": "App", "expiry": None, "lifetime": False}),
        httpx.Response(403, content=TOO_MANY),
        httpx.Response(404),
        httpx.Response(200, json={"deactivated": 1}),
    ]
    transport = httpx.MockTransport(lambda _: answers.pop(0))
    with LicenseClient("https://licenses.example", storage=tmp_path, transport=transport) as client:
        client.activate(KEY)
        for _ in range(2):
            with pytest.raises(DeactivationError):
                client.deactivate()
            assert client.require().product == "App"
        client.deactivate()
        assert client.status().state.value == "not_activated"


def test_the_fixture_frees_slots_as_well(license_service):
    """An app's own test can move a license from one computer to another."""
    key = license_service.issue("App", slots=1)
    with license_service.client() as client:
        client.verify(key)
        client.deactivate(key)
    with license_service.client(storage=MemoryStorage()) as other:
        other.verify(key)
        with pytest.raises(LicenseRefusedError):
            other.deactivate("CP-AAAAAA-AAAAAA-AAAAAA-AAAAAA-AAAAAA")
    assert license_service.count("deactivate") == 2
