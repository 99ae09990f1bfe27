"""What an app hangs onto httpx for its own calls never sees a license key, or a link, of ours."""

import logging
from typing import Any

import httpx
import pytest
from stage.flavours import both


@pytest.fixture
def seen(monkeypatch):
    """Every word that the instrumentation of an app could write down."""
    words = []

    def note(one):
        words.append(f"{one.method} {one.url} {one.headers} {one.extensions} {one.content!r}")

    plain_send, plain_init = httpx.Client.send, httpx.Client.__init__
    plain_async_send, plain_async_init = httpx.AsyncClient.send, httpx.AsyncClient.__init__

    def send(self, request, stream):  # as the httpx integration of sentry does
        note(request)
        response = plain_send(self, request, stream=stream)
        note(request)
        note(response.request)
        words.append(f"{response.url} {response!r} {vars(response)}")
        return response

    def init(self, **options: Any):
        hooks = {"request": [note], "response": [lambda response: note(response.request)]}
        plain_init(self, **{**options, "event_hooks": hooks})

    async def async_send(self, request, stream):
        note(request)
        response = await plain_async_send(self, request, stream=stream)
        note(response.request)
        words.append(f"{response.url} {response!r} {vars(response)}")
        return response

    async def async_note(request):
        note(request)

    def async_init(self, **options: Any):
        plain_async_init(self, **{**options, "event_hooks": {"request": [async_note]}})

    monkeypatch.setattr(httpx.Client, "send", send)
    monkeypatch.setattr(httpx.Client, "__init__", init)
    monkeypatch.setattr(httpx.AsyncClient, "send", async_send)
    monkeypatch.setattr(httpx.AsyncClient, "__init__", async_init)
    return words


@both
async def test_instrumentation_sees_the_endpoint_only(client, store, folder, key, seen, caplog, service):
    """Wrapped clients, hooks and httpx's own log learn that there was a call, and not what was asked."""
    caplog.set_level(logging.DEBUG)
    update = await client.check_for_update(key)
    await client.download(update, folder)
    service.grants()
    await client.verify(key)
    told = "\n".join([*seen, caplog.text])
    assert "GET http://127.0.0.1" in told
    assert "/api/v1/update-check" in told
    assert "/api/v1/licenses/verify" in told
    asked = [request.target for request in service.requests]
    links = [target for target in asked if "update-download" in target]
    assert any(key in target for target in asked)
    assert links
    assert not [word for word in (key, *links) if word in told]


async def test_what_instrumentation_adds_goes_nowhere(client, service, key, monkeypatch):
    """Headers that trace an app's own calls are not told to the license service."""
    plain_send = httpx.Client.send

    def send(self, request, stream):
        request.headers["baggage"] = "of=the-app"
        return plain_send(self, request, stream=stream)

    monkeypatch.setattr(httpx.Client, "send", send)
    service.grants()
    await client.verify(key)
    assert "baggage" not in service.requests[0].headers
