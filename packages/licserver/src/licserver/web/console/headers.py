"""What each answer of the console forbids the browser."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_POLICY: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",  # Pico's check marks and arrows are data: addresses within its style sheet
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
)

SECURITY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Content-Security-Policy": "; ".join(_POLICY),
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        # not `no-referrer`, with which a form's `Origin` would be "null"
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
        "X-Robots-Tag": "noindex, nofollow",
    }
)

PAGE: Final[Mapping[str, str]] = MappingProxyType(
    {**SECURITY, "Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store"}
)

INTO_UPLOAD_FORM: Final[Mapping[str, str]] = MappingProxyType(
    {
        "HX-Retarget": "form[data-upload] .progress-text",
        "HX-Reselect": "[role=alert]",
        "HX-Reswap": "innerHTML",
    }
)
"""For htmx: show what a problem page says within the form, whose fields and file stay as they are."""

ASSET: Final[Mapping[str, str]] = MappingProxyType(
    {**SECURITY, "Cache-Control": "public, max-age=31536000, immutable"}
)
"""For files whose address names their digest."""
