"""What can go wrong beside a request, sorted by what the vendor can do about it.

::

    LicserverError
    ├── WrongUse             the vendor asked for something that cannot be   → say it differently
    │   ├── Unknown          what was named is not there                     → name something that is
    │   ├── Conflict         what is there already is in the way             → look at what is there
    │   └── SettingsError    a setting cannot be used                        → mend the variable it names
    ├── VaultError           the secrets are missing, broken or others       → restore them
    ├── ArtifactsError       the files are away, or one of them is           → mend what it says
    ├── BackupError          a backup is damaged, or none                    → take another one
    └── StoreError           the database cannot be used                     → mend what it says
        └── StoreUnavailable   … now: it is away, full or locked             → try again
            └── LicenseLocked    another transaction changes this license    → try again

Every message is one sentence for the vendor, and none carries a license key or a secret.
"""


class LicserverError(Exception):
    """The base of all; never raised itself."""


class WrongUse(LicserverError):
    """The vendor asked for something that cannot be; the message says what would be right."""


class Unknown(WrongUse):
    """What was named is not there."""


class Conflict(WrongUse):
    """What is there already is in the way of what was asked for."""


class SettingsError(WrongUse):
    """A setting cannot be used; the message names the variable and says what would be right."""


class VaultError(LicserverError):
    """The secrets cannot be read, or are not those of this database."""


class ArtifactsError(LicserverError):
    """Folder or bucket cannot do what was asked now; never carries an address that was signed."""


class BackupError(LicserverError):
    """A file is no backup, or not a whole one; or one could not be made."""


class StoreError(LicserverError):
    """The database cannot do what was asked."""


class StoreUnavailable(StoreError):
    """The database is away, full or locked; the same call may succeed later."""


class LicenseLocked(StoreUnavailable):
    """Another transaction holds the lock of a license; other licenses are not affected."""
