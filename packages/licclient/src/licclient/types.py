"""Names for annotations: what clients hand out or call, and nobody creates.

Seats and workers are made by a client; callbacks, `Clock`, `Cancel` and `Storage` say what an app may pass.
"""

from licclient._core.clock import Clock
from licclient._core.model import EntitlementValue
from licclient._core.records import Document
from licclient._core.runners import Deliver
from licclient._core.storage import Storage
from licclient._seats.seat import AsyncSeat, OnLost, Seat
from licclient._updates.download import Cancel, Progress
from licclient._worker import AsyncWorker, OnStatus, OnUpdate, Worker

__all__ = [
    "AsyncSeat",
    "AsyncWorker",
    "Cancel",
    "Clock",
    "Deliver",
    "Document",
    "EntitlementValue",
    "OnLost",
    "OnStatus",
    "OnUpdate",
    "Progress",
    "Seat",
    "Storage",
    "Worker",
]
