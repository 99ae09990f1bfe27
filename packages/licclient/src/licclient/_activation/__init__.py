"""The key of this computer: activate it, describe its license, forget it."""
