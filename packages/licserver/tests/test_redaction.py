"""Keys and secrets are masked in whatever is written: logs, complaints, crashes, reprs, JSON."""

import json
import os
import secrets
import subprocess
import sys
from base64 import b64encode

import pytest

from harness.engines import sqlite_only
from harness.fetching import fetch
from licserver.domain.decisions import generate_license_key, is_license_key, mask_key
from licserver.protocol.downloads import LinkSecret
from licserver.protocol.public_api import parse_update_check, parse_verify
from licserver.security.secrets_file import new_secrets, read_vault

SECRET = b64encode(bytes(range(100, 132))).decode()


def leaves(value):
    """Every text within a value."""
    match value:
        case dict():
            return [text for part in value.values() for text in leaves(part)]
        case list() | tuple():
            return [text for part in value for text in leaves(part)]
        case _:
            return [str(value)]


@sqlite_only
def test_no_record_shows_a_key_or_a_secret(make_world):
    """Everything that holds one can be printed: settings, vault, calls, licenses, applications."""
    held = new_secrets()
    world = make_world(secrets=json.dumps(held), redis_url="redis://:hunter2@127.0.0.1:1/0", miss_limit=0)
    key = world.key()
    body = json.dumps({"license_key": key, "domain": "a.example", "ip": "::1"}).encode()
    shown = [
        world.settings,
        world.services,
        world.services.vault,
        world.services.vault.link_secrets,
        read_vault(json.dumps(held), "test"),
        LinkSecret("a", secrets.token_bytes(32)),
        parse_verify(body),
        parse_update_check(f"license_key={key}&slug=app&current_version=1&domain=a.example"),
        world.services.licenses.get(key),
        list(world.services.licenses.list_all()),
        vars(world.services),
    ]
    text = "\n".join(f"{thing!r} {thing!s}" for thing in shown)
    raw = [value for value in leaves(held) if len(value) > 20]
    assert len(raw) == 3
    assert not [value for value in [key, "hunter2", *raw] if value in text]
    assert world.services.vault.index_secret.hex() not in text
    assert repr(world.services.vault.index_secret)[2:-1] not in text


WRONG = [  # arguments in whose place a key may be typed
    ("product", "add", "{key}", "--name", "x"),
    ("product", "rename", "{key}", "--name", "x", "--yes"),
    ("product", "add", "x", "--name", "x", "--environment", "{key}"),
    ("release", "list", "{key}"),
    ("release", "withdraw", "app", "{key}"),
    ("release", "publish", "app", "1.0", "{key}"),
    ("release", "publish", "app", "{key}", "{file}"),
    ("license", "issue", "{key}"),
    ("license", "issue", "app", "--slots", "{key}"),
    ("license", "issue", "app", "--expires", "{key}"),
    ("license", "show", "x{key}"),
    ("license", "show", "{unknown}"),
    ("license", "revoke", "{unknown}"),
    ("license", "deactivate", "{key}", "{key}"),
    ("license", "{key}"),
    ("{key}",),
    ("subscription", "end", "{key}"),
    ("serve", "--port", "{key}"),
    ("license", "show", "{key}", "--data-dir", "{file}"),
]


@pytest.mark.sampled(9)
@sqlite_only
@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_a_key_in_the_wrong_place_is_not_repeated(cli, tmp_path, arguments):
    """What is typed where it does not belong is complained of, masked, in a terminal that may be shared."""
    cli("product", "add", "app", "--name", "My App")
    (tmp_path / "file").write_text("")
    key = cli("license", "issue", "app").strip()
    given = [
        part.format(key=key, unknown=generate_license_key(), file=tmp_path / "file") for part in arguments
    ]
    complaint = cli(*given, expect=2)
    assert not any(is_license_key(word.strip("'\".,:;x")) for word in complaint.split()), complaint
    assert key not in complaint


