"""Pure: what a license grants, as the service sends it and as an app reads it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

_NAME: Final = r"[a-z0-9_.-]{1,40}"
_PERIODS: Final = ("day", "month", "year")


class Quota(NamedTuple):
    """A number per calendar day, month or year, in UTC."""

    limit: int
    per: str


EntitlementValue = bool | int | str | Quota


class Entitlements(Mapping[str, EntitlementValue]):
    """What a license grants, by name; read-only.

    What is absent is not false: the app chooses its default, as `entitlements.get("projects", 3)`.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, EntitlementValue] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, name: str) -> EntitlementValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Entitlements({self._values})"

    def grants(self, name: str) -> bool:
        """Return whether a feature is on: its flag is set, its number is not 0, or it has a text."""
        value = self._values.get(name)
        return bool(value.limit if isinstance(value, Quota) else value)


def is_entitlement_name(name: object) -> bool:
    """Return whether this can be the name of an entitlement; a license key of ours cannot."""
    return isinstance(name, str) and re.fullmatch(_NAME, name) is not None


def read_entitlements(sent: object) -> Entitlements:
    """Read the object of a response or of a record; leave out what is of no known type."""
    if not isinstance(sent, dict):
        return Entitlements()
    read = {name: _read_value(value) for name, value in sent.items() if is_entitlement_name(name)}
    return Entitlements({name: value for name, value in read.items() if value is not None})


def _read_value(value: object) -> EntitlementValue | None:
    match value:
        case bool():
            return value
        case int():
            return value if value >= 0 else None
        case str():
            # JSON lets halves of surrogate pairs through, which cannot be shown or stored.
            return value if value.isprintable() else None
        case {"limit": bool()}:
            return None
        case {"limit": int(limit), "per": str(per)} if limit >= 0 and per in _PERIODS:
            return Quota(limit, per)
        case _:
            return None


def write_entitlements(entitlements: Entitlements) -> dict[str, Any]:
    """Return what `read_entitlements` reads."""
    return {
        name: value._asdict() if isinstance(value, Quota) else value for name, value in entitlements.items()
    }
