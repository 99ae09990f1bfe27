"""Addresses that no library can split, wherever one is taken: an answer or a message, never a traceback."""

import csv
from contextlib import closing, suppress
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from pydantic import ValidationError

from harness.console import NAME, PASSWORD
from licserver.cli import main
from licserver.domain.environments import normalise_domain
from licserver.errors import InvalidInputError, LicserverError
from licserver.jobs.shop_apis import _read_address
from licserver.services.installation import open_services
from licserver.services.self_check import check_installation
from licserver.settings import StandaloneSettings
from licserver.web.app import create_app

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
URLS = [
    "http://[", "https://[", "https://]", "//[", "https://[::1", "https://::1]", "https://[::1].example",
    "https://[v1.x]", "https://[fe80::1%25eth0]", "https://a:port", "https://a:99999", "https://a:-1",
    "https://a:", "https://\u2100.example", "https://a\u2100b", "https://%5b", "https://ann@[",
    "https://[::ffff:1.2.3.4", "://", "https://", "https:///", "https://[]", "https://[a]",
    "https://[1.2.3.4]", "https://a@b@[c", "https://\uff3b", "https:\\\\[", "https://a[b]c", "[", "]", "[]",
    "[::1", "https://\u2488com", "https://xn--\u212a", "https://a..b", "https://.", "https://a\uff0fb",
    "ftp://[x", "s3://[", "redis://[",
]  # fmt: skip
"""MozillaSecurity/grizzly#265, formencode/formencode#61, linkchecker/linkchecker#204: `urlsplit` raises."""


@pytest.mark.parametrize("url", URLS)
def test_a_domain_is_stored_or_refused(url):
    """Its normal form is stable, so that a machine has one slot."""
    try:
        form = normalise_domain(url)
    except InvalidInputError:
        return
    assert normalise_domain(form) == form


@pytest.mark.slow
async def test_requests_with_it_are_answered(site, world):
    """As a domain, in headers of browsers and proxies, and as the target itself."""
    key = world.key(slots=100)
    for url in URLS:
        status, _ = await site.verify(key, url)
        assert status != 500, url  # 503 on a busy machine
        raw = url.encode()
        for head in (
            b"GET " + raw + b" HTTP/1.1\r\nHost: a",
            b"GET / HTTP/1.1\r\nHost: " + raw,
            b"POST /console/sign-in HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nOrigin: " + raw,
            b"POST /account HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nOrigin: " + raw,
            b"GET /console HTTP/1.1\r\nHost: a\r\nReferer: " + raw + b"\r\nX-Forwarded-For: " + raw,
        ):
            answer = await site.raw(head + b"\r\nConnection: close\r\n\r\n")
            assert answer.split(b" ", 2)[1] < b"500", (head, answer)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/console/sign-in", "/console/setup"])
async def test_forms_of_the_console_with_it(site, users, open_browser, path):
    """Each address as the page that has sent the form."""
    browser = await open_browser()
    for url in filter(str.isascii, URLS):
        for headers in ({"Origin": url}, {"Origin": url, "Sec-Fetch-Site": "same-origin"}):
            form = {"name": NAME, "password": PASSWORD}
            await browser.send("POST", path, data=form, headers=headers)
            assert browser.status < 500, url


@pytest.mark.slow
async def test_places_that_the_vendor_types(world, alice, api):
    """In the forms of the console, and in the admin API: stored or refused."""
    license_ = world.services.licenses.get(world.key())
    world.publish("1.0")
    for url in URLS:
        await alice.get(f"/console/licenses/{license_.id.hex()}")
        for path, field in (
            (f"/console/licenses/{license_.id.hex()}/allow", "entry"),
            (f"/console/licenses/{license_.id.hex()}/deactivate", "domain"),
        ):
            await alice.post(path, **{field: url})
            assert alice.status < 500, (path, url)
        await alice.get("/console/licenses", params={"q": url})
        assert alice.status in {200, 422}, url
        body = {"product": "app", "allowed": [url], "note": url, "subscription_id": url}
        status, _ = await api("POST", "/licenses", body)
        assert status < 500, url
        status, _ = await api("GET", "/licenses?q=" + quote(url, safe=""))
        assert status < 500, url


COLUMNS = ("allowed", "activations", "note", "subscription_id", "customer_email", "product_name")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("column", COLUMNS)
def test_an_import_names_the_line(cli, tmp_path, column):
    """In each column of text: imported, or refused by its line; also as a JSON line of an export."""
    cli("product", "add", "app", "--name", "App", "--accept-imported-keys")
    row = {"license_key": "", "product": "app", "slots": "99", "lifetime": "yes"}
    rows = [
        {**row, "license_key": f"0123456789abcd{number:02}", column: url}
        for number, url in enumerate(url_ for url_ in URLS if url_.isprintable())
    ]
    with (tmp_path / "keys.csv").open("w", newline="") as text:
        writer = csv.DictWriter(text, [*row, column])
        writer.writeheader()
        writer.writerows(rows)
    for arguments in (("--dry-run",), (), ("--existing", "change")):
        run("import", str(tmp_path / "keys.csv"), *arguments)


def run(*arguments: str) -> None:
    """Run a command that ends well, or with a message."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code in {0, 1, 2}, arguments


ADDRESSES = URLS[::3]


@pytest.mark.slow
def test_commands_with_it(cli, tmp_path):
    """Each command that takes an address or a place ends well, or with a message."""
    cli("product", "add", "app", "--name", "App")
    key = cli("license", "issue", "app").split()[0]
    (tmp_path / "app.zip").write_bytes(b"zip")
    cli("release", "publish", "app", "1.0", str(tmp_path / "app.zip"))
    for url in ADDRESSES:
        run("license", "allow", key, url)
        run("license", "deactivate", key, url)
        run("license", "list", url)
        run("webhook", "add", url)
        run("release", "wordpress", "app", "1.0", "--details-url", url)
        run("source", "sync", "none", "--url", url, "--since", "2026-01-01", "--key-env", "X")


SETTINGS = (
    "base_url", "artifacts_url", "redis_url", "database_url", "replica_url", "mail_host", "mail_sender",
    "allowed_hosts", "trusted_proxies", "webhook_networks", "listen", "admin_listen",
)  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", SETTINGS)
async def test_settings_with_it(tmp_path, name):
    """A message, when a setting is read or when a server opens with it."""
    for url in URLS:
        try:
            settings = StandaloneSettings(data_dir=tmp_path, **{name: url})
        except ValidationError:
            continue
        try:
            with closing(open_services(settings)) as services:
                create_app(services)
        except LicserverError:
            continue


@pytest.mark.parametrize("name", SETTINGS)
def test_check_with_it(tmp_path, name):
    """A finding, and no traceback."""
    for url in ADDRESSES:
        try:
            settings = StandaloneSettings(data_dir=tmp_path, **{name: url})
        except ValidationError:
            continue
        assert [*check_installation(settings, NOON, reach=name == "base_url")]


@pytest.mark.parametrize("url", URLS)
def test_the_address_of_a_shop(url):
    """A message, before any request."""
    with suppress(InvalidInputError):
        assert _read_address(url)
