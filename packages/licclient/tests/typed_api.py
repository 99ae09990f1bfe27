"""Never run: what type checkers must make of the public API. `nox -s types` shows it to mypy and pyright.

A line with `type: ignore` must be an error; both checkers complain about an ignore that is not needed.
"""

import tkinter as tk
from collections.abc import Callable, Coroutine
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from PySide6.QtWidgets import QWidget

import licclient.dialogs.qt
import licclient.dialogs.tk as tk_dialogs
from licclient import (
    AsyncLicenseClient,
    ClientSettings,
    Downloaded,
    LicclientError,
    License,
    LicenseClient,
    LicenseState,
    LicenseStatus,
    Pages,
    Reason,
    Source,
    Trust,
    Update,
    UpdateCheck,
    Updates,
    explain,
)
from licclient.errors import KeyFlaw, LicenseRefusedError, MistypedKeyError
from licclient.install import Installation, Installed
from licclient.testing import LicenseClock, LicenseService, MemoryStorage
from licclient.types import (
    AsyncSeat,
    AsyncWorker,
    Clock,
    Computer,
    ComputerList,
    EntitlementValue,
    Seat,
    Worker,
)


def constructors(settings: ClientSettings) -> None:
    """Settings, with options beside them or alone."""
    assert_type(LicenseClient(settings), LicenseClient)
    assert_type(AsyncLicenseClient(settings, version="2.0", clock=None), AsyncLicenseClient)
    LicenseClient("https://x.example", updates=Updates(channels=["beta"], check_every=50_000), timeout=5)
    LicenseClient(settings, trust=Trust(grace=timedelta(days=7)), pages=Pages(buy="https://x.example/buy"))
    LicenseClient("https://x.example", storage="folder")
    LicenseClient("https://x.example", storage=MemoryStorage())
    LicenseClient("https://x.example", grace=0)  # type: ignore[call-overload]
    Trust(graze=0)  # type: ignore[call-arg]
    Updates(channels="beta", platform=7)  # type: ignore[arg-type]


def names_for_annotations(clock: Clock, license_: License) -> EntitlementValue | None:
    """An app can name what it passes on."""
    LicenseClient("https://licenses.example.com", clock=clock)
    return license_.entitlements.get("exports")


def synchronous(client: LicenseClient, update: Update) -> None:
    """The synchronous client."""
    assert_type(client.activate("CP-…"), License)
    assert_type(client.start_trial(), License)
    assert_type(client.verify(), License)
    assert_type(client.verify("CP-…", force=True), License)
    assert_type(client.check_for_update(), UpdateCheck)
    if found := client.check_for_update().update:
        client.download(found, "folder")
    client.download(client.check_for_update(), "folder")  # type: ignore[arg-type]
    assert_type(client.settings, ClientSettings)
    assert_type(client.start(), Worker)
    assert_type(client.download(update, "folder"), Downloaded)
    assert_type(client.require(), License)
    assert_type(client.status(), LicenseStatus)
    assert_type(client.diagnose(), str)
    assert_type(client.is_skipped(update), bool)
    assert_type(client.uses.consume("exports", 3), int)
    assert_type(client.license_file.request(), str)
    assert_type(client.license_file.install(b""), License)
    assert_type(client.computers.list("CP-…"), ComputerList)
    assert_type(client.computers.move_here(client.computers.list().computers[0]), License)
    with client.seats.take(on_lost=print) as seat:
        assert_type(seat, Seat)
    client.skip_update(update)
    client.confirm_version(no_way_back=True)
    client.forget_key()
    with client as entered:
        assert_type(entered, LicenseClient)
    client.verify(7)  # type: ignore[arg-type]
    client.stop()
    client.verify("CP-…", again=True)  # type: ignore[call-arg]


async def asynchronous(client: AsyncLicenseClient, update: Update) -> None:
    """The asynchronous client."""
    assert_type(await client.activate("CP-…"), License)
    assert_type(await client.verify(), License)
    assert_type(await client.check_for_update(force=True), UpdateCheck)
    await client.stop()
    assert_type(client.start(), AsyncWorker)
    assert_type(await client.download(update, Path("folder"), progress=print), Downloaded)
    assert_type(await client.require(), License)
    assert_type(await client.status(), LicenseStatus)
    assert_type(await client.is_skipped(update), bool)
    await client.forget_key()
    assert_type(await client.uses.consume("exports"), int)
    assert_type(await client.seats.take(), AsyncSeat)
    listed = await client.computers.list()
    assert_type(listed.computers[0], Computer)
    assert_type(await client.computers.move_here(listed.computers[0], "CP-…"), License)
    async with client.seats.take() as seat:
        assert_type(seat, AsyncSeat)
    async with client as entered:
        assert_type(entered, AsyncLicenseClient)


