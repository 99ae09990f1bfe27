"""Code of other packages that fails in its own way, native code also by what is no `Exception`."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from stage.keyrings import Keyring

from licclient import LicenseClient, LicenseState, LicenseStatus
from licclient._core import activations as activation
from licclient._core import public_keys
from licclient.testing import LicenseService

OPERATIONS = ("get_password", "set_password", "delete_password", "priority", "get_keyring")


class PanicException(BaseException):
    """As PyO3 raises it for a panic of Rust: not an `Exception`."""


@pytest.fixture
def shop() -> Iterator[LicenseService]:
    """A service that has issued nothing yet."""
    with LicenseService() as service:
        yield service


@pytest.fixture
def use_keyring(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Make a keyring the system's."""
    return lambda backend: monkeypatch.setattr("keyring.core._keyring_backend", backend)


def _broken(operation: str, failure: BaseException) -> Keyring:
    def fail(*_: object) -> None:
        raise failure

    broken = type("Broken", (Keyring,), {operation: property(fail) if operation == "priority" else fail})
    return broken()  # type: ignore[no-any-return]


@pytest.mark.parametrize("failure", [PanicException("CP-TEST00 panicked"), SystemExit(3), MemoryError()])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_flow_launcher_flow_launcher_2261(
    shop: LicenseService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    use_keyring: Callable[[object], None],
    operation: str,
    failure: BaseException,
) -> None:
    """A keyring that panics breaks no activation: the key is remembered, in a file or there."""
    if operation == "get_keyring":
        use_keyring(Keyring())

        def fail() -> None:
            raise failure

        monkeypatch.setattr("keyring.get_keyring", fail)
    else:
        use_keyring(_broken(operation, failure))
    key = shop.issue("Notes", slots=1)

    def client() -> LicenseClient:
        return shop.client(storage=tmp_path)

    assert client().activate(key).product == "Notes"
    with client() as next_start:
        assert next_start.verify(force=True).product == "Notes"
        assert "keyring:" in next_start.diagnose()
        next_start.forget_key()
        assert next_start.status().state is LicenseState.NOT_ACTIVATED


def test_a_keyring_that_begins_to_panic_later(
    shop: LicenseService, tmp_path: Path, use_keyring: Callable[[object], None]
) -> None:
    """After an update of its library: the customer is told to unlock it, and is not "not activated"."""
    key, backend = shop.issue("Notes"), Keyring()
    use_keyring(backend)
    shop.client(storage=tmp_path).activate(key)
    assert backend.kept

    def fail(*_: object) -> None:
        raise PanicException

    use_keyring(type("Broken", (Keyring,), {"get_password": fail})())
    with shop.client(storage=tmp_path) as client:
        assert client.require().product == "Notes"
        assert client.status().state is LicenseState.VALID


@pytest.mark.parametrize("returned", [b"bytes", 7, ["CP-"]])
def test_a_keyring_that_returns_no_text(use_keyring: Callable[[object], None], returned: object) -> None:
    """What is no text is no key."""
    use_keyring(type("Odd", (Keyring,), {"get_password": lambda *_: returned})())
    assert activation.fetch_key("account") is None


def test_pyo3_pyo3_2880(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signature at which the library panics is not valid; no thread of the app ends by it."""

    def fail(*_: object) -> None:
        raise PanicException

    key = public_keys.PublicKey(bytes(32))
    monkeypatch.setattr(public_keys, "_verify", fail)
    assert key.verify(b"", b"") is False


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_is_no_failure(monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]) -> None:
    """What ends the program goes on."""

    def fail(*_: object) -> None:
        raise stop

    monkeypatch.setattr(public_keys, "_verify", fail)
    with pytest.raises(stop):
        public_keys.PublicKey(bytes(32)).verify(b"", b"")


def test_a_callback_that_panics_does_not_end_the_worker(shop: LicenseService) -> None:
    """It is reported as a failure of the callback, and the next change is reported as usual."""
    states: list[LicenseState] = []
    failures: list[Any] = []
    hook = threading.excepthook
    client = shop.client()

    def show(status: LicenseStatus) -> None:
        states.append(status.state)
        if len(states) == 1:
            raise PanicException

    threading.excepthook = failures.append
    try:
        worker = client.start(on_status=show)
        client.activate(shop.issue("Notes"))
        until = monotonic() + 20
        while len(states) < 2 and monotonic() < until:
            sleep(0.01)
        assert worker.is_running
    finally:
        threading.excepthook = hook
    assert states[-1] is LicenseState.VALID
    assert [failure.exc_type for failure in failures] == [PanicException]


def test_no_thread_is_left(use_keyring: Callable[[object], None]) -> None:
    """The thread that asked ends with the answer."""
    use_keyring(_broken("get_password", PanicException()))
    before = threading.active_count()
    assert activation.store_key("account", "key") is False
    assert threading.active_count() == before