@pytest.mark.slow
@sqlite_only
def test_json_shows_keys_only_to_who_asks_for_them(cli, tmp_path):
    """Every command masks keys, for people and as JSON, and never prints a secret."""
    (tmp_path / "app.zip").write_bytes(b"zip")
    cli("product", "add", "app", "--name", "My App", "--json")
    key = json.loads(cli("license", "issue", "app", "--subscription", "s1", "--json"))["license_keys"][0]
    printed = [
        cli(*command, "--json")
        for command in (
            ("product", "list"),
            ("release", "publish", "app", "1.0", str(tmp_path / "app.zip")),
            ("release", "list", "app"),
            ("license", "list"),
            ("license", "show", key),
            ("license", "allow", key, "a.example"),
            ("license", "revoke", key),
            ("license", "reinstate", key),
            ("subscription", "end", "s1"),
            ("db", "status"),
            ("db", "check"),
        )
    ]
    people = (("show", key), ("list",), ("allow", key, "b.example"), ("revoke", key), ("reinstate", key))
    outputs = [cli("license", *command) for command in people]
    assert all(mask_key(key) in text for text in outputs)
    printed += outputs
    held = [
        value for value in leaves(json.loads((cli.folder / "secrets.json").read_text())) if len(value) > 20
    ]
    assert not [text for text in printed for secret in (key, *held) if secret in text]
    assert mask_key(key) in printed[3]
    assert json.loads(cli("license", "show", key, "--reveal", "--json"))["license_key"] == key


@sqlite_only
def test_a_crash_is_printed_in_full_and_masked(cli, monkeypatch):
    """What nobody foresaw ends in a traceback that can be mailed around, and in exit code 1."""
    key = generate_license_key()

    def burst(*_: object) -> None:
        raise ZeroDivisionError(f"{key} {SECRET}")

    monkeypatch.setattr("licserver.services.products.ProductService.list_all", burst)
    report = cli("product", "list", expect=1)
    assert report.startswith("Traceback")
    assert f"ZeroDivisionError: {mask_key(key)} …" in report


PAST_THE_LOG = """
import logging, sys, threading, warnings
from licserver.runtime.logging import set_up_logging

class Odd:
    def __del__(self):
        raise ValueError(f"unraisable {sys.argv[1]}")

def burst():
    raise ValueError(f"thread {sys.argv[1]}")

set_up_logging()
thread = threading.Thread(target=burst)
thread.start()
thread.join()
odd = Odd()
del odd
warnings.warn(f"warning {sys.argv[1]}")
logging.getLogger("x").error("%s, %s", sys.argv[1])
logging.getLogger("x").error("after all, %s", sys.argv[1])
"""


@pytest.mark.slow
def test_what_python_prints_past_the_log_is_masked_too():
    """Threads that die, exceptions in destructors, warnings, the report of a line that cannot be logged."""
    key = generate_license_key()
    command = [sys.executable, "-X", "dev", "-c", PAST_THE_LOG, key]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    printed = done.stdout + done.stderr
    assert key not in printed
    for what in ("unraisable", "thread", "warning", "after all,"):
        assert f"{what} {mask_key(key)}" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    "workers",
    [
        "1",
        pytest.param(
            "2", marks=[pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="workers need fork")]
        ),
    ],
)
def test_what_the_server_prints_shows_no_key(program, workers):
    """With an access log and keys in every part of an address, no line contains a key."""
    (key,) = program.stock()
    program.environ["LICSERVER_ACCESS_LOG"] = "true"
    with program.serve("--workers", workers) as (process, address):
        headers = {"User-Agent": key, "Referer": f"http://x/?{key}", "X-Forwarded-For": key}  # often logged
        for path in (
            f"/api/v1/update-check?license_key={key}&slug=app&current_version=1&domain=x",
            f"/{key}",
            f"/{key.replace('-', '%2D')}?x={key}",
            f"/api/v1/update-download?{key}",
        ):
            fetch(address + path, headers=headers)
        process.terminate()
        _, printed = process.communicate(timeout=30)
    assert printed.count("GET /") == 4
    assert mask_key(key) in printed
    assert key not in printed
    assert key.replace("-", "%2D") not in printed
