"""What an app hangs onto httpx for its own calls never sees a license key, or a link, of ours."""

import logging
from typing import Any

import httpx
import pytest
from stage.flavours import both


@pytest.fixture
def clients_used(monkeypatch):
    """Every use of httpx's clients, which is what an app's instrumentation wraps."""
    used = []

    def note(*given: Any, **options: Any):
        used.append((given, options))

    for kind in (httpx.Client, httpx.AsyncClient):
        monkeypatch.setattr(kind, "__init__", note)
        monkeypatch.setattr(kind, "send", note)
    return used


@both
async def test_instrumentation_sees_nothing(client, store, folder, key, clients_used, caplog, service):
    """Neither wrapped clients, nor hooks, nor the logs of httpx and httpcore learn of a call."""
    caplog.set_level(logging.DEBUG)
    update = (await client.check_for_update(key)).update
    await client.download(update, folder, key=key)
    service.grants()
    await client.verify(key)
    targets = [request.target for request in service.requests]
    links = [target for target in targets if "update-download" in target]
    assert any(key in target for target in targets)
    assert links
    assert clients_used == []
    assert not [word for word in (key, *links) if word in caplog.text]
