"""Errors of the vendor's operations, by what the vendor can do about them.

::

    LicserverError
    ├── InvalidInputError              the request cannot be fulfilled        → change the request
    │   ├── NotFoundError              there is no such thing                 → name one that exists
    │   ├── ConflictError              it contradicts what exists             → look at what exists
    │   └── SettingsError              a setting is invalid                   → correct the variable it names
    ├── SecretsError                   secrets are missing, broken or others  → restore them
    ├── ArtifactsError                 the file store fails, or a file is bad → repair what it names
    ├── BackupError                    a file is no backup, or damaged        → use another one
    └── StoreError                     the database cannot be used            → repair what it names
        └── StoreUnavailableError      … now: unreachable, full or locked     → try again
            └── LicenseLockedError     another transaction locks the license  → try again

Every message is one sentence for the vendor, without license keys and secrets.
"""


class LicserverError(Exception):
    """The base class."""


class InvalidInputError(LicserverError):
    """The request cannot be fulfilled; the message says what would be valid."""


class NotFoundError(InvalidInputError):
    """The named object does not exist."""


class ConflictError(InvalidInputError):
    """The request contradicts what exists."""


class SettingsError(InvalidInputError):
    """A setting is invalid; the message names the variable and says what would be valid."""


class SecretsError(LicserverError):
    """The secrets cannot be read, or belong to another database."""


class ArtifactsError(LicserverError):
    """The artifact store failed; the message contains no presigned address."""


class BackupError(LicserverError):
    """A file is no backup or is damaged, or a backup could not be written."""


class StoreError(LicserverError):
    """The database cannot be used."""


class StoreUnavailableError(StoreError):
    """The database is unreachable, full or locked; a retry may succeed."""


class LicenseLockedError(StoreUnavailableError):
    """Another transaction has locked a license; other licenses are not affected."""
