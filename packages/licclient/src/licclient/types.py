"""Names for annotations: what clients hand out or call, and nobody creates.

Seats and workers are made by a client; callbacks, `Clock`, `Cancel` and `Storage` say what an app may pass.
"""

from licclient._computers.client import AsyncComputers, Computers
from licclient._computers.protocol import Computer, ComputerList, MovedTo
from licclient._core.clock import Clock
from licclient._core.model import EntitlementValue
from licclient._core.records import Document, Storage
from licclient._core.runners import Deliver
from licclient._offline.client import AsyncLicenseFileInstaller, LicenseFileInstaller
from licclient._seats.client import AsyncSeats, Seats
from licclient._seats.seat import AsyncSeat, OnLost, Seat
from licclient._updates.download import Cancel, Progress
from licclient._uses.client import AsyncUses, Uses
from licclient._worker import AsyncWorker, OnStatus, OnUpdate, Worker

__all__ = [
    "AsyncComputers",
    "AsyncLicenseFileInstaller",
    "AsyncSeat",
    "AsyncSeats",
    "AsyncUses",
    "AsyncWorker",
    "Cancel",
    "Clock",
    "Computer",
    "ComputerList",
    "Computers",
    "Deliver",
    "Document",
    "EntitlementValue",
    "LicenseFileInstaller",
    "MovedTo",
    "OnLost",
    "OnStatus",
    "OnUpdate",
    "Progress",
    "Seat",
    "Seats",
    "Storage",
    "Uses",
    "Worker",
]
