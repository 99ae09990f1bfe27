"""Keyrings of our making, good and bad, for the place of the system's."""

import threading

import keyring.backend
import keyring.errors


class Keyring(keyring.backend.KeyringBackend):
    """A keyring that works, and counts how often it is woken."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: dict[tuple[str, str], str] = {}
        self.woken = 0
        self._is_locked = False
        self._opened = threading.Event()
        self._opened.set()

    @property
    def licenses(self) -> list[str]:
        """The license keys in it, without the ids of installations."""
        return [text for (_, account), text in self.kept.items() if account.startswith("activation-")]

    def lock(self) -> None:
        """Give no key from now on."""
        self._is_locked = True

    def unlock(self) -> None:
        """Give keys again."""
        self._is_locked = False

    def stand_open(self) -> threading.Event:
        """Let whoever asks wait for a person; returns what is set when that person has come."""
        self._opened.clear()
        return self._opened

    def get_password(self, service: str, username: str) -> str | None:
        """Look it up."""
        self.woken += 1
        self._opened.wait(20)
        if self._is_locked:
            raise keyring.errors.KeyringLocked
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep it, or not."""
        self.woken += 1
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        """Forget it."""
        self.woken += 1
        if self.kept.pop((service, username), None) is None:
            raise keyring.errors.PasswordDeleteError


class Broken(Keyring):
    """A keyring that is there and fails."""

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep it, or not."""
        raise keyring.errors.KeyringLocked(password)


class Forgetful(Keyring):
    """A keyring that takes everything and keeps nothing."""

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep it, or not."""


class Chain(Keyring):
    """Several keyrings in a row, as keyring makes one of all that it finds: the first one keeps things."""

    def __init__(self, *backends: Keyring) -> None:
        super().__init__()
        self.backends = backends

    def get_password(self, service: str, username: str) -> str | None:
        """Ask the first one."""
        return self.backends[0].get_password(service, username)

    def set_password(self, service: str, username: str, password: str) -> None:
        """Leave it to the first one."""
        self.backends[0].set_password(service, username, password)
