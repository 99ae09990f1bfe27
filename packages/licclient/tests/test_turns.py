"""The wait for one's turn to call is part of the call's time limit."""

from pathlib import Path

import pytest
from filelock import FileLock

from licclient import _steps, _turns
from licclient._transport import Transport
from licclient._turns import LEAST_SECONDS, Turn


@pytest.mark.parametrize(
    ("limit", "waited", "left"),
    [(10, 0, 10), (10, 7, 3), (10, 9, LEAST_SECONDS), (10, 15, LEAST_SECONDS), (1, 0, 1), (1, 5, 1)],
)
def test_what_is_left_for_a_call(monkeypatch, limit, waited, left):
    """The limit without the wait; but two seconds, or all of a shorter limit, so that a call can succeed."""
    times = iter([100.0, 100.0 + waited])
    monkeypatch.setattr(_turns, "monotonic", lambda: next(times))
    assert Turn(None, 15).left(limit) == left


async def test_who_waited_in_vain_calls_briefly(make_client, service, tmp_path, key, monkeypatch):
    """Behind an owner that was stopped in its call, one's own is not given the whole limit again (D-120)."""
    given = []
    plain_send = Transport.send

    def send(transport, call, seconds=None, is_off=None):
        given.append(seconds)
        return plain_send(transport, call, seconds, is_off)

    monkeypatch.setattr(Transport, "send", send)
    monkeypatch.setattr(_steps, "PATIENCE", _steps.timedelta(seconds=-9.7))
    service.grants()
    client = make_client(timeout=10)
    await client.verify(key)
    assert given.pop() > 9
    [lock] = _locks(tmp_path)
    with FileLock(lock, thread_local=False):
        await client.verify(key, recheck=True)
    assert given.pop() <= 9.7


def _locks(folder: Path) -> list[Path]:
    return list((folder / "state").glob("call-*.lock")) or [
        path.with_suffix(".lock") for path in (folder / "state").glob("call-*.state")
    ]
