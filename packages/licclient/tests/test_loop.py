"""An event loop is never held up, neither while it runs nor at its end."""

import asyncio
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from licclient import AsyncLicenseClient, ServiceUnavailable

NOTES_WHERE_HTTPX_IS_LOADED = """
import asyncio, sys, threading
import licclient

class Finder:
    def find_spec(self, name, *_):
        if name == "httpx":
            print(threading.current_thread() is threading.main_thread())

sys.meta_path.insert(0, Finder())

async def main():
    url, folder, key = sys.argv[1:]
    async with licclient.AsyncLicenseClient(url, slug="n", version="1", state_dir=folder) as client:
        await client.download(await client.check_for_update(key), folder)

asyncio.run(main())
"""


def test_a_loop_ends_while_a_name_is_still_looked_up(tmp_path, key, monkeypatch):
    """`asyncio.run` does not wait for the system's resolver, which may take half a minute."""
    over, ended = threading.Event(), []

    def slow(*_: Any, **__: Any):
        over.wait(20)
        ended.append(1)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    client = AsyncLicenseClient("https://licenses.invalid", state_dir=tmp_path, timeout=0.3)
    with pytest.raises(ServiceUnavailable, match="in time"):
        asyncio.run(client.verify(key))
    assert ended == []
    over.set()


def test_httpx_is_not_loaded_in_the_loop(store, tmp_path, key):
    """Importing it takes a third of a second, in which a window would stand still."""
    done = subprocess.run(
        [sys.executable, "-c", NOTES_WHERE_HTTPX_IS_LOADED, store.service.url, str(tmp_path), key],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "False\n", done.stderr
