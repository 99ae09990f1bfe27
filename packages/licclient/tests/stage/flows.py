"""A flow of a client, driven by hand."""

from typing import Any

from licclient import License
from licclient import _worker as background
from licclient._verification.flow import verify


def recalled(client: Any, key: str | None) -> License | None:
    """Return what a client's `verify` answers by itself; None when it has to ask the server."""
    flow = verify(client._session, key, force=False)
    try:
        next(flow)
    except StopIteration as done:
        return done.value
    flow.close()
    return None


async def planned(monkeypatch: Any, eventually: Any, times: int) -> None:
    """Wait until a worker has planned so often: it does so three times each time that it looks."""
    done, plan = [], background.plan
    with monkeypatch.context() as patch:
        patch.setattr(background, "plan", lambda *given: done.append(1) or plan(*given))
        await eventually(lambda: len(done) >= times)
