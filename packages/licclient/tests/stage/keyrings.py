"""Keyrings of our making, good and bad, for the place of the system's."""

import keyring.backend
import keyring.errors


class Keyring(keyring.backend.KeyringBackend):
    """A keyring that works, and counts how often it is woken."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()
        self.kept = {}
        self.woken = 0

    def get_password(self, service, username):
        """Look it up."""
        self.woken += 1
        return self.kept.get((service, username))

    def set_password(self, service, username, password):
        """Keep it, or not."""
        self.woken += 1
        self.kept[service, username] = password

    def delete_password(self, service, username):
        """Forget it."""
        self.woken += 1
        if self.kept.pop((service, username), None) is None:
            raise keyring.errors.PasswordDeleteError


class Broken(Keyring):
    """A keyring that is there and fails."""

    def set_password(self, service, username, password):
        """Keep it, or not."""
        raise keyring.errors.KeyringLocked(password)


class Forgetful(Keyring):
    """A keyring that takes everything and keeps nothing."""

    def set_password(self, service, username, password):
        """Keep it, or not."""
