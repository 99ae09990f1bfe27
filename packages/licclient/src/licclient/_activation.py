"""Remembers the key that a person entered: in the system's keyring, or else in a private file (D-57).

The record of an activation says where the key is, and which cached success belongs to it: so a start that
is answered from the cache never wakes the keyring.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from licclient import _keyring
from licclient._model import Settings
from licclient._records import Document, record_name
from licclient._storage import Storage

_FORGOTTEN: Final = {"forgotten": True}
"""Stands in our place when somebody else's activation, that would be found there, shall not be."""


@dataclass(frozen=True, slots=True)
class Activation:
    """What is remembered of an activation.

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
    key: str | None = field(repr=False)


class Activations:
    """The activation of one app on this computer. Safe to share among threads.

    Apps of one vendor share a state folder, so an activation belongs to server, product and slug. One made
    before the app named its product or slug is found as well.
    """

    def __init__(self, settings: Settings, state: Storage) -> None:
        self._state = state
        server, product, slug = settings.server, settings.product or "", settings.slug or ""
        owners = dict.fromkeys([(product, slug), (product, ""), ("", slug), ("", "")])
        self._names = [record_name("activation", server, *owner) for owner in owners]
        # What an app that names nothing has entered: perhaps an older version of us, perhaps another app.
        self._shared = self._names[-1] if len(self._names) > 1 else None
        self._product = settings.product
        self._lender = _keyring.Lender()
        self._found: tuple[Document, Activation] | None = None

    def find(self) -> Activation | None:
        """Return what is remembered, without asking the keyring; None when no key was activated."""
        for name in self._names:
            document = self._state.load(name)
            if document is None:
                continue
            if self._found is not None and self._found[0] is document:
                return self._found[1]
            if document == _FORGOTTEN:
                return None
            found = _read(name, document)
            if found is not None:
                self._found = document, found
                return found
        return None

    def key_of(self, found: Activation, seconds: float | None = None) -> str | None:
        """Return the key; None when the keyring does not give it.

        `seconds` is how long to wait for it: None for as long as a person may take to unlock it, 0 to leave
        it asleep; then the key is known if it was fetched before.
        """
        if found.key is not None:
            return found.key
        document = self._state.load(found.name)
        if document is None:
            return None
        return self._lender.key(found.name, document, _keyring.SECONDS if seconds is None else seconds)

    def ask_again(self) -> None:
        """Ask a keyring that gave no key again the next time: a person wants to know."""
        self._lender.ask_again()

    def remember(self, key: str, domain: str, license_name: str, round_name: str | None) -> None:
        """Remember a key that was found good, in place of any other."""
        from licclient._typed_key import mask_key  # noqa: PLC0415 - most starts remember nothing new

        name = self._names[0]
        found = self.find()
        self._lender.ask_again()
        same = found is not None and (found.name, found.domain, found.round) == (name, domain, round_name)
        if found is not None and same and self.key_of(found) == key:
            return
        # An app's own storage keeps the key as well (D-180).
        in_keyring = self._state.folder() is not None and _keyring.store(name, key)
        document = {
            "hint": mask_key(key),
            "domain": domain,
            "license": license_name,
            "round": round_name,
            "key": None if in_keyring else key,
        }
        self._state.change(name, lambda _: document)

    def forget(self) -> None:
        """Forget every key that `find` could find; another app's is left to it, and hidden (D-122)."""
        hidden = False
        for name in self._names:
            found = _read(name, self._state.load(name))
            if found is not None and not self.is_ours(found):
                hidden = True
            elif found is not None:
                if found.key is None:
                    _keyring.drop(name)
                self._state.change(name, lambda _: None)
        self._lender.forget()
        if hidden:
            self._state.change(self._names[0], lambda _: _FORGOTTEN)

    def is_ours(self, found: Activation) -> bool:
        """Return whether we may take this away: a client that named nothing may be another app's (D-122)."""
        if found.name != self._shared:
            return True
        return self._product is not None and _product_of(self._state.load(found.license)) == self._product


def _product_of(document: Document | None) -> str | None:
    """Return for which product a remembered success is; a hint, not checked."""
    import json  # noqa: PLC0415 - for this alone
    from base64 import b64decode  # noqa: PLC0415 - for this alone

    match document:
        case {"product": str(product)}:
            return product
        case {"body": str(body)}:  # a signed one
            with suppress(ValueError, AttributeError):
                product = json.loads(b64decode(body)).get("product")
                return product if isinstance(product, str) else None
        case _:
            pass
    return None


def _read(name: str, document: Document | None) -> Activation | None:
    match document:
        case {"hint": str(hint), "domain": str(domain), "license": str(license_), "key": str() | None as key}:
            told = (document or {}).get("round")
            return Activation(name, hint, domain, license_, told if isinstance(told, str) else None, key)
        case _:
            return None
