"""The contract, second way: the client sends every request, and reads every answer, in memory."""

import ipaddress
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from harness.flavours import both_flavours, opened
from harness.oracle import HttpRequest, HttpResponse, Signer
from harness.sockets import Replay
from harness.vectors import LINK, Case, load, parameters
from harness.world import MovableClock
from licclient import LicclientError, License, LicenseClient, Source, Trust, Update, Updates
from licclient._computers.protocol import COMPUTERS_PATH, MOVE_PATH, Computer, ComputerList
from licclient._core.model import write_entitlements
from licclient._seats.protocol import SEAT_PATH, HeldSeat
from licclient.errors import (
    InvalidRequestError,
    LicenseRefusedError,
    MoveError,
    NoSeatError,
    ServiceUnavailableError,
    UntrustedResponseError,
)

UPDATE_CHECK_PATH, TRIAL_PATH = "/api/v1/update-check", "/api/v1/licenses/trial"

BASE = "https://licenses.example"
CASES = [
    case.naming_computers(lambda _, domain: f"{domain:0>32.32}") for case in load() if case.client is not None
]
KINDS = {(case.request["path"], case.answer["status"], *(case.client or {})): case for case in CASES}
for path in (TRIAL_PATH, MOVE_PATH):  # verified afterwards
    KINDS.pop((path, 200, "sends", "license"))
SIGNER = Signer()

# What is asked when only the answer matters: a call that every client could make.
ANY_VERIFY = {"license_key": "CP-ANYKEY-000000-000000-000000-000001", "domain": "home.example"}
VERIFIED_TRIAL = {
    "valid": True,
    "product": "Photo Lab",
    "expiry": "2026-12-04",
    "lifetime": False,
    "trial": True,
}
VERIFIED = {"valid": True, "product": "Photo Lab", "expiry": None, "lifetime": False}
THEN_VERIFIED = {TRIAL_PATH: VERIFIED_TRIAL, MOVE_PATH: VERIFIED}
"""What a verify answers that follows a success."""
ANY_CHECK = {**ANY_VERIFY, "slug": "photo-studio", "current_version": "1.0"}


def _request_fields(case: Case) -> dict[str, str]:
    """Return the fields of the case's request, if a client can send them; else those of any request."""
    assert case.client is not None
    verifies = case.request["path"].endswith(("/verify", "/trial", "/seat", "/computers", "/move"))
    if not case.client["sends"]:
        return ANY_VERIFY if verifies else ANY_CHECK
    request_fields: dict[str, str] = case.request["json"] if verifies else case.request["query"]
    return request_fields


def _settings(case: Case, tmp_path: Path, clock: MovableClock) -> dict[str, Any]:
    fields = _request_fields(case)
    clock.now = case.now
    settings: dict[str, Any] = {"domain": "home.example", "storage": tmp_path, "clock": clock}
    settings |= {name: fields[name] for name in ("domain", "slug") if name in fields}
    if "current_version" in fields:
        channels = tuple(filter(None, fields.get("channels", "").split(",")))
        updates = Updates(platform=fields.get("platform"), kind=fields.get("kind"), channels=channels)
        settings |= {"version": fields["current_version"], "updates": updates}
    if "label" in fields:
        settings |= {"label": fields["label"], "version": fields.get("app_version")}
    return settings


def _call(client: LicenseClient, case: Case) -> Any:
    """Make the case's call; an error is a result like others."""
    if case.request["path"] == UPDATE_CHECK_PATH:
        fields = _request_fields(case)
        return client.check_for_update(fields["license_key"], force="manual" in fields).update
    try:
        if case.request["path"] == TRIAL_PATH:
            return client.start_trial()
        if case.request["path"] == SEAT_PATH:
            return client.seats.take(_request_fields(case)["license_key"])._lease.held
        if case.request["path"] == COMPUTERS_PATH:
            return client.computers.list(_request_fields(case)["license_key"])
        if case.request["path"] == MOVE_PATH:
            id_ = _request_fields(case).get("from", "0" * 32)
            source = Computer(id_, None, "…", None, is_this=False, is_movable=True)
            return client.computers.move_here(source, _request_fields(case)["license_key"])
        return client.verify(_request_fields(case)["license_key"])
    except LicclientError as problem:
        return problem


