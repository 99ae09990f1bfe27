"""What stands between an app and the service, and answers in its place: the bodies of well-known gateways."""

import json
from typing import Any, Final

STATUSES: Final = [
    *(200, 201, 204, 206, 300, 301, 302, 304, 307, 308),
    *(400, 401, 402, 403, 404, 405, 407, 408, 409, 410, 411, 413, 415, 418),
    *(421, 422, 423, 425, 426, 428, 429, 431, 444, 451, 495, 499),
    *(500, 501, 502, 503, 504, 511, 520, 522, 525, 530, 599),
]

BODIES: Final[dict[str, Any]] = {
    "nothing": b"",
    "a page": b"<html><head><title>403 Forbidden</title></head><body>nginx</body></html>",
    "text": b"upstream connect error or disconnect/reset before headers",
    "null": None,
    "a list": [{"error": "Forbidden", "message": "Forbidden"}],
    "no fields": {},
    "AWS API Gateway": {"message": "Forbidden"},
    "AWS load balancer": {"Message": "User is not authorized to access this resource"},
    "Azure": {"statusCode": 403, "message": "Access denied due to invalid subscription key."},
    "NestJS": {"statusCode": 403, "message": "Forbidden resource", "error": "Forbidden"},
    "Spring": {
        "timestamp": "2026-11-26T10:00:00Z",
        "status": 403,
        "error": "Forbidden",
        "message": "Access Denied",
        "path": "/api/v1/licenses/verify",
    },
    "OAuth": {"error": "invalid_token", "error_description": "The access token expired"},
    "OAuth with a message": {"error": "access_denied", "message": "Access denied"},
    "Laravel": {"message": "Unauthenticated."},
    "FastAPI": {"detail": "Not Found"},
    "FastAPI, fields": {"detail": [{"loc": ["body", "x"], "msg": "field required", "type": "missing"}]},
    "Kong": {"message": "no Route matched with those values", "request_id": "0a1b"},
    "Express": {"error": "Not Found", "message": "Cannot POST /api/v1/licenses/verify"},
    "Google": {"error": {"code": 403, "message": "The caller does not have permission", "status": "DENIED"}},
    "a problem": {"type": "about:blank", "title": "Forbidden", "status": 403, "detail": "No."},
    "JSON:API": {"errors": [{"status": "403", "title": "Forbidden"}]},
    "a filter": {"blocked": True, "reason": "category: software downloads", "error": "blocked"},
    "a filter's verdict": {"valid": "false", "reason": "blocked"},
    "a code of another endpoint": {"error": "link_expired", "message": "The link has expired."},
    "a code of a later service": {"error": "license_sleeps", "message": "It is night."},
    "a code as a number": {"error": 403, "message": "Forbidden"},
}
"""Name → a body, as bytes or to be written as JSON. No status makes any of them the service's word."""


def written(body: Any) -> bytes:
    """Return a body as it is sent."""
    return body if isinstance(body, bytes) else json.dumps(body).encode()
