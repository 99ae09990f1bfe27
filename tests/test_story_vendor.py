"""A vendor's day, through the command line, the API, HTTP and a browser."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness import chromium
from harness.chromium import Visitor, browser, visiting
from harness.programs import licserver, serving_process
from licclient import LicenseClient, Reason
from licclient.errors import LicenseRefusedError

PASSWORD = "four words of a sentence"


def _call(method: str, url: str, body: object = None, token: str | None = None) -> tuple[int, Any]:
    """Send a request as any program would; returns the status and what came, as JSON if it is that."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = httpx.request(method, url, json=body, headers=headers, timeout=30)
    return answer.status_code, answer.json() if answer.content.startswith(b"{") else answer.content


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder."""
    return tmp_path / "home"


@pytest.mark.browser
@pytest.mark.skipif(chromium.PROGRAM is None, reason=chromium.MISSING)
async def test_a_vendors_day(home: Path, tmp_path: Path) -> None:
    """From the sale to the refund: two machines, a third one that support lets in, and the end of it."""
    token = _open_shop(home, tmp_path)
    with serving_process(["serve", "--port", "0"], home) as (_, printed):
        url = printed.rpartition(" ")[2]
        key, license_id = _sell(url, token)

        def verify(machine: str) -> None:
            state = tmp_path / f"state-{machine}"
            with LicenseClient(
                url, product="Photo Lab", slug="photo-lab", version="1.0.0", storage=state, domain=machine
            ) as app:
                app.verify(key, force=True)

        verify("first.example")
        verify("second.example")
        assert _refused(verify, "third.example") is Reason.ENVIRONMENT

        async with browser() as program, visiting(program, url) as support:
            await support.sign_in("alice", PASSWORD)
            await _free_a_slot(support, key, "first.example")
            verify("third.example")
            link = _download_link(url, key)
            assert _call("GET", link) == (200, b"the first version")
            await _revoke(support)

            assert _refused(verify, "third.example") is Reason.REVOKED
            assert _call("GET", _update_check(url, key))[0] == 401
            assert _call("GET", link)[0] == 403
            await support.open(f"/console/audit?license={license_id}")
            rows = await support.page.locator("tbody tr").all_inner_texts()
        log = ["\t".join(row.split("\t")[1:3]).partition(" CP-")[0] for row in rows]
        assert log == ["alice\tRevoked", "alice\tFreed a slot", "token: shop\tIssued"]
    entries = json.loads(licserver(home, "audit", "--json"))
    done = [(line["actor"], line["action"]) for line in entries][::-1]
    assert [action for _, action in done] == [
        "product.add",
        "release.publish",
        "user.add",
        "token.create",
        "license.issue",
        "user.sign_in",
        "license.deactivate",
        "license.revoke",
    ]


def _open_shop(home: Path, folder: Path) -> str:
    """On the command line: a product, a version, somebody for support, and a token for the shop."""
    file = folder / "photo-lab-1.0.0.zip"
    file.write_bytes(b"the first version")
    licserver(home, "product", "add", "photo-lab", "--name", "Photo Lab", "--environment", "domain")
    licserver(home, "release", "publish", "photo-lab", "1.0.0", str(file))
    licserver(home, "user", "add", "alice", "--password-stdin", stdin=f"{PASSWORD}\n")
    made = json.loads(licserver(home, "token", "create", "shop", "--scope", "write", "--json"))
    token: str = made["token"]
    return token


def _sell(url: str, token: str) -> tuple[str, str]:
    """Through the API, as the shop's own program does."""
    terms = {"product": "photo-lab", "slots": 2, "customer_email": "jo@studio.example"}
    status, sold = _call("POST", f"{url}/admin/api/v1/licenses", terms, token)
    assert status == 201, sold
    return sold["license_key"], sold["id"]


async def _free_a_slot(support: Visitor, key: str, machine: str) -> None:
    """In the console: the customer reads the key to support, who frees the machine that was stolen."""
    page = support.page
    await page.get_by_label("Find a license").fill(key)
    await page.get_by_role("button", name="Find").click()
    await page.wait_for_selector(".big-slots")
    assert key not in page.url
    assert "All slots are in use" in await support.text("p.lead")
    await page.get_by_role("button", name=f"Free the slot of {machine}").click()
    await page.wait_for_url("**done=freed")
    assert "1 of 2" in await support.text(".big-slots")


async def _revoke(support: Visitor) -> None:
    page = support.page
    await page.get_by_label("Reason").fill("Refund, order 4711")
    await page.get_by_role("button", name="Revoke this license").click()
    await page.get_by_role("button", name=re.compile("^Revoke CP-")).click()
    await page.wait_for_url("**done=revoked")
    assert "Refund, order 4711" in await support.text("p.lead")


def _refused(verify: Callable[[str], None], machine: str) -> Reason | None:
    with pytest.raises(LicenseRefusedError) as refused:
        verify(machine)
    return refused.value.reason


def _update_check(url: str, key: str) -> str:
    query = f"license_key={key}&slug=photo-lab&current_version=0.9&domain=third.example"
    return f"{url}/api/v1/update-check?{query}"


def _download_link(url: str, key: str) -> str:
    status, offer = _call("GET", _update_check(url, key))
    assert status == 200, offer
    link: str = offer["download_url"]
    return link
