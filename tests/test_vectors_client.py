"""The contract, second and third way: the client sends every request, and reads every answer."""

import ipaddress
from pathlib import Path
from typing import Any

import pytest

from harness.flavours import Client, opened
from harness.oracle import Answered, Signer
from harness.sockets import Replay
from harness.vectors import Case, load, parameters
from harness.world import MovableClock
from licclient import (
    InvalidRequest,
    LicclientError,
    License,
    LicenseRefused,
    ServiceUnavailable,
    Source,
    UntrustedAnswer,
    Update,
)

CASES = [case for case in load() if case.client is not None]
SENT = [case for case in CASES if case.client and case.client["sends"]]

# What is asked when only the answer matters: a call that every client could make.
ANY_VERIFY = {"license_key": "CP-ANYKEY-000000-000000-000000-000001", "domain": "home.example"}
ANY_CHECK = {**ANY_VERIFY, "slug": "photo-studio", "current_version": "1.0"}


def _asks(case: Case) -> dict[str, str]:
    """What the client is told to ask: what the case's request says, if a client can say it."""
    assert case.client is not None
    verifies = case.request["path"].endswith("/verify")
    if not case.client["sends"]:
        return ANY_VERIFY if verifies else ANY_CHECK
    asked: dict[str, str] = case.request["json"] if verifies else case.request["query"]
    return asked


def _settings(case: Case, tmp_path: Path, clock: MovableClock) -> dict[str, Any]:
    asks = _asks(case)
    clock.now = case.now
    settings: dict[str, Any] = {"domain": asks["domain"], "state_dir": tmp_path, "clock": clock}
    if "slug" in asks:
        settings |= {"slug": asks["slug"], "version": asks["current_version"]}
    return settings


def _call(client: Client, case: Case) -> Any:
    """Make the case's call; an error is a result like others."""
    key = _asks(case)["license_key"]
    if not case.request["path"].endswith("/verify"):
        return client.check_for_update(key)
    try:
        return client.verify(key)
    except LicclientError as problem:
        return problem


@pytest.mark.parametrize("case", parameters(SENT))
def test_the_client_sends_exactly_this(case: Case, flavour: str, tmp_path: Path, clock: MovableClock) -> None:
    """Asked to make the case's call, the client puts its method, path and fields on the wire, once."""
    with (
        Replay(case.answer).serving() as server,
        opened(flavour, server.url, **_settings(case, tmp_path, clock)) as client,
    ):
        _call(client, case)
    (asked,) = server.asked
    assert (asked["method"], asked["path"]) == (case.request["method"], case.request["path"])
    assert asked["query"] == case.request.get("query", {})
    assert asked["headers"]["Accept"] == "application/json"
    if "json" in case.request:
        assert asked["headers"]["Content-Type"] == "application/json"
        ipaddress.ip_address(asked["json"]["ip"])  # the machine's own, D-45
        assert asked["json"] == {**case.request["json"], "ip": asked["json"]["ip"]}


@pytest.mark.parametrize("case", parameters(CASES))
def test_the_client_reads_exactly_this(case: Case, flavour: str, tmp_path: Path, clock: MovableClock) -> None:
    """Given the case's answer, the client comes to exactly the result that the case names."""
    with (
        Replay(case.answer).serving() as server,
        opened(flavour, server.url, **_settings(case, tmp_path, clock)) as client,
    ):
        result = _call(client, case)
    assert case.client is not None
    assert _described(result) == {name: value for name, value in case.client.items() if name != "sends"}


@pytest.mark.parametrize("case", parameters(CASES))
def test_a_client_with_a_pin_reads_the_same_when_others_have_signed_it(
    case: Case, flavour: str, tmp_path: Path, clock: MovableClock
) -> None:
    """Signed by a library that is not ours, the case's answer comes to the case's result, authenticated."""
    signer = Signer()

    def sign(answered: Answered) -> None:
        wish = signer.wish({name.lower(): value for name, value in answered.request.headers.items()})
        assert wish is not None
        label, nonce = wish
        signer.sign(answered, nonce, clock(), label=label)

    with (
        Replay(case.answer, sign).serving() as server,
        opened(
            flavour, server.url, **_settings(case, tmp_path, clock), public_keys=[Signer().text, signer.text]
        ) as client,
    ):
        result = _call(client, case)
    assert case.client is not None
    assert _described(result) == {name: value for name, value in case.client.items() if name != "sends"}
    assert not isinstance(result, License) or result.authenticated


@pytest.mark.parametrize("case", parameters(CASES))
def test_a_client_with_a_pin_believes_no_vector_that_is_not_signed(
    case: Case, flavour: str, tmp_path: Path, clock: MovableClock
) -> None:
    """Word for word the service's answer, and no signature: no license, no refusal, no update."""
    settings = _settings(case, tmp_path, clock)
    with (
        Replay(case.answer).serving() as server,
        opened(flavour, server.url, **settings, public_keys=[Signer().text]) as client,
    ):
        result = _call(client, case)
    assert result is None or isinstance(result, (UntrustedAnswer, ServiceUnavailable))


def _described(result: Any) -> dict[str, Any]:
    """Write a result the way that the vectors do."""
    match result:
        case LicenseRefused():
            return {"refused": {"reason": result.reason.value, "message": result.message}}
        case InvalidRequest():
            return {"invalid": result.errors}
        case ServiceUnavailable():
            return {"no_answer": True}
        case License():
            assert result.source is Source.SERVER
            expiry = result.expiry.isoformat() if result.expiry else None
            return {"license": {"product": result.product, "expiry": expiry, "lifetime": result.lifetime}}
        case Update():
            told = {name: getattr(result, name) for name in ("name", "slug", "version", "changelog")}
            return {"update": {**told, "last_updated": f"{result.last_updated:%Y-%m-%d %H:%M:%S}"}}
        case _:
            return {"update": result}
