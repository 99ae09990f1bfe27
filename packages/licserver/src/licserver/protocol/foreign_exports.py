"""Convert exports of other systems to rows of our own format (D-186). Pure.

The formats as of November 2026; docs/server/exports has a sample of each:

- Easy Digital Downloads, Software Licensing: the CSV of its license export (read in its source, 3.0 to 3.6).
  The expiration is a Unix time or `lifetime`; up to 3.5 a date and time, in which no expiration reads 1970.
  Limit 0 is no limit; active, inactive, expired or disabled. Headings are in the language of the site.
- License Manager for WooCommerce: the CSV of its bulk action (read in its source); its columns are a setting.
  Dates are like `2027-01-31 12:00:00`, `valid_for` are days from the sale; SOLD, DELIVERED, ACTIVE, INACTIVE.
- Lemon Squeezy documents no file of license keys: the pages of its API, `GET /v1/license-keys` (JSON:API).
- Keygen has an API only: the pages of `GET /v1/accounts/…/licenses`. `maxMachines` null is no limit.
- Gumroad: the CSV of sales (read in its source). A line is a payment, so a subscription's key occurs again in
  each renewal; there is no activation limit, several copies have one key, and the last line has totals.
"""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final

from licserver.protocol.conversion import (
    OPEN_END,
    QUANTITY,
    ForeignLineError,
    Preset,
    Record,
    SkippedLineError,
    day_of,
    instant_of,
    text_of,
)

# --- values -----------------------------------------------------------------------------------


def _read_limit(row: Record, column: str) -> str | None:
    """Return an activation limit; 0 or a blank is no limit. None without the column."""
    text = text_of(row.get(column))
    return ("unlimited" if text in (None, "0") else text) if column in row else None


def _in_state(
    values: dict[str, Any], state: str, now: datetime, **meaning: tuple[str, ...]
) -> dict[str, Any]:
    """Apply the state in the other system.

    Args:
        values: Our fields, with `expires_on` if there is one.
        state: The state in the other system.
        now: The instant of a revocation.
        **meaning: The states of the other system that mean `valid`, `blocked` and `expired`.
    """
    name = state.strip().lower()
    if name in meaning["blocked"]:
        return {**values, "revoked_at": now.isoformat(), "revoked_reason": f"{name} in the former system"}
    if name in meaning.get("expired", ()):
        expires_on, yesterday = values.get("expires_on"), now.date() - timedelta(days=1)
        if not expires_on or date.fromisoformat(expires_on) > yesterday:
            return {**values, "expires_on": yesterday.isoformat(), "lifetime": False}
    elif name not in meaning["valid"]:
        statuses = ", ".join(sorted(sum(meaning.values(), ())))
        raise ForeignLineError(f"status: {name[:40]!r} is not known; known are: {statuses}")
    return values


def _note(*parts: tuple[str, Any]) -> str | None:
    texts = [f"{label}{text}" for label, value in parts if (text := text_of(value))]
    return ", ".join(texts) or None


# --- systems ----------------------------------------------------------------------------------


def _read_edd(row: Record, now: datetime) -> dict[str, Any]:
    end = text_of(row.get("Expiration Date"))
    lifetime = "Expiration Date" in row and (end in (None, "0", "lifetime") or end.startswith("1970-01-01"))
    values = {
        "license_key": row["License Key"],
        "product": [row.get("Product Name")],
        "lifetime": lifetime,
        "expires_on": None if lifetime else day_of(row, "Expiration Date"),
        "slots": _read_limit(row, "Activation Limit"),
        "customer_email": text_of(row.get("Customer Email")) or text_of(row.get("Email")),
        "note": _note(("", row.get("Customer Name")), ("EDD license ", row.get("License ID"))),
        "issued_at": instant_of(row, "Purchase Date"),
    }
    return _in_state(
        values,
        row["License Status"],
        now,
        valid=("active", "inactive"),
        blocked=("disabled", "revoked"),
        expired=("expired",),
    )


def _read_woocommerce(row: Record, now: datetime) -> dict[str, Any]:
    expires_on = day_of(row, "expires_at")
    if expires_on is None and text_of(row.get("valid_for")) not in (None, "0"):
        raise SkippedLineError("not sold yet: valid for some days from its sale")
    values = {
        "license_key": row["license_key"],
        "product": [row.get("product_id")],
        "expires_on": expires_on,
        "slots": _read_limit(row, "times_activated_max"),
        "note": _note(("WooCommerce order ", row.get("order_id"))),
        "issued_at": instant_of(row, "created_at"),
    }
    return _in_state(
        values,
        row["status"],
        now,
        valid=("sold", "delivered", "active"),
        blocked=("inactive", "disabled"),
    )