def decorated(client: LicenseClient, twin: AsyncLicenseClient, root: tk.Tk) -> None:
    """A decorated function has the signature that it had."""

    @client.licensed
    def export(path: str, *, dpi: int = 300) -> bytes:
        return b""

    assert_type(export("a.png", dpi=72), bytes)
    export("a.png", dpi="72")  # type: ignore[arg-type]

    def show(problem: LicclientError) -> None:
        explain(problem)

    @client.licensed(otherwise=show)
    def counted(path: str) -> int:
        return 1

    assert_type(counted("a.png"), int | None)
    counted(1)  # type: ignore[arg-type]

    @twin.licensed
    async def sent(to: str) -> int:
        return 1

    also_sent: Callable[[str], Coroutine[Any, Any, int]] = sent
    twin.licensed(lambda: 1)  # type: ignore[arg-type,return-value]

    @client.licensed(otherwise=lambda problem: tk_dialogs.ask_for_key(client, root, problem=problem))
    def printed() -> int:
        return 1

    assert_type(printed(), int | None)
    assert also_sent is not None


def installed(app: Installation, done: Downloaded) -> None:
    """An app that replaces itself."""
    assert_type(app.apply(done), Installed)
    assert_type(app.roll_back(), Installed | None)
    assert_type(app.confirm(no_way_back=True), Installed | None)
    assert_type(app.current, Installed | None)
    assert_type(app.start("photo-lab", ["a"]), int)
    assert_type(done.version, str)
    app.apply("photo-lab.zip")  # type: ignore[arg-type]


def facts(license_: License, status: LicenseStatus, update: Update) -> None:
    """What the records hold."""
    assert_type(license_.expiry, date | None)
    assert_type(license_.source, Source)
    assert_type(status.state, LicenseState)
    assert_type(status.next_check_at, datetime | None)
    assert_type(status.reason, Reason | None)
    assert_type(status.update, Update | None)
    assert_type(update.version, str)
    license_.product = "Mine"  # type: ignore[misc]


def problems(problem: LicclientError) -> str:
    """The errors narrow as they are told apart."""
    match problem:
        case LicenseRefusedError():
            assert_type(problem.reason, Reason)
            assert_type(problem.message, str)
        case MistypedKeyError():
            assert_type(problem.flaw, KeyFlaw)
            assert_type(problem.errors, dict[str, list[str]])
        case _:
            pass
    return explain(problem, "de")


def windows(client: LicenseClient, update: Update, root: tk.Tk, parent: QWidget | None) -> None:
    """The dialogs of both toolkits."""
    assert_type(tk_dialogs.ask_for_key(client, root), License | None)
    assert_type(licclient.dialogs.qt.ask_for_key(client, parent, language="de"), License | None)
    assert_type(tk_dialogs.offer_update(client, update, "folder", root, asked=True), Downloaded | None)
    assert_type(licclient.dialogs.qt.offer_update(client, update, Path("folder")), Downloaded | None)
    assert_type(tk_dialogs.ActivationDialog(client, root).license, License | None)
    assert_type(licclient.dialogs.qt.UpdateDialog(client, update, "folder").file, Downloaded | None)
    tk_dialogs.ask_for_key(client)  # type: ignore[call-arg]


def fakes(clock: LicenseClock, settings: ClientSettings) -> None:
    """What the tests of apps use."""
    with LicenseService(clock) as service:
        assert_type(service.issue("Notes", expires=date(2030, 1, 1)), str)
        service.misbehave("slow")
        assert_type(service.client(settings), LicenseClient)
        assert_type(service.async_client(product="Notes", storage=MemoryStorage()), AsyncLicenseClient)
        LicenseClient(settings, transport=service.transport, storage=service.storage, clock=service.clock)
        service.attach(LicenseClient(settings))
        clock.move(days=1, hours=2)
