"""License files by both packages: the same vectors, and a machine that has no network at all."""

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.flavours import opened
from harness.shop import NAME, PRODUCT, SLUG
from harness.world import MovableClock, World
from licclient import Reason, Source, Trust
from licclient._core.model import write_entitlements
from licclient._core.settings import ClientSettings, read_settings
from licclient._offline.license_files import LicenseFile, check_file, key_digest, unwrap, write_request
from licclient.errors import LicenseRefusedError
from licserver.domain.decisions import Valid
from licserver.domain.records import LicenseSnapshot
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.protocol.offline_files import MachineRequest, parse_request, sign_file
from licserver.security.secrets_file import format_signing_key, new_secrets

VECTOR = json.loads((Path(__file__).parent / "vectors/offline/license-file.json").read_text("utf-8"))
CONTENT, TEXT = VECTOR["content"], "\n".join([*VECTOR["file"], ""])
OWN = PrivateKey(b"\1" * 32)


def test_both_sides_know_the_requests() -> None:
    """The client writes these codes, and the server reads them."""
    for case in VECTOR["requests"]:
        about = case["domain"], case["slug"], case["app_version"]
        assert write_request(about[0], about[1], about[2] or "") == case["code"]
        assert parse_request(case["code"]) == MachineRequest(*about)


def test_both_sides_know_the_file() -> None:
    """The server signs exactly this, and the client reads it: every field."""
    ends, support = (date.fromisoformat(CONTENT[name]) for name in ("expiry", "support_until"))
    plan = json.dumps(CONTENT["entitlements"])
    license_ = LicenseSnapshot(b"", 1, CONTENT["product"], expires_on=ends, support_until=support, plan=plan)
    issued_at, ends_at = (datetime.fromisoformat(CONTENT[name]) for name in ("issued_at", "ends_at"))
    about = CONTENT["slug"], VECTOR["license_key"], CONTENT["domain"]
    assert sign_file(Valid(license_, takes_slot=True), *about, issued_at, ends_at, OWN) == TEXT
    settings = read_settings(
        ClientSettings("https://x.example", trust=Trust(public_keys=[VECTOR["public_key"]]))
    )
    found = check_file(unwrap(TEXT.encode()), settings, CONTENT["domain"])
    assert isinstance(found, LicenseFile)
    assert found.key_digest == CONTENT["key_digest"] == key_digest(VECTOR["license_key"], CONTENT["domain"])
    assert (found.slug, found.masked_key, found.domain) == (
        CONTENT["slug"],
        CONTENT["license"],
        CONTENT["domain"],
    )
    for name in ("issued_at", "ends_at"):
        assert getattr(found, name) == datetime.fromisoformat(CONTENT[name])
    verified = found.verified
    assert (verified.product, verified.lifetime, str(verified.expiry)) == (
        CONTENT["product"],
        False,
        CONTENT["expiry"],
    )
    assert write_entitlements(verified.entitlements) == CONTENT["entitlements"]


def test_a_machine_without_a_network(
    make_world: Callable[..., World], flavour: str, clock: MovableClock, tmp_path: Path
) -> None:
    """Request, file, and a license until the file ends; every request that the app would send fails."""
    keys = [format_signing_key(SigningKey(OWN, clock()))]
    shop = make_world(secrets=json.dumps(new_secrets() | {"signing_keys": keys}))
    shop.stock({"products": [PRODUCT], "licenses": []})
    key, sent = shop.new_key(SLUG), []

    def fail(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        raise httpx.ConnectError("no network")

    app: dict[str, Any] = {
        "product": NAME,
        "slug": SLUG,
        "version": "1.0",
        "trust": Trust(public_keys=[OWN.public.text]),
    }
    edges = {"clock": clock, "storage": tmp_path / "state", "transport": httpx.MockTransport(fail)}
    with opened(flavour, "https://licenses.example", **app, **edges) as client:
        issued = shop.services.offline_files.issue(key, client.license_file.request(), 30)
        (tmp_path / issued.name).write_text(issued.text)
        client.license_file.install(tmp_path / issued.name)
        for days in (0, 15, 14):
            clock.forward(days=days)
            assert client.verify().source is client.require().source is Source.FILE
            assert client.activate(key).source is Source.FILE
        clock.forward(days=1)
        sent.clear()
        with pytest.raises(LicenseRefusedError, match="license file ended") as refused:
            client.verify()
        assert refused.value.reason is Reason.EXPIRED
        assert sent  # the key that was activated is asked for, now that the file is over
        clock.forward(days=-5)
        with pytest.raises(Exception, match="clock"):
            client.verify()
    assert shop.services.licenses.list_activations(key).items[0].offline_until == issued.ends_at
    assert issued.ends_at - clock() == timedelta(days=5)
