"""What a frozen app needs: PyInstaller, and a vendor behind TLS."""

import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trustme

from harness.programs import environment
from harness.world import MovableClock, Server, World
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.security.secrets_file import format_signing_key, new_secrets


def freeze(folder: Path, *arguments: str) -> Path:
    """Run PyInstaller in a folder, with a home of its own; returns the folder with what came of it."""
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "ERROR", *arguments]
    home = environment(folder / "home", PYINSTALLER_CONFIG_DIR=str(folder / "cache"))
    subprocess.run(command, cwd=folder, env=home, check=True, timeout=600)
    return folder / "dist"


def lay_out_starts(folder: Path) -> None:
    """Put what `starts.spec` freezes into a folder: an app, the page's launcher, and an older one."""
    root = Path(__file__).parents[2]
    for name in ("starts.py", "starts.spec", "old_launcher.py"):
        shutil.copy(root / "tests" / "frozen" / name, folder)
    page = (root / "docs" / "app" / "updates.md").read_text("utf-8")
    shown = re.search(r"<!-- launcher -->\n```python\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    (folder / "launcher.py").write_text(shown[1], "utf-8")
    (folder / "version.txt").write_text("1.0.0 works", "utf-8")


@dataclass
class Shop:
    """A vendor behind TLS; `pinned` is the key that its apps pin, `authority` the file of its CA."""

    world: World
    server: Server
    url: str
    key: str = field(repr=False)
    pinned: str
    authority: Path


@contextmanager
def shop_over_tls(folder: Path, product: dict[str, Any]) -> Iterator[Shop]:
    """Serve a shop that signs its answers, for a block; its clock is the real one when it opens."""
    clock = MovableClock(datetime.now(UTC))
    signing = SigningKey(PrivateKey.generate(), clock())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"https://localhost:{port}"
    secrets = json.dumps({**new_secrets(), "signing_keys": [format_signing_key(signing)]})
    world = World(folder / "world", clock, secrets=secrets, base_url=url)
    world.stock({"products": [product], "licenses": []})
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    known = folder / "authority.pem"
    authority.cert_pem.write_to_path(str(known))
    with world.serving(port, tls) as server:
        yield Shop(world, server, url, world.new_key(product["slug"]), signing.private.public.text, known)
    world.close()
