"""The fake service's license files, as licserver issues them."""

from base64 import b32decode
from datetime import UTC, datetime, time, timedelta
from typing import Any

from licclient._signatures.license_files import key_digest
from licclient._typed_key import mask_key
from licclient.testing._endpoints import Endpoints
from licclient.testing._signing import Signer


def write_file(endpoints: Endpoints, key: str, request: str, days: int, now: datetime, sign: Signer) -> bytes:
    """Return a license file for the machine that made a request; raise `ValueError` if it is refused."""
    domain, slug = _read_request(request)
    told: dict[str, Any] = endpoints.verify({"license_key": key, "domain": domain, "ip": "0.0.0.0"}).json()  # noqa: S104 - no address
    if not told["valid"]:
        raise ValueError(f"no license file is issued: {told['reason']}")
    ends_at = now + timedelta(days=days)
    if told["expiry"] is not None:
        last = datetime.fromisoformat(told["expiry"])
        ends_at = min(ends_at, datetime.combine(last + timedelta(days=1), time(), UTC))
    content = {
        **told,
        "slug": endpoints.licenses[key].slug or slug,
        "license": mask_key(key),
        "key_digest": key_digest(key, domain),
        "domain": domain,
        "issued_at": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "ends_at": f"{ends_at:%Y-%m-%dT%H:%M:%SZ}",
    }
    return sign.sign_file(content)


def _read_request(code: str) -> tuple[str, str]:
    text = code.removeprefix("REQ").replace("-", "")
    content = b32decode(text + "=" * (-len(text) % 8))[:-3]
    if content[:1] == b"\1":
        return content[1:17].hex(), content[17:].decode().split("\0")[0]
    domain, slug, _ = content[1:].decode().split("\0")
    return domain, slug
