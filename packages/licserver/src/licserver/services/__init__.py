"""The vendor's operations, shared by the command line, the admin API and the console.

Each operation validates its arguments first, then changes the data and the audit log in a transaction.
Invalid input raises an `InvalidInputError`, a missing object a `NotFoundError`, a conflict a `ConflictError`.
"""
