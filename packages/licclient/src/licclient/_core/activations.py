"""Remembers the key that a person entered: in the system's keyring, or else in a private file (D-57).

The record of an activation says where the key is, and which cached success belongs to it: so a start that
is answered from the cache never wakes the keyring. Importing keyring looks through all installed packages;
so that happens only when a key is stored, or fetched for a call. Whatever goes wrong there is "not here".
"""

import atexit
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from licclient._core.clock import monotonic
from licclient._core.lazy import lazy
from licclient._core.model import Settings
from licclient._core.process import renew_in_child
from licclient._core.records import Document, Put, Storage, record_name
from licclient._core.window_loop import is_in_window_loop
from licclient.errors import StateUnreadableError

if TYPE_CHECKING:
    import base64

    from licclient._core import network, typed_key
else:
    base64 = lazy("base64")
    network = lazy("licclient._core.network")
    typed_key = lazy("licclient._core.typed_key")

KEYRING_SECONDS: Final = 10.0
"""How long to wait: a locked keyring asks the person for a password; a keyring without a desktop may hang."""

QUICK_SECONDS: Final = 0.5
"""How long `status` waits for the keyring: an unlocked keyring answers within milliseconds."""

CLICK_SECONDS: Final = 0.05
"""How long to wait for the keyring where the event loop of windows would stand still."""

EXIT_SECONDS: Final = 0.8
"""How long a program that ends waits for a removal."""

REST_FIRST: Final = 300.0
REST_MOST: Final = 3600.0
"""Seconds until a keyring that gave no key is asked again, unless a person wants to know: doubling."""

_SERVICE: Final = "licclient"

_T = TypeVar("_T")


def store_key(account: str, key: str) -> bool:
    """Put a key there, under the name of its activation; return False when there is no keyring that works."""
    if (removal := _removals.get(account)) is not None:  # which would remove this key
        removal.join(KEYRING_SECONDS)
        if removal.is_alive():
            return False

    def work() -> bool:
        import keyring  # noqa: PLC0415 - an extra

        if not _is_safe(keyring.get_keyring()):
            return False
        keyring.set_password(_SERVICE, account, key)
        # Some backends take everything and keep nothing.
        return keyring.get_password(_SERVICE, account) == key

    return _ask_keyring(work) is True


def fetch_soon(account: str, seconds: float) -> str | None:
    """Take a text out; None when it is not there, or the keyring does not return it in so many seconds."""
    text = _ask_keyring(lambda: fetch_key(account), seconds)
    return text if isinstance(text, str) else None


def fetch_key(account: str) -> str | None:
    """Take a key out, however long that takes; None when it is not there, or cannot be had now."""

    def work() -> object:
        import keyring  # noqa: PLC0415 - an extra

        return keyring.get_password(_SERVICE, account)

    key = _contained(work)
    return key if isinstance(key, str) else None


_removals: Final[dict[str, threading.Thread]] = {}
"""The last removal for each account."""


def drop_key(account: str, seconds: float = KEYRING_SECONDS) -> None:
    """Remove a key, if it is there; what takes longer than so many seconds goes on in the background."""

    def work() -> None:
        import keyring  # noqa: PLC0415 - an extra

        keyring.delete_password(_SERVICE, account)

    thread = threading.Thread(target=lambda: _contained(work), name="licclient-keyring", daemon=True)
    with suppress(RuntimeError):  # no more threads
        thread.start()
        _removals[account] = thread
        thread.join(seconds)
        if thread.is_alive():
            atexit.register(thread.join, EXIT_SECONDS)


def describe_keyring() -> str:
    """Return the name of the keyring, for support."""

    def work() -> str:
        import keyring  # noqa: PLC0415 - an extra

        backend = keyring.get_keyring()
        name = f"{type(backend).__module__}.{type(backend).__name__}"
        return name if _is_safe(backend) else f"{name}, not used"

    description = _ask_keyring(work)
    if isinstance(description, ImportError):
        return "not installed (the extra licclient[keyring])"
    return description if isinstance(description, str) else f"does not work ({type(description).__name__})"


def _ask_keyring(work: Callable[[], _T], seconds: float | None = None) -> _T | BaseException:
    """Run a function on a thread of its own; return what it does or raises, `TimeoutError` after a while."""
    try:
        return network.run_with_deadline(seconds or KEYRING_SECONDS, lambda: _contained(work))
    except (TimeoutError, RuntimeError) as problem:  # the latter: no more threads
        return problem