def _read_lemonsqueezy(item: Record, now: datetime) -> dict[str, Any]:
    row = _attributes(item)
    values = {
        "license_key": row["key"],
        "product": [row.get("product_id")],
        "expires_on": day_of(row, "expires_at"),
        "slots": _read_limit(row, "activation_limit"),
        "customer_email": text_of(row.get("user_email")),
        "note": _note(("", row.get("user_name")), ("Lemon Squeezy order ", row.get("order_id"))),
        "issued_at": instant_of(row, "created_at"),
    }
    state = "disabled" if row.get("disabled") else str(row["status"])
    return _in_state(
        values, state, now, valid=("active", "inactive"), blocked=("disabled",), expired=("expired",)
    )


def _read_keygen(item: Record, now: datetime) -> dict[str, Any]:
    row = _attributes(item)
    metadata = row.get("metadata")
    values = {
        "license_key": row["key"],
        "product": [_related(item, "product"), _related(item, "policy")],
        "expires_on": day_of(row, "expiry"),
        "slots": _read_limit(row, "maxMachines"),
        "customer_email": text_of(metadata.get("email")) if isinstance(metadata, dict) else None,
        "note": _note(("", row.get("name")), ("Keygen license ", item.get("id"))),
        "issued_at": instant_of(row, "created"),
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


def _attributes(item: Record) -> dict[str, Any]:
    attributes = item.get("attributes")
    if not isinstance(attributes, dict) or not {"key", "status"} <= attributes.keys():
        raise ForeignLineError("attributes: key and status are required")
    return attributes


def _related(item: Record, name: str) -> Any:
    """Return the id of a related object of JSON:API."""
    value: Any = item
    for key in ("relationships", name, "data", "id"):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _read_gumroad(row: Record, now: datetime) -> dict[str, Any]:
    if not text_of(row["License Key"]):
        raise SkippedLineError("has no license key")
    if _is_set(row, "Recurring Charge?"):
        raise SkippedLineError("a renewal; the first payment has the key")
    values = {
        "license_key": row["License Key"],
        "product": [row.get("Product ID"), row.get("Item Name")],
        "customer_email": text_of(row.get("Giftee Email")) or text_of(row.get("Purchase Email")),
        "note": _note(
            ("", row.get("Buyer Name")),
            ("", row.get("Variants")),
            ("Gumroad order ", row.get("Order Number")),
        ),
        "expires_on": day_of(row, "Subscription End Date"),
        "issued_at": instant_of(row, "Purchase Time (UTC timezone)") or instant_of(row, "Purchase Date"),
        QUANTITY: row.get("Quantity"),
    }
    if text_of(row.get("Recurrence")) and values["expires_on"] is None:
        values[OPEN_END] = "a subscription with regular payments"
    return _in_state(values, _gumroad_state(row), now, valid=("enabled",), blocked=_GUMROAD_BLOCKED)


_GUMROAD_COLUMNS: Final = (
    *("License Key", "License Key Enabled?", "Product ID", "Quantity", "Recurrence", "Recurring Charge?"),
    *("Fully Refunded?", "Access Revoked?", "Disputed?", "Dispute Won?"),
)
_GUMROAD_BLOCKED: Final = ("disabled", "refunded", "revoked", "charged back")


def _gumroad_state(row: Record) -> str:
    if text_of(row["License Key Enabled?"]) == "0":
        return "disabled"
    if _is_set(row, "Fully Refunded?"):
        return "refunded"
    if _is_set(row, "Access Revoked?"):
        return "revoked"
    if _is_set(row, "Disputed?") and not _is_set(row, "Dispute Won?"):
        return "charged back"
    return "enabled"


def _is_set(row: Record, name: str) -> bool:
    return text_of(row.get(name)) == "1"


PRESETS: Final[Mapping[str, Preset]] = {
    "edd": Preset(
        title="Easy Digital Downloads",
        form="csv",
        columns=("License Key", "License Status", "Product Name"),
        read=_read_edd,
        end="Expiration Date",
        slots="Activation Limit",
    ),
    "woocommerce": Preset(
        title="License Manager for WooCommerce",
        form="csv",
        columns=("license_key", "status", "product_id", "valid_for"),
        read=_read_woocommerce,
        end="expires_at",
        slots="times_activated_max",
    ),
    "lemonsqueezy": Preset(
        title="Lemon Squeezy",
        form="json",
        columns=(),
        read=_read_lemonsqueezy,
        end="expires_at",
        slots="activation_limit",
    ),
    "keygen": Preset(
        title="Keygen",
        form="json",
        columns=(),
        read=_read_keygen,
        end="expiry",
        slots="maxMachines",
    ),
    "gumroad": Preset(
        title="Gumroad",
        form="csv",
        columns=_GUMROAD_COLUMNS,
        read=_read_gumroad,
        end="Subscription End Date",
        slots=None,
        quantity="Quantity",
    ),
}
