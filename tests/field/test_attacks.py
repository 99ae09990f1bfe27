"""What an attacker or a broken shop sends, where the outcome was wrong."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from select import select
from socket import create_connection
from threading import Event
from time import sleep
from typing import Any

import httpx
import pytest

from harness import shops
from harness.commands import Cli
from harness.sales import add, process, receive
from harness.world import Server, World
from licserver.database.repositories.licenses import LicenseRepository
from licserver.domain.records import EnvironmentPolicy, IssuedLicense, LicenseTerms
from licserver.runtime.worker_threads import THREADS
from licserver.services.license_lookups import find_ids_by_email
from licserver.services.support import SupportService
from licserver.shops import ShopKind
from licserver.web.account.pages import describe_all
from licserver.web.shops import LARGE_BYTES, MAX_LARGE


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A vendor with a product, who sends mail."""
    world = make_world(mail_host="mail.example", mail_sender="shop@example.com")
    world.services.products.add("app", "App", EnvironmentPolicy.STRICT)
    return world


@pytest.mark.usefixtures("shop_secrets")
@pytest.mark.parametrize("kind", ["order", "subscription"])
def test_an_object_of_a_shop_with_an_empty_id_is_unreadable(world: World, kind: str) -> None:
    """Its lines belonged to nothing, which was a 500 that the shop repeats."""
    add(world, "woocommerce")
    item = {"id": 1, "product_id": 100, "quantity": 1}
    at = "2026-06-15T12:00:00"
    body: dict[str, Any] = {
        "id": "",
        "status": "processing",
        "date_modified_gmt": at,
        "total": "9.00",
        "line_items": [item],
    }
    if kind == "subscription":
        body |= {"status": "active", "parent_id": 0, "billing_period": "month", "billing_interval": 1}
    receipt = receive(world, "woocommerce", json.dumps(body).encode())
    assert receipt.status == "unreadable"
    assert "id: Field required" in receipt.reason


@pytest.mark.usefixtures("shop_secrets")
def test_problems_of_sales_are_printed_as_a_table(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`source problems` failed as soon as there was one, unless it printed JSON."""
    add(world, "standard", mapped=False)
    process(world, "standard", shops.standard("purchase.completed", order_id="1", external_id="app"))
    heading, line = Cli(world.folder / "data", monkeypatch, capsys)("source", "problems").splitlines()
    assert heading.split()[-2:] == ["ANSWERS", "MESSAGE"]
    assert "not mapped" in line
    assert "leave" in line


@pytest.mark.sampled(2)
@pytest.mark.parametrize("product", [{"a": 1}, [["app"]], 5, True, None])
def test_a_product_of_an_import_that_is_no_text_is_refused(
    bare_cli: Cli, tmp_path: Path, product: object
) -> None:
    """An object instead of a name ended the command with a traceback, and the console with a 500."""
    bare_cli("product", "add", "app", "--name", "App", "--support-policy")
    file = tmp_path / "keys.jsonl"
    file.write_text(json.dumps({"product": product, "slots": 1, "lifetime": True}) + "\n", "utf-8")
    output = bare_cli("import", str(file), expect=2)
    assert "product: " in output
    assert "nothing was imported" in output


def test_a_code_needs_no_license_of_an_address_with_many(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a request for a code showed which addresses have hundreds of licenses."""
    terms = LicenseTerms(slots=1, customer_email="ann@example.com")
    for _ in range(3):
        world.services.licenses.issue("app", terms)
    support = SupportService(world.services.context)
    latest = [license_.id for license_ in support.find_licenses("ann@example.com")]
    assert len(latest) == 3
    assert find_ids_by_email(world.services.context, "Ann@Example.com") == latest

    find_all = LicenseRepository.find_all

    def load(repository: LicenseRepository, ids: Sequence[bytes]) -> list[IssuedLicense]:
        assert len(ids) == 1, "more were loaded than the one whose address is mailed"
        return find_all(repository, ids)

    monkeypatch.setattr(LicenseRepository, "find_all", load)
    assert world.services.customer_sign_in.send_code("ann@example.com", "192.0.2.1") is not None


@pytest.mark.slow
def test_pages_of_one_customer_keep_no_other_customer_waiting(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A customer with hundreds of licenses held all threads of the page with a few requests."""
    world, is_over = make_world(account=True), Event()
    world.services.products.add("app", "App", EnvironmentPolicy.STRICT)
    busy, other = (world.services.licenses.issue("app", LicenseTerms(slots=1))[1] for _ in range(2))

    def describe_slowly(*arguments: Any) -> Any:
        is_over.wait(20)
        return describe_all(*arguments)

    monkeypatch.setattr("licserver.web.account.app.describe_all", describe_slowly)
    with ExitStack() as stack:
        server = Server(world)
        server.start()
        stack.callback(server.stop)
        requests = stack.enter_context(ThreadPoolExecutor(2 * THREADS))
        stack.callback(is_over.set)
        signed_in = httpx.post(f"{server.url}/account/sign-in", data={"key": busy})
        page = partial(httpx.get, f"{server.url}/account", cookies=dict(signed_in.cookies), timeout=20)
        pages = [requests.submit(page) for _ in range(2 * THREADS)]
        sleep(0.3)  # until the pages wait
        response = httpx.post(f"{server.url}/account/sign-in", data={"key": other}, timeout=10)
        assert response.status_code == 303
        is_over.set()
        assert {page_.result().status_code for page_ in pages} == {200}


@pytest.mark.slow
def test_unsigned_deliveries_fill_no_memory(make_world: Callable[..., World]) -> None:
    """Each connection of any client held a megabyte for ten seconds: 250 of them held 300 MB."""
    world, length = make_world(), 1 << 20
    world.services.sources.add("shop", ShopKind.STANDARD, "SHOP_SECRET")
    server = Server(world)
    with ExitStack() as stack:
        server.start()
        stack.callback(server.stop)
        address, path = httpx.URL(server.url), "/events/in/shop"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode()
        open_ = []
        for number in range(3 * MAX_LARGE):
            source = f"127.9.{number}.1", 0
            connection = stack.enter_context(create_connection((address.host, address.port), 10, source))
            connection.sendall(head + bytes(length // 2))
            open_.append(connection)
        sleep(1)  # until they have arrived, and all but some were refused
        refused = select(open_, [], [], 0)[0]
        assert len(refused) == 2 * MAX_LARGE
        assert {connection.recv(12) for connection in refused} == {b"HTTP/1.1 429"}
        assert httpx.post(f"{server.url}{path}", content=bytes(LARGE_BYTES)).status_code == 503
