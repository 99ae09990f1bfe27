"""Customers who call all the time, and what became of each of their calls."""

import asyncio
import itertools
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

SLOW = 1.0  # seconds
PATIENCE = 10.0
VERIFY = "/api/v1/licenses/verify"


@dataclass
class Stock:
    """Keys, and what is true of them."""

    known: list[str]
    """Each has the environment ``home.example``."""
    revoked: list[str]
    fresh: Iterator[str]
    """Each has one slot, which nobody has taken."""


@dataclass
class Result:
    """The calls during a fault, by outcome; `taken` are the slots that a 200 has confirmed."""

    began: float = field(default_factory=time.monotonic)
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    taken: list[tuple[str, str]] = field(default_factory=list)
    last_failure: float | None = None
    by_kind: dict[str, Counter[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lost: int = 0
    above: int = 0

    @property
    def calls(self) -> int:
        """How many calls there were."""
        return self.outcomes.total()

    @property
    def seconds_of_failures(self) -> float:
        """Seconds from the first call to the last one that failed."""
        return 0.0 if self.last_failure is None else self.last_failure - self.began

    def add(self, kind: str, expected: int, status: int | None, seconds: float) -> None:
        """Count a call; any definite answer but the expected one is wrong."""
        outcome = "right" if status == expected else "wrong"
        if status is None or status == 429 or status >= 500:  # no verdict (D-40)
            outcome = "failed"
            self.last_failure = time.monotonic()
        elif outcome == "wrong":
            self.wrong.append(f"{kind}: {status} in place of {expected}")
        elif seconds > SLOW:
            outcome = "slow"
        self.outcomes[outcome] += 1
        self.by_kind.setdefault(kind, Counter())[outcome] += 1


class Load:
    """Sends `rate` calls a second to an address, each over a connection of its own, and repeats none."""

    def __init__(self, url: str, trust: ssl.SSLContext, stock: Stock, rate: float) -> None:
        self._url, self._trust, self._stock, self._rate = url, trust, stock, rate
        self._result = Result()
        self._end = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Result]:
        """Call during a block; the result is complete after it."""
        self._result, self._end = Result(), threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._call_all()))
        thread.start()
        try:
            yield self._result
        finally:
            self._end.set()
            thread.join()

    async def _call_all(self) -> None:
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        connector = aiohttp.TCPConnector(limit=0, force_close=True, ssl=self._trust)
        numbers = itertools.count()
        async with (
            aiohttp.ClientSession(self._url, connector=connector, timeout=timeout) as session,
            asyncio.TaskGroup() as tasks,
        ):
            due = time.monotonic()
            while not self._end.is_set():
                tasks.create_task(self._call(session, next(numbers)))
                due += 1 / self._rate
                await asyncio.sleep(max(0, due - time.monotonic()))

    async def _call(self, session: aiohttp.ClientSession, number: int) -> None:
        stock = self._stock
        match number % 10:
            case 0 | 1:
                key, domain = next(stock.fresh), f"{number}.example"
                if await self._verify(session, "claim", key, domain, 200) == 200:
                    self._result.taken.append((key, domain))
            case 2:
                if taken := self._result.taken[-20:]:
                    key, _ = taken[number // 10 % len(taken)]
                    await self._verify(session, "claim of a full key", key, "other.example", 403)
            case 3 if number % 20 == 3:
                unknown = "CP-000000-000000-000000-000000-000000"
                await self._verify(session, "unknown key", unknown, f"{number}.example", 404)
            case 3:
                key = stock.revoked[number % len(stock.revoked)]
                await self._verify(session, "revoked key", key, "home.example", 403)
            case 4 | 5:
                key = stock.known[number % len(stock.known)]
                query = {"license_key": key, "slug": "app", "current_version": "1", "domain": "home.example"}
                await self._send(session, "update check", 200, "GET", "/api/v1/update-check", params=query)
            case _:
                key = stock.known[number % len(stock.known)]
                await self._verify(session, "known key", key, "home.example", 200)

    async def _verify(
        self, session: aiohttp.ClientSession, kind: str, key: str, domain: str, expected: int
    ) -> int | None:
        body = {"license_key": key, "domain": domain, "ip": "192.0.2.1"}
        return await self._send(session, kind, expected, "POST", VERIFY, json=body)

    async def _send(
        self, session: aiohttp.ClientSession, kind: str, expected: int, method: str, path: str, **more: Any
    ) -> int | None:
        began, status = time.monotonic(), None
        with suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with session.request(method, path, **more) as answer:
                await answer.read()
                status = answer.status
        self._result.add(kind, expected, status, time.monotonic() - began)
        return status
