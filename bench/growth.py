"""What one address can make a server store: ``python -m bench.growth [SECONDS]``.

One address sends as much as its limit allows: whatever writes something, with sold keys, trials and without.
At first it uses up the budgets of a day, new computers and uses; then it goes on for so many seconds. A day
is what the budgets took, and for the rest of it the rate of that time, in which budgets come back.
"""

import argparse
import asyncio
import json
import os
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from bench.servers import free_port, running
from licserver.clock import system_clock
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.security.secrets_file import add_signing_key
from licserver.services.installation import open_services
from licserver.settings import StandaloneSettings

ADDRESS: Final = "203.0.113.7"
DAY: Final = 86_400
MOST: Final = 10_000_000
"""Bytes of a day."""

KEYS: Final = {"few": 2, "full": 1, "unlimited": None, "seats": 1, "uses": 1, "page": 2}
"""Keys by what they are for, with their slots."""

_DATABASE: Final = "licserver.sqlite3"
_LONGEST: Final = 900.0  # seconds in which budgets are used up
_SETTLE: Final = 10.0
_OWN_FORM: Final = {"Sec-Fetch-Site": "same-origin"}


class Growth(NamedTuple):
    """Bytes at the start, when budgets were used up, and at the end; and what was answered how often."""

    seconds: float
    start: int
    used_up: int
    end: int
    answers: Counter[str]

    @property
    def of_a_day(self) -> int:
        """Project the first day, in which the budgets of a day are used up and come back."""
        return round(self.used_up - self.start + max(0, self.end - self.used_up) / self.seconds * DAY)


