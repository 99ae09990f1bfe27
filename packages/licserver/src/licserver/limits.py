"""How large and how slow a request may be: all limits of requests, and their table in docs/server/limits.md.

Lengths of single values stand with the rule of the value: a domain's in `domain.environments`, a note's in
`services.license_terms`. How many requests there may be is in `web.rate_limits` and `settings`.
"""

from collections.abc import Mapping
from typing import Final

# --- every request ----------------------------------------------------------------------------

MAX_TARGET_CHARS: Final = 4_096
MAX_PATH_SEGMENTS: Final = 20
MAX_HEAD_BYTES: Final = 32 << 10
MAX_HEADER_FIELDS: Final = 64
MAX_FIELD_CHARS: Final = 8_190
MAX_SMALL_CHUNKS: Final = 500
MAX_BODY_SECONDS: Final = 10.0
MAX_IDLE_SECONDS: Final = 75.0
MAX_DISCARDED_BYTES: Final = 4 << 20
MAX_DISCARD_SECONDS: Final = 2.0

# --- bodies, by their readers -----------------------------------------------------------------

MAX_PUBLIC_BODY_BYTES: Final = 16 << 10
MAX_ACCOUNT_BODY_BYTES: Final = 16 << 10
MAX_CONSOLE_BODY_BYTES: Final = 64 << 10
MAX_CONSOLE_BODY_FIELDS: Final = 300
MAX_ADMIN_BODY_BYTES: Final = 1 << 20
MAX_ADMIN_KEY_CHARS: Final = 255
MAX_DELIVERY_BODY_BYTES: Final = 1 << 20
MAX_UPLOAD_TEXT_BYTES: Final = 32 << 20
MAX_UPLOAD_FIELDS_BYTES: Final = 1 << 20
MAX_UPLOAD_OVERHEAD_BYTES: Final = 64 << 10
MAX_UPLOAD_BOUNDARY_CHARS: Final = 70
MAX_UPLOAD_TYPE_CHARS: Final = 512

REASONS: Final[Mapping[str, str]] = {
    "MAX_TARGET_CHARS": "the path with its query; what is longer is not decoded, 414 (D-299)",
    "MAX_PATH_SEGMENTS": "the parts of a path; a longer one is a 404 before it is routed, at quadratic cost",
    "MAX_HEAD_BYTES": "a head before its end: what a connection without a request may hold",
    "MAX_HEADER_FIELDS": "the fields of a head",
    "MAX_FIELD_CHARS": "a field of a head, all of its lines together; a longer signature is ignored (D-161)",
    "MAX_SMALL_CHUNKS": "chunks of less than 256 bytes of a body; then the connection is closed",
    "MAX_BODY_SECONDS": "until a body has arrived; `LICSERVER_BODY_TIMEOUT` sets it",
    "MAX_IDLE_SECONDS": "between a response and the next request's whole head; proxies expect a minute",
    "MAX_DISCARDED_BYTES": "an unread body after its response, so that an honest client reads that (D-153)",
    "MAX_DISCARD_SECONDS": "for the same",
    "MAX_PUBLIC_BODY_BYTES": "verify and all other public endpoints (spec 2)",
    "MAX_ACCOUNT_BODY_BYTES": "the customer's page: four times a computer's request for a license file",
    "MAX_CONSOLE_BODY_BYTES": "forms of the console: a note of the greatest length, percent-encoded",
    "MAX_CONSOLE_BODY_FIELDS": "the fields of such a form",
    "MAX_ADMIN_BODY_BYTES": "JSON for the admin API: a thousand allowed places, and room for all else",
    "MAX_ADMIN_KEY_CHARS": "an Idempotency-Key",
    "MAX_DELIVERY_BODY_BYTES": "deliveries of shops",
    "MAX_UPLOAD_TEXT_BYTES": "a file for an import in the console, which is kept in memory",
    "MAX_UPLOAD_FIELDS_BYTES": "the fields of an upload together; its file has `LICSERVER_UPLOAD_LIMIT`",
    "MAX_UPLOAD_OVERHEAD_BYTES": "what is outside of the parts of an upload and in their headers",
    "MAX_UPLOAD_BOUNDARY_CHARS": "the boundary of an upload (RFC 2046, 5.1.1)",
    "MAX_UPLOAD_TYPE_CHARS": "the `Content-Type` that names the boundary",
}
"""Constant → what it bounds, for the table in the documentation."""
