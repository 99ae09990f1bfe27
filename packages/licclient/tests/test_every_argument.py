"""Each argument of each public callable, with wrong values: a result, or an error that names the argument."""

import asyncio
import copy
import datetime as dt
import inspect
import math
import pickle
import traceback
import types
import typing
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import partial
from operator import attrgetter
from os import PathLike
from pathlib import Path

import httpx
import pytest

import licclient
from licclient import (
    AsyncLicenseClient,
    ClientSettings,
    Downloaded,
    LicclientError,
    LicenseClient,
    Reason,
    Trust,
    deliver,
    explain,
)
from licclient._computers.client import Computers
from licclient._computers.protocol import Computer
from licclient._core.settings import GROUPS
from licclient._offline.client import LicenseFileInstaller
from licclient._seats.client import Seats, create
from licclient._seats.seat import Seat
from licclient._uses.client import Uses
from licclient.dialogs import Action, drive_activation, drive_update
from licclient.install import Installation
from licclient.testing import LicenseClock, LicenseService, MemoryStorage, Misbehaviour, answer_dialog

PACKAGE = str(Path(licclient.__file__).parent)

HUGE = "x" * 100_000
VALUES = {
    "None": None,
    "an object": object(),
    "True": True,
    "0": 0,
    "-1": -1,
    "10**400": 10**400,
    "-10**5000": -(10**5000),  # has no decimal text
    "nan": math.nan,
    "inf": math.inf,
    "1e300": 1e300,
    "5e-324": 5e-324,
    "empty": "",
    "blank": " ",
    "huge": HUGE,
    "NUL": "a\0b",
    "surrogate": "\ud800",
    "bytes": b"x",
    "a list": [],
    "a list of None": [None],
    "a list of huge texts": [HUGE] * 3,
    "a long list": ["beta"] * 100_000,
    "a dict": {},
    "timedelta.max": timedelta.max,
    "a negative timedelta": timedelta(-1),
    "a lambda": lambda *_: None,
    "a path": Path("/proc/self/nothing"),
}

NAMES = {
    **vars(licclient),
    **vars(licclient.install),
    **{name: getattr(module, name) for module in (licclient, licclient.types) for name in module.__all__},
    **{
        type_.__name__: type_
        for type_ in (Callable, Collection, Iterable, Mapping, Sequence, PathLike, timedelta)
    },
    **{type_.__name__: type_ for type_ in (date, datetime)},
    "httpx": httpx,
    "tk": types.SimpleNamespace(Misc=typing.Any),
    "AbstractEventLoop": typing.Any,
    "LicenseClock": LicenseClock,
    "Misbehaviour": Misbehaviour,
    "Document": typing.Any,
    "Explainable": typing.Any,
    "Self": typing.Any,
    "datetime": dt.datetime,
}


def _fits(value: object, hint: object) -> bool:
    """Return whether a value is of an annotated type; True if the annotation does not show it."""
    if hint is None or hint is type(None):
        return value is None
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, get_arg) for get_arg in typing.get_args(hint))
    if hint is typing.Any or isinstance(hint, str | typing.TypeVar):
        return True
    if origin is not None and getattr(origin, "__name__", "") == "Callable":
        return callable(value)
    kind = origin or hint
    if isinstance(value, bool) and kind in (int, float):
        return False
    if kind is float:
        return isinstance(value, int | float)
    if isinstance(value, str) and kind in (Iterable, Collection, Sequence):
        return False
    if getattr(kind, "_is_protocol", False):
        return True
    return isinstance(value, kind) if isinstance(kind, type) else True


def _judge(argument: str, hint: object, value: object, call: Callable[[], object]) -> str:
    """Call, and return what is wrong with the outcome; empty if nothing."""
    try:
        result = call()
        if inspect.iscoroutine(result):
            asyncio.run(result)
    except (TypeError, ValueError) as problem:
        frames, text = traceback.extract_tb(problem.__traceback__), str(problem)
        if not frames[-1].filename.startswith(PACKAGE) or type(problem) not in (TypeError, ValueError):
            return f"{problem!r} from within: {frames[-1].filename}:{frames[-1].lineno}"
        named = argument in text or (argument == "settings" and "base_url" in text)
        return "" if named and len(text) < 400 and "iterable" not in text else f"says {text[:200]!r}"
    except (LicclientError, LookupError) as problem:
        return "" if _fits(value, hint) and len(str(problem)) < 400 else f"{problem!r}"[:200]
    except OSError as problem:
        return "" if _fits(value, hint) else f"{problem!r}"
    except Exception as problem:  # noqa: BLE001 - any other error is the fault that this test looks for
        return f"{problem!r}"
    return "" if _fits(value, hint) else "was accepted"


