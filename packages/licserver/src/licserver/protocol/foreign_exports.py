"""Exports of other systems, and files with other columns, as rows of our own format (D-186). Pure.

What is known of each export, as of November 2026:

- Easy Digital Downloads, Software Licensing: the CSV of its license export (read in its source). The
  expiration is a Unix time or `lifetime`, limit 0 is no limit; active, inactive, expired or disabled.
- License Manager for WooCommerce: the CSV of its bulk action (read in its source); its columns are a setting.
  Dates are like `2027-01-31 12:00:00`, `valid_for` are days from the sale; SOLD, DELIVERED, ACTIVE, INACTIVE.
- Lemon Squeezy documents no file of license keys: the pages of its API, `GET /v1/license-keys` (JSON:API).
- Keygen has an API only: the pages of `GET /v1/accounts/…/licenses`. `maxMachines` null is no limit.
- Gumroad: the CSV of sales (read in its source). A line is a payment, so a subscription's key occurs again in
  each renewal; there is no activation limit, and the last line has totals.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

_Record = Mapping[str, Any]
_DATES: Final = ("expires_on", "support_until")
_UNIX_TIME: Final = re.compile(r"\d{9,11}")


class SkippedLineError(ValueError):
    """A line that is not a license, such as a payment for one; the message is the reason."""


class ForeignLineError(ValueError):
    """A line that cannot be read; the message contains no license key."""


class Preset(NamedTuple):
    """How the export of another system is read."""

    title: str  # the system's name
    form: str  # `csv`, or `json` for documents with a list `data`
    columns: tuple[str, ...]  # those by which the export is recognised
    # Returns our fields; `product` is a list of the names that the other system has for it.
    read: Callable[[_Record, datetime], dict[str, Any]]
    has_slots: bool = True  # whether the export has activation limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What a file's lines are in our fields."""

    now: datetime  # when licenses that another system has blocked are revoked
    preset: Preset | None = None  # the system that wrote the file
    # A column of the file → our field, or an empty text to ignore the column.
    columns: Mapping[str, str] = field(default_factory=dict)
    # Another system's name or id of a product → our slug; an empty text stands for all others.
    products: Mapping[str, str] = field(default_factory=dict)
    slots: str | None = None  # the activation limit of lines without one

    def __bool__(self) -> bool:
        """Whether anything is to be converted."""
        return self.preset is not None or any((self.columns, self.products, self.slots))

    @property
    def is_foreign(self) -> bool:
        """Whether the file has other columns than ours, of which most are ignored."""
        return self.preset is not None or bool(self.columns)

    def check_columns(self, names: list[str]) -> str | None:
        """Return what is wrong with the columns of a file, or None."""
        missing = [name for name in self.columns if name not in names]
        if missing:
            return f"there is no column {missing[0]!r}; the file has: {', '.join(names)[:1000]}"
        if self.preset is not None:
            for name in self.preset.columns:
                if name not in names:
                    return f"this is no export of {self.preset.title}: there is no column {name!r}"
        return None

    def convert(self, record: _Record, fields: tuple[str, ...]) -> dict[str, Any]:
        """Return a line in our fields.

        Raises:
            SkippedLineError: It is no license.
            ForeignLineError: It cannot be read.
        """
        if self.preset is not None:
            values = self.preset.read(record, self.now)
        else:
            values = {name: record[name] for name in fields if name in record and name not in self.columns}
        for column, name in self.columns.items():
            if name:
                values[name] = record.get(column)
        for name in _DATES:  # as dates with times too, which other systems have
            if isinstance(values.get(name), str) and values[name].strip():
                values[name] = _day_of(values, name)
        if self.preset is not None and not _text(values.get("license_key")):
            raise ForeignLineError("license_key: is required")
        values["product"] = self._find_product(values.get("product"))
        if self.slots is not None and _text(values.get("slots")) is None:
            values["slots"] = self.slots
        return values

    def _find_product(self, names: Any) -> str | None:
        candidates = [text for name in names if (text := _text(name))] if isinstance(names, list) else [names]
        for name in candidates:
            if name in self.products:
                return self.products[name]
        if "" in self.products:
            return self.products[""]
        if self.preset is not None:
            known = f" for {candidates[0]!r}" if candidates else ""
            option = f"--product {candidates[0]!r}=SLUG" if candidates else "--product SLUG"
            raise ForeignLineError(f"product: say which product is meant{known}: {option}")
        return _text(names)