@pytest.mark.sampled(100)
@pytest.mark.parametrize("case", parameters(CASES))
def test_the_client_sends_and_reads_exactly_this(
    case: Case, tmp_path: Path, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends the case's request once, and reads the case's result: unsigned, untrusted, signed."""
    settings = _settings(case, tmp_path, clock)
    requests: list[httpx.Request] = []
    signed = False
    machine = _request_fields(case).get("machine", "")
    monkeypatch.setattr("licclient._trials.flow.hash_machine", lambda slug, _: machine if slug else "")

    def respond(request: httpx.Request) -> httpx.Response:
        if b'"release"' not in request.content:  # by closing the client
            requests.append(request)
        document = THEN_VERIFIED[case.request["path"]] if len(requests) > 1 else case.answer["json"]
        body = json.dumps(document).replace(LINK, f"{BASE}/api/v1/update-download?license=1")
        signed_request = HttpRequest(request.method, str(request.url), dict(request.headers), request.content)
        headers = {"Content-Type": "application/json"}
        answered = HttpResponse(signed_request, case.answer["status"], headers, body.encode())
        if signed:
            label, nonce = SIGNER.find_requested(signed_request.headers) or ("", "")
            SIGNER.sign(answered, nonce, clock(), label=label)
        return httpx.Response(answered.status_code, headers=answered.headers, content=answered.body)

    settings["transport"] = httpx.MockTransport(respond)
    with opened("sync", BASE, **settings) as client:
        result = _call(client, case)
    assert _described(result) == _expected(case)
    assert case.client is not None
    if case.client["sends"]:
        request, *then = requests
        _assert_sent(case, request)
        assert len(then) == (case.request["path"] in THEN_VERIFIED and case.answer["status"] == 200)

    requests.clear()
    pins = [Signer().text, SIGNER.text]
    settings["storage"] = tmp_path / "unsigned"
    with opened("sync", BASE, **settings, trust=Trust(public_keys=pins)) as client:
        result = _call(client, case)
    assert result is None or isinstance(result, (UntrustedResponseError, ServiceUnavailableError))

    signed = True
    requests.clear()
    settings["storage"] = tmp_path / "signed"
    with opened("sync", BASE, **settings, trust=Trust(public_keys=pins)) as client:
        result = _call(client, case)
    assert _described(result) == _expected(case)
    assert not isinstance(result, License) or result.is_authenticated


PINNED = "ed25519:iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w"
"""The release key of `manifests.json`."""
MANIFESTS = [case for case in CASES if "Release-Manifest" in case.answer.get("headers", {})]


@pytest.mark.parametrize("case", parameters(MANIFESTS))
def test_what_the_vendor_has_signed_is_believed(case: Case, tmp_path: Path, clock: MovableClock) -> None:
    """For its own platform and kind; where these were signed, for no other."""
    body = json.dumps(case.answer["json"]).replace(LINK, f"{BASE}/api/v1/update-download?license=1")
    response = httpx.Response(200, headers=case.answer["headers"], text=body)
    settings = _settings(case, tmp_path, clock) | {"transport": httpx.MockTransport(lambda _: response)}
    trust, is_placed = Trust(release_keys=[PINNED]), "platform" in case.request["query"]
    with opened("sync", BASE, **settings, trust=trust) as client:
        assert _call(client, case).is_authenticated
    settings |= {"updates": Updates(platform="haiku"), "storage": tmp_path / "other"}
    with opened("sync", BASE, **settings, trust=trust) as client:
        assert (_call(client, case) is None) == is_placed


@both_flavours
@pytest.mark.parametrize(
    "case", parameters([value for value in KINDS.values() if value.file not in {"seats", "computers"}])
)
def test_over_a_socket_it_is_the_same(case: Case, flavour: str, tmp_path: Path, clock: MovableClock) -> None:
    """One case of each kind, over a real socket, in both flavours."""
    with (
        Replay(case.answer).serving() as server,
        opened(flavour, server.url, **_settings(case, tmp_path, clock)) as client,
    ):
        result = _call(client, case)
    assert _described(result) == _expected(case)
    assert server.count == 1


def _expected(case: Case) -> dict[str, Any]:
    return {name: value for name, value in (case.client or {}).items() if name != "sends"}


def _assert_sent(case: Case, request: httpx.Request) -> None:
    assert (request.method, request.url.path) == (case.request["method"], case.request["path"])
    query = dict(parse_qsl(request.url.query.decode(), keep_blank_values=True))
    assert query == case.request.get("query", {})
    assert request.headers["Accept"] == "application/json"
    if "json" in case.request:
        assert request.headers["Content-Type"] == "application/json"
        sent = json.loads(request.content)
        own = {name: sent[name] for name in ("ip", "seat") if name in sent}
        assert re.fullmatch("[0-9a-f]{32}", own.get("seat", "0" * 32))  # drawn
        ipaddress.ip_address(own.get("ip", "::"))  # the machine's own, D-45
        assert sent == {**case.request["json"], **own}


def _describe_computers(result: ComputerList) -> dict[str, Any]:
    at, moved_to = result.retry_at, result.moved_to
    return {
        "slots": result.slots,
        "used": result.used,
        "moves_left": result.moves_left,
        "retry_at": at and at.isoformat(),
        "names": [computer.name or computer.masked_id for computer in result.computers],
        "moved_to": moved_to and {"name": moved_to.name, "on": moved_to.on.isoformat()},
    }


def _described(result: Any) -> dict[str, Any]:
    """Write a result the way that the vectors do."""
    match result:
        case LicenseRefusedError():
            return {"refused": {"reason": result.reason.value, "message": result.message}}
        case InvalidRequestError():
            return {"invalid": result.errors}
        case NoSeatError():
            at = result.retry_at
            return {"no_seat": {"seats": result.seats, "retry_at": at and at.isoformat()}}
        case MoveError():
            at = result.retry_at
            return {"not_moved": {"obstacle": result.obstacle.value, "retry_at": at and at.isoformat()}}
        case ComputerList():
            return {"computers": _describe_computers(result)}
        case HeldSeat():
            return {"seat": {"seats": result.seats, "used": result.used}}
        case ServiceUnavailableError():
            return {"no_answer": True}
        case License():
            assert result.source is Source.SERVER
            expiry = result.expiry.isoformat() if result.expiry else None
            fields: dict[str, Any] = {
                "product": result.product,
                "expiry": expiry,
                "lifetime": result.is_lifetime,
            }
            granted = write_entitlements(result.entitlements)
            fields |= {"entitlements": granted} if granted else {}
            return {"license": {**fields, "trial": True} if result.is_trial else fields}
        case Update():
            shown = {name: getattr(result, name) for name in ("name", "slug", "version", "changelog")}
            shown["last_updated"] = f"{result.last_updated:%Y-%m-%d %H:%M:%S}"
            shown |= {} if result.kind is None else {"kind": result.kind.value}
            return {"update": shown | ({"critical": True} if result.is_critical else {})}
        case _:
            return {"update": result}
