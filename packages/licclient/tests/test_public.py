import ast
import asyncio
import gc
import inspect
import logging
import pickle
import pkgutil
import subprocess
import sys
import time
from dataclasses import is_dataclass
from operator import attrgetter
from pathlib import Path

import pytest
import respx

import licclient
from licclient import AsyncLicenseClient, ClientSettings, LicenseClient, Pages, Reason, Trust, Updates
from licclient._core.runners import run_async
from licclient.errors import InvalidRequestError, LicenseRefusedError, ServiceUnavailableError
from licclient.testing import LicenseService


def _exported(source: Path) -> list[str]:
    """Read `__all__` without importing: a module may need a toolkit that is not here."""
    for line in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(line, ast.Assign | ast.AnnAssign) and ast.unparse(line).startswith("__all__"):
            return ast.literal_eval(line.value)
    raise AssertionError(f"{source} does not say what it exports")


def test_what_is_public_is_written_down():
    """Every module without an underscore, and every name that it exports, stands in the documentation."""
    package = Path(licclient.__file__).parent
    docs = Path(__file__).parents[3] / "docs"
    guide = (docs / "client.md").read_text(encoding="utf-8")
    stays = guide.partition("## What stays")[2].partition("## ")[0]
    page = guide + "".join(path.read_text(encoding="utf-8") for path in docs.glob("app/*.md"))
    modules = {"licclient": package / "__init__.py"}
    for found in pkgutil.walk_packages([str(package)], "licclient."):
        if "._" not in found.name:
            inside = package.joinpath(*found.name.split(".")[1:])
            modules[found.name] = inside / "__init__.py" if found.ispkg else inside.with_suffix(".py")
    assert len(modules) >= 8
    assert set(licclient.__all__) <= set(dir(licclient)), "completion does not show them"
    assert all(hasattr(licclient, name) for name in licclient.__all__)
    for name, source in modules.items():
        names = _exported(source)
        assert f"`{name}" in stays, name
        assert names == sorted(names), name
        missing = [name_ for name_ in names if name_ not in page and name_ != "__version__"]
        assert not missing, (name, missing)


def test_each_name_has_one_home():
    """At most 30 at the root; errors and names for annotations elsewhere, but for the base of the errors."""
    root, errors, types = (set(module.__all__) for module in (licclient, licclient.errors, licclient.types))
    assert len(root) <= 30
    assert (root & errors, root & types, errors & types) == ({"LicclientError"}, set(), set())
    raised = {name for name in errors if isinstance(getattr(licclient.errors, name), type)}
    assert raised == errors
    assert {*errors} >= {var.__name__ for var in vars(licclient.errors).values() if _is_error(var)}


def _is_error(value):
    return isinstance(value, type) and issubclass(value, Exception)


OPTIONS = {ClientSettings, Updates, Trust, Pages}
"""Their fields are arguments."""


def _booleans(kind):
    """List the attributes of a class that are annotated as booleans, by itself or a property."""
    for base in kind.__mro__:
        for name, hint in vars(base).get("__annotations__", {}).items():
            if hint in (bool, "bool"):
                yield name
        for name, member in vars(base).items():
            if isinstance(member, property) and member.fget.__annotations__.get("return") in (bool, "bool"):
                yield name


@pytest.mark.parametrize(
    "module", ["", ".errors", ".types", ".deliver", ".install", ".testing", ".dialogs.tk"]
)
def test_booleans_have_one_form(module):
    """Attributes begin with `is_` or `has_`; arguments do not, but for constructors of results (D-312)."""
    place = pytest.importorskip(f"licclient{module}")
    found = [value for name in place.__all__ if inspect.isroutine(value := getattr(place, name))]
    attributes, functions = [], list(found)
    for kind in (value for name in place.__all__ if inspect.isclass(value := getattr(place, name))):
        is_result = is_dataclass(kind) or issubclass(kind, Exception)
        if kind not in OPTIONS:
            attributes += [f"{kind.__name__}.{name}" for name in _booleans(kind) if name[0] != "_"]
        functions += [
            member
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if (name == "__init__" and not is_result) or not name.startswith("_")
        ]
    arguments = [
        f"{function.__qualname__}({name})"
        for function in functions
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.annotation in (bool, "bool", "bool | None")
    ]
    assert [
        attribute for attribute in attributes if not attribute.rpartition(".")[2].startswith(("is_", "has_"))
    ] == []
    assert [
        argument for argument in arguments if argument.rpartition("(")[2].startswith(("is_", "has_"))
    ] == []


@pytest.mark.parametrize(("name", "home"), [("NoSeatError", "errors"), ("Storage", "types"), ("Licence", "")])
def test_a_name_that_is_elsewhere_is_named_with_its_home(name, home):
    """Python's own error would not say where it is."""
    advice = f"; it is in licclient.{home}" if home else ""
    with pytest.raises(AttributeError, match=rf"^module 'licclient' has no attribute '{name}'{advice}$"):
        getattr(licclient, name)
    assert not hasattr(licclient, name)


@pytest.mark.parametrize(
    "name",
    [
        *("__init__", "verify", "check_for_update", "download"),
        *("activate", "require", "forget_key", "status", "skip_update", "is_skipped", "stop"),
    ],
)
def test_the_twins_have_the_same_face(name):
    """Both flavours take the same arguments."""
    sync, twin = (inspect.signature(getattr(client, name)) for client in (LicenseClient, AsyncLicenseClient))
    assert sync == twin