# --- values -----------------------------------------------------------------------------------


def _text(value: Any) -> str | None:
    """Return text without surrounding blanks, None for nothing."""
    text = "" if value is None else str(value).strip()
    return text or None


def _read_instant(name: str, value: Any) -> datetime:
    text = (_text(value) or "").removesuffix(" UTC")
    text = re.sub(r" ([+-]\d\d:?\d\d)$", r"\1", text)  # as Ruby writes it
    try:
        if _UNIX_TIME.fullmatch(text):
            return datetime.fromtimestamp(int(text), UTC)
        instant = datetime.fromisoformat(text)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ForeignLineError(f"{name}: must be a date like 2027-01-31, with or without a time") from None


def _instant_of(row: _Record, name: str) -> str | None:
    text = _text(row.get(name))
    return text and _read_instant(name, text).isoformat()


def _day_of(row: _Record, name: str) -> str | None:
    text = _text(row.get(name))
    return text and _read_instant(name, text).date().isoformat()


def _read_limit(value: Any) -> str:
    """Return the activation limit of a system in which 0 or nothing is no limit."""
    text = _text(value)
    return "unlimited" if text in (None, "0") else text


def _in_state(
    values: dict[str, Any], state: str, now: datetime, **meaning: tuple[str, ...]
) -> dict[str, Any]:
    """Apply the state that the other system names.

    Args:
        values: Our fields, with `expires_on` if there is one.
        state: Of the other system.
        now: The instant of a revocation.
        **meaning: `valid`, `blocked` and `expired`: the states that mean it.
    """
    name = state.strip().lower()
    if name in meaning["blocked"]:
        return {**values, "revoked_at": now.isoformat(), "revoked_reason": f"{name} in the former system"}
    if name in meaning.get("expired", ()):
        expires_on, yesterday = values.get("expires_on"), now.date() - timedelta(days=1)
        if not expires_on or date.fromisoformat(expires_on) > yesterday:
            return {**values, "expires_on": yesterday.isoformat(), "lifetime": False}
    elif name not in meaning["valid"]:
        known = ", ".join(sorted(sum(meaning.values(), ())))
        raise ForeignLineError(f"status: {name[:40]!r} is not known; known are: {known}")
    return values


def _note(*parts: tuple[str, Any]) -> str | None:
    texts = [f"{label}{text}" for label, value in parts if (text := _text(value))]
    return ", ".join(texts) or None


# --- systems ----------------------------------------------------------------------------------


def _read_edd(row: _Record, now: datetime) -> dict[str, Any]:
    lifetime = _text(row.get("Expiration Date")) in (None, "0", "lifetime")
    values = {
        "license_key": row["License Key"],
        "product": [row.get("Product Name")],
        "lifetime": lifetime,
        "expires_on": None if lifetime else _day_of(row, "Expiration Date"),
        "slots": _read_limit(row.get("Activation Limit")),
        "customer_email": _text(row.get("Customer Email")),
        "note": _note(("", row.get("Customer Name")), ("EDD license ", row.get("License ID"))),
        "issued_at": _instant_of(row, "Purchase Date"),
    }
    return _in_state(
        values,
        row["License Status"],
        now,
        valid=("active", "inactive"),
        blocked=("disabled", "revoked"),
        expired=("expired",),
    )


def _read_woocommerce(row: _Record, now: datetime) -> dict[str, Any]:
    expires_on = _day_of(row, "expires_at")
    if expires_on is None and _text(row.get("valid_for")) not in (None, "0"):
        raise SkippedLineError("not sold yet: valid for some days from its sale")
    values = {
        "license_key": row["license_key"],
        "product": [row.get("product_id")],
        "expires_on": expires_on,
        "slots": _read_limit(row.get("times_activated_max")),
        "note": _note(("WooCommerce order ", row.get("order_id"))),
        "issued_at": _instant_of(row, "created_at"),
    }
    return _in_state(
        values,
        row["status"],
        now,
        valid=("sold", "delivered", "active"),
        blocked=("inactive", "disabled"),
    )


