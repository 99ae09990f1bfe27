"""An installation on several hosts, on loopback; everything is real but the bucket, which is moto's."""

import itertools
import json
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest
import trustme
from pydantic import SecretStr

from failover.load import Load, Result, Stock
from harness.bucket import S3Server
from harness.cluster import Cluster, Node, wait_for
from harness.programs import SCRIPTS, environment, licserver
from harness.proxies import create_site, free_port, running, tool
from harness.redis_server import Redis
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.protocol.public_api import VERIFY_PATH
from licserver.security.secrets_file import open_vault
from licserver.services.installation import Services, open_services
from licserver.settings import Settings

DRAIN_DELAY = 3
KNOWN, REVOKED = 50, 10


class Host:
    """A machine with `licserver serve` on it: a data folder with the secrets, a port, and settings."""

    def __init__(self, home: Path, port: int, settings: dict[str, str]) -> None:
        self.home, self.port, self.settings = home, port, settings
        self.url = f"http://127.0.0.1:{port}"
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start it, without waiting until it is ready."""
        self.process = subprocess.Popen(
            [str(SCRIPTS / "licserver"), "serve", "--port", str(self.port)],
            env=environment(self.home, **self.settings),
            stdout=subprocess.DEVNULL,
        )

    def start(self) -> float:
        """Start it; return the seconds until it was ready."""
        began = time.monotonic()
        self.launch()
        wait_for(lambda: self.ask("/readyz") == 200, 60)
        return time.monotonic() - began

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop it; return when it has ended. Nothing happens if it does not run."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(60)
            self.process = None

    def kill(self) -> None:
        """End it on the spot."""
        self.stop(signal.SIGKILL)

    def run(self, *arguments: str) -> str:
        """Run a command on it, which must succeed."""
        return licserver(self.home, *arguments, **self.settings)

    def verify(self, key: str, domain: str) -> int:
        """Ask it, and no other host; return the status."""
        body = json.dumps({"license_key": key, "domain": domain, "ip": "192.0.2.1"}).encode()
        return self.ask(VERIFY_PATH, body)

    def ask(self, path: str, body: bytes | None = None) -> int:
        """Request a path; return the status."""
        request = urllib.request.Request(self.url + path, body)  # noqa: S310 - our own
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - our own
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            return refused.code


class Installation:
    """Two hosts behind haproxy, on a primary with a synchronous standby, a bucket and a Redis.

    Closing `stack` ends everything.
    """

    def __init__(self, stack: ExitStack, folder: Path, rate: float) -> None:
        self.folder, self._stack, self._rate = folder, stack, rate
        tool("haproxy")  # or the test is skipped
        self._hosts = itertools.count()
        self.cluster = Cluster()
        self._stack.callback(self.cluster.close)
        self.cluster.create()
        self.s3 = S3Server(folder / "s3.log")
        self._stack.callback(self.s3.stop)
        self.redis = Redis(folder)
        self._stack.callback(self.redis.stop)
        self._bucket = self.s3.new_bucket()
        self.url = self.cluster.url("licserver") + "?target_session_attrs=read-write"
        first = self.add_host()
        first.run("db", "upgrade")
        self.services = self._open(first)
        self.vault = open_vault(Settings(data_dir=self._data(first)))
        self.stock = self._fill()
        self.cluster.make_synchronous()
        self.hosts = [first, self.add_host()]
        for host in self.hosts:
            self._stack.callback(host.stop)
            host.start()
        self._activate()
        authority = trustme.CA()
        self.trust = ssl.create_default_context()
        authority.configure_trust(self.trust)
        self.results: dict[str, Result] = {}
        site = create_site(folder / "haproxy", authority, *(f"127.0.0.1:{host.port}" for host in self.hosts))
        self._stack.enter_context(running("haproxy", site))
        self.load = Load(site.url, self.trust, self.stock, rate)

    def _data(self, host: Host) -> Path:
        return Path(host.settings["LICSERVER_DATA_DIR"])

    def add_host(self, url: str | None = None) -> Host:
        """Make another host with the same secrets and, unless named, the same database."""
        home = self.folder / f"host{next(self._hosts)}"
        settings = {
            **self.s3.environ,
            "AWS_ALLOW_HTTP": "true",
            "LICSERVER_DATA_DIR": str(home / "data"),
            "LICSERVER_DATABASE_URL": url or self.url,
            "LICSERVER_ARTIFACTS_URL": self._bucket,
            "LICSERVER_ARTIFACTS_REDIRECT": "false",
            "LICSERVER_REDIS_URL": self.redis.url,
            "LICSERVER_TRUSTED_PROXIES": "127.0.0.1",
            "LICSERVER_DRAIN_DELAY": str(DRAIN_DELAY),
            "LICSERVER_MISS_LIMIT": "1000000",
            "LICSERVER_FLOOD_LIMIT": "0",
        }
        host = Host(home, free_port(), settings)
        self._data(host).mkdir(parents=True)
        secrets = self.folder / "host0" / "data" / "secrets.json"
        if secrets.exists():
            shutil.copy(secrets, self._data(host))
        return host

    def _open(self, host: Host) -> Services:
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in {**self.s3.environ, "AWS_ALLOW_HTTP": "true"}.items():
            patch.setenv(name, value)
        services = open_services(
            Settings(
                data_dir=self._data(host),
                database_url=SecretStr(host.settings["LICSERVER_DATABASE_URL"]),
                artifacts_url=self._bucket,
            )
        )
        self._stack.callback(services.close)
        return services

    def _fill(self) -> Stock:
        services = self.services
        services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
        file = self.folder / "app.bin"
        file.write_bytes(b"app" * 1000)
        services.releases.publish("app", "1.0", file)

        def issue(count: int) -> list[str]:
            batches = services.licenses.issue_batches("app", LicenseTerms(slots=1), count)
            return [key for batch in batches for key in batch]

        stock = Stock(issue(KNOWN), issue(REVOKED), iter(issue(20_000)))
        for key in stock.revoked:
            services.licenses.revoke(key)
        return stock

    def _activate(self) -> None:
        for key in self.stock.known:
            assert self.hosts[0].verify(key, "home.example") == 200

    @property
    def other(self) -> Node:
        """The node that is not the primary."""
        (node,) = [node for node in self.cluster.nodes if node is not self.cluster.primary]
        return node

    @contextmanager
    def fault(self, name: str, host: Host | None = None) -> Iterator[Result]:
        """Call during a block, and a second before and after it; then judge the calls.

        The calls go through the proxy, or to one `host`.
        """
        self.settle()
        load = Load(host.url, self.trust, self.stock, self._rate) if host else self.load
        with load.running() as result:
            time.sleep(1)
            result.began = time.monotonic()
            yield result
            time.sleep(1)
        self._count(result)
        self.results[name] = result
        judged = (result.wrong, result.lost, result.above)
        assert judged == ([], 0, 0), f"{judged}"
        assert result.calls > self._rate

    def _count(self, result: Result) -> None:
        with closing(psycopg.connect(self.cluster.primary.url("licserver"))) as link:
            rows = link.execute("SELECT license_id, domain FROM activations").fetchall()
            query = "SELECT license_id, count(*) FROM activations GROUP BY license_id HAVING count(*) > 1"
            result.above = len(link.execute(query).fetchall())
        held = {(bytes(license_id), domain) for license_id, domain in rows}
        result.lost = sum((self.vault.license_id(key), domain) not in held for key, domain in result.taken)

    def check(self, host: Host) -> int:
        """Run `licserver check` on a host; return its exit code."""
        done = subprocess.run(
            [str(SCRIPTS / "licserver"), "check"],
            env=environment(host.home, **host.settings),
            capture_output=True,
            timeout=60,
            check=False,
        )
        return done.returncode

    def settle(self) -> None:
        """Wait until both hosts are ready, and the proxy knows it."""
        wait_for(lambda: [host.ask("/readyz") for host in self.hosts] == [200, 200])
        time.sleep(2)  # haproxy believes the second answer


def promoted(cluster: Cluster) -> Node:
    """Promote the standby; return the former primary, which goes on as if nothing had happened."""
    old, new = cluster.primary, cluster.standby
    new.promote()
    cluster.primary, cluster.standby = new, old
    return old
