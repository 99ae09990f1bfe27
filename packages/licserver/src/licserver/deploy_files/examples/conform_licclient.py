"""Make a program of licclient that `licconform client` can test.

licconform client --clock --kind all -- python conform_licclient.py
"""

import os
import sys
from datetime import UTC, datetime, timedelta

from licclient import LicclientError, LicenseClient
from licclient.errors import (
    InvalidRequestError,
    LicenseRefusedError,
    ServiceUnavailableError,
    UntrustedResponseError,
)

YES, NO, WRONG_USE, NO_ANSWER = 0, 1, 2, 3


def clock() -> datetime:
    """Return the time that the test has set."""
    ahead = int(os.environ.get("LICCONFORM_CLOCK") or 0)
    return datetime.now(UTC) + timedelta(seconds=ahead)  # noqa: TID251 - a program of its own


def run(verb: str, key: str, slug: str = "conform", version: str = "1.0.0") -> int:
    """Run a verb; return the exit status."""
    force = bool(os.environ.get("LICCONFORM_FORCE"))
    with LicenseClient(
        os.environ["LICCONFORM_URL"],
        storage=os.environ["LICCONFORM_STATE"],
        product=os.environ.get("LICCONFORM_PRODUCT") or None,
        slug=slug,
        version=version,
        clock=clock,
    ) as client:
        if verb == "verify":
            client.verify(key.strip().upper(), force=force)
            return YES
        update = client.check_for_update(key, force=force or verb == "download").update
        if update is None:
            return NO
        if verb == "download":
            client.download(update, os.environ["LICCONFORM_DOWNLOADS"], key=key)
        return YES


def main() -> int:
    """Return the exit status of a problem."""
    try:
        return run(*sys.argv[1:])
    except LicenseRefusedError:
        return NO
    except InvalidRequestError:
        return WRONG_USE
    except (ServiceUnavailableError, UntrustedResponseError):
        return NO_ANSWER
    except LicclientError:
        return NO


if __name__ == "__main__":
    sys.exit(main())
