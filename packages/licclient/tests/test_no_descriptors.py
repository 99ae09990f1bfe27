"""An app has used up its file descriptors: no module can be loaded, and each call ends as documented."""

import asyncio
import errno
import gc
import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import licclient
from licclient import LicclientError, LicenseClient, Source, Trust, _features, explain
from licclient._computers.protocol import Computer
from licclient._core import lazy
from licclient.errors import StateUnreadableError
from licclient.testing import LicenseService, MemoryStorage

COMPUTER = Computer("9f" * 16, None, "9f1c…d7e8", None, is_this=False, is_movable=True)
KEY = "CP-TEST00-TEST00-TEST00-TEST00-000001"

for _module in pkgutil.walk_packages(licclient.__path__, "licclient."):
    if not _module.name.endswith(("__main__", ".tk", ".qt", "_tk_window")):
        importlib.import_module(_module.name)

FEATURES = {f"licclient.{module}": name for name, module in _features._MODULES.items()}
LAZY = [found for found in gc.get_objects() if type(found) is lazy.LazyModule]
MODULES = sorted({found.__name__ for found in LAZY} | set(FEATURES))


def test_the_modules_are_known():
    """A list without them would show nothing."""
    assert {"licclient._worker", "licclient._core.transport", "random", "licclient._updates.check"} < {
        *MODULES
    }


@contextmanager
def unloadable(monkeypatch: pytest.MonkeyPatch, module: str) -> Iterator[None]:
    """Let a module that was never used fail to be loaded, as without a file descriptor."""

    def import_or_fail(name: str) -> object:
        if name == module:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), f"{name}.py")
        return importlib.import_module(name)

    with monkeypatch.context() as patch:
        patch.setattr(lazy, "import_module", import_or_fail)
        for found in LAZY:
            if found.__name__ == module:
                patch.delitem(vars(found), "__module__", raising=False)
        if module in FEATURES:
            patch.delitem(vars(_features), FEATURES[module], raising=False)
        yield


def _calls(client: LicenseClient, update: object, folder: object) -> dict[str, Callable[[], object]]:
    return {
        "verify": client.verify,
        "verify key": lambda: client.verify(KEY, force=True),
        "activate": lambda: client.activate(KEY),
        "start_trial": client.start_trial,
        "require": client.require,
        "require at once": lambda: client.require("export", wait=0),
        "uses.consume": lambda: client.uses.consume("exports"),
        "status": client.status,
        "check_for_update": lambda: client.check_for_update(force=True),
        "download": lambda: client.download(update, folder),  # type: ignore[arg-type]
        "plan_update": client.plan_update,
        "install_update": lambda: client.install_update(update),  # type: ignore[arg-type]
        "installation_receipt": client.installation_receipt,
        "confirm_version": client.confirm_version,
        "skip_update": lambda: client.skip_update(update),  # type: ignore[arg-type]
        "is_skipped": lambda: client.is_skipped(update),  # type: ignore[arg-type]
        "license_file.request": lambda: client.license_file.request(),  # noqa: PLW0108 - loads what it needs
        "license_file.install": lambda: client.license_file.install(b"{}"),
        "seats.take": lambda: _enter(client.seats.take(KEY)),
        "computers.list": lambda: client.computers.list(KEY),
        "computers.move_here": lambda: client.computers.move_here(COMPUTER, KEY),
        "start": lambda: client.start(on_status=lambda _: None, on_update=lambda _: None),
        "diagnose": client.diagnose,
        "deactivate": client.deactivate,
        "reset": client.reset,
        "forget_key": client.forget_key,
        "stop": client.stop,
        "close": getattr(client, "close", None) or client.aclose,  # type: ignore[attr-defined]
    }


def _enter(seat: Any) -> Any:
    return seat.__aenter__() if hasattr(seat, "__aenter__") else seat.__enter__()


NAMES = list(_calls(LicenseClient("https://s.example"), None, None))


