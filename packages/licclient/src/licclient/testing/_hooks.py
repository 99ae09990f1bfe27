"""Leads every client of the process to a fake service, for a while. Beside `_transport` this names httpx.

What is replaced are the client's own edges (HTTP, state folder, keyring, clock), and they are replaced where
they are used, not where clients are made: so an app's client that was made at import is led here as well.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx

from licclient import _doctor, _keyring, _transport
from licclient._async_client import AsyncLicenseClient
from licclient._client import LicenseClient
from licclient._flows import background
from licclient._flows.context import Context
from licclient._model import Settings
from licclient._protocol.requests import Call
from licclient._records import Document
from licclient._signatures.public_keys import PublicKey
from licclient._storage import StateFolder
from licclient._typed_key import mask_key
from licclient._worker import AsyncWorker, Worker
from licclient.testing import _signing
from licclient.testing._clock import LicenseClock
from licclient.testing._service import LicenseService
from licclient.testing._told import Answer, NoResponseError


@contextmanager
def fake_service(clock: LicenseClock | None = None) -> Iterator[LicenseService]:
    """Put a fake in the place of every license service, for a block.

    Args:
        clock: What the service and all clients take for the time; None for a new `LicenseClock`.

    Yields:
        The service.
    """
    clock = clock or LicenseClock()
    service = LicenseService(clock)
    state = _State(service)

    def led_here(transport: Any) -> _transport.Http:
        settings: Settings = transport._settings  # noqa: SLF001 - it is ours
        mock = httpx.MockTransport(lambda request: _respond(service, request, settings, clock()))
        return _transport.Http(lambda _proxy: mock, "licclient", settings.timeout.total_seconds())

    workers: list[Worker | AsyncWorker] = []

    def noting(start: Callable[..., Any]) -> Callable[..., Any]:
        def noted(client: Any, **options: Any) -> Any:
            workers.append(worker := start(client, **options))
            return worker

        return noted

    with ExitStack() as stack:
        for where, name, stand_in in (
            # A property goes before what an instance holds already, such as a connection to the real service.
            (_transport.Transport, "_http", property(led_here)),
            (_transport, "own_ip", lambda _server: "127.0.0.1"),
            (StateFolder, "load", state.load),
            (StateFolder, "change", state.change),
            (StateFolder, "folder", lambda _folder: None),
            (LicenseClient, "start", noting(LicenseClient.start)),
            (AsyncLicenseClient, "start", noting(AsyncLicenseClient.start)),
            (PublicKey, "verify", _signing.check),
            (_keyring, "store", lambda _account, _key: False),
            (_keyring, "fetch", lambda _account: None),
            (_keyring, "drop", lambda _account: None),
            # A report for support looks at this computer, its name server and its network.
            (_keyring, "describe", lambda: _NOT_LOOKED),
            (_doctor, "_name", _unseen("name")),
            (_doctor, "_proxy", _unseen("proxy")),
            (_doctor, "_tls", _unseen("tls")),
            (_doctor, "_folder", _unseen("state folder")),
            # A worker looks at the clock so often that it keeps up with a test that moves it.
            (background, "SLICE", 0.02),
            (background, "LEAST_PAUSE", 0.02),
            (background, "ASLEEP", timedelta.max),  # whoever moves the clock means that time passes
            (
                Context,
                "now",
                property(lambda _: clock, lambda context, given: vars(context).update(now=given)),
            ),
        ):
            stack.enter_context(patch.object(where, name, stand_in, create=where is Context))
        try:
            yield service
        finally:
            for worker in workers:  # none may outlive the fake, and go on with the real service
                worker.stop() if isinstance(worker, Worker) else worker.cancel()


_NOT_LOOKED: Final = "not looked at: this is a test"


def _unseen(name: str) -> Callable[..., Iterator[_doctor.Finding]]:
    return lambda *_: iter([_doctor.Finding(name, None, _NOT_LOOKED)])


class _State:
    """What the computer remembers, in memory: one set of records for each state folder."""

    def __init__(self, service: LicenseService) -> None:
        self._service = service
        self._folders: dict[Path | None, dict[str, Document]] = {}
        self._found: dict[str, Document] = {}

    @property
    def load(self) -> Callable[[StateFolder, str], Document | None]:
        """In the place of `StateFolder.load`."""

        def load(folder: StateFolder, name: str) -> Document | None:
            return self._load(folder, name)

        return load  # a function, so that as a class's attribute it is handed the folder

    @property
    def change(self) -> Callable[..., Document | None]:
        """In the place of `StateFolder.change`."""

        def change(folder: StateFolder, name: str, edit: Any) -> Document | None:
            before = self._load(folder, name)
            after: Document | None = edit(before)
            records = self._records(folder)
            if after is None:
                records.pop(name, None)
                if before is not None and name.startswith("activation-"):
                    self._service.activated_key = None
            else:
                records[name] = after
            return after

        return change

    def _records(self, folder: StateFolder) -> dict[str, Document]:
        return self._folders.setdefault(folder._given, {})  # noqa: SLF001 - it is ours

    def _load(self, folder: StateFolder, name: str) -> Document | None:
        key = self._service.activated_key
        known = self._records(folder).get(name)
        if known is not None or key is None or not name.startswith("activation-"):
            return known
        found = {"hint": mask_key(key), "domain": "", "license": "", "key": key}
        if self._found.get(name) != found:
            self._found[name] = found
        return self._found[name]


def _respond(
    service: LicenseService, request: httpx.Request, settings: Settings, now: datetime
) -> httpx.Response:
    try:
        answer = service.answer(request.method, str(request.url), request.headers, request.content)
    except NoResponseError as silence:
        if silence.slow:
            raise httpx.ReadTimeout("the fake service is slow", request=request) from None
        raise httpx.ConnectError("the fake service is offline", request=request) from None
    headers = dict(request.headers)
    call = Call(request.method, str(request.url), headers, request.content, max_bytes=0)
    answer = _signing.signed(answer, call, settings, now)
    return httpx.Response(answer.status, headers=dict(answer.headers), stream=_Body(answer))


class _Body(httpx.SyncByteStream):
    """A body that may break off."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        yield self._answer.body[: self._answer.cut_at]
        if self._answer.cut_at is not None:
            raise httpx.ReadError("the fake service cut the connection")