def _contained(work: Callable[[], _T]) -> _T | BaseException:
    """Return what a function does or raises: no keyring may break an activation.

    Every backend fails in its own way, and native code not only by an `Exception`. On a thread of its own
    nothing else is caught. Its words may hold the key, and go no further.
    """
    try:
        return work()
    except BaseException as problem:  # noqa: BLE001 - as above
        return problem


def _is_safe(backend: object) -> bool:
    """Return whether this is a real keyring: not "fail", "null", or the plain-text files of keyrings.alt."""
    if chained := getattr(backend, "backends", None):
        return _is_safe(chained[0])  # a chain of several; the first backend is where it keeps things
    module = type(backend).__module__
    priority = getattr(backend, "priority", 0)
    return not module.startswith(("keyring.backends.fail", "keyring.backends.null", "keyrings.alt")) and (
        priority > 0
    )


# --- asked sparingly --------------------------------------------------------------------------


class KeyringReader:
    """Hands out one key, and asks the keyring for it as seldom as can be (D-118).

    A locked keyring opens a window for each request. So one request runs at a time and serves all callers; a
    result that arrives after every caller has stopped waiting is still used; and a request that returned
    nothing is not repeated for a while. Safe to share among threads.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._question: _Question | None = None
        self._rest = REST_FIRST
        renew_in_child(self, KeyringReader._renew)

    def _renew(self) -> None:
        self._guard = threading.Lock()
        self._forget()

    def key(self, account: str, record: object, seconds: float) -> str | None:
        """Return the key, or None when it cannot be had by then.

        `record` is what sends us there: another object than before is another activation. `seconds` is at
        most `KEYRING_SECONDS` for one question; 0 to skip the keyring.
        """
        with self._guard:
            if self._question is not None and self._question.record is not record:
                self._forget()
            elif self._question is not None and self._question.failed_for() >= self._rest:
                self._rest = min(2 * self._rest, REST_MOST)
                self._question = None
            if self._question is None and seconds > 0:
                self._question = _Question(account, record)
            question = self._question
        return None if question is None else question.answer(seconds)

    def ask_again(self) -> None:
        """Ask again the next time: a person wants to know, and may have unlocked it."""
        with self._guard:
            if self._question is not None and self._question.failed_for() >= 0:
                self._forget()

    def forget(self) -> None:
        """Forget what was handed out, and what was not."""
        with self._guard:
            self._forget()

    def _forget(self) -> None:
        self._question, self._rest = None, REST_FIRST


class _Question:
    """One look into the keyring, on a thread of its own."""

    def __init__(self, account: str, record: object) -> None:
        self.record = record
        self._key: str | None = None
        self._until = monotonic() + KEYRING_SECONDS
        self._ended_at: float | None = None
        self._ended = threading.Event()
        thread = threading.Thread(target=self._ask, args=(account,), name="licclient-keyring", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._end()

    def _ask(self, account: str) -> None:
        try:
            self._key = fetch_key(account)
        finally:
            self._end()

    def _end(self) -> None:
        self._ended_at = monotonic()
        self._ended.set()

    def answer(self, seconds: float) -> str | None:
        self._ended.wait(max(min(seconds, self._until - monotonic()), 0.0))
        return self._key

    def failed_for(self) -> float:
        """Return how many seconds ago it came to nothing; less than 0 when it did not, or not yet."""
        if self._key is not None or self._ended_at is None:
            return -1.0
        return monotonic() - self._ended_at


_FORGOTTEN: Final = {"forgotten": True}
"""Marks the place as empty when the activation of another app would be found there."""


class Activation(NamedTuple):
    """The record of an activation.

    Attributes:
        name: The record's name; also the account in the keyring.
        hint: The end of the key, to show.
        domain: The domain that `license` is for.
        license: Name of the record of its success.
        round: Name of the record of its update checks; None when the app has no slug.
        key: None when it is in the keyring.
    """

    name: str
    hint: str
    domain: str
    license: str
    round: str | None
    key: str | None

    def __repr__(self) -> str:
        return f"Activation({self.name!r}, hint={self.hint!r}, domain={self.domain!r})"


class Activations:
    """The activation of one app on this computer. Safe to share among threads.

    Apps of one vendor share a state folder, so an activation belongs to server, product and slug. An
    activation made before the app named its product or slug is found as well.
    """

    def __init__(self, settings: Settings, state: Storage) -> None:
        self._state = state
        server, product, slug = settings.server, settings.product or "", settings.slug or ""
        owners = dict.fromkeys([(product, slug), (product, ""), ("", slug), ("", "")])
        self._names = [record_name("activation", server, *owner) for owner in owners]
        # What an app that names nothing has entered: perhaps an older version of us, perhaps another app.
        self._shared = self._names[-1] if len(self._names) > 1 else None
        self._product = settings.product
        self._keyring = KeyringReader()
        self._found: tuple[Document, Activation] | None = None

    def find(self) -> Activation | None:
        """Return the stored activation, without asking the keyring; None when no key was activated."""
        for name in self._names:
            document = self._state.load(name)
            if document is None:
                continue
            if self._found is not None and self._found[0] is document:
                return self._found[1]
            if document == _FORGOTTEN:
                return None
            activation = _read(name, document)
            if activation is not None:
                self._found = document, activation
                return activation
        return None

    def key_of(self, activation: Activation, seconds: float | None = None) -> str | None:
        """Return the key; None when the keyring does not give it.

        `seconds` is how long to wait for it: None for as long as a person may take to unlock it, 0 to leave
        it asleep; then the key is known if it was fetched before.
        """
        if activation.key is not None:
            return activation.key
        document = self._state.load(activation.name)
        if document is None:
            return None
        return self._keyring.key(activation.name, document, KEYRING_SECONDS if seconds is None else seconds)

    def ask_again(self) -> None:
        """Ask a keyring that gave no key again the next time: a person wants to know."""
        self._keyring.ask_again()

    def remember(self, key: str, domain: str, license_name: str, round_name: str | None) -> None:
        """Remember a key that was found good, in place of any other."""
        name, can_replace, activation = self._names[0], True, None
        try:
            activation = self.find()
        except StateUnreadableError:  # since the key was verified: the keyring must go on fitting to the file
            can_replace = False
        self._keyring.ask_again()
        stored = None if activation is None else (activation.name, activation.domain, activation.round)
        same = stored == (name, domain, round_name)
        if activation is not None and same and self.key_of(activation) == key:
            return
        # An app's own storage keeps the key as well (D-180).
        in_keyring = can_replace and self._state.folder() is not None and store_key(name, key)
        document = {
            "hint": typed_key.mask_key(key),
            "domain": domain,
            "license": license_name,
            "round": round_name,
            "key": None if in_keyring else key,
        }
        self._state.change(name, Put(document))

    def forget(self) -> None:
        """Forget every key that `find` could find; another app's is left to it, and hidden (D-122)."""
        hidden = False
        for name in self._names:
            activation = _read(name, self._state.load(name))
            if activation is not None and not self.is_ours(activation):
                hidden = True
            elif activation is not None:
                if activation.key is None:
                    drop_key(name, CLICK_SECONDS if is_in_window_loop() else KEYRING_SECONDS)
                self._state.change(name, Put(None))
        self._keyring.forget()
        if hidden:
            self._state.change(self._names[0], Put(_FORGOTTEN))

    def drop_unreadable(self) -> None:
        """Remove what cannot be read, but not what may be another app's (D-122)."""
        for name in self._names:
            try:
                self._state.load(name)
            except StateUnreadableError:
                if name != self._shared:
                    drop_key(name, CLICK_SECONDS if is_in_window_loop() else KEYRING_SECONDS)
                    self._state.change(name, Put(None))
        self._keyring.forget()

    def is_ours(self, activation: Activation) -> bool:
        """Return whether we may take this away: a client that named nothing may be another app's (D-122)."""
        if activation.name != self._shared:
            return True
        return (
            self._product is not None and _product_of(self._state.load(activation.license)) == self._product
        )


def _product_of(document: Document | None) -> str | None:
    """Return for which product a remembered success is; a hint, not checked."""
    match document:
        case {"product": str(product)}:
            return product
        case {"body": str(body)}:  # a signed response
            with suppress(ValueError, AttributeError):
                product = json.loads(base64.b64decode(body)).get("product")
                return product if isinstance(product, str) else None
        case _:
            pass
    return None


def _read(name: str, document: Document | None) -> Activation | None:
    match document:
        case {"hint": str(hint), "domain": str(domain), "license": str(license_), "key": str() | None as key}:
            round_name = (document or {}).get("round")
            return Activation(
                name, hint, domain, license_, round_name if isinstance(round_name, str) else None, key
            )
        case _:
            return None
