"""Errors of a vendor's operations; each message is one sentence, without license keys and secrets."""


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
    """The secrets are missing, broken, or belong to another database: restore them."""


class ArtifactsError(LicserverError):
    """The artifact store failed, or a file in it is bad; the message contains no presigned address."""


class BackupError(LicserverError):
    """A file is no backup or is damaged, or a backup could not be written."""


class StoreError(LicserverError):
    """The database cannot be used: repair what the message names."""


class StoreUnavailableError(StoreError):
    """The database is unreachable, full or locked; a retry may succeed."""


class LicenseLockedError(StoreUnavailableError):
    """Another transaction has locked a license; other licenses are not affected."""
