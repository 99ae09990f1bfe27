"""`licclient` against a server written from the specification alone, in Node: without our extensions."""

import inspect
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from licclient import AsyncLicenseClient, LicenseClient, Reason, Trust
from licclient.errors import (
    DeactivationError,
    LicenseRefusedError,
    ServiceUnavailableError,
    UntrustedResponseError,
)
from licclient.install import Installation
from licclient.testing import MemoryStorage

FOLDER = Path(__file__).parents[1] / "packages" / "licconform" / "tests" / "independent"
NODE = shutil.which("node") or ""
pytestmark = pytest.mark.skipif(not NODE, reason="Node is not installed (apt install nodejs)")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The independent server; its address."""
    command = [NODE, str(FOLDER / "server.mjs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.match("listening on (http://.*)", process.stdout.readline())
            assert found is not None
            yield found[1]
        finally:
            process.terminate()


def seed(server: str, *words: str) -> dict[str, Any]:
    """Make a key in a state."""
    command = [NODE, str(FOLDER / "seed.mjs"), server, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


async def answer(result: Any) -> Any:
    """Return what either kind of client returns."""
    return await result if inspect.isawaitable(result) else result


@pytest.mark.slow
@pytest.mark.parametrize("flavour", [LicenseClient, AsyncLicenseClient])
async def test_a_customer_of_a_plain_server(server: str, tmp_path: Path, flavour: Any) -> None:
    """Verify, update check and download; the file is marked, and installed at the app's word only."""
    made = seed(server, "key", "valid")
    settings = {"product": made["product"], "slug": made["slug"], "version": "1.0.0"}
    client = flavour(server, **settings, storage=MemoryStorage())
    assert (await answer(client.activate(made["license_key"]))).product == made["product"]
    assert (await answer(client.require())).is_authenticated is False
    update = (await answer(client.check_for_update())).update
    assert (update.version, update.changelog_text) == ("2.0.0", "- Faster.")

    done = await answer(client.download(update, tmp_path))
    assert (done.sha256, done.version, done.is_verified) == (made["sha256"], "2.0.0", False)
    with pytest.raises(UntrustedResponseError, match="allow_unverified"):
        Installation(tmp_path / "app").apply(done)

    strict = flavour(server, **settings, storage=MemoryStorage(), trust=Trust(require_digest=True), timeout=2)
    update = (await answer(strict.check_for_update(made["license_key"]))).update
    with pytest.raises(ServiceUnavailableError, match="require_digest"):
        await answer(strict.download(update, tmp_path / "strict", key=made["license_key"]))
    with pytest.raises(DeactivationError):  # an extension
        await answer(client.deactivate())


REFUSED = {
    "revoked": Reason.REVOKED,
    "expired": Reason.EXPIRED,
    "subscription-ended": Reason.EXPIRED,
    "full": Reason.ENVIRONMENT,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("state", REFUSED)
def test_a_plain_server_refuses(server: str, state: str) -> None:
    """Each refusal of the specification has its reason; a key that is no longer valid gets no update."""
    made = seed(server, "key", state)
    with LicenseClient(server, slug=made["slug"], version="1.0.0", storage=MemoryStorage()) as client:
        with pytest.raises(LicenseRefusedError) as caught:
            client.verify(made["license_key"])
        assert caught.value.reason is REFUSED[state]
        assert (client.check_for_update(made["license_key"]).update is None) is (state != "full")


@pytest.mark.slow
def test_a_plain_server_has_no_file_after_the_end_of_support(server: str) -> None:
    """The license goes on, and nothing is offered."""
    made = seed(server, "key", "support-expired")
    with LicenseClient(server, slug=made["slug"], version="1.0.0", storage=MemoryStorage()) as client:
        assert client.activate(made["license_key"]).product == made["product"]
        check = client.check_for_update()
        assert not check
        assert check.error is None
