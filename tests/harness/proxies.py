"""The proxies of `licserver deploy-files`, each with its own file, in front of servers on loopback."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from harness.programs import SCRIPTS, environment

DEPLOY = Path(str(files("licserver") / "deploy_files"))
ONE_HOST = "127.0.0.1:8080"  # in the files of nginx and Caddy
TWO_HOSTS = ("10.0.0.11:8080", "10.0.0.12:8080")


def tool(name: str) -> str:
    """Return the path of a tool; a test without its tool is skipped, with that reason."""
    found = shutil.which(name, path=f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if found is None:
        pytest.skip(f"there is no {name} here; .ci/run installs it where apt has it")
    return found


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


class Site(NamedTuple):
    """Where a proxy listens, with which certificate, and the hosts behind it."""

    folder: Path
    port: int
    hosts: Sequence[str]

    @property
    def url(self) -> str:
        """The address of customers."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> Path:
        """The certificate; `key` is beside it."""
        return self.folder / "certificate.pem"

    @property
    def key(self) -> Path:
        """The certificate's private key."""
        return self.folder / "tls-key.pem"


def create_site(folder: Path, authority: trustme.CA, *hosts: str) -> Site:
    """Create a folder with a certificate for a proxy; without `hosts`, one on a free port is behind it."""
    folder.mkdir(exist_ok=True)
    site = Site(folder, free_port(), hosts or [f"127.0.0.1:{free_port()}"])
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    site.certificate.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(site.key)
    return site


def _replace(text: str, changes: dict[str, str]) -> str:
    for there, ours in changes.items():
        assert there in text, there
        text = text.replace(there, ours)
    return text


def _configure_nginx(site: Site) -> None:
    text = _replace(
        (DEPLOY / "nginx.conf").read_text(),
        {
            "/etc/letsencrypt/live/licenses.example.com/fullchain.pem": str(site.certificate),
            "/etc/letsencrypt/live/licenses.example.com/privkey.pem": str(site.key),
            "/var/log/nginx/": f"{site.folder}/",
            "listen 443 ": f"listen 127.0.0.1:{site.port} ",
            "listen 80;": f"listen 127.0.0.1:{free_port()};",
        },
    )
    text = re.sub(r" +listen \[::\].*\n", "", text)  # not every machine has it
    if len(site.hosts) == 1:
        text = _replace(text, {ONE_HOST: site.hosts[0]})
    else:
        text = _replace(text, {f"    server {ONE_HOST};\n": "", "# server ": "server "})
        text = _replace(text, dict(zip(TWO_HOSTS, site.hosts, strict=True)))
    write_nginx(site.folder, text)


def write_nginx(folder: Path, site: str) -> None:
    """Write what a process of nginx needs around a site."""
    (folder / "site.conf").write_text(site)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user}pid {folder}/nginx.pid;\nerror_log {folder}/first.log;\ndaemon off;\nevents {{}}\n"
        f"http {{\n{temporary}access_log off;\ninclude {folder}/site.conf;\n}}\n"
    )


def _configure_caddy(site: Site) -> None:
    text = _replace(
        (DEPLOY / "Caddyfile").read_text(),
        {
            "licenses.example.com {": f"{site.url} {{\n\ttls {site.certificate} {site.key}",
            "/var/log/caddy/": f"{site.folder}/",
            f"reverse_proxy {ONE_HOST}": f"reverse_proxy {' '.join(site.hosts)}",
            "auto_https disable_redirects": "auto_https disable_redirects\n\tadmin off",
        },
    )
    if len(site.hosts) > 1:
        text = re.sub(r"# ((?:lb|health)_)", r"\1", text)
    (site.folder / "Caddyfile").write_text(text)


def _configure_haproxy(site: Site) -> None:
    both = site.folder / "both.pem"
    both.write_bytes(site.certificate.read_bytes() + site.key.read_bytes())
    changes = {
        "bind :443 ": f"bind 127.0.0.1:{site.port} ",
        "/etc/haproxy/licenses.example.com.pem": str(both),
        "log /dev/log local0 notice": "log stdout format raw local0 info",
        "    user haproxy\n    group haproxy\n": "",
    }
    text = _replace((DEPLOY / "haproxy.cfg").read_text(), changes)
    if len(site.hosts) == 1:
        text = _replace(text, {f"    server host2 {TWO_HOSTS[1]}\n": ""})
    text = _replace(text, dict(zip(TWO_HOSTS, site.hosts, strict=False)))
    (site.folder / "haproxy.cfg").write_text(text)


class Proxy(NamedTuple):
    """A proxy: how its file is made for a site, run, and checked."""

    configure: Callable[[Site], None]
    run: Callable[[Path], list[str]]
    check: Callable[[Path], list[str]]


PROXIES = {
    "haproxy": Proxy(
        _configure_haproxy,
        lambda folder: ["-db", "-f", f"{folder}/haproxy.cfg"],
        lambda folder: ["-c", "-f", f"{folder}/haproxy.cfg"],
    ),
    "nginx": Proxy(
        _configure_nginx,
        lambda folder: ["-c", f"{folder}/nginx.conf", "-p", str(folder)],
        lambda folder: ["-t", "-c", f"{folder}/nginx.conf", "-p", str(folder)],
    ),
    "caddy": Proxy(
        _configure_caddy,
        lambda folder: ["run", "--config", f"{folder}/Caddyfile", "--adapter", "caddyfile"],
        lambda folder: ["validate", "--config", f"{folder}/Caddyfile", "--adapter", "caddyfile"],
    ),
}


@contextmanager
def running(name: str, site: Site) -> Iterator[Path]:
    """Run a proxy for a block; yield the file of what it prints."""
    program = tool(name)
    PROXIES[name].configure(site)
    printed = site.folder / "printed.log"
    with printed.open("wb") as output:
        process = subprocess.Popen(
            [program, *PROXIES[name].run(site.folder)],
            env=environment(site.folder / "home"),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 20
        while not is_listening(site.port):
            assert process.poll() is None, printed.read_text()
            assert time.monotonic() < deadline, printed.read_text()
            time.sleep(0.02)
        yield printed
    finally:
        process.terminate()
        process.wait(20)


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections at a port."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
