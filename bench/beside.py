"""What a customer notices of the vendor's heavy work: ``python -m bench.beside``, on request.

Five hundred verifies a second, sent when they are due and not when the last one is answered, first alone and
then beside an import of 100,000 keys and a backup. Their 99th percentile is to stay within three times of
its own.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import databases
from bench.load import verify_request
from bench.servers import free_port
from bench.stock import DOMAIN, SLUG

_CONNECTIONS = 32
_LICENSES = 100_000


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="bench.beside", description=__doc__)
    parser.add_argument("--rate", type=int, default=500, help="verifies a second")
    parser.add_argument("--keys", type=int, default=100_000, help="keys to import")
    parser.add_argument("--seconds", type=float, default=15, help="how long the verifies are alone")
    parser.add_argument("--postgresql", action="store_true", help="on PostgreSQL instead of SQLite")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-beside-") as name:
        folder = Path(name)
        if options.postgresql:
            with databases.postgresql(None) as postgres:
                asyncio.run(_measure(postgres.stocked(folder, _LICENSES), folder, options))
        else:
            asyncio.run(_measure(databases.sqlite(folder, _LICENSES), folder, options))


async def _measure(stocked: databases.Stocked, folder: Path, options: argparse.Namespace) -> None:
    environ = {**os.environ, "LICSERVER_DATA_DIR": str(stocked.data_dir), **stocked.environ}
    program, port = [sys.executable, "-m", "licserver"], free_port()
    keys = folder / "new.jsonl"
    with keys.open("w") as file:
        for number in range(options.keys):
            file.write(f'{{"product": "{SLUG}", "note": "customer {number}"}}\n')
    server = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs yet
        [*program, "serve", "--port", str(port)], env=environ, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    server.stdout.readline()
    try:
        load = _Load(port, stocked, options.rate)
        await load.run(lambda: asyncio.sleep(3))  # warm up
        alone = await load.run(lambda: asyncio.sleep(options.seconds))

        async def import_keys() -> None:
            await _finish([*program, "import", str(keys)], environ)

        async def back_up() -> None:
            await _finish([*program, "backup", str(folder / "all.backup")], environ)

        beside_import = await load.run(import_keys)
        beside_backup = await load.run(back_up)
    finally:
        server.terminate()
        server.wait(60)
    for what, (seconds, took, bad) in {
        "alone": alone,
        f"import of {options.keys:,} keys": beside_import,
        "backup": beside_backup,
    }.items():
        took.sort()
        p50, p99 = (took[int(len(took) * part)] * 1000 for part in (0.5, 0.99))
        print(f"{what:26} {seconds:5.1f} s  {len(took):6} verifies, {bad} bad, {p50:6.2f} / {p99:6.2f} ms")


async def _finish(command: list[str], environ: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, err = await process.communicate()
    if process.returncode:
        raise SystemExit(err.decode())


class _Load:
    """Verifies at a steady rate; who waits for a connection waits on the clock, too."""

    def __init__(self, port: int, stocked: databases.Stocked, rate: int) -> None:
        self._port, self._stocked, self._rate = port, stocked, rate

    async def run(self, until: Callable[[], Awaitable[None]]) -> tuple[float, list[float], int]:
        """Send until something is done; gives its seconds, those of each verify, and how many were bad."""
        due: asyncio.Queue[float] = asyncio.Queue()
        took: list[float] = []
        bad = 0
        chosen = random.Random(1)  # noqa: S311 - which key comes next

        async def send() -> None:
            nonlocal bad
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            while (at := await due.get()) >= 0:
                key = chosen.choice(self._stocked.keys)
                writer.write(verify_request(f"127.0.0.1:{self._port}", "", key, DOMAIN, close=False))
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                bad += body.get("valid") is not True
                took.append(time.perf_counter() - at)
            writer.close()

        async def tick() -> None:
            begin, number = time.perf_counter(), 0
            while not done.done():
                number += 1
                await asyncio.sleep(max(0.0, begin + number / self._rate - time.perf_counter()))
                due.put_nowait(begin + number / self._rate)

        began = time.perf_counter()
        senders = [asyncio.create_task(send()) for _ in range(_CONNECTIONS)]
        done = asyncio.ensure_future(until())
        await tick()
        await done
        seconds = time.perf_counter() - began
        for _ in senders:
            due.put_nowait(-1)
        await asyncio.gather(*senders)
        return seconds, took, bad


if __name__ == "__main__":
    main()