def measure_size(data: Path) -> int:
    """Return the bytes in the data folder: of the database its used pages, as free ones are used again."""
    with closing(sqlite3.connect(f"file:{data / _DATABASE}?mode=ro", uri=True, timeout=30)) as database:
        pages, free, size = (
            database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    files = (path for path in data.rglob("*") if path.is_file() and not path.name.startswith(_DATABASE))
    return int(pages - free) * int(size) + sum(path.stat().st_size for path in files)


def set_up(data: Path) -> dict[str, Any]:
    """Set up a vendor who wants every event, and a customer; return the keys of that."""
    with closing(open_services(StandaloneSettings(data_dir=data))) as services:
        services.products.add("app", "App", EnvironmentPolicy.STRICT, trial_days=14)
        services.plans.add("app", "pro", {"exports": {"limit": 10**9, "per": "month"}})
        services.webhooks.add("https://hook.example/")
        services.users.add("ann", "four words of a sentence")
        add_signing_key(services.settings, PrivateKey.generate(), system_clock())
        terms: dict[str, Any] = {"plan": "pro", "customer_email": "customer@example.com", "floating_seats": 3}
        keys = {
            name: services.licenses.issue("app", LicenseTerms(slots=slots, **terms))[1]
            for name, slots in KEYS.items()
        }
        for number in range(200):
            services.licenses.issue("app", LicenseTerms(customer_email=f"c{number}@example.com"))
    return keys


class Attacker:
    """One address, with some keys."""

    def __init__(self, session: aiohttp.ClientSession, url: str, keys: dict[str, Any]) -> None:
        self._session, self._url, self._keys = session, url, keys
        self._draw = random.Random(7)  # noqa: S311 - names, and nothing secret
        self.answers: Counter[str] = Counter()

    async def _send(self, method: str, path: str, **more: Any) -> str:
        headers = {"X-Forwarded-For": ADDRESS, **more.pop("headers", {})}
        try:
            async with self._session.request(
                method, self._url + path, headers=headers, allow_redirects=False, **more
            ) as answer:
                text = await answer.text()
                self.answers[f"{path.rpartition('/')[2]} {answer.status}"] += 1
                if answer.status == 429:
                    await asyncio.sleep(0.01)
                return text
        except (OSError, aiohttp.ClientError, TimeoutError) as problem:
            self.answers[type(problem).__name__] += 1
            return ""

    async def _call(self, path: str, **fields: Any) -> str:
        return await self._send("POST", f"/api/v1/{path}", json={"ip": ADDRESS, **fields})

    def _name(self) -> str:
        return f"{self._draw.randbytes(20).hex()}.example"

    def has_used_up(self) -> bool:
        """Return whether new computers and uses are refused."""
        return self.answers["verify 429"] > 0 and self.answers["consume 429"] > 0

    async def verify_and_deactivate(self) -> None:
        """One computer, again and again."""
        for endpoint in ("verify", "deactivate"):
            await self._call(f"licenses/{endpoint}", license_key=self._keys["few"], domain="pc.example")

    async def activate(self) -> None:
        """Ever new computers of a key without a limit."""
        name = self._name()
        await self._call("licenses/verify", license_key=self._keys["unlimited"], domain=name, label="x" * 60)
        await self._call(
            "updates/rolled-back",
            license_key=self._keys["unlimited"],
            slug="app",
            version="1.0",
            domain=name,
        )

    async def be_refused(self) -> None:
        """Ever new computers of a key whose slots are taken."""
        for domain in ("pc.example", self._name()):
            await self._call("licenses/verify", license_key=self._keys["full"], domain=domain)

    async def take_seats(self) -> None:
        """Ever new seats, released at once."""
        seat = self._draw.randbytes(16).hex()
        fields = {"license_key": self._keys["seats"], "domain": "pc.example", "seat": seat}
        await self._call("licenses/seat", **fields)
        await self._call("licenses/seat", **fields, release=True)

    async def use(self) -> None:
        """Ever new uses."""
        fields = {"license_key": self._keys["uses"], "domain": "user.example"}
        if not self.answers["consume 200"]:
            await self._call("licenses/verify", **fields)
        use_id = self._draw.randbytes(16).hex()
        await self._call("licenses/consume", **fields, name="exports", amount=1, use_id=use_id)

    async def start_trials(self) -> None:
        """Ever new machines."""
        machine = self._draw.randbytes(32).hex()
        await self._call("licenses/trial", slug="app", machine=machine, domain=self._name())

    async def ask_for_codes(self) -> None:
        """For customers, and for others."""
        known, unknown = f"c{self._draw.randrange(200)}", self._draw.randbytes(30).hex()
        for email in (f"{known}@example.com", f"{unknown}@example.com"):
            await self._send("POST", "/account/code", data={"csrf": "", "email": email}, headers=_OWN_FORM)

    async def use_the_page(self) -> None:
        """Sign in by key, show the key, free a computer, take back a seat."""
        form = {"csrf": "", "key": self._keys["page"]}
        seat = self._draw.randbytes(16).hex()
        await self._call("licenses/seat", license_key=self._keys["page"], domain=self._name(), seat=seat)
        await self._send("POST", "/account/sign-in", data=form, headers=_OWN_FORM)
        page = await self._send("GET", "/account")
        fields = r'name="csrf" value="([^"]+)"', r'name="license" value="([0-9a-f]{32})"'
        matches = [re.search(pattern, page) for pattern in fields]
        if not all(matches):
            return
        csrf, license_id = (match[1] for match in matches if match)
        base = {"csrf": csrf, "license": license_id}
        await self._send("POST", "/account/key", data=base, headers=_OWN_FORM)
        await self._send("POST", "/account/take-back", data={**base, "seat": seat}, headers=_OWN_FORM)

    async def guess(self) -> None:
        """At keys, at a password, at a shop's secret."""
        await self._call("licenses/verify", license_key="CP-" + "-".join(["ABCDEF"] * 5), domain=self._name())
        form = {"name": self._name(), "password": "x" * 20}
        await self._send("POST", "/console/sign-in", data=form, headers=_OWN_FORM)
        await self._send("POST", "/events/in/shop", data=self._name())
        await asyncio.sleep(5)  # it counts as the codes do, which write more

    async def check_for_updates(self) -> None:
        """Of ever new versions."""
        fields = {"license_key": self._keys["few"], "slug": "app", "domain": "pc.example"}
        fields["current_version"] = f"1.0.{self._draw.randrange(10**6)}"
        await self._send("GET", "/api/v1/updates/check", params=fields)


async def attack(url: str, keys: dict[str, Any], data: Path, seconds: float) -> Growth:
    """Do everything at once for some seconds."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        attacker, gives_up = Attacker(session, url, keys), time.monotonic() + _LONGEST
        ways: list[Callable[[], Awaitable[None]]] = [
            attacker.verify_and_deactivate,
            attacker.activate,
            attacker.be_refused,
            attacker.take_seats,
            attacker.use,
            attacker.start_trials,
            attacker.ask_for_codes,
            attacker.use_the_page,
            attacker.guess,
            attacker.check_for_updates,
        ]
        sizes = [measure_size(data)]
        budgets = [attacker.activate] * 4 + [attacker.use] * 4
        await repeat(budgets, lambda: attacker.has_used_up() or time.monotonic() > gives_up)
        for duration in (seconds / 4, seconds):  # first for what is stored once a day
            await repeat(ways * 2, _when_over(duration))
            await asyncio.sleep(_SETTLE)  # what is written in batches
            sizes.append(measure_size(data))
        start, used_up, end = sizes
        return Growth(seconds, start, used_up, end, attacker.answers)


def _when_over(seconds: float) -> Callable[[], bool]:
    ends = time.monotonic() + seconds
    return lambda: time.monotonic() > ends


async def repeat(ways: Sequence[Callable[[], Awaitable[None]]], is_over: Callable[[], bool]) -> None:
    """Do things side by side, each again and again."""

    async def go_on(do: Callable[[], Awaitable[None]]) -> None:
        while not is_over():
            await do()

    await asyncio.gather(*map(go_on, ways))


def run(seconds: float, **environ: str) -> Growth:
    """Serve a vendor, and attack it."""
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as folder:
        data, port = Path(folder) / "data", free_port()
        keys = set_up(data)
        own = {
            "DATA_DIR": str(data),
            "TRUSTED_PROXIES": "127.0.0.1",
            "ACCOUNT": "true",
            "MAIL_HOST": "127.0.0.1",
            "MAIL_PORT": str(free_port()),  # nobody listens: all mail waits
            "MAIL_TLS": "none",
            "MAIL_SENDER": "shop@example.com",
            "MAIL_ACTIVATIONS": "true",
            **environ,
        }
        prefixed = {f"LICSERVER_{name}": value for name, value in own.items()}
        command = [sys.executable, "-m", "licserver", "serve", "--port", str(port)]
        with running("licserver", command, port, "/healthz", prefixed) as target:
            return asyncio.run(attack(target.url, keys, data, seconds))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="bench.growth", description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=600.0)
    growth = run(parser.parse_args().seconds)
    report = {
        "seconds": growth.seconds,
        "requests": growth.answers.total(),
        "budgets of a day, kB": round((growth.used_up - growth.start) / 1000),
        "then, kB": round((growth.end - growth.used_up) / 1000),
        "projected for a day, MB": round(growth.of_a_day / 1e6, 1),
        "answers": dict(sorted(growth.answers.items())),
        "load": os.getloadavg(),
    }
    print(json.dumps(report, indent=2))
    if growth.of_a_day > MOST:
        raise SystemExit(f"one address makes the server store more than {MOST / 1e6:g} MB a day")


if __name__ == "__main__":
    main()