def _hints(function: Callable[..., object]) -> dict[str, object]:
    signature = inspect.signature(function)
    hints = {}
    for name, parameter in signature.parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        hint = parameter.annotation
        hints[name] = eval(hint, dict(NAMES)) if isinstance(hint, str) else hint  # noqa: S307 - our own
    return hints


def _failures(argument: str, hint: object, call: Callable[[object], object]) -> dict[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of http
        found = {name: _judge(argument, hint, value, partial(call, value)) for name, value in VALUES.items()}
    return {name: problem for name, problem in found.items() if problem}


SETTINGS = _hints(ClientSettings)
EDGES = ("clock", "transport")
GROUPED = [(group, argument) for group, kind in GROUPS.items() for argument in _hints(kind)]


@pytest.mark.sampled(20, "argument")
@pytest.mark.parametrize("kind", [LicenseClient, AsyncLicenseClient])
@pytest.mark.parametrize("argument", [*SETTINGS, *EDGES])
def test_of_a_client(kind, argument):
    """Settings and edges of both clients."""

    def create(value):
        if argument == "base_url":
            return kind(value)
        return kind("https://s.example", **{argument: value})

    assert _failures(argument, SETTINGS.get(argument, typing.Any), create) == {}


@pytest.mark.sampled(20, "argument")
@pytest.mark.parametrize("kind", [LicenseClient, AsyncLicenseClient])
@pytest.mark.parametrize(("group", "argument"), GROUPED)
def test_of_a_group(kind, group, argument):
    """Each argument of each group, as a client takes it."""

    def create(value):
        return kind("https://s.example", **{group: GROUPS[group](**{argument: value})})

    assert _failures(argument, _hints(GROUPS[group])[argument], create) == {}


FEATURES = {"uses": Uses, "seats": Seats, "license_file": LicenseFileInstaller, "computers": Computers}
COMPUTER = Computer("9f" * 16, None, "9f1c…d7e8", None, is_this=False, is_movable=True)


def _methods(kind, prefix=""):
    return {
        prefix + name: member
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and not name.startswith("_") and _hints(member)
    }


METHODS = _methods(LicenseClient)
for feature, kind in FEATURES.items():
    METHODS |= _methods(kind, f"{feature}.")
ARGUMENTS = [
    (method, argument)
    for method in sorted(METHODS)
    for argument in _hints(METHODS[method])
    if argument != "function"
]


def test_the_methods_are_known():
    """A method without arguments of that name would not be tried."""
    assert len(ARGUMENTS) >= 25, ARGUMENTS


@pytest.fixture(scope="module")
def licensed_app(tmp_path_factory):
    """A service with both clients, an activated key and an update."""
    with LicenseService() as service:
        key = service.issue("Notes", slug="notes", entitlements={"export": True})
        service.publish("2.0", slug="notes")
        options = {"slug": "notes", "version": "1.0", "trust": Trust(public_keys=[service.public_key])}
        clients = service.client(**options), service.async_client(**options)
        clients[0].activate(key)
        update = clients[0].check_for_update(force=True).update
        folder = tmp_path_factory.mktemp("downloads")
        usual = {"key": key, "update": update, "to": folder, "entitlement": "export", "file": b""}
        yield clients, usual | {"computer": COMPUTER}


@pytest.mark.sampled(20, "method")
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(("method", "argument"), ARGUMENTS)
def test_of_a_method(licensed_app, is_async, method, argument):
    """Each argument of each method, the others as they should be."""
    clients, usual = licensed_app
    client = clients[is_async]
    signature = inspect.signature(METHODS[method])
    parameters = list(signature.parameters.items())[1:]  # without self
    needed = [name for name, parameter in parameters if parameter.default is parameter.empty]

    def call(value):
        found = attrgetter(method)(client)(**({name: usual[name] for name in needed} | {argument: value}))
        if method == "start" and not is_async:
            found.stop()
        return found

    async def within_loop(value):
        found = call(value)
        if method == "start":
            await found.stop()
        elif inspect.isawaitable(found):
            await found

    hint = _hints(METHODS[method])[argument]
    assert _failures(argument, hint, within_loop if is_async else call) == {}


def _answer(buttons: str = "Close", key: str | None = None) -> None:
    with suppress(AssertionError), answer_dialog(buttons, key=key):  # no dialog is shown
        pass


def _set_key(key: str | None) -> None:
    storage = MemoryStorage()
    storage.key = key
    storage.load("activation-x")


def _move(days: float) -> None:
    LicenseClock().move(days=days)


def _move_by(span: timedelta | None) -> None:
    LicenseClock().move(span)


OTHERS = {
    "move by days": (lambda _: _move, {}),
    "explain": (lambda _: explain, {"what": Reason.EXPIRED}),
    "Installation": (lambda _: Installation, {"folder": "x"}),
    "start": (lambda folder: Installation(folder).start, {"program": "notes", "arguments": []}),
    "apply": (
        lambda folder: Installation(folder).apply,
        {"downloaded": Downloaded(Path("notes.zip"), 5, "ab" * 32, "1.0", is_verified=True)},
    ),
    "to_loop": (lambda _: deliver.to_loop, {}),
    "to_tk": (lambda _: deliver.to_tk, {}),
    "LicenseService": (lambda _: LicenseService, {}),
    "LicenseClock": (lambda _: LicenseClock, {}),
    "move": (lambda _: _move_by, {}),
    "load": (lambda _: MemoryStorage().load, {}),
    "change": (lambda _: MemoryStorage().change, {"name": "x", "edit": lambda _: None}),
    "answer_dialog": (lambda _: _answer, {}),
    "key of MemoryStorage": (lambda _: _set_key, {}),
    **{
        name: (
            lambda _, name=name: getattr(LicenseService(), name),
            {
                "product": "Notes",
                "key": "CP-TEST00-TEST00-TEST00-TEST00-000001",
                "version": "3.0",
                "slug": "notes",
                "entitlements": {},
            },
        )
        for name, member in vars(LicenseService).items()
        if not name.startswith("_") and inspect.isfunction(member) and _hints(member)
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_of_a_function(tmp_path, name):
    """The other functions and classes: sentences, installations, callbacks, and the fake service."""
    make, usual = OTHERS[name]
    problems = {}
    for argument, hint in _hints(make(tmp_path / "app")).items():
        needed = [
            key
            for key, parameter in inspect.signature(make(tmp_path / "app")).parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        ]

        def call(value, argument=argument, needed=needed):
            rest = {key: usual.get(key, "x") for key in needed if key != argument}
            return make(tmp_path / "app")(**rest, **{argument: value})

        problems |= {(argument, case): what for case, what in _failures(argument, hint, call).items()}
    assert problems == {}


@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_owns_connections_is_not_copied(act):
    """The error says how to get another one."""
    with LicenseService() as service:
        client, twin = service.client(), service.async_client()
        seat = create(Seat, client._access(), None, None, None)
        for thing in (client, twin, seat, client.start()):
            with pytest.raises(TypeError, match=f"^{type(thing).__name__} cannot be copied or pickled: c"):
                act(thing)


# --- dialogs --------------------------------------------------------------------------------------

DIALOGS = {
    "ask_for_key": ("client", "parent", "problem", "language", "dark", "trial"),
    "offer_update": ("client", "update", "to", "parent", "asked", "language", "dark"),
    "ActivationDialog": ("client", "parent", "problem", "language", "dark", "trial"),
    "UpdateDialog": ("client", "update", "to", "parent", "language", "dark"),
}


@pytest.mark.window
@pytest.mark.parametrize("name", DIALOGS)
def test_of_a_dialog(hands, licensed_app, tmp_path, name):
    """Functions and windows of both toolkits; one that is shown is closed again."""
    (client, _), usual = licensed_app
    function = getattr(hands.kit, name)
    hints = _hints(function)
    assert set(hints) <= set(DIALOGS[name])
    rest = {"client": client, "parent": hands.parent, "update": usual["update"], "to": tmp_path}
    rest = {key: value for key, value in rest.items() if key in hints}

    def call(argument, value):
        if inspect.isclass(function):
            function(**(rest | {argument: value}))._driver.press(Action.CLOSE)
        else:
            with answer_dialog("Not now" if name == "ask_for_key" else "Later"):
                function(**(rest | {argument: value}))

    problems = {}
    for argument, hint in hints.items():
        found = _failures(argument, hint, partial(call, argument))
        problems |= {(argument, case): what for case, what in found.items()}
    assert problems == {}


class Unseen:
    """A window of no toolkit."""

    def draw(self, view):
        """Show nothing."""

    def leave(self):
        """Close nothing."""


@pytest.mark.parametrize("function", [drive_activation, drive_update])
def test_of_a_driver(licensed_app, tmp_path, function):
    """Of a window of another toolkit."""
    (client, _), usual = licensed_app
    hints = _hints(function)
    rest = {"client": client, "window": Unseen(), "deliver": lambda call: call()}
    rest |= {"update": usual["update"], "to": tmp_path} if function is drive_update else {}

    def call(argument, value):
        function(**(rest | {argument: value})).press(Action.CLOSE)

    problems = {}
    for argument, hint in hints.items():
        found = _failures(argument, hint, partial(call, argument))
        problems |= {(argument, case): what for case, what in found.items()}
    assert problems == {}
