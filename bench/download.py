"""A download by licclient, hashed and verified, beside ``curl`` alone: ``python -m bench.download --help``.

One server on loopback, one file; the programs take turns, each in a process of its own, on the same disk.
The time of `licclient` is that of the call itself, as an app that is running pays it; `curl`'s is its own
``time_total``. A ratio is made within one round. The digest that every run gives is compared.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Final

from aiohttp import web

from bench.servers import Target, free_port, running

MIB: Final = 1024 * 1024
KEY: Final = "CP-BENCH1-BENCH1-BENCH1-BENCH1-BENCH1"

_CLIENT: Final = """
import asyncio, json, sys, time
from licclient import AsyncLicenseClient, LicenseClient
flavour, url, folder, key = sys.argv[1:]
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])  # KiB, on Linux
now = lambda: (time.perf_counter(), time.process_time(), peak())
options = dict(slug="bench", version="1.0", storage=folder + "/state")

def report(before, done):
    print(json.dumps([*(after - was for after, was in zip(now(), before)), done.sha256]))

def sync():
    with LicenseClient(url, **options) as client:
        update = client.check_for_update(key, force=True).update
        before = now()
        report(before, client.download(update, folder))

async def twin():
    async with AsyncLicenseClient(url, **options) as client:
        update = (await client.check_for_update(key, force=True)).update
        before = now()
        report(before, await client.download(update, folder))

sync() if flavour == "sync" else asyncio.run(twin())
"""


def main() -> None:
    """Measure, and print a table."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="bench-download-") as temporary:
        folder = Path(temporary)
        digest = _make_file(folder / "served.bin", options.mebibytes)
        port = free_port()
        command = [
            sys.executable,
            "-m",
            "bench.download",
            "--serve",
            str(port),
            str(folder / "served.bin"),
            digest,
        ]
        with running("files", command, port, "/", {}) as target:
            runs = _rounds(target, folder, digest, options.rounds)
    print(f"{options.mebibytes} MiB on loopback, {options.rounds} rounds: medians and lowest\n")
    print(
        "| | seconds | of curl | processor seconds | of curl | memory grows by |\n|---|---|---|---|---|---|"
    )
    for name, measured in runs.items():
        cells = []
        for figure in range(2):
            values = [run[figure] for run in measured]
            ratios = [run[figure] / curl[figure] for run, curl in zip(measured, runs["curl"], strict=True)]
            cells += [
                f"{statistics.median(numbers):.2f} ({min(numbers):.2f})" for numbers in (values, ratios)
            ]
        print(f"| {name} | {' | '.join(cells)} | {max(run[2] for run in measured) / 1024:.1f} MiB |")


Run = tuple[float, float, int]
"""Seconds, processor seconds, and KiB by which the peak of memory has grown."""


def _rounds(target: Target, folder: Path, digest: str, rounds: int) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {name: [] for name in ("curl", "sync", "async")}
    for number in range(rounds + 1):  # the first warms up
        for name, measured in runs.items():
            to = folder / "to"
            shutil.rmtree(to, ignore_errors=True)
            to.mkdir()
            run = _curl(target.url, to) if name == "curl" else _client(name, target.url, to, digest)
            if number:
                measured.append(run)
    return runs


def _curl(url: str, to: Path) -> Run:
    before = _children()
    command = ["curl", "-s", "-o", str(to / "file"), "-w", "%{time_total}", f"{url}/file"]
    seconds = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return seconds, _children() - before, 0


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _client(flavour: str, url: str, to: Path, digest: str) -> Run:
    command = [sys.executable, "-c", _CLIENT, flavour, url, str(to), KEY]
    # With bytecode, as an app is installed.
    environ = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(to.parent / "bytecode"),
    }
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    seconds, processor, grown, downloaded = json.loads(done.stdout)
    assert downloaded == digest
    return seconds, processor, grown


def _make_file(path: Path, mebibytes: int) -> str:
    digest = sha256()
    with path.open("wb") as file, Path("/dev/urandom").open("rb") as noise:
        for _ in range(mebibytes):
            block = noise.read(MIB)
            file.write(block)
            digest.update(block)
    return digest.hexdigest()


def _serve(port: int, path: str, digest: str) -> None:
    """Serve the file, and an update check that offers it, as the service does."""
    promised = f"sha-256=:{b64encode(bytes.fromhex(digest)).decode()}:"

    async def check(_: web.Request) -> web.Response:
        offer = {"name": "Bench", "slug": "bench", "version": "2.0", "sections": {"changelog": ""}}
        when = {"last_updated": "2026-11-20 10:11:12", "requires": None, "tested": None}
        return web.json_response({**offer, **when, "download_url": f"http://127.0.0.1:{port}/file"})

    async def file(_: web.Request) -> web.FileResponse:
        return web.FileResponse(path, headers={"Repr-Digest": promised})

    app = web.Application()
    app.add_routes([web.get("/api/v1/update-check", check), web.get("/file", file)])
    web.run_app(app, host="127.0.0.1", port=port, print=None)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.download", description="A download beside curl alone.")
    parser.add_argument("--mebibytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", nargs=3, metavar=("PORT", "FILE", "SHA256"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        port, path, digest = options.serve
        _serve(int(port), path, digest)
        raise SystemExit
    return options


if __name__ == "__main__":
    main()
