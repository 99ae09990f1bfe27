"""Errors of a vendor's operations; each message is one sentence, without license keys and secrets."""

from datetime import datetime


class LicserverError(Exception):
    """The base class."""


class InvalidInputError(LicserverError):
    """The request cannot be fulfilled; the message describes valid values."""


class NotFoundError(InvalidInputError):
    """The named object does not exist."""


class ConflictError(InvalidInputError):
    """The request contradicts what exists."""


class TooManyMovesError(ConflictError):
    """A customer has freed as many slots as the product allows; the message is for them.

    Args:
        message: What happened, and what to do.
        retry_at: When the next slot may be freed; None for never.
    """

    def __init__(self, message: str, retry_at: datetime | None) -> None:
        super().__init__(message)
        self.retry_at = retry_at


class HeldOfflineError(TooManyMovesError):
    """A customer wants to free the slot of a computer whose license file is still valid."""

    def __init__(self, until: datetime) -> None:
        file = f"this computer has a license file until {until:%Y-%m-%d}"
        super().__init__(f"{file}; its slot can be freed then, or by support", until)


class SettingsError(InvalidInputError):
    """A setting is invalid; the message names the variable and the valid values."""


class SecretsError(LicserverError):
    """The secrets are missing, broken, or belong to another database: restore them."""


class ArtifactsError(LicserverError):
    """The artifact store failed, or a file in it is bad; the message contains no presigned address."""


class BackupError(LicserverError):
    """A file is no backup or damaged, or a backup could not be written."""


class StoreError(LicserverError):
    """The database cannot be used: repair what the message names."""


class StoreUnavailableError(StoreError):
    """The database is unreachable, full or locked; a retry may succeed."""


class NotWritableError(StoreUnavailableError):
    """The database is full, or only lets itself be read."""


class StatementRefusedError(StoreUnavailableError):
    """The database refused a statement or its values; it still works, so another statement may succeed."""


class LicenseLockedError(StoreUnavailableError):
    """Another transaction has locked a license; other licenses are not affected."""


class RetryJobError(LicserverError):
    """A background job failed and is repeated, at `at` or by its queue's schedule.

    The message is stored and shown: it contains neither keys nor a customer's input.
    """

    def __init__(self, message: str, at: datetime | None = None) -> None:
        super().__init__(message)
        self.at = at


class ContinueJobError(RetryJobError):
    """A part of a background job is done, and it goes on after others: that is no further attempt."""


class BuryJobError(LicserverError):
    """A background job failed for good, until a user retries it; the message is stored."""
