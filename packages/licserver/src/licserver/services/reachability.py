"""Asking our own address over the network, as a customer would."""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

TIMEOUT: Final = 5.0
"""Seconds for all of it: a name, a connection, an answer."""

_LIMIT: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ReachResult:
    """What came back.

    Args:
        problem: What is wrong, as the rest of a sentence; empty when a licserver answered.
        date: The answer's own clock, to the second.
    """

    problem: str = ""
    date: datetime | None = None


def ask_base_url(base_url: str) -> ReachResult:
    """Ask whether a licserver answers at an address.

    Args:
        base_url: As the settings have it.
    """
    try:
        with urllib.request.urlopen(f"{base_url}/healthz", timeout=TIMEOUT) as answer:  # noqa: S310 - settings check the scheme
            body, date = answer.read(_LIMIT), answer.headers.get("Date")
    except urllib.error.HTTPError as refused:
        with refused:
            return ReachResult(f"answers {refused.code} at /healthz")
    except urllib.error.URLError as problem:
        return ReachResult(_why(problem.reason))
    except (OSError, http.client.HTTPException, ValueError) as problem:
        return ReachResult(_why(problem))
    try:
        is_ours = json.loads(body) == {"status": "ok"}
        told = None if date is None else parsedate_to_datetime(date)
    except (ValueError, TypeError):
        is_ours, told = False, None
    return ReachResult("" if is_ours else "is answered by something else than licserver", told)


def _why(problem: object) -> str:
    match problem:
        case ssl.SSLCertVerificationError():
            return f"has a certificate that is not trusted: {problem.verify_message}"
        case TimeoutError():
            return f"does not answer within {TIMEOUT:.0f} seconds"
        case OSError():
            return f"cannot be reached: {problem.strerror or problem}"
        case _:
            return f"cannot be reached: {type(problem).__name__}"
