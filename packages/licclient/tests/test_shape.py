"""The shape of the package: which imports stand within functions, and what a start loads."""

import ast
import subprocess
import sys
from pathlib import Path

import licclient

PACKAGE = Path(licclient.__file__).parent
MOST = 20
FEATURES = ("_activation", "_computers", "_offline", "_seats", "_trials", "_updates", "_uses")


def test_few_imports_stand_within_functions():
    """Only those of extras and of one platform: all others are named at the top, and loaded by `lazy`."""
    found = {
        (path.name, statement.lineno)
        for path in PACKAGE.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in ast.walk(function)
        if isinstance(statement, ast.Import | ast.ImportFrom)
    }
    assert len(found) <= MOST, sorted(found)


def test_a_constructed_client_has_loaded_no_optional_feature(tmp_path):
    """Each one is loaded by its first use, whatever else the client does."""
    program = (
        "import sys; from licclient import LicenseClient;"
        f" LicenseClient('https://store.example', storage={str(tmp_path)!r});"
        " print(*(name for name in sys.modules if name.startswith('licclient.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "licclient._core.session" in loaded
    assert not [name for name in loaded if name.split(".")[1] in FEATURES]


def test_an_answer_from_the_cache_loads_only_what_it_needs(service, tmp_path, key):
    """Nothing of updates, typed keys, requests' outcomes and settings pages: each costs every start."""
    service.grants()
    with licclient.LicenseClient(service.url, storage=tmp_path) as client:
        client.activate(key)
    program = (
        "import sys; from licclient import LicenseClient;"
        f" print(LicenseClient({service.url!r}, storage={str(tmp_path)!r}).verify().source);"
        " print(*(name for name in sys.modules if name.startswith('licclient.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    source, loaded = done.stdout.splitlines()
    assert source == "cache"
    spared = {"proof", "responses", "signed_responses", "status", "transport", "typed_key", "update_model"}
    assert not {f"licclient._core.{name}" for name in spared} & set(loaded.split())
