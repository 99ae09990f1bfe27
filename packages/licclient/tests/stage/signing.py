"""A service that signs its answers, as the oracle does it."""

import json
from dataclasses import dataclass, field
from typing import Any

from harness.oracle import HttpRequest, HttpResponse, Signer

SIGNER = Signer()
GOOD = {"valid": True, "product": "Notes", "expiry": None, "lifetime": False}


@dataclass
class Vendor:
    """A scripted service that signs."""

    service: Any
    http_answer: Any
    clock: Any
    signer: Signer = field(default_factory=Signer)

    def answered(self, request: Any, status: int = 200, body: Any = GOOD) -> HttpResponse:
        """An answer to a request, not yet signed."""
        signed_request = HttpRequest(
            request.method, self.service.url + request.target, request.headers, request.body
        )
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return HttpResponse(signed_request, status, {"Content-Type": "application/json"}, raw)

    def sign(self, answered: HttpResponse, signer: Signer | None = None, **bent: Any) -> HttpResponse:
        """Sign it as it was asked for, but for what is bent."""
        requested = self.signer.find_requested(answered.request.headers)
        assert requested is not None
        label, nonce = requested
        signature_options = {"nonce": nonce, "created": self.clock(), "label": label, **bent}
        (signer or self.signer).sign(answered, **signature_options)
        return answered

    def write(self, answered: HttpResponse) -> bytes:
        """Put it on the wire."""
        headers = {name.replace("-", "_"): value for name, value in answered.headers.items()}
        raw: bytes = self.http_answer(answered.status_code, answered.body, **headers)
        return raw

    def responds(self, status: int = 200, body: Any = GOOD, **bent: Any) -> None:
        """Answer everything so from now on, signed for who asks for it."""

        def script(request: Any) -> bytes:
            answered = self.answered(request, status, body)
            wanted = "accept-signature" in request.headers
            return self.write(self.sign(answered, **bent) if wanted else answered)

        self.service.script = script


def grants_signed(service: Any, http_answer: Any, clock: Any, product: str = "Notes") -> None:
    """Grant every key from now on, through a day, and sign it by `SIGNER`."""
    body = GOOD | {"product": product, "expiry": "2026-12-31"}
    Vendor(service, http_answer, clock, SIGNER).responds(body=body)
