"""Secrets for links are rotated by command, under a running server and under several workers (D-66)."""

import json
import os
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest

from harness.fetching import fetch
from licserver.security.link_secrets import LOOK_EVERY, rotate
from licserver.settings import Settings

SECOND = timedelta(seconds=1)


def test_the_commands_show_no_secret(cli):
    """`secret rotate` and `secret list` tell ids and instants."""
    shown = cli("secret", "rotate") + cli("secret", "list") + cli("secret", "list", "--json")
    assert "a rotation is under way already" in cli("secret", "rotate", expect=2)
    held = json.loads((cli.folder / "secrets.json").read_text())
    assert all(link["id"] in shown for link in held["link_secrets"])
    assert not any(link["secret"] in shown for link in held["link_secrets"])
    rows = json.loads(cli("secret", "list", "--json"))
    assert [row["signs"] for row in rows] == [False, True]


async def test_a_download_across_a_rotation(site, world, clock):
    """A running server: old links and new ones give the file; a leaked secret takes its links along."""
    world.publish("1.0", b"content")
    key = world.key()
    old = await site.link(key)
    rotate(world.settings, clock.now)
    clock.forward(minutes=2)
    new = await site.link(key)
    assert old.split("key=")[1][:8] != new.split("key=")[1][:8]
    for link in (old, new):
        assert (await site.call("GET", link))[::2] == (200, b"content")
    rotate(world.settings, clock.now, leaked=True)
    clock.forward(seconds=5)
    assert (await site.call("GET", new))[0] == 403
    assert (await site.call("GET", await site.link(key)))[0] == 200


@pytest.mark.slow  # the new secret signs only when every process must have seen it
@pytest.mark.skipif(os.name == "nt", reason="there are no workers on Windows")
def test_workers_take_a_new_secret_up_while_customers_download(program, tmp_path):
    """Two processes on one socket: what one hands out the other reads, before, during and after."""
    file = tmp_path / "app.zip"
    file.write_bytes(b"content")
    (key,) = program.stock(file=file, policy="domain")
    query = {"license_key": key, "slug": "app"}
    query |= {"current_version": "0", "domain": "a.example"}

    def link(url):
        update = json.loads(fetch(f"{url}/api/v1/update-check?{urlencode(query)}")[1])
        return update["download_url"]

    with program.serve("--workers", "2") as (_, url):
        old = link(url)
        settings = Settings(data_dir=program.folder)
        lead = LOOK_EVERY + 10 * SECOND  # a busy disk may take some of it to write the file
        [new, _] = rotate(settings, datetime.now(UTC), lead=lead)
        deadline = time.monotonic() + 60
        signed_by_the_new_one = 0
        while signed_by_the_new_one < 20:
            found = link(url)
            signed_by_the_new_one += f"key={new.id}" in found
            for address in (found, old):
                assert fetch(address)[1] == b"content"
            assert time.monotonic() < deadline