def test_every_method_is_called():
    """A new one has to be named."""
    methods = {
        name
        for name, member in vars(LicenseClient).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }
    features = {"uses.consume", "license_file.request", "license_file.install", "seats.take"}
    features |= {"computers.list", "computers.move_here"}
    assert methods - {"licensed"} | features == {name.split()[0] for name in NAMES}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_each_call_ends_as_documented(monkeypatch, tmp_path, module, is_async):
    """A result, or an error of ours; and once there are descriptors again, everything is as before."""
    wrong = {}
    with LicenseService() as service:
        service.issue("Notes", key=KEY, slug="notes", entitlements={"export": True})
        service.publish("2.0", slug="notes")
        options = {"slug": "notes", "version": "1.0", "product": "Notes"}
        options["trust"] = Trust(public_keys=[service.public_key])
        before = MemoryStorage()
        with service.client(**options, storage=before) as first:
            first.activate(KEY)
            update = first.check_for_update().update
        for hours in (0, 80):
            service.clock.move(hours=hours)
            for name in NAMES:
                storage = MemoryStorage()
                storage._records.update(before._records)
                act = partial(_act_async if is_async else _act, service, options | {"storage": storage})
                problem = act(partial(unloadable, monkeypatch, module), name, update, tmp_path)
                if problem is not None:
                    wrong[name, hours] = problem
    assert not wrong, wrong


def _judge(problem):
    """Return what is wrong with an error; None if it is one of ours, with a sentence for people."""
    return None if isinstance(problem, LicclientError) and explain(problem) else repr(problem)


def _act(service, options, without_module, name, update, folder):
    with service.client(**options) as client:
        try:
            with without_module():
                found = _calls(client, update, folder)[name]()
                if hasattr(found, "__exit__"):
                    found.__exit__(None, None, None)
        except Exception as problem:  # noqa: BLE001 - any other error is the fault that this test looks for
            return _judge(problem)
    return None


def _act_async(service, options, without_module, name, update, folder):
    async def act():
        async with service.async_client(**options) as client:
            try:
                with without_module():
                    found = _calls(client, update, folder)[name]()
                    if inspect.isawaitable(found):
                        found = await found
                    if hasattr(found, "__aexit__"):
                        await found.__aexit__(None, None, None)
            except Exception as problem:  # noqa: BLE001 - as above
                return _judge(problem)
        return None

    return asyncio.run(act())


def test_a_license_in_its_grace_period_holds_without_a_refresh(monkeypatch):
    """What is asked behind the answer is not needed for it."""
    with LicenseService() as service:
        service.issue("Notes", key=KEY)
        client = service.client(product="Notes")
        client.activate(KEY)
        service.clock.move(hours=30)
        with unloadable(monkeypatch, "licclient._worker"):
            assert client.require().source is Source.GRACE


def test_a_missing_module_stays_missing():
    """Only what a lack of descriptors explains is the state's fault."""
    with pytest.raises(ModuleNotFoundError):
        lazy.load_module("licclient.nothing")


@pytest.mark.parametrize("change", [Path.unlink, lambda part: os.utime(part, (1, 1))])
def test_the_files_of_the_program_are_other_ones_than_at_its_start(change, monkeypatch, tmp_path):
    """A cleaner empties the folder of a one-file app, or the package is upgraded: starting again helps."""
    part = tmp_path / "base_library.zip"
    part.touch()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
        assert lazy._find_part() == str(part)
        patch.setattr(lazy, "_PART", str(part))
        patch.setattr(lazy, "_FOUND", lazy._mark(str(part)))
        with pytest.raises(ModuleNotFoundError):
            lazy.load_module("licclient.nothing")
        change(part)
        with pytest.raises(StateUnreadableError) as gone:
            lazy.load_module("licclient.nothing")
    assert str(gone.value) == lazy.PROGRAM_GONE
    assert explain(gone.value, "en").endswith("Please start it again.")


def test_this_module_is_a_part_of_the_program():
    """Without a bundle."""
    assert lazy._find_part() == lazy.__file__
    assert lazy._mark(lazy._find_part()) is not None


def test_the_linker_has_no_descriptor(monkeypatch):
    """It reports no number; the cause is seen by another try."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def import_nothing(_: str) -> object:
        raise ImportError("cannot open shared object file")

    with monkeypatch.context() as patch:
        patch.setattr(lazy, "import_module", import_nothing)
        with pytest.raises(ImportError, match="shared object"):
            lazy.load_module("hashlib")
        patch.setattr(os, "open", refuse)
        with pytest.raises(StateUnreadableError, match=os.strerror(errno.EMFILE)):
            lazy.load_module("hashlib")