def _read_lemonsqueezy(item: _Record, now: datetime) -> dict[str, Any]:
    row = _attributes(item)
    values = {
        "license_key": row["key"],
        "product": [row.get("product_id")],
        "expires_on": _day_of(row, "expires_at"),
        "slots": _read_limit(row.get("activation_limit")),
        "customer_email": _text(row.get("user_email")),
        "note": _note(("", row.get("user_name")), ("Lemon Squeezy order ", row.get("order_id"))),
        "issued_at": _instant_of(row, "created_at"),
    }
    state = "disabled" if row.get("disabled") else str(row["status"])
    return _in_state(
        values, state, now, valid=("active", "inactive"), blocked=("disabled",), expired=("expired",)
    )


def _read_keygen(item: _Record, now: datetime) -> dict[str, Any]:
    row = _attributes(item)
    metadata = row.get("metadata")
    values = {
        "license_key": row["key"],
        "product": [_related(item, "product"), _related(item, "policy")],
        "expires_on": _day_of(row, "expiry"),
        "slots": _read_limit(row.get("maxMachines")),
        "customer_email": _text(metadata.get("email")) if isinstance(metadata, dict) else None,
        "note": _note(("", row.get("name")), ("Keygen license ", item.get("id"))),
        "issued_at": _instant_of(row, "created"),
    }
    state = "suspended" if row.get("suspended") else str(row["status"])
    return _in_state(
        values,
        state,
        now,
        valid=("active", "inactive", "expiring"),
        blocked=("suspended", "banned"),
        expired=("expired",),
    )


def _attributes(item: _Record) -> dict[str, Any]:
    attributes = item.get("attributes")
    if not isinstance(attributes, dict) or not {"key", "status"} <= attributes.keys():
        raise ForeignLineError("attributes: key and status are required")
    return attributes


def _related(item: _Record, name: str) -> Any:
    """Return the id of a related object of JSON:API."""
    found: Any = item
    for key in ("relationships", name, "data", "id"):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _read_gumroad(row: _Record, now: datetime) -> dict[str, Any]:
    if not _text(row["License Key"]):
        raise SkippedLineError("has no license key")
    if _is_set(row, "Recurring Charge?"):
        raise SkippedLineError("a renewal; the first payment has the key")
    values = {
        "license_key": row["License Key"],
        "product": [row.get("Product ID"), row.get("Item Name")],
        "customer_email": _text(row.get("Giftee Email")) or _text(row.get("Purchase Email")),
        "note": _note(
            ("", row.get("Buyer Name")),
            ("", row.get("Variants")),
            ("Gumroad order ", row.get("Order Number")),
        ),
        "expires_on": _day_of(row, "Subscription End Date"),
        "issued_at": _instant_of(row, "Purchase Time (UTC timezone)") or _instant_of(row, "Purchase Date"),
    }
    return _in_state(values, _gumroad_state(row), now, valid=("enabled",), blocked=_GUMROAD_BLOCKED)


_GUMROAD_BLOCKED: Final = ("disabled", "refunded", "revoked", "charged back")


def _gumroad_state(row: _Record) -> str:
    if _text(row["License Key Enabled?"]) == "0":
        return "disabled"
    if _is_set(row, "Fully Refunded?"):
        return "refunded"
    if _is_set(row, "Access Revoked?"):
        return "revoked"
    if _is_set(row, "Disputed?") and not _is_set(row, "Dispute Won?"):
        return "charged back"
    return "enabled"


def _is_set(row: _Record, name: str) -> bool:
    return _text(row.get(name)) == "1"


PRESETS: Final[Mapping[str, Preset]] = {
    "edd": Preset("Easy Digital Downloads", "csv", ("License Key", "License Status"), _read_edd),
    "woocommerce": Preset(
        "License Manager for WooCommerce", "csv", ("license_key", "status"), _read_woocommerce
    ),
    "lemonsqueezy": Preset("Lemon Squeezy", "json", (), _read_lemonsqueezy),
    "keygen": Preset("Keygen", "json", (), _read_keygen),
    "gumroad": Preset(
        "Gumroad", "csv", ("License Key", "License Key Enabled?"), _read_gumroad, has_slots=False
    ),
}