@pytest.mark.parametrize(
    "name",
    [
        "uses.consume",
        "seats.take",
        "license_file.request",
        "license_file.install",
        "computers.list",
        "computers.move_here",
    ],
)
def test_the_twins_have_the_same_features(name):
    """What an app developer types first is there, with the same arguments; nothing is sent for a look."""
    with LicenseService() as service:
        sync, twin = (attrgetter(name)(opened) for opened in (service.client(), service.async_client()))
        assert inspect.signature(sync).parameters == inspect.signature(twin).parameters
        assert service.requests == []


@pytest.mark.parametrize(
    "error",
    [
        LicenseRefusedError(Reason.EXPIRED, "License expired."),
        InvalidRequestError({"ip": ["Bad."]}),
        ServiceUnavailableError("No answer.", retry_after=7.0),
        licclient.errors.MistypedKeyError(licclient.errors.KeyFlaw.TOO_SHORT, "2"),
        licclient.errors.NotActivatedError(),
    ],
)
def test_errors_survive_a_process_boundary(error):
    """They can be pickled, as pools and crash reporters do."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))
    assert isinstance(error, licclient.LicclientError)


def test_importing_loads_nothing_heavy():
    """No HTTP library, no event loop, no lock, no crypto until a call is made; no windows at all."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import licclient"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    heavy = {
        "httpx",
        "httpcore",
        "aiohttp",
        "sqlalchemy",
        "cryptography",
        "asyncio",
        "filelock",
        "platformdirs",
        "tkinter",
        "PySide6",
        "licclient.dialogs",
    }
    assert "licclient._client" in loaded
    assert not loaded & (heavy | {"ssl", "truststore", "packaging.version", "zipfile"})
    assert "licclient.install" not in loaded


def test_an_answer_from_the_cache_loads_no_http(service, tmp_path, key):
    """A start with a fresh cache does not pay for httpx, nor for what reads addresses and paths."""
    service.grants()
    with LicenseClient(service.url, storage=tmp_path) as client:
        client.verify(key)
    code = (
        "import sys, licclient\n"
        f"client = licclient.LicenseClient({service.url!r}, storage={str(tmp_path)!r})\n"
        "print(client.verify(sys.argv[1]).source)\n"
        "print(sorted({'httpx', 'asyncio', 'ssl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, key], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["cache", "[]"]


@pytest.mark.skipif(sys.platform == "win32", reason="a path with a drive is read by pathlib")
def test_an_answer_from_the_cache_loads_no_parser(tmp_path, key):
    """A usual `https` address and a plain path cost no parser: 6 ms of each start (bench.client)."""
    import httpx  # noqa: PLC0415

    answer = {"valid": True, "product": "Notes", "expiry": None, "lifetime": True}
    server, transport = (
        "https://store.example/shop",
        httpx.MockTransport(lambda _: httpx.Response(200, json=answer)),
    )
    with LicenseClient(server, storage=tmp_path, transport=transport) as client:
        client.activate(key)
    code = (
        "import sys\n"
        # Without what the hooks of an editable installation have loaded.
        "parsers = {'urllib.parse', 'ipaddress', 'pathlib'} - set(sys.modules)\n"
        "import licclient\n"
        f"client = licclient.LicenseClient({server!r}, storage={str(tmp_path)!r}, version='1.0')\n"
        "print(client.verify().source)\n"
        "print(sorted(parsers & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["cache", "[]"]


async def test_other_users_of_httpx_keep_their_logs(make_client, service, key, caplog):
    """Only our own calls are kept out of httpx's log."""
    import httpx  # noqa: PLC0415

    caplog.set_level(logging.INFO)
    service.grants()
    await make_client().verify(key)
    async with httpx.AsyncClient() as other:
        await other.get(service.url + "/hello")
    assert "/hello" in caplog.text


async def test_what_fails_behind_a_cancelled_task_complains_to_nobody():
    """The task's own end is what counts: no "exception was never retrieved" in the app's log."""
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))

    def flow():
        time.sleep(0.1)
        raise LicenseRefusedError(Reason.EXPIRED, "License expired.")
        yield

    task = asyncio.ensure_future(run_async(flow(), open_transport=None))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    gc.collect()
    await asyncio.sleep(0.15)
    assert complaints == []


@respx.mock
async def test_apps_can_mock_the_service_with_respx(make_client, key):
    """Whoever tests an app with respx finds the calls where httpx makes them, over https as well."""
    body = {"valid": True, "product": "Notes", "expiry": None, "lifetime": True}
    route = respx.post("https://store.invalid/api/v1/licenses/verify").respond(json=body)
    assert (await make_client("https://store.invalid").verify(key)).is_lifetime
    assert route.called


def test_one_async_client_works_in_loop_after_loop(service, tmp_path, key):
    """A program may call `asyncio.run` more than once with the same client."""
    service.grants()
    client = AsyncLicenseClient(service.url, storage=tmp_path)
    for _ in range(2):
        assert asyncio.run(client.verify(key, force=True)).product == "Notes"
    asyncio.run(client.aclose())
