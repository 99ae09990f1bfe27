"""A service that signs what it grants, as the oracle does it."""

import json
from typing import Any

from harness.oracle import Answered, Asked, Signer

SIGNER = Signer()


def grants_signed(service: Any, http_answer: Any, clock: Any, product: str = "Notes") -> None:
    """Grant every key from now on, through a day, and sign it by `SIGNER`."""

    def script(request: Any) -> bytes:
        body = {"valid": True, "product": product, "expiry": "2026-12-31", "lifetime": False}
        asked = Asked(request.method, service.url + request.target, request.headers, request.body)
        answered = Answered(asked, 200, {"Content-Type": "application/json"}, json.dumps(body).encode())
        wish = SIGNER.wish(request.headers)
        assert wish is not None
        label, nonce = wish
        SIGNER.sign(answered, nonce, clock(), label=label)
        headers = {name.replace("-", "_"): value for name, value in answered.headers.items()}
        raw: bytes = http_answer(200, answered.body, **headers)
        return raw

    service.script = script
