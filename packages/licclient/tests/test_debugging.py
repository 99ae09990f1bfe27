"""Python's own debugging, all of it switched on, shows no license key: what an app's developer would mail."""

import itertools
import os
import subprocess
import sys

import pytest
from stage.scripts import http

APP = """
import asyncio, faulthandler, logging, sys, traceback
import licclient, licclient._core.pace

licclient._core.pace.RETRY_SECONDS = 0.001
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
url, key, folder = sys.argv[1:]
options = {"slug": "notes", "version": "1.0", "timeout": 5}

def report(problem):
    traceback.print_exception(problem)
    print(repr(problem), vars(problem), repr(problem.__cause__), repr(problem.__context__), file=sys.stderr)

with licclient.LicenseClient(url, storage=f"{folder}/sync", **options) as client:
    for _ in range(4):
        try:
            client.activate(key)
        except licclient.LicclientError as problem:
            report(problem)
        print(client, client.check_for_update(key, force=True).update, client.status(), file=sys.stderr)

async def main():
    asyncio.get_running_loop().slow_callback_duration = 0
    async with licclient.AsyncLicenseClient(url, storage=f"{folder}/async", **options) as client:
        for _ in range(4):
            task = asyncio.create_task(client.activate(key))
            await asyncio.sleep(0)
            print(task, file=sys.stderr)
            task.print_stack()
            try:
                await task
            except licclient.LicclientError as problem:
                report(problem)
            print(client, task, (await client.check_for_update(key, force=True)).update, file=sys.stderr)

asyncio.run(main(), debug=True)
faulthandler.dump_traceback()
"""


@pytest.mark.slow
def test_with_all_of_pythons_debugging_no_key_is_shown(service, key, tmp_path):
    """`-X dev`, asyncio's debug mode, loggers at DEBUG, tracebacks, reprs; whatever the service says."""
    answers = itertools.cycle(
        [
            http(200, {"valid": True, "product": "Notes", "expiry": None, "lifetime": False}),
            http(302, b"", Location=f"https://elsewhere.example/?license_key={key}"),
            http(403, {"valid": False, "reason": f"{key.lower()}, that is {key[:20]}, is none."}),
            f"rubbish {key}\r\n\r\n".encode(),
            f"HTTP/1.1 200 {key}\r\nContent-Length: {key}\r\n\r\n".encode(),
        ]
    )
    service.script = lambda _: next(answers)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", APP, service.url, key, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONASYNCIODEBUG": "1"},
    )
    printed = (done.stdout + done.stderr).upper()
    assert "EXECUTING <TASK" in printed
    assert "LICENSEREFUSED" in printed
    assert "SERVICEUNAVAILABLE" in printed
    assert key[:16] not in printed
