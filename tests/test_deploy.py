"""The files of `licserver deploy-files`, each checked by its own tool; the proxies before a real server."""

import json
import re
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
import yaml  # type: ignore[import-untyped]

from harness.programs import SCRIPTS, environment, licserver, serving_process
from harness.proxies import DEPLOY, PROXIES, create_site, free_port, running, tool, write_nginx
from licclient import LicenseClient, Source, Trust
from licclient.errors import ServiceUnavailableError

pytestmark = pytest.mark.system_tools


def use(name: str, *arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end."""
    command = [tool(name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


# --- systemd ----------------------------------------------------------------------------------

UNITS = sorted(path.name for path in DEPLOY.glob("licserver*.*") if path.suffix in {".service", ".timer"})


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units, with the program where it is here."""
    folder = tmp_path_factory.mktemp("units")
    for name in UNITS:
        text = (DEPLOY / name).read_text().replace("/opt/licserver/bin/", f"{SCRIPTS}/")
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_each_unit(name: str, units: Path) -> None:
    """`systemd-analyze verify` finds nothing to say."""
    done = use("systemd-analyze", "verify", "--man=no", units / name)
    about_ours = [line for line in done.stderr.splitlines() if "licserver" in line]
    assert (done.returncode, about_ours) == (0, []), done.stderr


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_each_service_can_do_little_harm(name: str, units: Path) -> None:
    """`systemd-analyze security` gives at most 1.5 of 10 points for what an intruder could reach."""
    done = use("systemd-analyze", "security", "--offline=true", "--threshold=15", units / name)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


# --- containers -------------------------------------------------------------------------------


def test_the_container_file_holds_to_good_practice() -> None:
    """Hadolint finds nothing."""
    done = use("hadolint", DEPLOY / "Containerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_compose_file_is_one(tmp_path: Path) -> None:
    """docker-compose reads it, and refuses it without the settings that it needs."""
    compose = ("docker-compose", "-f", DEPLOY / "compose.yaml", "--env-file")
    settings = tmp_path / "settings"
    settings.write_text("BASE_URL=https://l.example\nDATABASE_PASSWORD=hunter2\nSTORE_PASSWORD=hunter3\n")
    done = use(*compose, settings, "config")
    assert done.returncode == 0, done.stderr
    assert "postgresql://licserver:hunter2@database/licserver" in done.stdout
    assert use(*compose, DEPLOY / "compose.env", "config").returncode != 0


def test_each_container_is_confined() -> None:
    """No service keeps a capability, gains one, or writes to its image; each image can be pinned."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert len(services) == 5
    for name, service in services.items():
        assert (service["cap_drop"], service["read_only"]) == (["ALL"], True), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert ("cap_add" in service) == (name == "database")
        assert service["image"] == "licserver" or re.fullmatch(r"\$\{[A-Z]+_IMAGE:-\S+\}", service["image"])


def test_console_and_admin_api_have_a_listener_of_their_own() -> None:
    """Unit, settings and containers set it; only this machine reaches it, and no proxy leads there."""
    for name in ("licserver.env", "licserver.service"):
        assert "LICSERVER_ADMIN_LISTEN=127.0.0.1:8081" in (DEPLOY / name).read_text()
    assert "LICSERVER_ADMIN_LISTEN=[::]:8081" in (DEPLOY / "Containerfile").read_text()
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["licserver"]
    assert service["environment"]["LICSERVER_ADMIN_LISTEN"] == "[::]:8081"
    assert service["ports"] == ["127.0.0.1:8080:8080", "127.0.0.1:8081:8081"]
    for name in ("nginx.conf", "Caddyfile", "haproxy.cfg"):
        lines = (DEPLOY / name).read_text().splitlines()
        assert not [line for line in lines if "8081" in line.partition("#")[0]]


def test_every_setting_that_the_files_name_exists() -> None:
    """No file of the folder sets a LICSERVER_* that licserver does not know."""
    from licserver.settings import Settings  # noqa: PLC0415 - for this line only

    known = {f"LICSERVER_{name.upper()}" for name in Settings.model_fields}
    for path in filter(Path.is_file, DEPLOY.iterdir()):
        assert set(re.findall(r"LICSERVER_[A-Z_]+(?==|:)", path.read_text())) <= known, path.name


# --- proxies ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Who certifies the proxies here."""
    return trustme.CA()


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("name", PROXIES)
def test_the_proxies_read_their_files(name: str, hosts: int, tmp_path: Path, authority: trustme.CA) -> None:
    """Each accepts its file, and warns of nothing, for one host and for two."""
    behind = [f"127.0.0.1:{free_port()}" for _ in range(hosts)]
    site, proxy = create_site(tmp_path / name, authority, *behind), PROXIES[name]
    proxy.configure(site)
    done = use(name, *proxy.check(site.folder), env=environment(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert "[warn]" not in done.stderr.lower()
    assert "[WARNING]" not in done.stderr


def test_the_site_in_the_guide_is_read(tmp_path: Path, authority: trustme.CA) -> None:
    """`nginx -t` accepts the site of the console in docs/deploy.md, with a certificate of its own."""
    page = (Path(__file__).parents[1] / "docs" / "deploy.md").read_text()
    (text,) = re.findall(r"^```text\n(server \{\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    site, listen = create_site(tmp_path, authority), "listen 10.0.0.5:443 ssl;"
    assert listen in text
    ours = f"ssl_certificate {site.certificate}; ssl_certificate_key {site.key};"
    write_nginx(tmp_path, text.replace(listen, f"listen 127.0.0.1:{site.port} ssl; {ours}"))
    done = use("nginx", *PROXIES["nginx"].check(tmp_path), env=environment(tmp_path / "home"))
    assert (done.returncode, "[warn]" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("name", PROXIES)
def test_a_signed_verify_through_a_proxy(
    name: str, tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is signed arrives as it was, a forged address does not; no log has the key, nor in an outage."""
    site = create_site(tmp_path / name, authority)
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    base, home = site.url, tmp_path / "home"
    settings = {"LICSERVER_BASE_URL": base, "LICSERVER_TRUSTED_PROXIES": "127.0.0.1"}
    licserver(home, "product", "add", "app", "--name", "App")
    pin = licserver(home, "signing-key", "add", **settings).split()[-1]
    key = licserver(home, "license", "issue", "app", "--slots", "2")
    with running(name, site) as printed:
        app: dict[str, Any] = {
            "slug": "app",
            "version": "1.0",
            "trust": Trust(public_keys=[pin]),
            "storage": tmp_path / "state",
        }
        with serving_process(["serve", "--port", site.hosts[0].rpartition(":")[2]], home, None, **settings):
            _wait_until_served(base, authority)
            with LicenseClient(base, domain="home.example", **app) as client:
                found = client.verify(key)
                assert (found.source, found.is_authenticated) == (Source.SERVER, True)
                assert not client.check_for_update(key)
            assert _ask(base, authority, key, {"X-Forwarded-For": "198.51.100.9"}) == 200
            shown = json.loads(licserver(home, "license", "show", key, "--json"))
            assert [machine["ip"] for machine in shown["activations"]] == ["127.0.0.1", "127.0.0.1"]
            assert _ask(base, authority, key, {}, "/admin/api/v1/licenses") == 404
            assert _ask(base, authority, key, {}, "/console") == 404
        with (
            LicenseClient(base, domain="other.example", **app) as client,
            pytest.raises(ServiceUnavailableError),
        ):
            client.verify(key, force=True)
        assert _ask(base, authority, key, {}, "/api/v1/update-check") == 503
    logged = "".join(path.read_text(errors="replace") for path in [printed, *site.folder.glob("*.log")])
    logged = logged.replace("\\/", "/")  # as haproxy writes JSON
    assert "/api/v1/licenses/verify" in logged
    assert "/api/v1/update-check" in logged
    assert key not in logged
    assert key[3:9] not in logged


RAW_PATHS = [
    "/console",
    "/console/sign-in",
    "//console/sign-in",
    "/%63onsole/sign-in",
    "/admin/api/v1/products",
    "/console/products/%2e%2e%2f%2e%2e%2f%2e%2e%2fapi",
    "/console/%2e%2e/api",
    "/console/../api/v1",
    "/console/licenses/%2e%2e%2f%2e%2e%2f%2e%2e",
    "/console/sign-in/%2e%2e/%2e%2e/",
    "/console/assets/%2e%2e%2f%2e%2e%2f%2e%2e/x",
    "/console%2f..%2fapi",
    "/console%2f%2e%2e",
    "/console%5c..%5c..%5capi",
    "/console/..%5c..%5capi",
    "/admin/api/v1/%2e%2e%2f%2e%2e%2f%2e%2e%2fapi",
    "/admin/api/v1/products/%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f",
    "/api/%2e%2e/console",
    "/api/..%2fconsole",
    "/api/v1/..;/console",
    "/console%00",
    "/console#/../api",
    "/console/.%2e#",
]
"""What a caller writes into a request line to be taken for one path by nginx, and for another one by us."""


@pytest.mark.parametrize("name", ["nginx", "haproxy"])
def test_nothing_of_the_vendors_side_is_behind_the_public_name(
    name: str, tmp_path: Path, authority: trustme.CA
) -> None:
    """No raw path leads through the file to console or admin API, also where they share a port."""
    context = ssl.create_default_context()
    authority.configure_trust(context)

    def get(target: str) -> str:
        with (
            socket.create_connection(("127.0.0.1", site.port), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as sock,
        ):
            host = "licenses.example.com"
            sock.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: sock.recv(1 << 16), b"")).decode()

    with serving_process(["serve", "--port", "0"], tmp_path / "home") as (_, printed):
        site = create_site(tmp_path / name, authority, printed.rpartition("/")[2])
        with running(name, site):
            assert get("/healthz").startswith("HTTP/1.1 200 ")
            for path in [*RAW_PATHS, *(f"https://licenses.example.com{path}" for path in RAW_PATHS)]:
                answer = get(path)
                assert answer.split(" ")[1] in {"400", "404"}, (path, answer)
                # the proxy's own page, the public side's not_found, or a response before any routing
                known = (
                    "<center>nginx</center>",
                    "<h1>404 Not Found</h1>",
                    "<h1>400 Bad request</h1>",
                    '"error":"not_found"',
                    "A path must not contain",
                )
                assert any(text in answer for text in known), (path, answer)


def _wait_until_served(base: str, authority: trustme.CA) -> None:
    """Wait until the proxy has noticed that its host answers."""
    deadline = time.monotonic() + 20
    while _ask(base, authority, "", {}, "/healthz") != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _ask(
    base: str, authority: trustme.CA, key: str, headers: dict[str, str], path: str = "/api/v1/licenses/verify"
) -> int:
    """Ask with plain means; returns the status. The key stands in the query of whatever is not a verify."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if path.endswith("verify"):
        body = {"license_key": key, "domain": "second.example", "ip": "192.0.2.1"}
        answer = httpx.post(base + path, json=body, headers=headers, timeout=20, verify=context)
    else:
        query = {"license_key": key, "slug": "app", "current_version": "1", "domain": "x"}
        answer = httpx.get(base + path, params=query, headers=headers, timeout=20, verify=context)
    return answer.status_code
